"""The model and optimizer of a recipe, built as its tools would, on fake CUDA tensors."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
import transformers
from torch.utils.checkpoint import checkpoint
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from finefit.errors import NotModelled
from finefit.lab.config import config_of
from finefit.lab.configured import Configured
from finefit.lab.encoder import auto_class
from finefit.lab.flash import FLASH
from finefit.lab.versions import TRANSFORMERS as VERSION
from finefit.lab.vision import freeze, untouched
from finefit.workload.dtypes import DType
from finefit.workload.model import Model
from finefit.workload.recipe import Beside, Recipe, Trained
from finefit.workload.sourced import Origin

DTYPES = {DType.FP32: torch.float32, DType.BF16: torch.bfloat16, DType.FP16: torch.float16}
_QUANTS = ("nf4", "fp4", "int8")  # bitsandbytes'
_TASKS = ("sft", "pt")  # a language model's own loss
_DTYPE = "dtype" if VERSION >= (4, 56) else "torch_dtype"  # renamed in transformers 4.56
ALL_LINEAR = "all-linear"  # PEFT's own word, for models whose modules finefit does not know
_ATTENTION = {"eager": "eager", "sdpa": "sdpa", "flash2": FLASH}


def refuse_untraced(recipe: Recipe) -> None:
    """Refuse what the tracer would otherwise leave out in silence.

    Raises:
        NotModelled: sharding, another task or model beside, compiled or fused kernels, a fused loss, another
            attention or checkpoint mode.
    """
    for wrong, what in (
        (recipe.sharding.kind != "none", f"sharding ({recipe.sharding.kind})"),
        (recipe.parallel.gpus > 1 or recipe.parallel.expert > 1, "tensor, pipeline, context or expert parallelism"),
        (recipe.task not in _TASKS, f"the loss of {recipe.task}"),
        (recipe.beside != Beside(), "other models beside the one that is trained"),
        (recipe.compiled, "torch.compile"),
        (recipe.fused_kernels, "fused kernels"),
        (recipe.loss not in ("full", "chunked"), f"loss {recipe.loss!r}"),
        (recipe.attention not in _ATTENTION, f"attention {recipe.attention!r}"),
        (recipe.checkpointing not in ("none", "full"), f"checkpointing {recipe.checkpointing!r}"),
        (recipe.weight_dtype not in DTYPES, f"weights in {recipe.weight_dtype.value}"),
        (recipe.quant is not None and recipe.quant.kind not in _QUANTS, "weights stored in GPTQ or AWQ"),
        (recipe.master_weights, "master weights beside the model's"),
        (recipe.attention == "flash2" and recipe.padded, "flash-attention on padded batches"),
        (recipe.optimizer.paged, "a paged optimizer"),
    ):
        if wrong:
            raise NotModelled(f"{what} cannot be traced yet", fix="trace the recipe without it")


def load_model(
    model: Model, recipe: Recipe, device: str = "cuda", config: Mapping[str, Any] | Configured | None = None
) -> Any:
    """The model as ``from_pretrained`` leaves it: in the recipe's dtype, quantised weight by weight.

    Args:
        config: a config.json to build from, its keys or as read; None: from the model's dimensions.

    On "cuda" it must run inside ``shim.fake_cuda`` and a ``FakeTensorMode``.

    Raises:
        NotModelled: the family is unknown, or its code refuses the attention implementation.
    """
    if not isinstance(config, Configured):
        built = config_of(model) if config is None else CONFIG_MAPPING[config["model_type"]](**config)
        config = Configured(built, trusted=False, name=model.origin)
        auto = _auto_class(model)
    else:
        plain = model.head == "lm" and model.tower is None
        auto = getattr(transformers, config.auto_class()) if plain else _auto_class(model)
    dtype = DTYPES[recipe.weight_dtype]
    settings: dict[str, Any] = {_DTYPE: dtype}
    if not _left_to_the_library(recipe):
        settings["attn_implementation"] = _ATTENTION[recipe.attention]
    try:
        with torch.device(device):
            module: Any = config.build(auto, **settings)
    except (ValueError, KeyError) as error:  # Gemma 2 has no SDPA; Falcon looks its classes up by name
        raise NotModelled(
            f"transformers cannot run {model.family} with attention {recipe.attention!r}", fix="use eager"
        ) from error
    if model.tower is not None:
        freeze(module, recipe)
    _cast_as_loading_does(module, dtype)
    if recipe.quant is not None:
        from finefit.lab.quant import quantise

        quantise(module, recipe.quant, DTYPES[recipe.quant.compute_dtype])
    if recipe.loss == "chunked":
        from trl.trainer.utils import add_fused_lm_head

        add_fused_lm_head(module, outputs=("log_probs", "entropy", "is_top1"))  # as SFTTrainer.__init__ does
    return module


def _left_to_the_library(recipe: Recipe) -> bool:
    """Nobody stated the attention: transformers takes SDPA, and eager for a model that has none."""
    source = recipe.sources.get("attention")
    return recipe.attention == "sdpa" and source is not None and source.origin is not Origin.STATED


def _auto_class(model: Model) -> Any:
    if model.head != "lm":
        return auto_class(model)
    if model.tower is None:
        return AutoModelForCausalLM
    from transformers import AutoModelForImageTextToText  # of 4.47 and later

    return AutoModelForImageTextToText


def _cast_as_loading_does(module: Any, dtype: torch.dtype) -> None:
    """Parameters that a constructor makes in fp32 are loaded in the model's dtype, unless its class keeps them.

    transformers 5.24.0 modeling_utils.py ``_keep_in_fp32_modules_strict``.
    """
    kept = tuple(getattr(module, "_keep_in_fp32_modules_strict", None) or ())
    for name, parameter in module.named_parameters():
        if parameter.dtype == torch.float32 != dtype and not any(part in name for part in kept):
            parameter.data = parameter.data.to(dtype)


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
    if recipe.trained is not None:
        _select(module, recipe.trained)
    if recipe.quant is not None and recipe.quant.kbit_prepare and recipe.quant.recast:
        _recast(module)
    if checkpointing and recipe.trained is not None and recipe.trained.selective:
        module._set_gradient_checkpointing(
            enable=True, gradient_checkpointing_func=_selective(partial(checkpoint, **kwargs))
        )
    elif checkpointing:
        module.gradient_checkpointing_enable(gradient_checkpointing_kwargs=kwargs)
        if recipe.method == "lora":
            module.enable_input_require_grads()
    module.train()
    return module


def lora_config(recipe: Recipe) -> Any:
    """PEFT's config of the recipe's adapters."""
    import peft

    lora = recipe.lora
    assert lora is not None
    shared: dict[str, Any] = {
        "target_modules": ALL_LINEAR if lora.targets == (ALL_LINEAR,) else list(lora.targets),
        "modules_to_save": list(lora.modules_to_save) or None,
        "task_type": "CAUSAL_LM",
    }
    if lora.kind == "ia3":
        return peft.IA3Config(feedforward_modules=list(lora.feedforward), **shared)
    if lora.kind == "vera":
        return peft.VeraConfig(r=lora.rank, vera_dropout=lora.dropout, **shared)
    if lora.kind == "oft":
        return peft.OFTConfig(r=0, oft_block_size=lora.block, **shared)
    shared |= {"lora_alpha": lora.alpha, "lora_dropout": lora.dropout}
    if lora.kind == "adalora":
        return peft.AdaLoraConfig(init_r=lora.rank, total_step=10**6, **shared)
    if untouched(recipe):  # PEFT has it since 0.14
        shared["exclude_modules"] = untouched(recipe)
    return peft.LoraConfig(r=lora.rank, use_dora=lora.kind == "dora", **shared)


def of_adapter(name: str) -> bool:
    """Whether a parameter of this name is PEFT's (tuners/*/layer.py adapter_layer_names)."""
    return any(part in name for part in ("lora_", "vera_lambda", "oft_", "ia3_", "ranknum"))


def _adapt(module: Any, recipe: Recipe) -> Any:
    from peft import get_peft_model

    lora = recipe.lora
    assert lora is not None
    config = lora_config(recipe)
    # an encoder, or Whisper, whose input is no text
    if not hasattr(module, "prepare_inputs_for_generation") or module.config.model_type == "whisper":
        config.task_type = None
    adapted: Any = get_peft_model(module, config, autocast_adapter_dtype=lora.dtype == DType.FP32)
    for name, parameter in adapted.named_parameters():
        if of_adapter(name) and parameter.dtype != DTYPES[lora.dtype]:
            parameter.data = parameter.data.to(DTYPES[lora.dtype])
        if lora.kind == "lora_fa" and "lora_A" in name:  # optimizers/lorafa.py create_lorafa_optimizer
            parameter.requires_grad_(False)
    return adapted


def _select(module: Any, trained: Trained) -> None:
    """Only the selected parameters are trained, in their own dtype."""
    for name, parameter in module.named_parameters():
        if not trained.holds(name.removeprefix("model.")):
            parameter.requires_grad_(False)
        elif trained.dtype is not None:
            parameter.data = parameter.data.to(DTYPES[trained.dtype])


def _selective(checkpointed: Any) -> Any:
    """llamafactory 0.9.5 model_utils/checkpointing.py ``get_custom_gradient_checkpointing_func``."""

    def run(function: Any, *args: Any, **kwargs: Any) -> Any:
        inner = function.func if isinstance(function, partial) else function
        module = (
            getattr(inner, "__self__", None) or function.args[0]
        )  # transformers 5.24 hands the layer as an argument
        if not any(parameter.requires_grad for parameter in module.parameters()):
            return function(*args, **kwargs)
        hidden = next(arg for arg in args if torch.is_tensor(arg) and torch.is_floating_point(arg))
        hidden.requires_grad_(True)
        return checkpointed(function, *args, **kwargs)

    return run


def _recast(module: Any) -> None:
    """Embeddings and output layer back to 16 bits (trl 0.13.0 trainer/utils.py ``peft_module_casting_to_bf16``)."""
    for name, child in module.named_modules():
        if isinstance(child, torch.nn.LayerNorm) or "norm" in name:
            child.to(torch.float32)
        elif any(part in name for part in ("lm_head", "embed_tokens", "wte", "wpe")):
            weight = getattr(child, "weight", None)
            if weight is not None and weight.dtype == torch.float32:
                child.to(torch.bfloat16)
