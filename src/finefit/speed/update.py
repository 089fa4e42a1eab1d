"""The optimizer's own seconds: what it moves, and what it multiplies."""

from __future__ import annotations

from collections.abc import Iterator

from finefit.speed.constants import gemm_rate
from finefit.speed.work import StepWork
from finefit.workload.cluster import Gpu
from finefit.workload.model import Model
from finefit.workload.on_rank import model_on_rank
from finefit.workload.parameters import layer_kinds, layer_parameters
from finefit.workload.recipe import Recipe

NEWTON_SCHULZ = 5  # iterations of Muon (llamafactory 0.9.5 third_party/muon/muon.py ns_steps)


def update(model: Model, load: StepWork, recipe: Recipe, ranks: int, gpu: Gpu) -> tuple[float, float, float]:
    """Elements the GPU's optimizer updates over its bandwidth, those the CPU's does, and seconds of other work.

    Sharded states divide it among the ranks; on the host nothing does. 8-bit Adam is given AdamW's time: it moves
    less and computes more (torchtune: 5 % slower in all). So are the others that pass once over the elements of their
    states. Where an optimizer makes temporaries of a parameter, each is written and read on top; Muon's and the
    low-rank optimizers' matrix products run at the rate of the model's.
    """
    optimizer, kind = recipe.optimizer, recipe.optimizer.kind
    if recipe.sharding.offload_optimizer or kind.host:
        return 0.0, float(load.trained), 0.0
    shards = ranks if recipe.sharding.divides_states else 1
    elements = load.trained / shards
    if optimizer.name == "sgd":
        # weight and gradient read, weight written; momentum read and written
        moved = (5 if optimizer.momentum else 3) * recipe.weight_dtype.bytes
        return 0.0, 0.0, elements * moved / gpu.bandwidth
    if not is_unmeasured(recipe):
        return elements / gpu.bandwidth, 0.0, 0.0
    made = sum((dtype or recipe.weight_dtype).bytes for dtype in kind.each) + 4 * kind.widened
    products = sum(_flops(m, n, recipe) for m, n in _matrices(model, recipe)) if kind.squares or kind.low_rank else 0.0
    peak = gpu.bf16_flops or gpu.fp16_flops
    multiplied = products / shards / (peak * gemm_rate(gpu)[0].value) if peak else 0.0
    return elements / gpu.bandwidth, 0.0, elements * 2 * made / gpu.bandwidth + multiplied


def is_unmeasured(recipe: Recipe) -> bool:
    """An optimizer that goes through parameters with temporaries of its own, of which no published run is known."""
    kind = recipe.optimizer.kind
    return recipe.optimizer.name != "adamw" and bool(kind.each or kind.widened or kind.host or kind.low_rank)


def _matrices(model: Model, recipe: Recipe) -> Iterator[tuple[int, int]]:
    """Shorter and longer side of each linear module of the layers; of the targets alone under a low-rank optimizer."""
    held = model_on_rank(model, recipe.parallel)
    for first, count in layer_kinds(held):
        for each in layer_parameters(held, first):
            chosen = not recipe.optimizer.kind.low_rank or each.module.endswith(recipe.optimizer.targets)
            if each.kind == "linear" and len(each.shape) == 2 and chosen:
                short, long = sorted(each.shape)
                yield from [(short, long)] * count


def _flops(short: int, long: int, recipe: Recipe) -> float:
    """Of one matrix: three products an iteration of Newton-Schulz; a projection, and GaLore's way back."""
    if recipe.optimizer.kind.squares:
        return NEWTON_SCHULZ * (4.0 * short * short * long + 2.0 * short**3)
    ways = 2 if recipe.optimizer.kind.low_rank == "galore" else 1
    return ways * 2.0 * recipe.optimizer.rank * short * long
