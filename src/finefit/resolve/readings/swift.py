"""ms-swift flags, YAML and JSON (ms-swift 4.6.0 ``arguments/*.py``, ``megatron/arguments/*.py``)."""

from __future__ import annotations

from math import ceil

from finefit.formats.said import Entry, Said
from finefit.resolve.readings import shared
from finefit.resolve.readings.draft import Draft
from finefit.resolve.readings.reading import KINDS, MODEL_MAXIMUM, Reading, Value
from finefit.workload.sourced import Origin, Source

_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
_ATTENTION = {"flash_attn": "flash2", "flash_attention_2": "flash2", "sdpa": "sdpa", "eager": "eager"}
_MEGATRON = {
    "tp": ("tensor_model_parallel_size",),
    "pp": ("pipeline_model_parallel_size",),
    "cp": ("context_parallel_size",),
    "ep": ("expert_model_parallel_size",),
}
_SWITCHES = {
    "freeze_parameters": ("training a part of the parameters", "remove freeze_parameters"),
    "freeze_parameters_regex": ("training a part of the parameters", "remove freeze_parameters_regex"),
    "trainable_parameters": ("training a part of the parameters", "remove trainable_parameters"),
    "trainable_parameters_regex": ("training a part of the parameters", "remove trainable_parameters_regex"),
    "lisa_activated_layers": ("LISA", "remove lisa_activated_layers to plan the run in full"),
    "torch_compile": ("torch.compile", "remove torch_compile to plan the run without it, which needs more memory"),
}


def reading(said: Said) -> Reading:
    """An ms-swift run in canonical terms.

    Raises:
        InputError: a value of a wrong kind, at its line.
    """
    draft = Draft(said)
    megatron = said.program.startswith("megatron")
    draft.put("model", draft.text("model", "model_id_or_path"), "model", "model_id_or_path")
    _task(draft)
    _method(draft, megatron)
    _length(draft, megatron)
    _beside(draft)
    if draft.text("tuner_backend") == "unsloth":
        draft.assumptions.append(
            f"{draft.where('tuner_backend')}: Unsloth's kernels are planned as the code of transformers, which needs "
            "more"
        )
    if megatron:
        _with_megatron(draft)
    else:
        _with_trainer(draft)
    draft.put("epochs", draft.number("num_train_epochs"), "num_train_epochs")
    draft.put("max_steps", draft.integer("max_steps", minimum=-1), "max_steps")
    for switch, (what, fix) in _SWITCHES.items():
        if draft.stated(switch) and (draft.raw(switch) if switch != "torch_compile" else draft.flag(switch)):
            draft.refuse(what, fix, switch)
    return draft.reading()


def _task(draft: Draft) -> None:
    command = draft.said.program.removesuffix(".py").replace("/", " ").split(" ")[-1]
    if command == "rlhf" or draft.stated("rlhf_type"):
        draft.put("task", draft.text("rlhf_type"), "rlhf_type")
    else:
        task = "pt" if command == "pt" else "sft"
        draft.derive("task", task, f"the command is {draft.said.program or 'swift sft'}")


def _method(draft: Draft, megatron: bool) -> None:
    keys = ("tuner_type", "train_type", "sft_type")
    method = (draft.text(*keys) or "lora").lower()
    if megatron and not draft.stated(*keys):
        method = "full"  # ms-swift 4.6.0 megatron/arguments/megatron_args.py
    if draft.stated("train_type") and not draft.stated("tuner_type"):
        draft.warn("train_type is the name of ms-swift 3; version 4 calls it tuner_type", "train_type")
    bits, how = draft.raw("quant_bits", "quantization_bit"), draft.text("quant_method")
    if bits is not None and how == "bnb":
        size = draft.integer("quant_bits", minimum=1)
        draft.put("quant_bits", size, "quant_bits")
        draft.put("quant_kind", draft.text("bnb_4bit_quant_type") if size == 4 else "int8", "bnb_4bit_quant_type")
        draft.put("quant_double", size == 4 and draft.flag("bnb_4bit_use_double_quant"), "bnb_4bit_use_double_quant")
        method = "qlora" if method == "lora" else method
    elif how is not None:
        draft.refuse(f"quantisation by {how[:20]}", "use quant_method bnb", "quant_method")
    elif bits is not None:
        draft.warn(
            "quant_bits without quant_method bnb loads the model unquantised (ms-swift 4.6.0 quant_args.py)",
            "quant_bits",
        )
    draft.put("method", method, *keys)
    if method == "full" and draft.stated("freeze_parameters_ratio"):
        draft.put("frozen_share", draft.number("freeze_parameters_ratio"), "freeze_parameters_ratio")
    if method not in KINDS:
        return
    rank = {"adalora": "adalora_init_r", "vera": "vera_rank"}.get(method, "lora_rank")
    stated = draft.integer(rank, minimum=1) if draft.stated(rank) or rank == "lora_rank" else None
    draft.put("rank", stated or {"adalora": 12, "vera": 256}.get(method), rank)  # ms-swift 4.6.0 tuner_args.py
    draft.put("dora", draft.flag("use_dora"), "use_dora")
    draft.put("lora_alpha", draft.integer("lora_alpha", minimum=1), "lora_alpha")
    draft.put("lora_dropout", draft.number("lora_dropout"), "lora_dropout")
    draft.put("lora_targets", ",".join(draft.names("target_modules")) or "all-linear", "target_modules")
    draft.put("modules_to_save", draft.names("modules_to_save"), "modules_to_save")


def _beside(draft: Draft) -> None:
    """What RLHF keeps beside the policy (ms-swift 4.6.0 arguments/rlhf_args.py, rlhf_trainers/*)."""
    task, method = draft.values["task"].value, draft.values["method"].value
    if task == "rm":
        draft.derive("loss", "score", "a sequence classifier with one label (ms-swift@4.6.0)")
    if task not in ("grpo", "ppo"):
        return
    completion = "max_completion_length"
    draft.put("completion", draft.integer(completion, minimum=1) if draft.stated(completion) else 512, completion)
    beta = draft.number("beta") if draft.stated("beta") else 0.04
    draft.put("reference", "none" if not beta else "copy" if method == "full" else "self", "beta")
    if task == "ppo":
        draft.derive("critic", True, "PPO trains a value model (ms-swift@4.6.0 rlhf_trainers/ppo_trainer.py)")
        draft.put("reward", draft.stated("reward_model"), "reward_model")
    if not draft.flag("use_vllm"):
        draft.derive("generated", 1, "a micro-batch is generated at a time (ms-swift@4.6.0)")
    elif draft.text("vllm_mode") == "colocate":
        share = "vllm_gpu_memory_utilization"
        draft.put("engine_share", draft.number(share) if draft.stated(share) else 0.9, share)
        level = "sleep_level"
        draft.put("engine_sleeps", bool(draft.stated(level) and draft.integer(level)), level)
        draft.put("offload_between", draft.flag("offload_model") and draft.flag("offload_optimizer"), "offload_model")


def _length(draft: Draft, megatron: bool) -> None:
    length = draft.integer("max_length", minimum=1)
    if length is None:
        draft.put("seq_len", MODEL_MAXIMUM, "max_length")
        draft.warn(f"{draft.said.path}: max_length is not written, so ms-swift takes the model's own limit")
    else:
        draft.put("seq_len", length, "max_length")
    draft.put("packing", "yes" if draft.flag("packing") else "no", "packing")
    if draft.flag("padding_free") and not megatron and not draft.flag("packing"):
        draft.put("padding_free", True, "padding_free")


# swift/optimizers/galore/utils.py get_optimizer: the class by optim
_GALORE = {"adafactor": "galore_adafactor", "adamw_bnb_8bit": "galore_adamw_8bit", "adamw_8bit": "galore_adamw_8bit"}


def _optimizer(draft: Draft) -> None:
    """``--optimizer galore`` or ``muon``, else ``--optim`` (ms-swift 4.6.0 optimizers/mapping.py)."""
    special, optim = draft.text("optimizer"), draft.text("optim") or ""
    if draft.flag("use_galore") or special == "galore":
        draft.put("optimizer", _GALORE.get(optim, "galore_adamw"), "use_galore", "optimizer")
        shared.low_rank(draft, rank="galore_rank", targets="galore_target_modules")
        if draft.flag("galore_with_embedding"):
            draft.refuse("GaLore on embeddings", "remove galore_with_embedding", "galore_with_embedding")
        if draft.flag("galore_quantization"):
            draft.put("optimizer", "q_galore_adamw8bit", "galore_quantization")
        return
    if special and special not in ("default", "lorap", "multimodal", "muon"):
        draft.refuse(f"the optimizer {special[:20]}", "use the default optimizer", "optimizer")
    draft.put("optimizer", "muon" if special == "muon" else optim, "optimizer" if special == "muon" else "optim")
    shared.low_rank(draft)


def _with_trainer(draft: Draft) -> None:
    micro = draft.integer("per_device_train_batch_size", minimum=1)
    draft.put("micro_batch", micro, "per_device_train_batch_size")
    _optimizer(draft)
    on = draft.flag("gradient_checkpointing")
    draft.put("checkpointing", "full" if on else "none", "gradient_checkpointing")
    stated = draft.text("attn_impl")
    if stated and stated not in _ATTENTION:
        draft.refuse(f"the attention {stated[:40]!r}", "use flash_attn or sdpa", "attn_impl")
    draft.put("attention", _ATTENTION.get(stated or ""), "attn_impl")
    liger = draft.flag("use_liger_kernel")
    draft.put("loss", "fused_linear" if liger else "full", "use_liger_kernel")
    draft.put("fused_kernels", liger, "use_liger_kernel")
    kwargs = draft.raw("gradient_checkpointing_kwargs")
    if isinstance(kwargs, dict) and "use_reentrant" in kwargs:
        draft.put("reentrant", bool(kwargs["use_reentrant"]), "gradient_checkpointing_kwargs")
    else:
        draft.derive("reentrant", False, "transformers@5.24.0 default of use_reentrant")
    dtype = _DTYPES.get((draft.text("torch_dtype") or "").removeprefix("torch."))
    draft.put("load_dtype", dtype or "checkpoint", "torch_dtype")
    half = "fp16" if draft.flag("fp16") or dtype in ("fp16", "fp32") else "bf16"
    draft.put(
        "amp", "none" if draft.stated("bf16") and not draft.flag("bf16") and half == "bf16" else half, "torch_dtype"
    )
    if draft.stated("lora_dtype"):
        draft.put("adapter_dtype", _DTYPES.get(draft.text("lora_dtype") or ""), "lora_dtype")
    _evaluates(draft)
    _trainer_spread(draft)
    if not draft.stated("gradient_accumulation_steps"):
        world = draft.values["gpus"].value if "gpus" in draft.values else None
        ranks = world if isinstance(world, int) else 1
        rule = f"ceil(16 / (micro-batch x {ranks} GPUs)) (ms-swift@4.6.0)"
        draft.derive("grad_accum", ceil(16 / ((micro or 1) * ranks)), rule)
    else:
        key = "gradient_accumulation_steps"
        draft.put("grad_accum", draft.integer(key, minimum=1), key)


def _evaluates(draft: Draft) -> None:
    """ms-swift 4.6.0 arguments/sft_args.py: with a validation set, as often as it saves unless told otherwise."""
    has_set = any(draft.stated(key) and draft.raw(key) for key in ("val_dataset", "cached_val_dataset"))
    has_set = has_set or (draft.stated("split_dataset_ratio") and bool(draft.number("split_dataset_ratio")))
    key = "eval_strategy" if draft.stated("eval_strategy") else "save_strategy"
    asked = not draft.stated(key) or draft.raw(key) not in (False, "no")
    size = draft.integer("per_device_eval_batch_size", minimum=1)
    draft.put("eval_batch", size if has_set and asked else None, "per_device_eval_batch_size")


def _trainer_spread(draft: Draft) -> None:
    environment = draft.raw("ENV")
    facts = dict(draft.said.launch)
    if isinstance(environment, dict):
        place = draft.said.entries["ENV"].place
        facts = {**{str(key): Entry(value, place) for key, value in environment.items()}, **facts}
    visible, procs = facts.get("CUDA_VISIBLE_DEVICES"), facts.get("NPROC_PER_NODE")
    listed = len(str(visible.value).split(",")) if visible and visible.value is not None else 0
    launcher = facts.get("config_file")
    sequence = draft.integer("sequence_parallel_size", minimum=1) or 1
    if draft.stated("fsdp"):
        draft.put("strategy", "fsdp2", "fsdp")
        draft.put("checkpointing", "full", "fsdp")  # the preset sets activation_checkpointing
    elif launcher is not None and isinstance(launcher.value, str):
        shared.accelerate(draft, launcher.value, launcher.place)
    elif not shared.deepspeed(draft, "deepspeed"):
        count = int(str(procs.value)) if procs and str(procs.value).isdigit() else 1
        split = listed > count
        place = visible.place if visible else ""
        strategy = "none" if not split else "device_map" if count == 1 else "ddp+device_map"
        draft.derive(
            "strategy", strategy, "GPUs per process: more than one splits the model by layers (ms-swift@4.6.0)"
        )
        if split:
            each = listed // count
            draft.values["parallel"] = Value({"device_map": each}, Source(Origin.STATED, place), place)
    if "offload" not in draft.values:
        draft.put("offload", (), "deepspeed")
    if sequence > 1:
        draft.put("parallel", {"sp": sequence}, "sequence_parallel_size")
    if draft.stated("device_groups.nproc_per_node"):
        draft.put("gpus", draft.integer("device_groups.nproc_per_node", minimum=1), "device_groups.nproc_per_node")
    shared.gpus(draft)


def _with_megatron(draft: Draft) -> None:
    draft.put("micro_batch", draft.integer("micro_batch_size", minimum=1), "micro_batch_size")
    total = draft.integer("global_batch_size", minimum=1)
    draft.put("global_batch", total, "global_batch_size")
    draft.put("optimizer", draft.text("optimizer") or "adam", "optimizer")
    granularity = draft.text("recompute_granularity") or "selective"
    draft.put("checkpointing", granularity if granularity != "none" else "none", "recompute_granularity")
    draft.put("strategy", "megatron", "tensor_model_parallel_size")
    dtype = (draft.text("torch_dtype") or "bfloat16").removeprefix("torch.")
    draft.put("load_dtype", _DTYPES.get(dtype), "torch_dtype")
    draft.derive("amp", "none", "Megatron-Core computes in the dtype of the weights")
    draft.derive("loss", "full", "cross entropy of fp32 logits (megatron-core)")
    draft.derive("attention", "flash2", "attention_backend flash (ms-swift@4.6.0 megatron/arguments)")
    draft.derive("reentrant", True, "Megatron-Core's checkpoint recomputes whole layers")
    wide = "accumulate_allreduce_grads_in_fp32"
    draft.put("half_gradients", not draft.flag(wide), wide)
    offloads = draft.flag("optimizer_cpu_offload")
    draft.put("offload", ("optimizer",) if offloads else (), "optimizer_cpu_offload")
    degrees = shared.parallel(draft, _MEGATRON)
    shared.gpus(draft)
    found, micro = draft.values.get("gpus"), draft.integer("micro_batch_size", minimum=1)
    if found is not None and isinstance(found.value, int) and found.source.origin.value == "stated" and total and micro:
        ranks = found.value // shared.world(degrees, ("tp", "pp", "cp"))
        if ranks and total % (micro * ranks) == 0:
            rule = "global_batch_size / (micro_batch_size x data-parallel ranks)"
            draft.derive("grad_accum", total // (micro * ranks), rule, "global_batch_size")
