"""LitGPT YAML (litgpt 0.5.13 ``finetune/*.py``, ``pretrain.py``)."""

from __future__ import annotations

from finefit.formats.said import Said
from finefit.resolve.readings import shared
from finefit.resolve.readings.draft import Draft
from finefit.resolve.readings.reading import Reading

_LORA = ("lora_r", "lora_alpha", "lora_query", "lora_key", "lora_value")
_PRECISIONS = {
    "bf16-true": ("bf16", "none"),
    "16-true": ("fp16", "none"),
    "32-true": ("fp32", "none"),
    "bf16-mixed": ("fp32", "bf16"),
    "16-mixed": ("fp32", "fp16"),
}
# Switches of finetune/lora.py by the modules they adapt; lora_projection is the attention's output
_TARGETS = {
    "lora_query": ("q_proj",),
    "lora_key": ("k_proj",),
    "lora_value": ("v_proj",),
    "lora_projection": ("o_proj",),
    "lora_mlp": ("gate_proj", "up_proj", "down_proj"),
    "lora_head": ("lm_head",),
}
_ON = ("lora_query", "lora_value")  # litgpt 0.5.13 finetune/lora.py: on where they are not written


def reading(said: Said) -> Reading:
    """A LitGPT configuration in canonical terms.

    Raises:
        InputError: a value of a wrong kind, at its line.
    """
    draft = Draft(said)
    pretraining = draft.stated("model_config", "model_name") or "pretrain" in said.program
    name = draft.text("checkpoint_dir", "model_name")
    if name is not None and draft.stated("checkpoint_dir"):
        name = name.rstrip("/").removeprefix("checkpoints/")
    draft.put("model", name, "checkpoint_dir", "model_name")
    draft.derive("task", "pt" if pretraining else "sft", "model_name and model_config are keys of litgpt pretrain")
    lora = not pretraining and (draft.stated(*_LORA) or "lora" in said.program)
    quant = draft.text("quantize")
    bits = 4 if quant and "4" in quant else 8 if quant else None
    draft.put("method", ("qlora" if bits else "lora") if lora else "full", "lora_r" if lora else "quantize")
    draft.put("quant_bits", bits, "quantize")
    if lora:
        draft.put("rank", draft.integer("lora_r", minimum=1), "lora_r")
    draft.put("micro_batch", draft.integer("train.micro_batch_size", minimum=1), "train.micro_batch_size")
    draft.put("seq_len", draft.integer("train.max_seq_length", minimum=1), "train.max_seq_length")
    draft.put("packing", "stream" if pretraining else "no", "data")
    optimizer = draft.text("optimizer.class_path") or draft.text("optimizer") or ""
    draft.put("optimizer", optimizer.rpartition(".")[2] or None, "optimizer.class_path", "optimizer")
    devices = draft.raw("devices")
    nodes = draft.integer("num_nodes", minimum=1) or 1
    count = draft.integer("devices", minimum=1) if devices != "auto" else None
    draft.put("nodes", nodes, "num_nodes")
    draft.put("gpus", count * nodes if count else None, "devices")
    several = count is None or count * nodes > 1
    draft.put("strategy", "fsdp1" if several else "none", "devices")
    # litgpt 0.5.13 finetune/*.py: activation checkpointing comes with FSDP and has no switch; pretrain never has it
    draft.derive("checkpointing", "full" if several and not pretraining else "none", "litgpt@0.5.13: with FSDP alone")
    draft.put("offload", (), "devices")
    _accumulation(draft, count, nodes)
    _precision(draft, quant, lora)
    # chunked_cross_entropy keeps the logits' dtype; LoRA's head runs in chunks of 128 whose logits all live on
    draft.derive("loss", "native", "litgpt@0.5.13 utils.py chunked_cross_entropy")
    draft.derive("attention", "sdpa", "litgpt@0.5.13 model.py CausalSelfAttention, causal without a mask")
    draft.derive("reentrant", False, "Fabric wraps blocks without reentrancy")
    draft.put("epochs", draft.number("train.epochs"), "train.epochs")
    draft.put("max_steps", draft.integer("train.max_steps", minimum=1), "train.max_steps")
    return draft.reading()


def _precision(draft: Draft, quant: str | None, lora: bool) -> None:
    """litgpt 0.5.13 utils.py get_default_supported_precision: mixed where nothing is written."""
    stated = draft.text("precision") or "bf16-mixed"
    load, amp = _PRECISIONS.get(stated, ("", ""))
    if not load:
        draft.refuse(f"the precision {stated[:20]!r}", "write bf16-true or bf16-mixed", "precision")
        return
    draft.put("load_dtype", load, "precision")
    draft.put("amp", amp, "precision")
    draft.put("adapter_dtype", load, "precision")
    if quant:
        draft.put("quant_kind", "fp4" if "fp4" in quant else "nf4" if "nf4" in quant else "int8", "quantize")
        draft.put("quant_double", quant.endswith("-dq"), "quantize")
    if not lora:
        return
    draft.put("lora_alpha", draft.integer("lora_alpha", minimum=1), "lora_alpha")
    draft.put("lora_dropout", draft.number("lora_dropout"), "lora_dropout")
    on = [key for key in _TARGETS if (draft.flag(key) if draft.stated(key) else key in _ON)]
    stated_keys = [key for key in on if draft.stated(key)] or ["lora_r"]
    draft.put("lora_targets", ",".join(name for key in on for name in _TARGETS[key]), *stated_keys)
    draft.put("modules_to_save", (), "lora_r")


def _accumulation(draft: Draft, devices: int | None, nodes: int) -> None:
    total, micro = (
        draft.integer("train.global_batch_size", minimum=1),
        draft.integer("train.micro_batch_size", minimum=1),
    )
    draft.put("global_batch", total, "train.global_batch_size")
    if total and micro and devices:
        rule = "global_batch_size / (devices x nodes) / micro_batch_size (litgpt@0.5.13)"
        draft.derive("grad_accum", max(1, total // (devices * nodes) // micro), rule, "train.global_batch_size")
    shared.gpus(draft)
