"""Names of optimizers in Hugging Face's Trainer, as what they keep on the GPU (transformers trainer_optimizer.py)."""

from __future__ import annotations

from finefit.errors import NotModelled
from finefit.workload.dtypes import DType
from finefit.workload.recipe import Optimizer

# transformers 5.6.0 and 5.24.0 training_args.py OptimizerNames. torch 2.13 optim/adamw.py takes foreach for
# CUDA parameters unless fused is asked for; bitsandbytes steps tensor by tensor without a copy, and its paged
# states lie in managed memory (bitsandbytes optim/optimizer.py get_state_buffer).
_OPTIMIZERS: dict[str, Optimizer] = {
    "adamw_torch": Optimizer("adamw", "foreach"),
    "adamw_torch_fused": Optimizer("adamw", "fused"),
    "adamw_bnb_8bit": Optimizer("adamw_8bit", "loop", DType.UINT8),
    "adamw_8bit": Optimizer("adamw_8bit", "loop", DType.UINT8),
    "paged_adamw_8bit": Optimizer("adamw_8bit", "loop", DType.UINT8, paged=True),
    "paged_adamw_32bit": Optimizer("adamw", "loop", DType.FP32, paged=True),
    "paged_adamw": Optimizer("adamw", "loop", DType.FP32, paged=True),
    "sgd": Optimizer("sgd", "foreach"),
}


def optimizer(name: str, *, where: str) -> Optimizer:
    """What an optimizer's name means.

    Args:
        name: a value of ``optim``; "adamw" is taken for the default, adamw_torch_fused.
        where: the place it was read from.

    Raises:
        NotModelled: any other optimizer.
    """
    found = _OPTIMIZERS.get("adamw_torch_fused" if name == "adamw" else name)
    if found is None:
        raise NotModelled(
            f"the optimizer {name[:60]!r} is not modelled yet", where=where, fix=f"use one of {', '.join(_OPTIMIZERS)}"
        )
    return found
