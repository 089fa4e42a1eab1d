"""The compiled form's two ways to evaluate agree, and its parts add up."""

from __future__ import annotations

import pytest

from finefit.memory.estimate import compiled, dims_of
from finefit.resolve import resolve_flags

METHODS = ("full", "lora", "qlora")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("batch", "seq"), [(1, 1), (2, 513), (7, 2048)])
def test_matrix_and_changes_give_the_same_bytes(method: str, batch: int, seq: int) -> None:
    resolved = resolve_flags("EleutherAI/pythia-70m", method=method, batch=batch, seq=seq, accum=2)
    assert resolved.recipe is not None
    form, dims = compiled(resolved.model, resolved.recipe), dims_of(resolved.recipe)
    totals = form.counts @ form.sizes(dims)
    found = form.evaluate(dims)
    assert found.allocated == int(totals.max()) == sum(found.parts.values())
    for phase, nbytes in found.phases.items():
        rows = [row for row, point in enumerate(form.points) if point.phase == phase]
        assert nbytes == int(totals[rows].max()) == sum(form.parts_in({phase}, dims).values())
