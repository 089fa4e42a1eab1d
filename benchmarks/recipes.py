"""From a row's columns to the model and recipe of its run: one generic reading for every source.

What the columns leave open is decided by the framework's habits (``benchmarks.stacks``) and written down
in ``Question.assumed``. ``OVERRIDES`` is the only place where a source is named.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from benchmarks.lengths import earlier_batches
from benchmarks.parallel import sharding_of
from benchmarks.rows import Skip
from benchmarks.stacks import Stack, stack_of
from benchmarks.words import find
from finefit.errors import FinefitError
from finefit.workload.dtypes import DType
from finefit.workload.families import layout
from finefit.workload.lora import linear_modules, lora_parameters, lora_targets
from finefit.workload.model import Model
from finefit.workload.recipe import Lora, Optimizer, Quant, Recipe

_FMS = "foundation-model-stack/fms-acceleration"


def _fms(row: Mapping[str, str], recipe: Recipe) -> Recipe:
    """fms-acceleration's QLoRA (plugins/accelerated-peft framework_plugin_bnb.py).

    It loads with bnb_4bit_use_double_quant=True. Only its baseline on one GPU goes through
    prepare_model_for_kbit_training: under FSDP the figures of both paths are the same (facts of the table).
    """
    if recipe.quant is None:
        return recipe
    prepared = "accelerated-peft" not in row.get("framework", "") and recipe.sharding.kind == "none"
    return replace(recipe, quant=replace(recipe.quant, double=True, kbit_prepare=prepared))


# The one place where a source is named: what its columns do not say, at most one rule a source.
OVERRIDES: Mapping[str, Callable[[Mapping[str, str], Recipe], Recipe]] = MappingProxyType({_FMS: _fms})

_DTYPES = (("bf16|bfloat16", DType.BF16), ("fp16|float16", DType.FP16), ("fp32|float32", DType.FP32))


@dataclass(frozen=True, slots=True)
class Question:
    """What a row asks.

    Attributes:
        lengths: tokens of batches before the longest one, for figures that depend on them.
        summed_over: GPUs whose figures the row adds up.
        assumed: what the columns leave open.
    """

    model: Model
    recipe: Recipe
    lengths: tuple[int, ...]
    summed_over: int
    assumed: tuple[str, ...]


def question(row: Mapping[str, str]) -> Question:
    """The run a row describes.

    Raises:
        Skip: something in it is not stated, or is not modelled yet.
    """
    assumed: list[str] = []
    _refuse(row)
    model, about = find(row["model"])
    if about:
        assumed.append(about)
    stack = stack_of(row, assumed)
    method = _method(row)
    sharding = sharding_of(row, assumed)
    weights = _weight_dtype(row, model, method, assumed)
    autocast = _autocast(row, weights, sharding.kind, assumed)
    if sharding.kind == "fsdp" and stack.trainer and autocast and method == "full" and weights is not DType.FP32:
        weights = DType.FP32
        assumed.append("accelerate's FSDP upcasts trained weights to fp32 under mixed precision")
    master = sharding.kind.startswith("zero") and "deepspeed" in row.get("distributed", "").lower()
    if master:  # DeepSpeed casts the module to 16 bit and runs no torch autocast
        weights, autocast = autocast or weights, None
    micro_batch = _count(row, "micro_batch")
    handling = row.get("seq_handling", "").lower()
    recipe = Recipe(
        method=method,
        weight_dtype=weights,
        optimizer=_optimizer(row, model, stack, master, assumed),
        seq_len=_seq_len(row, model, assumed),
        micro_batch=micro_batch,
        grad_accum=_count(row, "grad_accum", 1, assumed),
        task="pt" if "pretrain" in row["method"] else "sft",
        lora=_lora(row, model, stack, weights, assumed) if method == "lora" else None,
        quant=_quant(row, stack, weights, autocast, assumed),
        autocast=autocast,
        master_weights=master,
        padded=stack.passes_mask and "pad" in handling and "padding-free" not in handling and micro_batch > 1,
        packing="packed" in handling and "unpacked" not in handling,
        checkpointing=_checkpointing(row, assumed),
        # torch's checkpoint_wrapper, which FSDP's activation_checkpointing uses, is non-reentrant
        reentrant=stack.reentrant and "fsdp" not in row.get("gradient_checkpointing", "").lower(),
        attention=_attention(row, model, assumed),
        loss=_loss(row, weights),
        keeps_outputs=stack.keeps_outputs,
        returns_cache=stack.returns_cache,
        fused_kernels="liger" in row.get("memory_options", "").lower(),
        sharding=sharding,
        stack=MappingProxyType(
            {"transformers": "{}.{}".format(*stack.transformers), "torch": "{}.{}".format(*stack.torch)}
        ),
    )
    source = row.get("source", "").partition("@")[0]
    if source in OVERRIDES:
        recipe = OVERRIDES[source](row, recipe)
    if re.search(r"dynamic|padded to longest|max_length|\bcap\b", handling):
        assumed.append("longest row taken as the length limit")
    summed = sharding.ranks if "sum_over_gpus" in row.get("flags", "") else 1
    lengths = earlier_batches(row, recipe.seq_len, assumed)
    return Question(model, recipe, lengths, summed, tuple(assumed))


def _refuse(row: Mapping[str, str]) -> None:
    """What no field of a recipe can say."""
    options = row.get("memory_options", "").lower()
    for word, what in (
        ("compile", "torch.compile"),
        ("aot_eager", "torch.compile"),
        ("float8", "float8"),
        ("fp8", "float8"),
        ("fp4", "fp4 training"),
        ("foak", "fused kernels of fms-acceleration"),
        ("activation offload", "activation offloading"),
    ):
        if word in options:
            raise Skip(f"not modelled yet: {what}")
    if "unsloth" in row.get("framework", "").lower():
        raise Skip("not modelled yet: unsloth's own kernels and checkpointing")


def _count(row: Mapping[str, str], column: str, default: int | None = None, assumed: list[str] | None = None) -> int:
    try:
        value = int(float(row.get(column, "")))
    except (ValueError, OverflowError):
        if default is None:
            raise Skip(f"{column} not stated") from None
        if assumed is not None:
            assumed.append(f"{column} {default}")
        return default
    if value < 1:
        raise Skip(f"{column} not stated")
    return value


def _seq_len(row: Mapping[str, str], model: Model, assumed: list[str]) -> int:
    """Tokens of the longest row; no row is longer than a table of learned positions."""
    stated = _count(row, "seq_len")
    if model.position == "learned" and 0 < model.max_position < stated:
        assumed.append("rows cut at the model's position table")
        return model.max_position
    return stated


# Names of adapters → their kind; rsLoRA is LoRA with another scale
_ADAPTERS = {"lora": "lora", "qlora": "lora", "rslora": "lora", "dora": "dora", "lora-fa": "lora_fa"}
_FEEDFORWARD = ("gate_proj", "up_proj", "down_proj")  # feedforward_modules of the PEFT rows, by their trained counts
_ADAPTERS |= {"adalora": "adalora", "vera": "vera", "oft": "oft", "ia3": "ia3"}


def _method(row: Mapping[str, str]) -> str:
    method = row["method"].lower()
    if method.startswith("full"):
        return "full"
    if method == "galore":
        return "full"
    if method in _ADAPTERS:
        return "lora"
    raise Skip(f"not modelled yet: method {method or '(none)'}")


def _dtype(text: str) -> DType | None:
    """The first number format a text names."""
    found = [(match.start(), dtype) for names, dtype in _DTYPES if (match := re.search(names, text, re.I))]
    return min(found)[1] if found else None


def _weight_dtype(row: Mapping[str, str], model: Model, method: str, assumed: list[str]) -> DType:
    text = row.get("weight_dtype", "")
    if "upcast to fp32" in text and method == "full":
        return DType.FP32
    stated = _dtype(text)
    if stated is not None:
        return stated
    # A pure run computes in the format its weights have.
    compute = row.get("compute_dtype", "")
    stated = _dtype(compute) if not re.search(r"autocast|mixed|amp", compute, re.I) else None
    assumed.append(f"weights in {stated or model.checkpoint_dtype}")
    return stated or model.checkpoint_dtype


def _autocast(row: Mapping[str, str], weights: DType, sharding: str, assumed: list[str]) -> DType | None:
    text = row.get("compute_dtype", "")
    if not text:
        if weights is not DType.FP32:
            return None
        assumed.append("no mixed precision")
        return None
    if re.search(r"\bnone\b|\bpure\b", text, re.I) or re.fullmatch(r"(bf16|fp16|bfloat16|float16|fp32)(/tf32)?", text):
        stated = _dtype(text)
        # "bf16" over fp32 weights can only be mixed precision
        return stated if weights is DType.FP32 and stated not in (None, DType.FP32) and "none" not in text else None
    stated = _dtype(text)
    if stated is None or stated is DType.FP32 or "fp16/bf16 not stated" in text:
        assumed.append("autocast in bf16")
        return DType.BF16
    return stated


def _quant(
    row: Mapping[str, str], stack: Stack, weights: DType, autocast: DType | None, assumed: list[str]
) -> Quant | None:
    text = f"{row.get('quant', '')} {row.get('weight_dtype', '')}".lower()
    stated = row.get("quant", "").lower()
    if not stated:
        if row["method"].lower() == "qlora":
            assumed.append("QLoRA in NF4")
            stated = "nf4"
        else:
            return None
    if stored := re.search(r"gptq|awq", stated):
        assumed.append(f"{stored[0].upper()} in groups of 128")
        return Quant(stored[0], compute_dtype=weights, bits=8 if "int8" in stated else 4, group=128)
    if other := re.search(r"aqlm|hqq|eetq|torchao(?! nf4)", stated):
        raise Skip(f"not modelled yet: {other[0]} weights")
    if re.search(r"int8|8-?bit", stated):
        kind = "int8"
    elif "fp4" in stated and "nf4" not in stated:
        kind = "fp4"
    elif re.search(r"nf4|4-?bit", stated):
        kind = "nf4"
    else:
        raise Skip(f"not modelled yet: quantisation {stated}")
    if stack.kbit_prepare:
        assumed.append("QLoRA through prepare_model_for_kbit_training")
    # torchao's NF4 keeps int8 scales of 64 and a factor of 256 blocks (torchao dtypes/nf4tensor.py): the
    # layout of bitsandbytes with double quantisation.
    return Quant(
        kind=kind,
        double="double" in text or "torchao" in stated,
        kbit_prepare=stack.kbit_prepare,
        # TRL's SFTTrainer then casts embeddings and head back (trl trainer/utils.py peft_module_casting_to_bf16)
        recast=stack.kbit_prepare and autocast is DType.BF16 and kind != "int8" and stack.trl,
        compute_dtype=autocast or weights,
    )


def _optimizer(row: Mapping[str, str], model: Model, stack: Stack, master: bool, assumed: list[str]) -> Optimizer:
    text, notes = row.get("optimizer", "").lower(), row.get("optimizer_notes", "").lower()
    if "galore" in text or row["method"].lower() == "galore":
        found = Optimizer("galore_adamw_8bit" if "8-bit" in text else "galore_adamw", "loop", rank=128)
        rank = _count(row, "rank", 128, assumed)
        assumed.append("GaLore on every linear module")
        states = DType.UINT8 if "8-bit" in text else None
        return replace(found, rank=rank, targets=linear_modules(model), state_dtype=states)
    if "adafactor" in text:
        return Optimizer("adafactor", "loop")
    for word in ("lion", "distributed optimizer", "4-bit", "muon", "on cpu", "lomo"):
        if word in text:
            raise Skip(f"not modelled yet: optimizer {word}")
    if "sgd" in text:
        name = "sgd"
    elif not text or "not stated" in text or "adam" in text:
        if "adam" not in text:
            assumed.append("optimizer AdamW")
        name = "adamw_8bit" if re.search(r"8-?bit", text) else "adamw"
    else:
        raise Skip(f"not modelled yet: optimizer {text}")
    if "fused" in text or notes.startswith("fused") or "bnb" in text or name == "adamw_8bit" or master:
        impl = "fused"  # one kernel a parameter (bitsandbytes) or for all (torch, DeepSpeed FusedAdam): no temporary
    elif "adamw_hf" in text:
        impl = "loop"
    elif stack.trainer and stack.torch >= (2, 8):
        impl = "fused"  # transformers training_args.py: adamw_torch_fused from torch 2.8 on
    else:
        impl = "foreach"  # torch.optim's default on CUDA
    states = DType.FP32 if "paged" in text and name == "adamw" else None
    momentum = "momentum" in text and "no momentum" not in text
    inside = re.search(r"in_bwd|in backward", f"{text} {row.get('memory_options', '').lower()}") is not None
    return Optimizer(
        name=name, impl=impl, state_dtype=states, momentum=momentum, paged="paged" in text, in_backward=inside
    )


def _lora(row: Mapping[str, str], model: Model, stack: Stack, weights: DType, assumed: list[str]) -> Lora:
    if "new token" in row.get("trainable_embeddings", ""):
        raise Skip("not modelled yet: training of new token rows only")
    kind = _ADAPTERS[row["method"].lower()]
    rank = 1 if kind == "ia3" else _count(row, "rank")
    alpha = _count(row, "lora_alpha", 2 * rank, assumed)
    try:
        dropout = float(row.get("lora_dropout", "") or 0)
    except ValueError:
        dropout = 0.0
    named = _dtype(row.get("adapter_dtype", ""))
    dtype = named or (DType.FP32 if stack.adapters_fp32 else weights)
    if named is None:
        assumed.append(f"adapters in {dtype}")
    saved: tuple[str, ...] = ()
    if row.get("trainable_embeddings", "").startswith("yes"):
        names = layout(model.family)
        saved = (names.embedding, names.head)
    targets = _targets(row, model, assumed)
    if kind == "adalora" and row.get("trainable_params"):  # the column holds the rank that the run ends with
        one = lora_parameters(model, Lora(1, 1, targets=targets, kind=kind))
        rank = max(rank, round(float(row["trainable_params"]) / one))
    return Lora(
        rank=rank,
        alpha=alpha,
        dropout=dropout,
        targets=targets,
        dtype=dtype,
        modules_to_save=saved,
        kind=kind,
        block=model.hidden // rank if kind == "oft" else 0,  # PEFT's r of OFT is the number of blocks
        feedforward=tuple(name for name in targets if name in _FEEDFORWARD) if kind == "ia3" else (),
    )


# torchtune's names of the projections, and groups of them, in the words of a Llama layer.
_WORDS = {
    "q": "q_proj",
    "k": "k_proj",
    "v": "v_proj",
    "output_proj": "o_proj",
    "mlp": "gate_proj up_proj down_proj",
    "output": "lm_head",
}


def _targets(row: Mapping[str, str], model: Model, assumed: list[str]) -> tuple[str, ...]:
    text = row.get("target_modules", "").lower() if "all" in row.get("target_modules", "").lower() else ""
    try:
        if re.fullmatch(r".*\ball[ -]linear\b.*|all", text):
            return lora_targets(model, "all-linear")
        given = re.sub(r"\(.*?\)|\ball\b|\+|,", " ", row.get("target_modules", ""))
        if not given.strip() or "default" in given.lower():
            assumed.append("PEFT's default LoRA targets")
            return lora_targets(model, None)
        return lora_targets(model, " ".join(_WORDS.get(word, word) for word in given.split()).split())
    except FinefitError as error:
        raise Skip(f"LoRA targets: {error.what}") from error


def _checkpointing(row: Mapping[str, str], assumed: list[str]) -> str:
    kind = row.get("gc_class", "").lower()
    text = row.get("gradient_checkpointing", "").lower()
    if kind not in ("none", "full", "selective"):
        kind = "selective" if "selective" in text else "full" if re.match(r"yes|full|true|on", text) else "none"
        if not text:
            assumed.append("no gradient checkpointing")
    if kind == "selective":
        raise Skip("not modelled yet: selective checkpointing")
    return kind


def _attention(row: Mapping[str, str], model: Model, assumed: list[str]) -> str:
    text = row.get("attention_impl", "").lower()
    if re.search(r"eager|native", text):
        if "not stated" in text:
            assumed.append("the model's own attention is eager")
        return "eager"
    if "sdpa" in text:
        return "sdpa"
    if "flash" in text:
        return "flash2"
    assumed.append("SDPA attention")
    return "sdpa"


def _loss(row: Mapping[str, str], weights: DType) -> str:
    text = row.get("loss_impl", "").lower()
    if "compiled" in text:
        raise Skip("not modelled yet: torch.compile")
    if re.search(r"fused linear|liger", text):
        return "fused_linear"
    if "chunk" in text:
        raise Skip("not modelled yet: cross-entropy in chunks of full logits")
    if re.search(r"triton|vocab-parallel|foak|cut cross", text):
        raise Skip("not modelled yet: fused cross-entropy on full logits")
    if "model dtype" in text and weights is not DType.FP32:
        raise Skip("not modelled yet: loss in 16 bit")
    return "full"
