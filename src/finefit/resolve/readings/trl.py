"""TRL and plain TrainingArguments, as YAML or flags (trl 1.16.0, transformers 5.24.0)."""

from __future__ import annotations

from finefit.formats.said import Said
from finefit.resolve.readings import shared
from finefit.resolve.readings.draft import Draft
from finefit.resolve.readings.reading import Reading

_GRPO = ("num_generations", "max_completion_length", "reward_funcs")
_DPO = ("beta", "max_prompt_length", "precompute_ref_log_probs")
_PROGRAMS = {"sft": "sft", "dpo": "dpo", "kto": "kto", "grpo": "grpo", "reward": "rm", "rloo": "rloo", "orpo": "orpo"}
_FLASH = {"flash_attention_2": "flash2", "sdpa": "sdpa", "eager": "eager"}
_DTYPES = {
    "bfloat16": "bf16",
    "bf16": "bf16",
    "float16": "fp16",
    "fp16": "fp16",
    "float32": "fp32",
    "auto": "checkpoint",
}
# Keys a version dropped, and what it does instead (release notes and source of trl 0.20, 0.27, 0.28, 0.29)
_GONE = {
    "max_seq_length": "TRL >= 0.20 ignores max_seq_length; the run will use max_length, 1024 where it is not written",
    "torch_dtype": "TRL >= 0.27 ignores torch_dtype; the model is loaded in dtype, float32 where it is not written",
    "max_prompt_length": "TRL >= 0.29 ignores max_prompt_length; prompts are not cut",
}
_SWITCHES = {
    "torch_compile": ("torch.compile", "remove torch_compile to plan the run without it, which needs more memory"),
    "activation_offloading": ("activations offloaded to the CPU", "remove activation_offloading"),
}


def reading(said: Said) -> Reading:
    """A TRL configuration in canonical terms.

    Raises:
        InputError: a value of a wrong kind, at its line.
    """
    draft = Draft(said)
    draft.put("model", draft.text("model_name_or_path"), "model_name_or_path")
    task = _task(draft)
    _method(draft)
    draft.put("micro_batch", draft.integer("per_device_train_batch_size", minimum=1), "per_device_train_batch_size")
    key = "gradient_accumulation_steps"
    draft.put("grad_accum", draft.integer(key, minimum=1), key)
    _length(draft, task)
    packed = draft.flag("packing") and task in ("sft", "pt")
    draft.put("packing", "yes" if packed else "no", "packing")
    draft.put("optimizer", draft.text("optim"), "optim")
    shared.low_rank(draft)
    switches = ("activation_checkpointing", "gradient_checkpointing")
    on = draft.flag(*switches) if draft.stated(*switches) else draft.flag("gradient_checkpointing")
    where = switches if draft.stated(*switches) else ("gradient_checkpointing",)
    draft.put("checkpointing", "full" if on else "none", *where)
    draft.put("epochs", draft.number("num_train_epochs"), "num_train_epochs")
    draft.put("max_steps", draft.integer("max_steps", minimum=-1), "max_steps")
    evaluates = draft.raw("eval_strategy") not in (False, "no", None) or draft.flag("do_eval")
    size = draft.integer("per_device_eval_batch_size", minimum=1)
    draft.put("eval_batch", size if evaluates else None, "per_device_eval_batch_size")
    _precision(draft)
    _kernels(draft)
    _beside(draft, task)
    _spread(draft)
    for gone, sentence in _GONE.items():
        if draft.stated(gone):
            draft.warn(sentence, gone)
    for switch, (what, fix) in _SWITCHES.items():
        if draft.flag(switch):
            draft.refuse(what, fix, switch)
    return draft.reading()


def _task(draft: Draft) -> str:
    """The trainer is chosen on the command line; a file alone shows it by keys that only one trainer has."""
    program = draft.said.program.removesuffix(".py").rpartition("/")[2].split(" ")[-1].lower()
    task = next((task for word, task in _PROGRAMS.items() if word in program), None) if program else None
    if task is not None:
        draft.derive("task", task, f"the command line starts {draft.said.program}")
        return task
    for keys, found in ((_GRPO, "grpo"), (("desirable_weight",), "kto"), (_DPO, "dpo")):
        if draft.stated(*keys):
            task = found
            draft.derive("task", found, f"{keys[0]} and the like are keys of this trainer alone (trl@1.16.0)", *keys)
            return found
    draft.derive("task", "sft", "no key of another trainer (trl@1.16.0)")
    return "sft"


def _method(draft: Draft) -> None:
    four, eight = draft.flag("load_in_4bit"), draft.flag("load_in_8bit")
    if four or eight:
        key = "load_in_4bit" if four else "load_in_8bit"
        draft.put("quant_bits", 4 if four else 8, key)
        draft.put("quant_kind", draft.text("bnb_4bit_quant_type") if four else "int8", "bnb_4bit_quant_type")
        draft.put("quant_double", four and draft.flag("use_bnb_nested_quant"), "use_bnb_nested_quant")
    if not draft.flag("use_peft"):
        draft.put("method", "full", "use_peft")
        if draft.stated("lora_r"):
            draft.warn("lora_r has no effect without use_peft: true", "lora_r")
        return
    draft.put("method", "qlora" if four or eight else "lora", "use_peft")
    draft.put("rank", draft.integer("lora_r", minimum=1), "lora_r")
    draft.put("lora_alpha", draft.integer("lora_alpha", minimum=1), "lora_alpha")
    draft.put("lora_dropout", draft.number("lora_dropout"), "lora_dropout")
    draft.put("lora_targets", ",".join(draft.names("lora_target_modules")) or None, "lora_target_modules")
    draft.put("modules_to_save", draft.names("lora_modules_to_save"), "lora_modules_to_save")
    draft.put("dora", draft.flag("use_dora"), "use_dora")


def _length(draft: Draft, task: str) -> None:
    if task in ("grpo", "rloo"):
        completion = draft.integer("max_completion_length", minimum=1)
        prompt = draft.integer("max_prompt_length", minimum=1)
        if prompt and completion:
            rule = "max_prompt_length + max_completion_length"
            draft.derive("seq_len", prompt + completion, rule, "max_completion_length")
        else:
            draft.values.pop("seq_len", None)
            draft.put("completion", completion, "max_completion_length")
        return
    entry = draft.said.entries.get("max_length")
    if entry is not None and entry.value is None:
        draft.values.pop("seq_len", None)
        draft.warn("max_length: null cuts nothing, so the longest sample of the data decides", "max_length")
        return
    draft.put("seq_len", draft.integer("max_length", minimum=1), "max_length")


def _precision(draft: Draft) -> None:
    stated = draft.text("dtype") or "float32"
    dtype = _DTYPES.get(stated.lower().removeprefix("torch."))
    if dtype is None:
        draft.refuse(f"dtype {stated[:20]!r}", "write bfloat16, float16, float32 or auto", "dtype")
    draft.put("load_dtype", dtype, "dtype")
    half = draft.flag("fp16")
    bf16 = draft.flag("bf16") if draft.stated("bf16") or not half else False
    key = "fp16" if half else "bf16"
    draft.put("amp", "fp16" if half else "bf16" if bf16 else "none", key)


def _kernels(draft: Draft) -> None:
    stated = draft.text("attn_implementation")
    if stated and stated not in _FLASH:
        draft.refuse(f"the attention {stated[:40]!r}", "use flash_attention_2 or sdpa", "attn_implementation")
    draft.put("attention", _FLASH.get(stated or ""), "attn_implementation")
    draft.derive("loss", "chunked", "trl@1.16.0 computes the loss without whole logits (>= 1.15)")
    draft.put("fused_kernels", draft.flag("use_liger_kernel"), "use_liger_kernel")
    kwargs = draft.raw("gradient_checkpointing_kwargs")
    if isinstance(kwargs, dict) and "use_reentrant" in kwargs:
        draft.put("reentrant", bool(kwargs["use_reentrant"]), "gradient_checkpointing_kwargs")
    else:
        draft.derive("reentrant", False, "use_reentrant is False where it is not written (trl@1.16.0 sft_trainer.py)")


def _beside(draft: Draft, task: str) -> None:
    """Reference and generation of the trainers (trl 1.16.0 dpo_trainer.py, grpo_trainer.py, reward_trainer.py)."""
    method = draft.values["method"].value
    if task == "rm":
        draft.derive("loss", "score", "AutoModelForSequenceClassification with one label (trl@1.16.0)")
    if draft.flag("precompute_ref_log_probs"):
        draft.put("reference", "none", "precompute_ref_log_probs")
    if task not in ("grpo", "rloo"):
        return
    beta = draft.number("beta") if draft.stated("beta") else 0.0 if task == "grpo" else 0.05
    draft.put("reference", "none" if not beta else "copy" if method == "full" else "self", "beta")
    if not draft.flag("use_vllm"):
        accumulated = draft.integer("gradient_accumulation_steps", minimum=1) or 1
        steps = draft.integer("steps_per_generation", minimum=1) if draft.stated("steps_per_generation") else None
        rule = "a generation batch is steps_per_generation micro-batches, as many as are accumulated (trl@1.16.0)"
        draft.derive("generated", steps or accumulated, rule, "steps_per_generation")
    elif (draft.text("vllm_mode") or "colocate") == "colocate":
        share = "vllm_gpu_memory_utilization"
        draft.put("engine_share", draft.number(share) if draft.stated(share) else 0.3, share)
        draft.put("engine_sleeps", draft.flag("vllm_enable_sleep_mode"), "vllm_enable_sleep_mode")


def _spread(draft: Draft) -> None:
    launcher = draft.said.launch.get("config_file") or draft.said.launch.get("accelerate_config")
    named = draft.entry("accelerate_config")
    if shared.deepspeed(draft, "deepspeed"):
        pass
    elif launcher is not None and isinstance(launcher.value, str):
        shared.accelerate(draft, launcher.value, launcher.place)
    elif named is not None and isinstance(named[1].value, str):
        _preset(draft, named[1].value)
    elif draft.raw("fsdp"):
        shared.fsdp(draft, "fsdp_config", 2, "fsdp")  # transformers 5.24.0: fsdp_config.version is 2 since 5.10
    else:
        shared.commented_strategy(draft)
    if "offload" not in draft.values:
        draft.put("offload", (), "deepspeed")
    if draft.stated("num_processes"):
        draft.put("gpus", draft.integer("num_processes", minimum=1), "num_processes")
    shared.gpus(draft)


def _preset(draft: Draft, name: str) -> None:
    """trl 1.16.0 accelerate_configs/*.yaml: single_gpu, multi_gpu, zero1-3, fsdp1-2; anything else is a path."""
    if name in ("zero1", "zero2", "zero3", "fsdp1", "fsdp2"):
        draft.put("strategy", name, "accelerate_config")
    elif name in ("single_gpu", "multi_gpu"):
        draft.put("strategy", "none", "accelerate_config")
    else:
        shared.accelerate(draft, name, draft.where("accelerate_config"))
