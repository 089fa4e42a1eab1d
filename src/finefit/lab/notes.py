"""Sentences that go with a trace: what it takes for granted, what to check, and whether it was stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from finefit.lab.configured import Configured
from finefit.lab.resharded import KINDS
from finefit.lab.trace import TORCH
from finefit.workload.model import Model
from finefit.workload.recipe import Recipe


def assumptions(model: Model, recipe: Recipe, *, arch: str | None, modelled: bool) -> Iterator[str]:
    """What the trace takes for granted.

    Args:
        arch: whose kernels are taken, where nobody stated a GPU.
        modelled: finefit models the architecture too.
    """
    if arch is not None:
        yield f"no GPU was stated: kernels of {arch}"
    if not modelled:
        yield f"finefit does not model {model.family}: the trace alone says this, and a batch is text alone"
    kind = recipe.sharding.kind
    if kind in KINDS:
        yield f"{kind} is modelled over the trace of one GPU: what it adds is no library code that ran"
    elif kind == "fsdp":
        yield "FSDP2 with a unit a layer, one of the embedding, one of norm and head (accelerate 1.15.0)"
    if recipe.parallel.tensor > 1:
        yield "layers are split by the plan of transformers; what it leaves out is whole on each rank"


def warnings(recipe: Recipe, config: Configured | None, versions: Mapping[str, str]) -> Iterator[str]:
    """Libraries other than those whose defaults the recipe took, another torch, and code that was not run."""
    for name, release in recipe.stack.items():
        if name in versions and versions[name].partition("+")[0] != release:
            yield f"{name} {versions[name]} ran, and the recipe is for {release}"
    if versions["torch"].partition("+")[0] != TORCH:
        yield f"tracing was tested on torch {TORCH}; on {versions['torch']}, which ran, only the self-check was"
    if config is not None and config.own_code and not config.trusted:
        yield "the folder holds code of its own, which was not run: transformers' class of that type was"


def stored(path: Path) -> str:
    """Where ``finefit memory --exact`` finds the trace."""
    return f"stored for finefit memory --exact: {path}"


def not_stored(recipe: Recipe, modelled: bool) -> str | None:
    """Why a trace has no place among those of ``finefit memory --exact``; None: it may have one."""
    if recipe.sharding.kind != "none" or recipe.parallel.gpus > 1:
        return "not stored for finefit memory --exact, which answers for one GPU"
    return None if modelled else "not stored for finefit memory --exact, which knows no such model"


def failed(error: Exception) -> str:
    """A trace that has no compiled form."""
    return f"not stored for finefit memory --exact: {error}"
