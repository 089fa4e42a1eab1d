"""NVIDIA's YAML: NeMo Automodel (36044ad), NeMo RL (7ea279a) and Megatron-Bridge overrides (0.3.1)."""

from __future__ import annotations

import re

from finefit.formats.said import Said
from finefit.resolve.companions import find
from finefit.resolve.readings import shared
from finefit.resolve.readings.draft import Draft
from finefit.resolve.readings.reading import Reading

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
    _automodel_loop(draft, lora)
    return draft.reading()


# nemo_automodel 36044ad components/loss: which of them make all logits in fp32, none, or gradients over them
_LOSSES = {
    "MaskedCrossEntropy": "full",
    "ChunkedCrossEntropy": "full",
    "FusedLinearCrossEntropy": "fused_linear",
    "TEParallelCrossEntropy": "inplace",
}


def _automodel_loop(draft: Draft, lora: bool) -> None:
    dtype = (draft.text("model.torch_dtype") or "auto").lower().removeprefix("torch.")
    load = {"bfloat16": "bf16", "bf16": "bf16", "float32": "fp32", "fp32": "fp32", "auto": "checkpoint"}.get(dtype)
    draft.put("load_dtype", load or "checkpoint", "model.torch_dtype")
    draft.derive("amp", "none" if load != "fp32" else "bf16", "FSDP 2 computes in bf16 (nemo-automodel 36044ad)")
    name = (draft.text("loss_fn._target_") or "MaskedCrossEntropy").rpartition(".")[2]
    loss = _LOSSES.get(name)
    if loss is None:
        draft.refuse(f"the loss {name[:40]!r}", "use MaskedCrossEntropy", "loss_fn._target_")
    draft.put("loss", loss, "loss_fn._target_")
    draft.derive("reentrant", False, "checkpoint_wrapper is not reentrant (nemo-automodel 36044ad)")
    draft.put("epochs", draft.number("step_scheduler.num_epochs"), "step_scheduler.num_epochs")
    draft.put("max_steps", draft.integer("step_scheduler.max_steps", minimum=1), "step_scheduler.max_steps")
    draft.put("compiled", draft.flag("compile.enabled"), "compile.enabled")
    if not lora:
        return
    draft.put("lora_alpha", draft.integer("peft.alpha", minimum=1), "peft.alpha")
    draft.put("lora_dropout", draft.number("peft.dropout"), "peft.dropout")
    draft.derive("adapter_dtype", "bf16", "adapters have the dtype of the model (nemo-automodel 36044ad)")
    _targets(draft)
    draft.put("modules_to_save", (), "peft")


def _targets(draft: Draft) -> None:
    """``match_all_linear`` adapts every linear module but those that ``exclude_modules`` names."""
    named = draft.names("peft.target_modules")
    wild = [name for name in named if set(name) & set("*")]
    if draft.flag("peft.match_all_linear") or "*_proj" in wild or "*proj" in wild or not named:
        draft.put("lora_targets", "all-linear", "peft.match_all_linear", "peft.target_modules")
    elif wild:
        draft.refuse("LoRA targets by a pattern", "list the modules by name", "peft.target_modules")
    else:
        draft.put("lora_targets", ",".join(named), "peft.target_modules")


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
    # DTensorPolicyWorker loads fp32 and lets FSDP 2 compute in policy.precision (nemo_rl 7ea279a)
    precision = (draft.text("policy.precision") or "bfloat16").lower()
    draft.put("load_dtype", "bf16" if megatron else "fp32", "policy.precision")
    draft.put("amp", {"bfloat16": "bf16", "float16": "fp16"}.get(precision, "none"), "policy.precision")
    draft.derive("loss", "full", "log-probabilities of fp32 logits (nemo_rl 7ea279a)")
    draft.derive("reentrant", False, "checkpoint_wrapper is not reentrant (nemo_rl 7ea279a)")
    draft.put("epochs", draft.number("sft.max_num_epochs"), "sft.max_num_epochs")
    draft.put("max_steps", draft.integer("sft.max_num_steps", minimum=1), "sft.max_num_steps")
    share = "policy.generation.vllm_cfg.gpu_memory_utilization"
    if draft.stated(share):
        draft.put("engine_share", draft.number(share), share)
        draft.derive("engine_sleeps", True, "vLLM sleeps while the policy trains (nemo_rl 7ea279a)")
    if draft.stated("policy.optimizer.name"):
        name = draft.text("policy.optimizer.name") or ""
        draft.put("optimizer", name.rpartition(".")[2], "policy.optimizer.name")
    if lora:
        draft.put("lora_alpha", draft.integer("policy.dtensor_cfg.lora_cfg.alpha", minimum=1), "policy.dtensor_cfg")
        draft.derive("lora_targets", "all-linear", "match_all_linear (nemo_rl 7ea279a)")
        draft.put("modules_to_save", (), "policy.dtensor_cfg.lora_cfg.enabled")
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
    draft.derive("load_dtype", "bf16", "bf16_mixed (megatron-bridge@0.3.1)")
    draft.derive("amp", "none", "Megatron-Core computes in the dtype of the weights")
    draft.derive("loss", "full", "cross entropy of fp32 logits (megatron-core fusions)")
    return draft.reading()
