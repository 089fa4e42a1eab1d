"""From a model and a recipe to memory: the compiled answer, the Timeline, and the four numbers."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from finefit.memory.compiled import Compiled, compile_timeline
from finefit.memory.model import play
from finefit.memory.peak import Peak
from finefit.memory.timeline import Timeline
from finefit.step.build import build_step
from finefit.step.size import Dims
from finefit.workload.model import Model
from finefit.workload.recipe import Recipe


def dims_of(recipe: Recipe) -> Dims:
    """The free dimensions of a recipe."""
    rank = recipe.lora.rank if recipe.lora else 0
    return Dims(recipe.micro_batch, recipe.seq_len, rank, recipe.sharding.ranks)


def structure(recipe: Recipe) -> Recipe:
    """The recipe without its free dimensions and without what memory does not depend on."""
    lora = replace(recipe.lora, rank=0, alpha=0) if recipe.lora else None
    return replace(
        recipe,
        micro_batch=0,
        seq_len=0,
        lora=lora,
        grad_accum=min(recipe.grad_accum, 2),
        sharding=replace(recipe.sharding, ranks=min(recipe.sharding.ranks, 2)),
        epochs=None,
        max_steps=None,
        max_samples=None,
        eval_batch=None,
        sources={},
    )


@lru_cache(maxsize=256)
def _compiled(model: Model, structural: Recipe) -> Compiled:
    return compile_timeline(play(build_step(model, structural, folded=True), structural))


def compiled(model: Model, recipe: Recipe) -> Compiled:
    """The compiled form of this structure, cached in the process."""
    return _compiled(model, structure(recipe))


def timeline(model: Model, recipe: Recipe) -> Timeline:
    """Every event of load, first step and one steady step, for the allocator replay and the plots."""
    return play(build_step(model, recipe), recipe, first_step=True)


def estimate(model: Model, recipe: Recipe) -> Peak:
    """Allocated bytes on one GPU: the peak of a steady step, its parts and its phases."""
    out = compiled(model, recipe).evaluate(dims_of(recipe))
    point = out.point
    return Peak(out.allocated, point.phase, point.op, point.module, out.parts, out.phases)
