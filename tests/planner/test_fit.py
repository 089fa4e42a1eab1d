"""The bracket against the usable memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from finefit.catalog.gpus import find_gpu
from finefit.memory.allocator import required
from finefit.memory.context import cublas_workspace
from finefit.memory.estimate import dims_of, measure, timeline
from finefit.planner.answer import Fits
from finefit.planner.fit import fit, judge, margin_of, outside_bytes
from finefit.resolve import resolve_flags
from finefit.workload import Cluster


@given(st.integers(0, 100), st.integers(0, 100), st.integers(0, 100))
def test_verdict_rule(low: int, extra: int, usable: int) -> None:
    """design.md: fits if the upper end fits, does not if the lower end exceeds, tight between."""
    found = judge(low, low + extra, usable)
    assert (found is Fits.YES) == (low + extra <= usable)
    assert (found is Fits.NO) == (low > usable)


def _smollm(seq: int, batch: int = 1) -> tuple:
    resolved = resolve_flags("HuggingFaceTB/SmolLM2-135M", method="full", seq=seq, batch=batch)
    return resolved.model, resolved.recipe


def _card(memory: int) -> Cluster:
    from dataclasses import replace

    return Cluster(replace(find_gpu("RTX 4090").gpu, memory=memory))


def test_the_quick_answer_agrees_with_the_search_for_the_least_capacity() -> None:
    """Just above the searched capacity it is tight, 2 MiB below it is no: one replay instead of a search."""
    model, recipe = _smollm(512)
    events, dims = timeline(model, recipe, workspace=cublas_workspace("Ada")), dims_of(recipe)
    least = required(events, dims) + outside_bytes("Ada", 1)
    peak = measure(model, recipe, arch="Ada")
    assert peak.required == least < peak.device, "the test needs a bracket"
    assert fit(model, recipe, _card(peak.device)).fits is Fits.YES
    assert fit(model, recipe, _card(least)).fits is Fits.TIGHT
    assert fit(model, recipe, _card(least - 2 * 2**20)).fits is Fits.NO


def test_far_too_large_is_said_without_a_replay() -> None:
    model, recipe = _smollm(512)
    found = fit(model, recipe, _card(2**30))
    assert found.fits is Fits.NO and found.high is None and found.reserved is None
    assert found.shown == found.low > 2**30


def test_a_peak_without_a_replay_has_no_bracket() -> None:
    from finefit.memory.estimate import estimate

    with pytest.raises(ValueError, match="bracket"):
        margin_of(estimate(*_smollm(128)), 2**30)
