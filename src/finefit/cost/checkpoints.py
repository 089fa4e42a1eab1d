"""Bytes a run writes: a checkpoint that can be resumed, and the result that is kept."""

from __future__ import annotations

from finefit.errors import NotModelled
from finefit.workload.dtypes import DType
from finefit.workload.recipe import Recipe

_STATES = {"adamw": 2, "adamw_8bit": 2, "sgd": 0}  # tensors of the parameter's shape an optimizer keeps


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
    keeps both states in one byte each). Gradients are not saved.

    Raises:
        NotModelled: an optimizer whose states are not known.
    """
    if recipe.optimizer.name not in _STATES:
        raise NotModelled(f"states of the optimizer {recipe.optimizer.name!r} are not known", where="optimizer")
    dtype = recipe.lora.dtype if recipe.lora else recipe.weight_dtype
    states = _STATES[recipe.optimizer.name] + (1 if recipe.optimizer.momentum else 0)
    if recipe.optimizer.name == "adamw_8bit":
        width = 1
    else:
        width = (recipe.optimizer.state_dtype or (DType.FP32 if recipe.master_weights else dtype)).bytes
    master = DType.FP32.bytes if recipe.master_weights else 0
    return result_bytes(parameters, trained, recipe) + trained * (states * width + master)
