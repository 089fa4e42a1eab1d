"""The Timeline of one GPU of a run, however the run is spread."""

from __future__ import annotations

from dataclasses import replace

from finefit.errors import NotModelled
from finefit.lab.configured import Configured
from finefit.lab.sharding import trace_sharded
from finefit.lab.tensor_parallel import trace_tensor_parallel
from finefit.lab.trace import trace
from finefit.memory.timeline import Timeline
from finefit.workload.model import Model
from finefit.workload.recipe import Parallel, Recipe


def trace_rank(model: Model, recipe: Recipe, *, arch: str = "sm80", config: Configured | None = None) -> Timeline:
    """One GPU alone, one rank of data-parallel or sharded training, or one tensor-parallel rank.

    Args:
        arch, config: as for ``trace``.

    Raises:
        NotModelled: a recipe or a way of spreading it that cannot be traced.
    """
    parallel = recipe.parallel
    if parallel.tensor == 1:
        how = trace if recipe.sharding.kind == "none" else trace_sharded
        return how(model, recipe, arch=arch, config=config)
    if recipe.sharding.kind != "none" or parallel.gpus != parallel.tensor or parallel.expert > 1:
        raise NotModelled(
            "tensor parallelism together with another way of spreading a run cannot be traced yet",
            fix="trace one of them, on as many GPUs as it needs",
        )
    if parallel.vocabulary:
        raise NotModelled(
            "an embedding and a head that are split over tensor ranks cannot be traced yet",
            fix="trace the plan of transformers, with --tensor-parallel",
        )
    return trace_tensor_parallel(model, replace(recipe, parallel=Parallel()), parallel.tensor, arch=arch, config=config)
