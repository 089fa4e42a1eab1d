"""A recipe on a number of GPUs."""

from __future__ import annotations

from dataclasses import replace

from finefit.errors import InputError
from finefit.workload.cluster import Gpu
from finefit.workload.dtypes import DType
from finefit.workload.recipe import Parallel, Recipe

_BEFORE_AMPERE = ("volta", "turing")  # NVIDIA architectures without bf16 units
_NOT_CUDA = ("cdna", "davinci", "gaudi", "xe", "musa", "m3", "m4")  # AMD, Huawei, Intel, Moore Threads, Apple


def on_gpus(recipe: Recipe, count: int) -> Recipe:
    """The recipe on ``count`` GPUs: plain runs become data parallel, shards are spread over all of them.

    Tensor and pipeline ranks hold other parts of the model, so they share no shards; context ranks do. Where a copy
    of the model is cut over more GPUs than there are, it is not cut.

    Raises:
        InputError: count below 1.
    """
    if count < 1:
        raise InputError(f"{count} GPUs cannot train a model", where="--gpu", fix="state 1 or more")
    kind = recipe.sharding.kind
    parallel = recipe.parallel if count % recipe.parallel.gpus == 0 else Parallel()
    ranks = max(1, count // (parallel.tensor * parallel.pipeline * parallel.replicas))
    if kind in ("none", "ddp"):
        kind = "ddp" if ranks > 1 else "none"
    return replace(recipe, parallel=parallel, sharding=replace(recipe.sharding, kind=kind, ranks=ranks))


def doubts(recipe: Recipe, gpu: Gpu) -> tuple[str, ...]:
    """What a run on this GPU does not take from the answer: kernels that the card lacks, code that is not CUDA's."""
    found = []
    arch = gpu.arch.lower()
    if arch.startswith(_NOT_CUDA):
        found.append(
            f"{gpu.name} runs no CUDA: the operations, the allocator and the memory outside PyTorch are planned as on "
            "an NVIDIA card, so the figures are rough"
        )
    if arch in _BEFORE_AMPERE:
        if DType.BF16 in (recipe.autocast, recipe.weight_dtype):
            found.append(f"{gpu.name} has no bf16 units: bf16 is refused or emulated slowly; train in fp16")
        if recipe.attention == "flash2":
            found.append(f"FlashAttention-2 does not run on {gpu.name}, which is older than Ampere; take sdpa")
    return tuple(found)
