"""Names of optimizers in Hugging Face's Trainer and in other tools, as what they keep (workload.optimizers)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from finefit.errors import InputError, NotModelled
from finefit.resolve.shown import shown
from finefit.workload.dtypes import DType
from finefit.workload.lora import linear_modules
from finefit.workload.model import Model
from finefit.workload.recipe import Optimizer

_RANK = 128  # of galore and apollo, transformers 5.24.0 trainer_optimizer.py


def _loop(name: str, *, paged: bool = False, rank: int = 0, in_backward: bool = False) -> Optimizer:
    return Optimizer(name, "loop", paged=paged, rank=rank, in_backward=in_backward)


def _eight(name: str, *, paged: bool = False, rank: int = 0, in_backward: bool = False) -> Optimizer:
    return Optimizer(name, "loop", DType.UINT8, paged=paged, rank=rank, in_backward=in_backward)


# transformers 5.24.0 training_args.py OptimizerNames and trainer_optimizer.py. torch 2.13 takes foreach for CUDA
# parameters unless fused is asked for; bitsandbytes steps tensor by tensor without a copy, and its paged states lie
# in managed memory (bitsandbytes optim/optimizer.py get_state_buffer).
_TRAINER: dict[str, Optimizer] = {
    "adamw_torch": Optimizer("adamw", "foreach"),
    "adamw_torch_fused": Optimizer("adamw", "fused"),
    "adamw_anyprecision": _loop("adamw_anyprecision"),
    "adamw_torch_4bit": Optimizer("adamw_torchao_4bit", "fused", DType.UINT8),
    "adamw_torch_8bit": Optimizer("adamw_torchao_8bit", "fused", DType.UINT8),
    "adafactor": _loop("adafactor"),
    "sgd": Optimizer("sgd", "foreach"),
    "adagrad": Optimizer("adagrad", "foreach"),
    "rmsprop": Optimizer("rmsprop", "foreach"),
    "adamw_bnb_8bit": _eight("adamw_8bit"),
    "adamw_8bit": _eight("adamw_8bit"),
    "paged_adamw": _loop("adamw_32bit", paged=True),
    "paged_adamw_32bit": _loop("adamw_32bit", paged=True),
    "paged_adamw_8bit": _eight("adamw_8bit", paged=True),
    "lion_32bit": _loop("lion_32bit"),
    "lion_8bit": _eight("lion_8bit"),
    "paged_lion_32bit": _loop("lion_32bit", paged=True),
    "paged_lion_8bit": _eight("lion_8bit", paged=True),
    "ademamix": _loop("ademamix_32bit"),
    "ademamix_8bit": _eight("ademamix_8bit"),
    "paged_ademamix_32bit": _loop("ademamix_32bit", paged=True),
    "paged_ademamix_8bit": _eight("ademamix_8bit", paged=True),
    "rmsprop_bnb": _loop("rmsprop_32bit"),
    "rmsprop_bnb_32bit": _loop("rmsprop_32bit"),
    "rmsprop_bnb_8bit": _eight("rmsprop_8bit"),
    "galore_adamw": _loop("galore_adamw", rank=_RANK),
    "galore_adamw_8bit": _eight("galore_adamw_8bit", rank=_RANK),
    "galore_adafactor": _loop("galore_adafactor", rank=_RANK),
    "galore_adamw_layerwise": _loop("galore_adamw", rank=_RANK, in_backward=True),
    "galore_adamw_8bit_layerwise": _eight("galore_adamw_8bit", rank=_RANK, in_backward=True),
    "galore_adafactor_layerwise": _loop("galore_adafactor", rank=_RANK, in_backward=True),
    "apollo_adamw": _loop("apollo_adamw", rank=_RANK),
    "apollo_adamw_layerwise": _loop("apollo_adamw", rank=_RANK, in_backward=True),
    "lomo": _loop("lomo", in_backward=True),
    "adalomo": _loop("adalomo", in_backward=True),
    "grokadamw": _loop("grokadamw"),
    "schedule_free_adamw": Optimizer("schedule_free_adamw", "foreach"),
    "schedule_free_radam": Optimizer("schedule_free_radam", "foreach"),
    "schedule_free_sgd": Optimizer("schedule_free_sgd", "foreach"),
    "stable_adamw": Optimizer("stable_adamw_kahan", "fused"),
}
# Words of the other tools: axolotl 0.19.0 utils/schemas/enums.py CustomSupportedOptimizers, LLaMA-Factory's
# use_muon and use_adam_mini, ms-swift's --optimizer
_OTHERS: dict[str, Optimizer] = {
    "muon": _loop("muon"),
    "came_pytorch": _loop("came"),
    "came": _loop("came"),
    "adam_mini": _loop("adam_mini"),
    "ao_adamw_4bit": _TRAINER["adamw_torch_4bit"],
    "ao_adamw_8bit": _TRAINER["adamw_torch_8bit"],
    "optimi_adamw": Optimizer("stable_adamw_kahan", "fused"),
}
_ELSEWHERE = {
    "adamw_torch_xla": "runs on TPUs",
    "adamw_torch_npu_fused": "runs on Ascend NPUs",
}
OPTIMIZER_FIELDS = ("name", "impl", "paged", "momentum", "state_dtype", "in_backward", "rank", "targets")
NAMES = tuple(_TRAINER)
LOW_RANK = ("galore", "apollo")  # how the names of those begin that project gradients


def optimizer(name: str, *, where: str) -> Optimizer:
    """What an optimizer's name means; one that projects gradients still lacks its targets (``low_rank``).

    Args:
        name: a value of ``optim``; "adamw" is taken for the default, adamw_torch_fused.
        where: the place it was read from.

    Raises:
        InputError: an optimizer of other hardware.
        NotModelled: any other optimizer.
    """
    if name in _ELSEWHERE:
        raise InputError(f"{name} {_ELSEWHERE[name]}, not on GPUs", where=where, fix="use adamw_torch_fused")
    found = _TRAINER.get("adamw_torch_fused" if name == "adamw" else name) or _OTHERS.get(name)
    if found is None:
        raise NotModelled(
            f"the optimizer {shown(name)} is not modelled yet", where=where, fix=f"use one of {', '.join(NAMES)}"
        )
    return found


def low_rank(found: Optimizer, model: Model, rank: int | None, targets: Sequence[str], *, where: str) -> Optimizer:
    """GaLore or APOLLO with its rank and the linear modules whose gradients it projects.

    Args:
        rank: None for the library's; targets: parts of module names, () for every linear module of the layers.

    Raises:
        InputError: no linear module has one of these names.
    """
    linear = linear_modules(model)
    chosen = tuple(name for name in linear if any(target in name for target in targets)) if targets else linear
    if not chosen:
        raise InputError(
            f"no linear module of {model.name} is called {', '.join(targets)}",
            where=where,
            fix=f"its linear modules are {', '.join(linear)}",
        )
    return replace(found, rank=rank or found.rank, targets=chosen)


def check(found: Optimizer, *, full: bool, sharding: str, accum: int, where: str) -> None:
    """What an optimizer's own code, or the Trainer for it, does not do.

    Args:
        full: whether whole matrices are trained; accum: micro-batches a step.

    Raises:
        InputError: the tools refuse the combination.
        NotModelled: they do not, and it is not modelled.
    """
    kind = found.kind
    if kind.low_rank and not full:
        raise InputError(
            "GaLore and APOLLO project the gradients of whole matrices, and adapters have none",
            where=where,
            fix="train in full, or take another optimizer",
        )
    if sharding not in ("none", "ddp") and (kind.low_rank or kind.host or kind.lags or found.name in ("muon", "came")):
        raise NotModelled(
            f"{found.name} on sharded parameters is not modelled yet", where=where, fix="plan it without sharding"
        )
    if found.in_backward and not kind.lags and accum > 1:
        raise InputError(
            "an optimizer that steps during backward cannot accumulate gradients",
            where=where,
            fix="set gradient accumulation to 1",
        )
