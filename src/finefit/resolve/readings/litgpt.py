"""LitGPT YAML (litgpt 0.5.13 ``finetune/*.py``, ``pretrain.py``)."""

from __future__ import annotations

from finefit.formats.said import Said
from finefit.resolve.readings import shared
from finefit.resolve.readings.draft import Draft
from finefit.resolve.readings.reading import FLAGS, Reading

_LORA = ("lora_r", "lora_alpha", "lora_query", "lora_key", "lora_value")
_NOT_YET = "LitGPT's own training loop"


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
    draft.refuse(_NOT_YET, FLAGS)
    return draft.reading()


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
