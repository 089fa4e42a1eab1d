"""NVIDIA's YAML: NeMo Automodel (36044ad), NeMo RL (7ea279a) and Megatron-Bridge overrides (0.3.1)."""

from __future__ import annotations

import re

from finefit.formats.said import Said
from finefit.resolve.companions import find
from finefit.resolve.readings import shared
from finefit.resolve.readings.draft import Draft
from finefit.resolve.readings.reading import FLAGS, Reading

_TASKS = ("grpo", "dpo", "sft", "rm", "distillation")
_SIZES = {
    "tp": "tensor_model_parallel_size",
    "pp": "pipeline_model_parallel_size",
    "cp": "context_parallel_size",
    "ep": "expert_model_parallel_size",
}


def automodel(said: Said) -> Reading:
    """A NeMo Automodel recipe in canonical terms.

    Raises:
        InputError: a value of a wrong kind, at its line.
    """
    draft = Draft(said)
    draft.put("model", draft.text("model.pretrained_model_name_or_path"), "model.pretrained_model_name_or_path")
    draft.derive("task", "sft", "a recipe for next-token prediction on a data set", "recipe")
    lora = draft.stated("peft")
    draft.put("method", "lora" if lora else "full", "peft")
    if lora:
        draft.put("rank", draft.integer("peft.dim", minimum=1), "peft.dim")
    draft.put(
        "micro_batch", draft.integer("step_scheduler.local_batch_size", minimum=1), "step_scheduler.local_batch_size"
    )
    draft.put(
        "global_batch", draft.integer("step_scheduler.global_batch_size", minimum=1), "step_scheduler.global_batch_size"
    )
    size = draft.integer("packed_sequence.packed_sequence_size", minimum=0)
    draft.put("packing", "yes" if size else "no", "packed_sequence.packed_sequence_size")
    if size:
        draft.put("seq_len", size, "packed_sequence.packed_sequence_size")
    draft.put("optimizer", (draft.text("optimizer._target_") or "").rpartition(".")[2] or None, "optimizer._target_")
    key = "distributed.activation_checkpointing"
    draft.put("checkpointing", "full" if draft.flag(key) else "none", key)
    strategy = draft.text("distributed.strategy") or "fsdp2"
    draft.put("strategy", strategy.lower(), "distributed.strategy")
    draft.put("offload", (), "distributed.strategy")
    shared.parallel(draft, {name: (f"distributed.{name}_size",) for name in ("tp", "cp", "pp", "ep")})
    _automodel_gpus(draft)
    draft.refuse("NeMo Automodel's training loop", FLAGS)
    return draft.reading()


def _automodel_gpus(draft: Draft) -> None:
    """The launch line in the header says GPUs a node; ``ci.nodes`` how many nodes it was tested on."""
    nodes = draft.integer("ci.nodes", minimum=1)
    if nodes is None:
        return
    for line, row in draft.said.comments:
        if match := re.search(r"--nproc[-_]per[-_]node[ =](\d{1,4})\b", row):
            why = f"{nodes} nodes of {match[1]} GPUs, from ci.nodes and the command in the comment on line {line}"
            draft.assume("gpus", nodes * int(match[1]), why, f"{draft.said.path}:{line}")
            return


def rl(said: Said) -> Reading:
    """A NeMo RL configuration in canonical terms; what its parent says is unknown where the parent is not here.

    Raises:
        InputError: a value of a wrong kind, at its line.
    """
    draft = Draft(said)
    parent = draft.raw("defaults")
    if isinstance(parent, str) and find(said, parent) is None:
        draft.warn(f"{parent} is not here, so what this file inherits from it is unknown", "defaults")
    draft.put("model", draft.text("policy.model_name"), "policy.model_name")
    words = [*said.entries, *(str(parent).split("/")[-1].split("_") if parent else ()), said.path.stem]
    task = next((task for task in _TASKS if task in said.entries), None)
    task = task or next((task for task in _TASKS if any(word.startswith(task) for word in words)), None)
    draft.derive("task", {"distillation": "kd"}.get(task or "", task), "sections and the parent's name", "defaults")
    lora = draft.flag("policy.dtensor_cfg.lora_cfg.enabled")
    draft.put("method", "lora" if lora else "full", "policy.dtensor_cfg.lora_cfg.enabled")
    if lora:
        draft.put(
            "rank", draft.integer("policy.dtensor_cfg.lora_cfg.dim", minimum=1), "policy.dtensor_cfg.lora_cfg.dim"
        )
    draft.put("micro_batch", draft.integer("policy.train_micro_batch_size", minimum=1), "policy.train_micro_batch_size")
    draft.put(
        "global_batch", draft.integer("policy.train_global_batch_size", minimum=1), "policy.train_global_batch_size"
    )
    draft.put(
        "seq_len", draft.integer("policy.max_total_sequence_length", minimum=1), "policy.max_total_sequence_length"
    )
    packed = draft.flag("policy.sequence_packing.enabled")
    draft.put("packing", "yes" if packed else "no", "policy.sequence_packing.enabled")
    megatron = draft.flag("policy.megatron_cfg.enabled")
    draft.put("strategy", "megatron" if megatron else "fsdp2", "policy.megatron_cfg.enabled", "policy.dtensor_cfg")
    key = "policy.dtensor_cfg.activation_checkpointing"
    draft.put("checkpointing", "full" if draft.flag(key) else "none", key)
    offload = draft.flag("policy.dtensor_cfg.cpu_offload")
    draft.put("offload", shared.FSDP_OFFLOAD if offload else (), "policy.dtensor_cfg.cpu_offload")
    shared.parallel(
        draft, {"tp": ("policy.dtensor_cfg.tensor_parallel_size",), "cp": ("policy.dtensor_cfg.context_parallel_size",)}
    )
    nodes, per_node = (draft.integer(f"cluster.{key}", minimum=1) for key in ("num_nodes", "gpus_per_node"))
    if nodes and per_node:
        draft.put("gpus", nodes * per_node, "cluster.gpus_per_node")
    draft.refuse("NeMo RL's training loop", FLAGS)
    return draft.reading()


def bridge(said: Said) -> Reading:
    """A Megatron-Bridge override in canonical terms; the model is chosen in the Python recipe it is merged over.

    Raises:
        InputError: a value of a wrong kind, at its line.
    """
    draft = Draft(said)
    draft.derive("task", "sft", "an override of a fine-tuning recipe")
    lora = draft.stated("peft")
    draft.put("method", "lora" if lora else "full", "peft")
    if lora:
        draft.put("rank", draft.integer("peft.dim", minimum=1), "peft.dim")
    draft.put("micro_batch", draft.integer("train.micro_batch_size", minimum=1), "train.micro_batch_size")
    draft.put("global_batch", draft.integer("train.global_batch_size", minimum=1), "train.global_batch_size")
    length = ("dataset.seq_length", "model.seq_length")
    draft.put("seq_len", draft.integer(*length, minimum=1), *length)
    draft.derive("optimizer", "adam", "Megatron-Core's distributed Adam (megatron-bridge@0.3.1)")
    granularity = draft.text("model.recompute_granularity")
    draft.put("checkpointing", granularity or "none", "model.recompute_granularity")
    draft.derive("strategy", "megatron", "Megatron-Core with its distributed optimizer")
    draft.put("offload", (), "optimizer")
    shared.parallel(draft, {name: (f"model.{key}",) for name, key in _SIZES.items()})
    draft.refuse("training through Megatron-Bridge", FLAGS)
    return draft.reading()
