"""One recipe as the keys of another tool's configuration, at the versions whose rules are read (``formats.tools``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from finefit.workload.dtypes import DType
from finefit.workload.model import Model
from finefit.workload.recipe import Recipe

# Settings of the loop that mean the same everywhere, by their names in LLaMA-Factory, TRL and ms-swift (all of
# transformers' TrainingArguments), axolotl 0.19.0 and torchtune 0.6.1
LOOP: Mapping[str, tuple[str, str]] = {
    "learning_rate": ("learning_rate", "optimizer.lr"),
    "lr_scheduler_type": ("lr_scheduler", ""),
    "warmup_steps": ("warmup_steps", "lr_scheduler.num_warmup_steps"),
    "warmup_ratio": ("warmup_ratio", ""),
    "weight_decay": ("weight_decay", "optimizer.weight_decay"),
    "max_grad_norm": ("max_grad_norm", "clip_grad_norm"),
    "num_train_epochs": ("num_epochs", "epochs"),
    "max_steps": ("max_steps", ""),
    "logging_steps": ("logging_steps", "log_every_n_steps"),
    "save_steps": ("save_steps", ""),
    "save_total_limit": ("save_total_limit", ""),
    "eval_steps": ("eval_steps", ""),
    "eval_strategy": ("eval_strategy", ""),
    "dataloader_num_workers": ("dataloader_num_workers", ""),
    "ddp_timeout": ("ddp_timeout", ""),
    "adam_beta1": ("adam_beta1", ""),
    "adam_beta2": ("adam_beta2", ""),
    "report_to": ("", ""),
    "seed": ("seed", "seed"),
    "output_dir": ("output_dir", "output_dir"),
}
# torchtune names classes where the others name a value of transformers' optim
OPTIMIZERS = {
    "torch.optim.AdamW": "adamw_torch_fused",
    "bitsandbytes.optim.AdamW8bit": "adamw_8bit",
    "bitsandbytes.optim.PagedAdamW8bit": "paged_adamw_8bit",
    "bitsandbytes.optim.PagedAdamW": "paged_adamw_32bit",
}
_HALF = {DType.BF16: "bfloat16", DType.FP16: "float16", DType.FP32: "float32"}


@dataclass(frozen=True, slots=True)
class Run:
    """What is to be spelled.

    Attributes:
        micro, accum, seq: the source's own figures, where it packs rows together.
        optimizer: a value of transformers' ``optim``.
        targets: names of adapted modules; () for all linear ones.
    """

    name: str
    model: Model
    recipe: Recipe
    micro: int
    accum: int
    seq: int
    optimizer: str
    targets: tuple[str, ...]

    @property
    def fused(self) -> bool:
        return self.recipe.loss == "fused_linear" or self.recipe.fused_kernels

    @property
    def bits(self) -> int | None:
        quant = self.recipe.quant
        return None if quant is None or quant.stored else 8 if quant.kind == "int8" else 4


def _hf_batches(run: Run) -> dict[str, object]:
    return {
        "per_device_train_batch_size": run.micro,
        "gradient_accumulation_steps": run.accum,
        "optim": run.optimizer,
    }


def _llamafactory(run: Run) -> dict[str, object]:
    recipe, lora = run.recipe, run.recipe.lora
    preference = recipe.task in ("dpo", "ipo", "orpo", "simpo")
    out: dict[str, object] = {"model_name_or_path": run.name, "stage": "dpo" if preference else recipe.task}
    if preference and recipe.task != "dpo":
        out["pref_loss"] = recipe.task
    out |= {"do_train": True, "finetuning_type": recipe.method}
    if lora:
        out |= {"lora_rank": lora.rank, "lora_alpha": lora.alpha, "lora_dropout": lora.dropout}
        out["lora_target"] = ",".join(run.targets) or "all"
        if lora.modules_to_save:
            out["additional_target"] = ",".join(lora.modules_to_save)
    if run.bits:
        out["quantization_bit"] = run.bits
    out |= {"cutoff_len": run.seq, "packing": recipe.packing, **_hf_batches(run)}
    if recipe.checkpointing == "none":
        out["disable_gradient_checkpointing"] = True
    elif not recipe.reentrant:
        out["use_reentrant_gc"] = False
    half = recipe.autocast or (recipe.weight_dtype if recipe.weight_dtype is not DType.FP32 else None)
    pure = recipe.autocast is None and half is DType.BF16 and recipe.method == "full"
    if half is not None:
        out["pure_bf16" if pure else "bf16" if half is DType.BF16 else "fp16"] = True
    out["flash_attn"] = {"flash2": "fa2", "eager": "disabled"}.get(recipe.attention, "sdpa")
    if run.fused:
        out["enable_liger_kernel"] = True
    return out


def _axolotl(run: Run) -> dict[str, object]:
    recipe, lora = run.recipe, run.recipe.lora
    out: dict[str, object] = {"base_model": run.name}
    if recipe.task not in ("sft", "pt"):
        out["rl"] = recipe.task
    if lora:
        out["adapter"] = "qlora" if run.bits == 4 else "lora"
        out |= {"lora_r": lora.rank, "lora_alpha": lora.alpha, "lora_dropout": lora.dropout}
        out |= {"lora_target_modules": list(run.targets)} if run.targets else {"lora_target_linear": True}
        if lora.modules_to_save:
            out["lora_modules_to_save"] = list(lora.modules_to_save)
    if run.bits:
        out[f"load_in_{run.bits}bit"] = True
    out |= {"sequence_len": run.seq, "sample_packing": recipe.packing}
    out |= {"micro_batch_size": run.micro, "gradient_accumulation_steps": run.accum, "optimizer": run.optimizer}
    out["gradient_checkpointing"] = recipe.checkpointing != "none"
    if recipe.checkpointing != "none" and not recipe.reentrant:
        out["gradient_checkpointing_kwargs"] = {"use_reentrant": False}
    half = recipe.autocast or recipe.weight_dtype
    out |= {"bf16": True} if half is DType.BF16 else {"fp16": True} if half is DType.FP16 else {"bf16": False}
    out["attn_implementation"] = {"flash2": "flash_attention_2"}.get(recipe.attention, recipe.attention)
    if run.fused:
        out["plugins"] = ["axolotl.integrations.liger.LigerPlugin"]
        kernels = ("liger_rope", "liger_rms_norm", "liger_glu_activation") if recipe.fused_kernels else ()
        loss = ("liger_fused_linear_cross_entropy",) if recipe.loss == "fused_linear" else ()
        out |= dict.fromkeys((*kernels, *loss), True)
    return out


def _trl(run: Run) -> dict[str, object]:
    recipe, lora = run.recipe, run.recipe.lora
    out: dict[str, object] = {"model_name_or_path": run.name, "dtype": _HALF.get(recipe.weight_dtype, "auto")}
    if lora:
        out |= {"use_peft": True, "lora_r": lora.rank, "lora_alpha": lora.alpha, "lora_dropout": lora.dropout}
        out["lora_target_modules"] = list(run.targets) or "all-linear"
        if lora.modules_to_save:
            out["lora_modules_to_save"] = list(lora.modules_to_save)
    if run.bits:
        out[f"load_in_{run.bits}bit"] = True
        if run.bits == 4 and recipe.quant is not None:
            out["use_bnb_nested_quant"] = recipe.quant.double
    out |= {"max_length": run.seq, "packing": recipe.packing, **_hf_batches(run)}
    out["gradient_checkpointing"] = recipe.checkpointing != "none"
    if recipe.checkpointing != "none" and recipe.reentrant:
        out["gradient_checkpointing_kwargs"] = {"use_reentrant": True}
    out |= {"fp16": True} if recipe.autocast is DType.FP16 else {"bf16": recipe.autocast is DType.BF16}
    out["attn_implementation"] = {"flash2": "flash_attention_2"}.get(recipe.attention, recipe.attention)
    if recipe.fused_kernels:
        out["use_liger_kernel"] = True
    return out


def _swift(run: Run) -> dict[str, object]:
    recipe, lora = run.recipe, run.recipe.lora
    out: dict[str, object] = {"model": run.name}
    if recipe.task not in ("sft", "pt"):
        out["rlhf_type"] = recipe.task
    out["tuner_type"] = recipe.method
    if lora:
        out |= {"lora_rank": lora.rank, "lora_alpha": lora.alpha, "lora_dropout": lora.dropout}
        out["target_modules"] = list(run.targets) or "all-linear"
        if lora.modules_to_save:
            out["modules_to_save"] = list(lora.modules_to_save)
    if run.bits:
        out |= {"quant_method": "bnb", "quant_bits": run.bits}
    out |= {"torch_dtype": _HALF.get(recipe.autocast or recipe.weight_dtype, "bfloat16"), "max_length": run.seq}
    out |= {"packing": recipe.packing, **_hf_batches(run), "gradient_checkpointing": recipe.checkpointing != "none"}
    if recipe.checkpointing != "none" and recipe.reentrant:
        out["gradient_checkpointing_kwargs"] = {"use_reentrant": True}
    out["attn_impl"] = {"flash2": "flash_attn"}.get(recipe.attention, recipe.attention)
    if run.fused:
        out["use_liger_kernel"] = True
    return out


def _torchtune(run: Run) -> dict[str, object]:
    """Settings to lay over torchtune's own config of the model, which names its components."""
    recipe = run.recipe
    component = next((name for name, optim in OPTIMIZERS.items() if optim == run.optimizer), "torch.optim.AdamW")
    out: dict[str, object] = {"tokenizer": {"max_seq_len": run.seq}, "dataset": {"packed": recipe.packing}}
    out |= {"batch_size": run.micro, "gradient_accumulation_steps": run.accum}
    out["optimizer"] = {"_component_": component}
    out["enable_activation_checkpointing"] = recipe.checkpointing != "none"
    out["dtype"] = "bf16" if (recipe.autocast or recipe.weight_dtype) is DType.BF16 else "fp32"
    if recipe.lora:
        out["model"] = {"lora_rank": recipe.lora.rank, "lora_alpha": recipe.lora.alpha}
        out["model"] |= {"lora_dropout": recipe.lora.dropout}  # type: ignore[operator]
    return out


SPELLERS: Mapping[str, Callable[[Run], dict[str, object]]] = {
    "llamafactory": _llamafactory,
    "axolotl": _axolotl,
    "trl": _trl,
    "ms-swift": _swift,
    "torchtune": _torchtune,
}


def loop_key(name: str, tool: str) -> str:
    """A setting of the loop as a tool calls it, "" where it has none."""
    if name == "warmup_ratio" and tool == "trl":
        return "warmup_steps"  # transformers 5.15 dropped warmup_ratio: a number below 1 is a share
    axolotl, torchtune = LOOP[name]
    return {"axolotl": axolotl, "torchtune": torchtune}.get(tool, name)
