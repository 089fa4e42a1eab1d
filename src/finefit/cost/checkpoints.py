"""Bytes a run writes: a checkpoint that can be resumed, and the result that is kept."""

from __future__ import annotations

from math import ceil

from finefit.errors import NotModelled
from finefit.workload.dtypes import DType
from finefit.workload.optimizers import OPTIMIZERS
from finefit.workload.recipe import Recipe


def result_bytes(parameters: int, trained: int, recipe: Recipe) -> int:
    """Bytes of the final weights: the whole model in the dtype it was trained in, or the adapters alone.

    Args:
        parameters: all parameters; trained: those the optimizer updates.
    """
    if recipe.lora:
        return trained * recipe.lora.dtype.bytes
    return parameters * recipe.weight_dtype.bytes


def checkpoint_bytes(parameters: int, trained: int, recipe: Recipe) -> int:
    """Bytes of one resumable checkpoint: weights, optimizer states, the fp32 copy where one is kept.

    A parameter trained in full costs 6 bytes in pure bf16 (states follow the parameter), 10 with fp32
    states, 12 in fp32, 14 with a master copy (DeepSpeed, Megatron); 4 with 8-bit Adam (bitsandbytes
    keeps both states in one byte each). Factored states are nothing beside these; projected ones (GaLore,
    APOLLO) are counted whole, which is more. Gradients are not saved.

    Raises:
        NotModelled: an optimizer whose states are not known.
    """
    if recipe.optimizer.name not in OPTIMIZERS:
        raise NotModelled(f"states of the optimizer {recipe.optimizer.name!r} are not known", where="optimizer")
    dtype = recipe.lora.dtype if recipe.lora else recipe.weight_dtype
    usual = recipe.optimizer.state_dtype or (DType.FP32 if recipe.master_weights else dtype)
    full = [state for state in recipe.optimizer.kind.states if state.extent == "full" and state.of in ("any", "hidden")]
    states = sum((state.dtype or usual).bytes / state.packed for state in full)
    master = DType.FP32.bytes if recipe.master_weights else 0
    return result_bytes(parameters, trained, recipe) + ceil(trained * (states + master))
