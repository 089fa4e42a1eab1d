"""accelerate's launcher file (accelerate 1.15.0 ``commands/config/config_args.py``, ``utils/dataclasses.py``)."""

from __future__ import annotations

from finefit.errors import InputError
from finefit.formats.said import Said
from finefit.resolve.readings import shared
from finefit.resolve.readings.draft import Draft
from finefit.resolve.readings.reading import Reading
from finefit.resolve.shown import shown

_DEGREES = {
    name: (f"parallelism_config.parallelism_config_{name}_size", f"parallelism_config.{name}_size")
    for name in ("dp_shard", "dp_replicate", "tp", "cp", "sp")
}


def reading(said: Said) -> Reading:
    """How a launcher file spreads a run; it says nothing of the run itself.

    Raises:
        InputError: a value of a wrong kind, or an unknown kind of distribution.
    """
    draft = Draft(said)
    kind = (draft.text("distributed_type") or "NO").upper()
    draft.put("offload", (), "distributed_type")
    if kind in ("NO", "MULTI_GPU"):
        draft.put("strategy", "none", "distributed_type")
    elif kind == "FSDP":
        shared.fsdp(draft, "fsdp_config", 1, "distributed_type")
        _wrapping(draft)
    elif kind == "DEEPSPEED":
        _deepspeed(draft)
    elif kind == "MEGATRON_LM":
        draft.put("strategy", "megatron", "distributed_type")
        draft.refuse("Megatron-LM", "plan the run with DeepSpeed or FSDP", "distributed_type")
    else:
        raise InputError(
            f"{shown(kind)} is no kind of distribution finefit knows",
            where=draft.where("distributed_type"),
            fix="write NO, MULTI_GPU, FSDP or DEEPSPEED",
        )
    if draft.stated("num_processes"):
        draft.put("gpus", draft.integer("num_processes", minimum=1), "num_processes")
    elif kind == "NO":
        draft.derive("gpus", 1, "distributed_type NO runs on one GPU", "distributed_type")
    draft.put("nodes", draft.integer("num_machines", minimum=1), "num_machines")
    shared.parallel(draft, _DEGREES)
    if str(draft.raw("mixed_precision")).lower() == "fp8" or draft.stated("fp8_config"):
        shared.low_products(draft, "fp8", "mixed_precision")
    return draft.reading("launcher")


def _wrapping(draft: Draft) -> None:
    policy = ("fsdp_config.fsdp_auto_wrap_policy", "fsdp_config.auto_wrap_policy")
    if not draft.stated(*policy) or str(draft.raw(*policy)).upper() == "NO_WRAP":
        draft.refuse(
            "FSDP without fsdp_auto_wrap_policy, which gathers the whole model at once,",
            "add fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP",
            "fsdp_config",
        )


def _deepspeed(draft: Draft) -> None:
    if shared.deepspeed(draft, "deepspeed_config.deepspeed_config_file"):
        return
    stage = "deepspeed_config.zero_stage"
    size = draft.integer(stage, minimum=0)
    draft.put("strategy", f"zero{size}", stage)
    offload = []
    for word, key in (("optimizer", "offload_optimizer_device"), ("params", "offload_param_device")):
        if draft.text(f"deepspeed_config.{key}") in ("cpu", "nvme"):
            offload.append(word)
    draft.put("offload", tuple(offload), "deepspeed_config.offload_optimizer_device", stage)
    key = "deepspeed_config.gradient_accumulation_steps"
    if draft.stated(key):
        value = draft.raw(key)
        draft.put("grad_accum", value if value == "auto" else draft.integer(key, minimum=1), key)
