"""LLaMA-Factory settings that finefit understands and does not model: refused in one sentence, never ignored."""

from __future__ import annotations

from finefit.errors import InputError, NotModelled
from finefit.resolve.settings import Settings
from finefit.resolve.shown import shown

# Switches of llamafactory 0.9.5 hparams/*.py and transformers 5.6.0 training_args.py that change memory
_SWITCHES: dict[str, tuple[str, str]] = {
    "use_llama_pro": ("LLaMA Pro", "remove use_llama_pro"),
    "use_unsloth": ("Unsloth's model code", "remove use_unsloth to plan the same run without it"),
    "use_unsloth_gc": ("Unsloth's checkpointing with offload", "remove use_unsloth_gc to plan plain checkpointing"),
    "shift_attn": ("shifted sparse attention (LongLoRA)", "remove shift_attn"),
    "use_kt": ("KTransformers (experts on the CPU)", "remove use_kt"),
    "use_v1_kernels": ("the v1 kernels of LLaMA-Factory", "remove use_v1_kernels"),
    "use_mca": ("training through Megatron-Core (use_mca)", "plan it with DeepSpeed"),
    "use_hyper_parallel": ("the HyperParallel backend", "plan it with DeepSpeed or FSDP"),
    "use_dft_loss": ("the DFT loss", "remove use_dft_loss to plan cross entropy"),
    "use_asft_loss": ("the ASFT loss", "remove use_asft_loss to plan cross entropy"),
    "use_eaft_loss": ("the EAFT loss", "remove use_eaft_loss to plan cross entropy"),
    "upcast_layernorm": ("norm weights in fp32 (upcast_layernorm)", "remove upcast_layernorm"),
    "upcast_lmhead_output": ("a second fp32 copy of the logits (upcast_lmhead_output)", "remove upcast_lmhead_output"),
    "torch_compile": ("torch.compile", "remove torch_compile to plan the run without it, which needs more memory"),
    "use_cpu": ("training on the CPU", "remove use_cpu"),
}
# Keys that select something unmodelled by being set at all
_SET: dict[str, tuple[str, str]] = {
    "mixture_of_depths": ("mixture of depths", "remove mixture_of_depths"),
    "parallelism_config": ("accelerate's parallelism_config", "remove it"),
    "liger_kernel_config": ("a choice among the Liger kernels", "remove liger_kernel_config to plan all of them"),
    "export_dir": ("merging and export", "name the training config"),
    "torch_compile_backend": ("torch.compile", "remove torch_compile_backend"),
    "torch_compile_mode": ("torch.compile", "remove torch_compile_mode"),
}
_VALUES: dict[str, dict[str, tuple[str, str]]] = {
    "quantization_method": {
        "hqq": ("HQQ quantisation", "use quantization_method: bnb"),
        "eetq": ("EETQ quantisation", "use quantization_method: bnb"),
    },
    "flash_attn": {"fa3": ("FlashAttention-3", "use flash_attn: fa2")},
    "infer_backend": {
        "vllm": ("inference with vLLM", "name the training config"),
        "sglang": ("inference with SGLang", "name the training config"),
    },
}
_CHOICES = {
    "stage": ("pt", "sft", "rm", "ppo", "dpo", "kto"),
    "finetuning_type": ("lora", "oft", "freeze", "full"),
    "quantization_method": ("bnb", "hqq", "eetq"),
    "quantization_type": ("nf4", "fp4"),
    "flash_attn": ("auto", "disabled", "sdpa", "fa2", "fa3"),
    "infer_backend": ("huggingface", "vllm", "sglang"),
}
# Name endings of checkpoints that are stored quantised (the repositories that publish them name them so)
_PACKED = ("gguf", "aqlm", "exl2", "bnb-4bit", "mlx")


def refuse_unmodelled(settings: Settings) -> None:
    """Raise for the first setting that cannot be modelled, or that the tool itself has no such value for.

    Raises:
        NotModelled: one sentence with the line, the key and what to do.
        InputError: a value that the tool does not know.
    """
    for key, allowed in _CHOICES.items():
        value = settings.text(key)
        if value is not None and value not in allowed:
            raise InputError(
                f"{shown(value)} is none of {', '.join(allowed)}", where=settings.where(key), fix="write one of them"
            )
    method = settings.text("finetuning_type")
    for key, (what, fix) in _SWITCHES.items():
        if settings.flag(key):
            _refuse(settings, key, what, fix)
    for key, (what, fix) in _SET.items():
        if settings.stated(key):
            _refuse(settings, key, what, fix)
    for key, values in _VALUES.items():
        found = values.get(settings.text(key) or "")
        if found:
            _refuse(settings, key, *found)
    if settings.number("label_smoothing_factor"):
        _refuse(settings, "label_smoothing_factor", "label smoothing", "remove label_smoothing_factor")
    if settings.flag("train_from_scratch") and (method == "lora" or settings.flag("pure_bf16")):
        _refuse(settings, "train_from_scratch", "training from random weights in this precision", "remove it")
    _refuse_packed(settings)


def _refuse_packed(settings: Settings) -> None:
    name = (settings.text("model_name_or_path") or "").rstrip("/\\").lower()
    for ending in _PACKED:
        if name.endswith((f"-{ending}", f"_{ending}")):
            _refuse(
                settings,
                "model_name_or_path",
                f"a checkpoint stored quantised ({ending.upper()})",
                "name the 16-bit model and add quantization_bit: 4 to plan QLoRA",
            )


def _refuse(settings: Settings, key: str, what: str, fix: str) -> None:
    raise NotModelled(f"{what} is not modelled yet", where=settings.where(key), fix=fix)
