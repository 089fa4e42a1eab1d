"""A recipe on a number of GPUs."""

from __future__ import annotations

from dataclasses import replace

from finefit.errors import InputError
from finefit.workload.recipe import Recipe


def on_gpus(recipe: Recipe, count: int) -> Recipe:
    """The recipe on ``count`` GPUs: plain runs become data parallel, shards are spread over all of them.

    Raises:
        InputError: count below 1.
    """
    if count < 1:
        raise InputError(f"{count} GPUs cannot train a model", where="--gpu", fix="state 1 or more")
    kind = recipe.sharding.kind
    if kind in ("none", "ddp"):
        kind = "ddp" if count > 1 else "none"
    return replace(recipe, sharding=replace(recipe.sharding, kind=kind, ranks=count))
