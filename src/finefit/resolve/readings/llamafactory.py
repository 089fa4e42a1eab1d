"""LLaMA-Factory, v0 and v1 (llamafactory 0.9.5 ``hparams/*.py``, ``v1/config/*.py``)."""

from __future__ import annotations

from finefit.formats.said import Said
from finefit.resolve.readings import shared
from finefit.resolve.readings.draft import Draft
from finefit.resolve.readings.reading import Reading

_SPECIAL = {
    "use_galore": "galore",
    "use_apollo": "apollo",
    "use_badam": "badam",
    "use_adam_mini": "adam_mini",
    "use_muon": "muon",
}


def v0(said: Said) -> Reading:
    """A v0 configuration in canonical terms.

    Raises:
        InputError: a value of a wrong kind, at its line.
    """
    draft = Draft(said)
    model = draft.text("model_name_or_path")
    draft.put("model", model, "model_name_or_path")
    task = draft.text("stage") or "sft"
    draft.put("task", task, "stage")
    _method(draft, model)
    draft.put("micro_batch", draft.integer("per_device_train_batch_size", minimum=1), "per_device_train_batch_size")
    key = "gradient_accumulation_steps"
    draft.put("grad_accum", draft.integer(key, minimum=1), key)
    draft.put("seq_len", draft.integer("cutoff_len", minimum=1), "cutoff_len")
    if draft.stated("packing", "neat_packing"):
        packed = draft.flag("packing") or draft.flag("neat_packing")
        draft.put("packing", "yes" if packed else "no", "packing", "neat_packing")
    else:
        draft.derive("packing", "yes" if task == "pt" else "no", "on for stage pt alone (llamafactory@0.9.5)")
    special = next((key for key in _SPECIAL if draft.flag(key)), None)
    draft.put("optimizer", _SPECIAL[special] if special else draft.text("optim"), special or "optim")
    off = draft.flag("disable_gradient_checkpointing")
    draft.put("checkpointing", "none" if off else "full", "disable_gradient_checkpointing")
    _spread(draft)
    return draft.reading()


def _method(draft: Draft, model: str | None) -> None:
    method = draft.text("finetuning_type") or "lora"
    bits = draft.integer("quantization_bit", minimum=1)
    packed = shared.packed_bits(model)
    if bits:
        draft.put("quant_bits", bits, "quantization_bit")
    elif packed:
        why = f"the checkpoint's name says it is stored quantised; {packed} bits are taken"
        draft.assume("quant_bits", packed, why, draft.where("model_name_or_path"))
    quantised = bool(bits or packed)
    draft.put("method", "qlora" if method == "lora" and quantised else method, "finetuning_type")
    if method == "lora":
        draft.put("rank", draft.integer("lora_rank", minimum=1), "lora_rank")


def _spread(draft: Draft) -> None:
    launcher = draft.said.launch.get("config_file")
    if shared.deepspeed(draft, "deepspeed"):
        pass
    elif launcher is not None and isinstance(launcher.value, str):
        shared.accelerate(draft, launcher.value, launcher.place)
    elif draft.raw("fsdp"):
        # transformers 5.6.0, the newest that 0.9.5 allows: fsdp_config.version is 1 where it is not written
        shared.fsdp(draft, "fsdp_config", 1, "fsdp")
        words = draft.raw("fsdp")
        if "offload" in (words if isinstance(words, list) else str(words).split()):
            draft.put("offload", shared.FSDP_OFFLOAD, "fsdp")
    else:
        draft.put("strategy", "none", "deepspeed")
    if "offload" not in draft.values:
        draft.put("offload", (), "deepspeed")
    if draft.flag("use_kt"):
        draft.put("offload", ("experts",), "use_kt")
    shared.gpus(draft)


def v1(said: Said) -> Reading:
    """A v1 configuration (USE_V1=1) in canonical terms.

    Raises:
        InputError: a value of a wrong kind, at its line.
    """
    draft = Draft(said)
    draft.put("model", draft.text("model"), "model")
    draft.derive("task", "sft", "the v1 trainer of llamafactory@0.9.5 fine-tunes")
    lora = draft.stated("peft_config")
    name = draft.text("peft_config.name") if lora else None
    draft.put("method", (name or "lora") if lora else "full", "peft_config")
    if lora:
        draft.put("rank", draft.integer("peft_config.r", "peft_config.lora_rank", minimum=1), "peft_config.r")
    micro = draft.integer("micro_batch_size", minimum=1)
    draft.put("micro_batch", micro, "micro_batch_size")
    if draft.stated("global_batch_size"):
        draft.put("global_batch", draft.integer("global_batch_size", minimum=1), "global_batch_size")
    else:
        draft.derive(
            "grad_accum", 1, "global_batch_size is data-parallel ranks x micro_batch_size (llamafactory@0.9.5)"
        )
    draft.put("seq_len", draft.integer("cutoff_len", minimum=1), "cutoff_len")
    draft.put("packing", "yes" if draft.text("batching_strategy") != "normal" else "no", "batching_strategy")
    key = "enable_activation_checkpointing"
    draft.put("checkpointing", "full" if draft.flag(key) else "none", key)
    strategy = draft.text("dist_config.name")
    if strategy == "deepspeed":
        shared.deepspeed(draft, "dist_config.config_file", "dist_config.deepspeed")
    else:
        draft.put("strategy", strategy or "none", "dist_config.name")
    draft.put("max_steps", draft.integer("max_steps", minimum=-1), "max_steps")
    # v1/core/model_engine.py loads dtype="auto"; FSDP 2 computes in bf16 and shards what was loaded (fsdp2.py)
    draft.derive("load_dtype", "checkpoint", 'the v1 engine loads dtype="auto" (llamafactory@0.9.5)')
    draft.derive("amp", "none", "v1 has no autocast: FSDP 2 or the loaded dtype decide (llamafactory@0.9.5)")
    draft.derive("adapter_dtype", "bf16", "adapters have the dtype of the model (llamafactory@0.9.5)")
    draft.derive("loss", "full", "transformers' own loss on all logits (llamafactory@0.9.5)")
    draft.derive("reentrant", False, "gradient_checkpointing_enable with use_reentrant False (llamafactory@0.9.5)")
    if lora:
        draft.put("lora_alpha", draft.integer("peft_config.lora_alpha", minimum=1), "peft_config.lora_alpha")
        draft.put("lora_targets", ",".join(draft.names("peft_config.target_modules")) or "all-linear", "peft_config")
        draft.put("modules_to_save", (), "peft_config")
    shared.gpus(draft)
    return draft.reading()
