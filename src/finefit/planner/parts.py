"""What the memory is made of at the fullest point of some phases, not only at the peak of the whole step."""

from __future__ import annotations

from collections.abc import Collection

from finefit.memory.estimate import compiled, dims_of
from finefit.memory.timeline import CATEGORIES
from finefit.workload import Model, Recipe


def parts_at(model: Model, recipe: Recipe, phases: Collection[str]) -> dict[str, int]:
    """Bytes by category where the given phases hold most; cuBLAS workspaces are not among them."""
    form, dims = compiled(model, recipe), dims_of(recipe)
    rows = [index for index, point in enumerate(form.points) if point.phase in phases]
    sizes = form.sizes(dims)
    fullest = max(rows, key=lambda row: float(form.counts[row] @ sizes))
    out = dict.fromkeys(CATEGORIES, 0)
    for (_, category), nbytes in zip(form.columns, form.counts[fullest] * sizes, strict=True):
        out[category] += int(nbytes)
    return out
