"""Axolotl YAML (axolotl 0.19.0 ``utils/schemas/*.py``, ``loaders/model.py``)."""

from __future__ import annotations

import re

from finefit.formats.said import Said
from finefit.resolve.beside import PREFERENCE
from finefit.resolve.readings import shared
from finefit.resolve.readings.draft import Draft
from finefit.resolve.readings.reading import Reading

_DEGREES = {
    "dp_shard": ("dp_shard_size",),
    "dp_replicate": ("dp_replicate_size",),
    "tp": ("tensor_parallel_size",),
    "cp": ("context_parallel_size", "sequence_parallel_degree"),
    "ep": ("expert_parallel_size",),
}
# Keys that change memory and are not modelled, with what to do instead
_SWITCHES = {
    "relora": ("ReLoRA", "remove relora to plan plain LoRA"),
    "lisa_n_layers": ("LISA", "remove lisa_n_layers"),
    "unfrozen_parameters": ("training a part of the parameters", "remove unfrozen_parameters"),
    "lora_on_cpu": ("adapters on the CPU", "remove lora_on_cpu"),
    "layer_offloading": ("layer offloading", "remove layer_offloading"),
    "selective_checkpointing": ("selective checkpointing", "remove selective_checkpointing"),
    "qat": ("quantisation-aware training", "remove qat"),
    "processor_type": ("training with pictures (processor_type)", "plan a text model"),
}
# Keys that save memory and are planned without
_BOUNDED = {
    "tiled_mlp": "MLPs that run in tiles are planned whole",
    "quantize_moe_experts": "experts quantised while they are loaded are planned in 16 bits",
}
_SAME_TENSORS = ("flex_attention", "flash_attention_3", "flash_attention_4")
_ENDING = re.compile(r"\.\(([a-z0-9_]+(?:\|[a-z0-9_]+)*)\)([a-z0-9_]*)\$?$")
_FLASH = {"flash_attention_2": "flash2", "flash_attention": "flash2", "sdpa": "sdpa", "eager": "eager"}
_LEGACY = {"flash_attention": "flash2", "sdp_attention": "sdpa", "eager_attention": "eager"}


def reading(said: Said) -> Reading:
    """An Axolotl configuration in canonical terms.

    Raises:
        InputError: a value of a wrong kind, at its line.
    """
    draft = Draft(said)
    draft.put("model", draft.text("base_model"), "base_model")
    _task(draft)
    _method(draft)
    for name, key in (("micro_batch", "micro_batch_size"), ("seq_len", "sequence_len")):
        draft.put(name, draft.integer(key, minimum=1), key)
    _accumulation(draft)
    draft.put("packing", "yes" if draft.flag("sample_packing") else "no", "sample_packing")
    draft.put("optimizer", draft.text("optimizer"), "optimizer")
    quantised = draft.text("optimizer") == "q_galore_adamw8bit"
    shared.low_rank(draft, rank="qgalore_rank" if quantised else "")
    draft.put("checkpointing", "full" if draft.flag("gradient_checkpointing") else "none", "gradient_checkpointing")
    draft.put("epochs", draft.number("num_epochs"), "num_epochs")
    draft.put("max_steps", draft.integer("max_steps", minimum=-1), "max_steps")
    evaluates = bool(draft.number("val_set_size")) or draft.stated("test_datasets")
    micro = draft.integer("eval_batch_size", "micro_batch_size", minimum=1)
    draft.put("eval_batch", micro if evaluates else None, "eval_batch_size", "val_set_size")
    _precision(draft)
    _kernels(draft)
    _spread(draft)
    _beside(draft)
    draft.put("compiled", draft.flag("torch_compile"), "torch_compile")
    kwargs = draft.raw("model_quantization_config_kwargs")
    if draft.flag("model_quantization_config") and not (isinstance(kwargs, dict) and kwargs.get("dequantize")):
        key = "model_quantization_config"
        draft.refuse("a quantisation config of the checkpoint", "set dequantize: true in its kwargs", key)
    for key, what in _BOUNDED.items():
        if draft.flag(key):
            draft.assumptions.append(f"{draft.where(key)}: {what}, an upper bound")
    if draft.flag("fp8"):
        draft.put("products", "fp8", "fp8")
        draft.assumptions.append(
            f"{draft.where('fp8')}: weights, states and saved activations keep their 16 or 32 bits; the fp8 copies "
            "that one product makes are not counted"
        )
    for key, (what, fix) in _SWITCHES.items():
        if draft.flag(key) if not isinstance(draft.raw(key), list | dict) else draft.raw(key):
            draft.refuse(what, fix, key)
    return draft.reading()


def _task(draft: Draft) -> None:
    rl = draft.text("rl")
    if rl:
        draft.put("task", rl.lower(), "rl")
    elif draft.flag("reward_model"):
        draft.put("task", "rm", "reward_model")
    elif draft.stated("pretraining_dataset"):
        draft.put("task", "pt", "pretraining_dataset")
    else:
        draft.put("task", "sft", "rl")


def _method(draft: Draft) -> None:
    adapter = draft.text("adapter")
    draft.put("method", (adapter or "full").lower(), "adapter")
    four, eight = draft.flag("load_in_4bit"), draft.flag("load_in_8bit")
    bits: int | None = None
    key = "load_in_4bit" if four else "load_in_8bit"
    if four and adapter == "qlora":
        bits = 4
        draft.put("quant_bits", 4, "load_in_4bit")
    elif eight and adapter == "lora":
        bits = 8
        draft.put("quant_bits", 8, "load_in_8bit")
    elif four or eight:
        draft.warn(f"{key} is applied only with adapter: {'qlora' if four else 'lora'}, so it has no effect here", key)
    elif draft.flag("gptq"):
        why = "a GPTQ checkpoint is taken to have 4 bits: its own quantize_config.json says how many"
        draft.assume("quant_bits", 4, why, draft.where("gptq"))
        draft.refuse("a checkpoint stored quantised (GPTQ)", "name the 16-bit model and use adapter: qlora", "gptq")
    if bits:
        draft.derive("quant_kind", "nf4" if bits == 4 else "int8", "bitsandbytes (axolotl@0.19.0 loaders/model.py)")
        draft.derive("quant_double", bits == 4, "bnb_4bit_use_double_quant=True (axolotl@0.19.0 loaders/model.py)")
    if adapter is None:
        return
    draft.put("rank", draft.integer("lora_r", minimum=1), "lora_r")
    draft.put("lora_alpha", draft.integer("lora_alpha", minimum=1), "lora_alpha")
    draft.put("lora_dropout", draft.number("lora_dropout"), "lora_dropout")
    draft.put("modules_to_save", draft.names("lora_modules_to_save"), "lora_modules_to_save")
    draft.put("dora", draft.flag("peft_use_dora"), "peft_use_dora")
    named = draft.raw("lora_target_modules")
    if isinstance(named, str) and set(named) & set("\\*()[]|"):
        ending = _ENDING.search(named)
        if ending is None:
            draft.refuse("LoRA targets by a pattern", "list the modules by name", "lora_target_modules")
        else:  # "language_model.model.layers.[\\d]+.(mlp|self_attn).(up|down|q)_proj"
            leaves = ",".join(f"{name}{ending[2]}" for name in ending[1].split("|"))
            why = f"the pattern's last part names the modules that are adapted in every layer: {leaves}"
            draft.assume("lora_targets", leaves, why, draft.where("lora_target_modules"))
    elif draft.flag("lora_target_linear"):
        draft.put("lora_targets", "all-linear", "lora_target_linear")
    else:
        names = draft.names("lora_target_modules")
        draft.put("lora_targets", ",".join(names) or None, "lora_target_modules")


def _beside(draft: Draft) -> None:
    """Losses of trl 1.9.0's trainers, which axolotl 0.19.0 starts (core/builders/rl.py); GRPO's other models."""
    task = draft.values["task"].value
    if task == "rm":
        draft.derive("loss", "score", "AutoModelForSequenceClassification with one label (axolotl@0.19.0)")
    elif task in PREFERENCE:
        draft.derive("loss", "full", "all logits, then log_softmax (trl@1.9.0; the fused head came with 1.15)")
    if task != "grpo":
        return
    draft.derive("loss", "full", "logits of the completion, then log_softmax (trl@1.9.0 grpo_trainer.py)")
    method = draft.values["method"].value
    beta = draft.number("trl.beta") if draft.stated("trl.beta") else 0.0
    draft.put("reference", "none" if not beta else "copy" if method == "full" else "self", "trl.beta")
    share = "vllm.gpu_memory_utilization"
    if draft.flag("trl.use_vllm") and draft.text("trl.vllm_mode") == "colocate":
        draft.put("engine_share", draft.number(share) if draft.stated(share) else 0.9, share)
    elif not draft.flag("trl.use_vllm"):
        draft.put("generated", draft.integer("gradient_accumulation_steps", minimum=1), "gradient_accumulation_steps")


def _accumulation(draft: Draft) -> None:
    total, micro = draft.integer("batch_size", minimum=1), draft.integer("micro_batch_size", minimum=1)
    if total and micro and not draft.stated("gradient_accumulation_steps"):
        rule = "batch_size / micro_batch_size (axolotl@0.19.0)"
        draft.derive("grad_accum", max(1, total // micro), rule, "batch_size")
    else:
        key = "gradient_accumulation_steps"
        draft.put("grad_accum", draft.integer(key, minimum=1), key)


def _precision(draft: Draft) -> None:
    """axolotl 0.19.0 utils/config/__init__.py choose_dtype: the weights are loaded in the training dtype."""
    half, full = draft.raw("fp16"), draft.raw("bf16")
    if full in (True, "auto", "full", "true"):
        draft.put("load_dtype", "bf16", "bf16")
        draft.put("amp", "bf16" if full != "full" else "none", "bf16")
    elif half or draft.flag("float16"):
        key = "fp16" if half else "float16"
        draft.put("load_dtype", "fp16", key)
        draft.put("amp", "fp16" if half else "none", key)
    else:
        draft.put("load_dtype", "fp32", "bf16")
        draft.put("amp", "none", "bf16")


def _kernels(draft: Draft) -> None:
    stated = draft.text("attn_implementation")
    if stated in _FLASH:
        draft.put("attention", _FLASH[stated], "attn_implementation")
    elif stated and (stated in _SAME_TENSORS or "flash-attn" in stated):
        why = f"{stated[:60]} keeps the same tensors for backward as FlashAttention-2: q, k, v, output and log-sum-exp"
        draft.assume("attention", "flash2", why, draft.where("attn_implementation"))
    elif stated:
        draft.refuse(f"the attention {stated[:40]!r}", "use flash_attention_2 or sdpa", "attn_implementation")
    else:
        key = next((key for key in _LEGACY if draft.flag(key)), "attn_implementation")
        draft.put("attention", _LEGACY.get(key), key)
    plugins = " ".join(draft.names("plugins")).lower()
    if "cutcrossentropy" in plugins or draft.flag("cut_cross_entropy"):
        draft.put("loss", "fused_linear", "plugins" if draft.stated("plugins") else "cut_cross_entropy")
    elif draft.flag("liger_fused_linear_cross_entropy"):
        draft.put("loss", "fused_linear", "liger_fused_linear_cross_entropy")
    elif draft.flag("chunked_cross_entropy"):
        draft.put("loss", "chunked", "chunked_cross_entropy")
    else:
        draft.put("loss", "full", "plugins")
    kernels = [key for key in ("liger_rms_norm", "liger_glu_activation", "liger_rope") if draft.flag(key)]
    draft.put("fused_kernels", bool(kernels), *(kernels or ["plugins"]))
    kwargs = draft.raw("gradient_checkpointing_kwargs")
    if isinstance(kwargs, dict) and "use_reentrant" in kwargs:
        draft.put("reentrant", bool(kwargs["use_reentrant"]), "gradient_checkpointing_kwargs")
    else:
        rule = "axolotl@0.19.0 utils/config/__init__.py: reentrant unless gradient_checkpointing_kwargs or rl is set"
        draft.derive("reentrant", not draft.stated("rl") and kwargs is None, rule)


def _spread(draft: Draft) -> None:
    if not shared.deepspeed(draft, "deepspeed"):
        if draft.stated("fsdp", "fsdp_config"):
            version = draft.integer("fsdp_version", minimum=1)
            where = (
                "fsdp_version" if draft.stated("fsdp_version") else "fsdp" if draft.stated("fsdp") else "fsdp_config"
            )
            shared.fsdp(draft, "fsdp_config", version, where)
        else:
            draft.put("strategy", "none", "deepspeed")
            draft.put("offload", (), "deepspeed")
    activations = draft.raw("activation_offloading")
    if activations or draft.raw("gradient_checkpointing") in ("offload", "offload_disk"):
        key = "activation_offloading" if activations else "gradient_checkpointing"
        held = draft.values["offload"].value if "offload" in draft.values else ()
        draft.put("offload", tuple(sorted({*(held if isinstance(held, tuple) else ()), "activations"})), key)
        draft.assumptions.append(
            f"{draft.where(key)}: activations that are moved to host memory are planned on the GPU, an upper bound"
        )
    degrees = shared.parallel(draft, _DEGREES)
    if "dp_shard" in degrees:
        count = shared.world(degrees, ("dp_shard", "dp_replicate", "tp", "cp"))
        draft.derive("gpus", count, "product of the parallel sizes", "dp_shard_size")
    shared.gpus(draft)
