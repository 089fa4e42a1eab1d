"""What the memory is made of at the fullest point of some phases, not only at the peak of the whole step."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from finefit.memory.estimate import compiled, dims_of
from finefit.workload import Model, Recipe


def parts_at(model: Model, recipe: Recipe, phases: Collection[str]) -> Mapping[str, int]:
    """Bytes by category where the given phases hold most; cuBLAS workspaces are not among them."""
    return compiled(model, recipe).parts_in(phases, dims_of(recipe))
