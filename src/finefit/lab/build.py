"""The model and optimizer of a recipe, built as its tools would, on fake CUDA tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, AutoModelForImageTextToText

from finefit.errors import NotModelled
from finefit.lab.config import config_of
from finefit.lab.flash import FLASH
from finefit.lab.versions import TRANSFORMERS as VERSION
from finefit.lab.vision import freeze, untouched
from finefit.workload.dtypes import DType
from finefit.workload.model import Model
from finefit.workload.recipe import Recipe

DTYPES = {DType.FP32: torch.float32, DType.BF16: torch.bfloat16, DType.FP16: torch.float16}
_DTYPE = "dtype" if VERSION >= (4, 56) else "torch_dtype"  # renamed in transformers 4.56
_ATTENTION = {"eager": "eager", "sdpa": "sdpa", "flash2": FLASH}


def refuse_untraced(recipe: Recipe) -> None:
    """Refuse what the tracer would otherwise leave out in silence.

    Raises:
        NotModelled: sharding, compiled or fused kernels, a fused loss, another attention or checkpoint mode.
    """
    for wrong, what in (
        (recipe.sharding.kind != "none", f"sharding ({recipe.sharding.kind})"),
        (recipe.compiled, "torch.compile"),
        (recipe.fused_kernels, "fused kernels"),
        (recipe.loss not in ("full", "chunked"), f"loss {recipe.loss!r}"),
        (recipe.attention not in _ATTENTION, f"attention {recipe.attention!r}"),
        (recipe.checkpointing not in ("none", "full"), f"checkpointing {recipe.checkpointing!r}"),
        (recipe.master_weights, "master weights beside the model's"),
        (recipe.attention == "flash2" and recipe.padded, "flash-attention on padded batches"),
        (recipe.optimizer.paged, "a paged optimizer"),
    ):
        if wrong:
            raise NotModelled(f"{what} cannot be traced yet", fix="trace the recipe without it")


def load_model(model: Model, recipe: Recipe, device: str = "cuda", config: Mapping[str, Any] | None = None) -> Any:
    """The model as ``from_pretrained`` leaves it: in the recipe's dtype, quantised weight by weight.

    Args:
        config: a config.json to build from; None: from the model's dimensions.

    On "cuda" it must run inside ``shim.fake_cuda`` and a ``FakeTensorMode``.

    Raises:
        NotModelled: the family is unknown, or its code refuses the attention implementation.
    """
    built = config_of(model) if config is None else CONFIG_MAPPING[config["model_type"]](**config)
    dtype = DTYPES[recipe.weight_dtype]
    try:
        with torch.device(device):
            module: Any = (AutoModelForCausalLM if model.tower is None else AutoModelForImageTextToText).from_config(
                built, attn_implementation=_ATTENTION[recipe.attention], **{_DTYPE: dtype}
            )
    except ValueError as error:  # Gemma 2 has no SDPA
        raise NotModelled(
            f"transformers cannot run {model.family} with attention {recipe.attention!r}", fix="use eager"
        ) from error
    if model.tower is not None:
        freeze(module, recipe)
    if recipe.quant is not None:
        from finefit.lab.quant import quantise

        quantise(module, recipe.quant, DTYPES[recipe.quant.compute_dtype])
    if recipe.loss == "chunked":
        from trl.trainer.utils import add_fused_lm_head

        add_fused_lm_head(module, outputs=("log_probs", "entropy", "is_top1"))  # as SFTTrainer.__init__ does
    return module


def prepare_model(module: Any, recipe: Recipe) -> Any:
    """The training module: upcast for k-bit training, adapted and checkpointed as the recipe says."""
    checkpointing = recipe.checkpointing == "full"
    kwargs = {"use_reentrant": recipe.reentrant}
    if recipe.quant is not None and recipe.quant.kbit_prepare:
        from peft import prepare_model_for_kbit_training

        module = prepare_model_for_kbit_training(
            module, use_gradient_checkpointing=checkpointing, gradient_checkpointing_kwargs=kwargs
        )
    if recipe.method == "lora":
        module = _adapt(module, recipe)
    if recipe.quant is not None and recipe.quant.kbit_prepare and recipe.quant.recast:
        _recast(module)
    if checkpointing:
        module.gradient_checkpointing_enable(gradient_checkpointing_kwargs=kwargs)
        if recipe.method == "lora":
            module.enable_input_require_grads()
    module.train()
    return module


def lora_config(recipe: Recipe) -> Any:
    """PEFT's config of the recipe's adapters."""
    from peft import LoraConfig

    lora = recipe.lora
    assert lora is not None
    return LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=list(lora.targets),
        modules_to_save=list(lora.modules_to_save) or None,
        exclude_modules=untouched(recipe),
        task_type="CAUSAL_LM",
    )


def _adapt(module: Any, recipe: Recipe) -> Any:
    from peft import get_peft_model

    lora = recipe.lora
    assert lora is not None
    adapted: Any = get_peft_model(module, lora_config(recipe), autocast_adapter_dtype=lora.dtype == DType.FP32)
    for name, parameter in adapted.named_parameters():
        if "lora_" in name and parameter.dtype != DTYPES[lora.dtype]:
            parameter.data = parameter.data.to(DTYPES[lora.dtype])
    return adapted


def _recast(module: Any) -> None:
    """Embeddings and output layer back to 16 bits (trl 0.13.0 trainer/utils.py ``peft_module_casting_to_bf16``)."""
    for name, child in module.named_modules():
        if isinstance(child, torch.nn.LayerNorm) or "norm" in name:
            child.to(torch.float32)
        elif any(part in name for part in ("lm_head", "embed_tokens", "wte", "wpe")):
            weight = getattr(child, "weight", None)
            if weight is not None and weight.dtype == torch.float32:
                child.to(torch.bfloat16)
