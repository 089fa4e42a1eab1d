"""Sharding laid over a trace: sizes that follow from the scheme, and the modelled Timeline beside them."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import pytest

from finefit.memory.estimate import timeline as modelled
from finefit.memory.timeline import Timeline
from finefit.workload import DType, Lora, Model, Optimizer, Recipe, Sharding

pytest.importorskip("torch", reason="needs the trace extra: pip install 'finefit[trace]'")
pytest.importorskip("transformers", reason="needs the trace extra")

from finefit.lab import sharding
from finefit.lab.diff import phase_peaks

RANKS, BUCKET = 4, 10_000_000
TINY = Model("tiny", "llama", 1024, 3, 16, 4, 64, 2816, 8192, tied=False)
UNIT = 1024 * (1024 + 256 + 256 + 1024) + 3 * 1024 * 2816 + 2 * 1024
PARAMETERS = 2 * 8192 * 1024 + 3 * UNIT + 1024
DDP = Recipe("full", DType.BF16, Optimizer("adamw", "fused"), 256, 2, sharding=Sharding("ddp", RANKS))
ZERO = replace(
    DDP,
    master_weights=True,
    optimizer=Optimizer("adamw", "fused", state_dtype=DType.FP32),
    sharding=Sharding("zero1", RANKS, reduce_bucket=BUCKET),
)
ZERO2 = replace(ZERO, sharding=replace(ZERO.sharding, kind="zero2"))
LORA = replace(ZERO2, method="lora", lora=Lora(8, 16, targets=("q_proj",), dtype=DType.BF16), checkpointing="full")

trace_sharded = lru_cache(maxsize=None)(sharding.trace_sharded)  # tests share traces


def resident(timeline: Timeline, op: str) -> int:
    """Bytes made by an operation that are never freed."""
    assert timeline.dims is not None
    freed = {~event for event in timeline.events if event < 0}
    return sum(t.size.raw(timeline.dims) for i, t in enumerate(timeline.tensors) if i not in freed and t.op == op)


def held_at(timeline: Timeline, phase: str, category: str) -> int:
    """Bytes of a category when a phase of the second step begins."""
    assert timeline.dims is not None
    start = next(m.start for m in timeline.marks if m.phase == phase and m.step == 2)
    alive: set[int] = set()
    for event in timeline.events[:start]:
        alive.symmetric_difference_update((event if event >= 0 else ~event,))
    chosen = (timeline.tensors[i] for i in alive)
    return sum(t.size.raw(timeline.dims) for t in chosen if t.category == category)


def test_ddp_keeps_a_bucket_the_size_of_the_gradients() -> None:
    assert resident(trace_sharded(TINY, DDP), "ddp_bucket") == 2 * PARAMETERS


@pytest.mark.parametrize("recipe", [ZERO, ZERO2])
def test_zero_keeps_fp32_states_of_its_part(recipe: Recipe) -> None:
    timeline = trace_sharded(TINY, recipe)
    assert resident(timeline, "fp32_master") == 4 * PARAMETERS / RANKS
    states = sum(resident(timeline, op) for op in ("zeros_like", "empty_like"))
    assert states == 2 * 4 * PARAMETERS / RANKS
    assert {t.size.numel for t in timeline.tensors if t.op == "reduce_bucket"} == {BUCKET}


def test_gradients_are_whole_in_stage_1_and_parts_in_stage_2() -> None:
    assert held_at(trace_sharded(TINY, ZERO), "optimizer", "gradients") == 2 * PARAMETERS
    assert held_at(trace_sharded(TINY, ZERO2), "optimizer", "gradients") == 2 * PARAMETERS / RANKS


@pytest.mark.parametrize("recipe", [DDP, ZERO, ZERO2, LORA, replace(ZERO2, grad_accum=2)])
def test_peaks_are_those_of_the_model(recipe: Recipe) -> None:
    traced = trace_sharded(TINY, recipe)
    assert traced.dims is not None and traced.dims.n == RANKS
    ours = phase_peaks(modelled(TINY, recipe), traced.dims)
    for phase, peak in phase_peaks(traced, traced.dims).items():
        if phase in ours:
            assert ours[phase].bytes == pytest.approx(peak.bytes, rel=0.02), phase


def test_what_is_laid_over_is_marked() -> None:
    timeline = trace_sharded(TINY, ZERO2)
    added = [t for t in timeline.tensors if t.op in ("fp32_master", "reduce_bucket", "reduce_scatter")]
    assert added and all(t.assumed for t in added)


@pytest.mark.parametrize("recipe", [DDP, ZERO, ZERO2, LORA])
def test_every_free_follows_its_allocation(recipe: Recipe) -> None:
    alive: set[int] = set()
    for event in trace_sharded(TINY, recipe).events:
        if event >= 0:
            assert event not in alive
            alive.add(event)
        else:
            alive.remove(~event)
