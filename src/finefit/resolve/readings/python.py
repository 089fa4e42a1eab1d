"""Unsloth scripts (2026.10.9) and xtuner configs (0.2.0), from the calls and assignments of a Python file."""

from __future__ import annotations

from finefit.formats.said import Said
from finefit.resolve.readings import shared
from finefit.resolve.readings.draft import Draft
from finefit.resolve.readings.reading import FLAGS, Reading

_TRAINERS = {"DPOConfig": "dpo", "GRPOConfig": "grpo", "KTOConfig": "kto", "ORPOConfig": "orpo"}


def unsloth(said: Said) -> Reading:
    """An Unsloth script in canonical terms.

    Raises:
        InputError: a value of a wrong kind, at its line.
    """
    draft = Draft(said)
    load, peft, args = "from_pretrained", "get_peft_model", "args"
    draft.put("model", draft.text(f"{load}.model_name"), f"{load}.model_name")
    trainer = draft.raw(args)
    draft.put("task", _TRAINERS.get(str(trainer), "sft"), args)
    full = draft.flag(f"{load}.full_finetuning")
    eight = draft.flag(f"{load}.load_in_8bit")
    four = draft.flag(f"{load}.load_in_4bit") and not eight and not full
    bits = 4 if four else 8 if eight else None
    draft.put("quant_bits", bits, f"{load}.load_in_{bits or 4}bit")
    adapters = draft.stated(peft) and not full
    draft.put("method", ("qlora" if bits else "lora") if adapters else "full", peft)
    if adapters:
        draft.put("rank", draft.integer(f"{peft}.r", minimum=1), f"{peft}.r")
    draft.put(
        "micro_batch",
        draft.integer(f"{args}.per_device_train_batch_size", minimum=1),
        f"{args}.per_device_train_batch_size",
    )
    key = f"{args}.gradient_accumulation_steps"
    draft.put("grad_accum", draft.integer(key, minimum=1), key)
    draft.put("seq_len", draft.integer(f"{load}.max_seq_length", minimum=1), f"{load}.max_seq_length")
    draft.put("packing", "yes" if draft.flag(f"{args}.packing") else "no", f"{args}.packing")
    draft.put("optimizer", draft.text(f"{args}.optim"), f"{args}.optim")
    switch = f"{peft}.use_gradient_checkpointing"
    draft.put("checkpointing", "full" if draft.flag(switch) else "none", switch)
    offloads = draft.raw(switch) == "unsloth"
    draft.put("offload", ("activations",) if offloads else (), switch)
    draft.put("strategy", "none", load)
    draft.refuse("Unsloth's model code", FLAGS, load)
    shared.gpus(draft)
    return draft.reading()


def xtuner(said: Said) -> Reading:
    """An mmengine config of xtuner in canonical terms.

    Raises:
        InputError: a value of a wrong kind, at its line.
    """
    draft = Draft(said)
    draft.put("model", draft.text("pretrained_model_name_or_path"), "pretrained_model_name_or_path")
    draft.derive("task", "sft", "xtuner 0.2.0 configs fine-tune")
    lora = draft.stated("model.lora")
    four = draft.flag("model.llm.quantization_config.load_in_4bit")
    draft.put("method", ("qlora" if four else "lora") if lora else "full", "model.lora", "model")
    draft.put("quant_bits", 4 if four else None, "model.llm.quantization_config.load_in_4bit")
    if lora:
        draft.put("rank", draft.integer("model.lora.r", minimum=1), "model.lora.r")
    draft.put("micro_batch", draft.integer("batch_size", minimum=1), "batch_size")
    draft.put("grad_accum", draft.integer("accumulative_counts", minimum=1), "accumulative_counts")
    draft.put("seq_len", draft.integer("max_length", minimum=1), "max_length")
    draft.put("packing", "yes" if draft.flag("pack_to_max_length") else "no", "pack_to_max_length")
    draft.put("strategy", "none", "model")
    draft.put("offload", (), "model")
    draft.refuse("xtuner's training loop", FLAGS)
    shared.gpus(draft)
    return draft.reading()
