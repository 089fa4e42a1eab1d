"""What can be changed in a recipe to save memory, from the least painful to the most.

Each lever turns one recipe into another, or does not apply (None). It says why it helps and what it
risks; what it saves and costs is re-estimated in ``remedies``, never taken from a factor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import isqrt

from finefit.planner.inputs import flat
from finefit.planner.message import Message, message
from finefit.resolve.gpus import on_gpus
from finefit.workload import DType, Lora, Model, Optimizer, Quant, Recipe
from finefit.workload.lora import lora_targets

# Dense text models that Liger's kernels patch (llamafactory 0.9.5 model/model_utils/liger_kernel.py)
_LIGER = frozenset(
    {"gemma", "gemma2", "gemma3_text", "glm4", "granite", "llama", "mistral", "olmo2", "phi3", "qwen2", "qwen3"}
)
_RANK = 8  # peft 0.21.2 tuners/lora/config.py LoraConfig.r, LLaMA-Factory's lora_rank too
_SHORTEST = 256  # tokens below which halving the rows is no cure for a training run


@dataclass(frozen=True, slots=True)
class Change:
    """One lever applied.

    Attributes:
        kind: name of the lever; recipe: after it.
        what: the change; rule: why it helps; risk: what it may do to the result, None: nothing.
    """

    kind: str
    recipe: Recipe
    what: Message
    rule: Message
    risk: Message | None = None


def micro_batches(model: Model, recipe: Recipe) -> Iterator[Change]:
    """Fewer rows at once, more micro-batches a step: the largest first, down to one row."""
    if recipe.optimizer.in_backward:  # each micro-batch is a step: there is nothing to accumulate
        return
    b = recipe.micro_batch
    low = [divisor for divisor in range(1, isqrt(b) + 1) if b % divisor == 0]
    for smaller in sorted({*low, *(b // divisor for divisor in low)} - {b}, reverse=True):
        accum = recipe.grad_accum * b // smaller
        yield Change(
            "micro_batch",
            replace(recipe, micro_batch=smaller, grad_accum=accum, padded=recipe.padded and smaller > 1),
            message(
                "micro-batch {old} → {new}, gradient accumulation {before} → {after}",
                old=b,
                new=smaller,
                before=recipe.grad_accum,
                after=accum,
            ),
            message("activations and logits grow with the micro-batch; the global batch stays the same"),
        )


def evaluation(model: Model, recipe: Recipe) -> Change | None:
    """Fewer rows of evaluation at once: as many as training has, then one."""
    old = recipe.eval_batch
    if old is None or old == 1:
        return None
    new = recipe.micro_batch if old > recipe.micro_batch else 1
    return Change(
        "evaluation",
        replace(recipe, eval_batch=new),
        message("evaluation batch {old} → {new}", old=old, new=new),
        message("evaluation holds the logits of all its rows at once, whatever the micro-batch is"),
    )


def checkpointing(model: Model, recipe: Recipe) -> Change | None:
    """Keep one tensor a layer and recompute the rest in backward."""
    if recipe.checkpointing != "none":
        return None
    return Change(
        "checkpointing",
        replace(recipe, checkpointing="full", reentrant=False),
        message("gradient checkpointing on"),
        message("each layer keeps its input only and is computed again in backward (Chen 2016, arXiv 1604.06174)"),
    )


def fused_loss(model: Model, recipe: Recipe) -> Change | None:
    """Never hold the logits of all tokens at once."""
    if recipe.loss != "full" or model.family not in _LIGER:
        return None
    return Change(
        "fused_loss",
        replace(recipe, loss="fused_linear", fused_kernels=True),
        message("Liger kernels on (fused linear cross entropy)"),
        message(
            "{tokens} tokens × {vocab} logits are computed in chunks instead of all at once",
            tokens=f"{recipe.micro_batch * recipe.seq_len:,}",
            vocab=f"{model.vocab:,}",
        ),
    )


def optimizer_8bit(model: Model, recipe: Recipe) -> Change | None:
    """Both moments of Adam in one byte each. DeepSpeed's own fp32 copy rules it out here."""
    if recipe.optimizer.name != "adamw" or recipe.master_weights or recipe.sharding.kind == "fsdp":
        return None
    return Change(
        "optimizer_8bit",
        replace(recipe, optimizer=Optimizer("adamw_8bit", "loop", DType.UINT8)),
        message("8-bit AdamW (bitsandbytes)"),
        message("both moments take one byte a parameter each (Dettmers 2022, arXiv 2110.02861)"),
        message("block-wise 8-bit states matched 32-bit Adam in the paper's tests; watch the loss"),
    )


def lora(model: Model, recipe: Recipe) -> Change | None:
    """Train adapters beside frozen weights in the checkpoint's own precision."""
    if recipe.method != "full":
        return None
    half = recipe.autocast or recipe.weight_dtype
    stored = half if recipe.master_weights or model.checkpoint_dtype is DType.FP32 else model.checkpoint_dtype
    adapters = Lora(
        _RANK,
        2 * _RANK,
        targets=lora_targets(model, "all-linear"),
        dtype=half if recipe.master_weights else DType.FP32,
    )
    return Change(
        "lora",
        replace(
            recipe,
            method="lora",
            lora=adapters,
            trained=None,
            weight_dtype=stored,
            optimizer=_of_adapters(recipe.optimizer),
        ),
        message("LoRA of rank {rank} on every linear layer instead of full training", rank=_RANK),
        message("no gradients and no optimizer states for the frozen weights (Hu 2021, arXiv 2106.09685)"),
        message("learns less than full training where the new data is far from the old (arXiv 2405.09673)"),
    )


def _of_adapters(optimizer: Optimizer) -> Optimizer:
    """GaLore and the like are for whole matrices: adapters take AdamW."""
    return Optimizer("adamw") if optimizer.kind.low_rank or optimizer.in_backward else optimizer


def qlora(model: Model, recipe: Recipe) -> Change | None:
    """The frozen weights in 4 bits; from full training by way of LoRA."""
    if recipe.quant is not None or recipe.sharding.kind == "zero3" or recipe.method == "freeze":
        return None
    base = lora(model, recipe)
    start = base.recipe if base else recipe
    compute = start.autocast or (DType.BF16 if start.weight_dtype is DType.FP32 else start.weight_dtype)
    what = (
        message("QLoRA of rank {rank} on every linear layer instead of full training", rank=_RANK)
        if base
        else message("QLoRA: the frozen weights in 4 bits (NF4, double quantisation)")
    )
    return Change(
        "qlora",
        replace(start, quant=Quant("nf4", True, compute_dtype=compute)),
        what,
        message("the frozen linear weights take about half a byte each (Dettmers 2023, arXiv 2305.14314)"),
        message("slower, since weights are unpacked at each use; the result should be checked after merging"),
    )


def shorter(model: Model, recipe: Recipe) -> Change | None:
    """Half the tokens a row. Percentiles of the lengths are not known here, so the loss of text is said."""
    half = recipe.seq_len // 2
    if half < _SHORTEST:
        return None
    what = message("rows of {new} tokens instead of {old}", new=f"{half:,}", old=f"{recipe.seq_len:,}")
    risk = (
        message("packed documents are cut at {new} tokens", new=f"{half:,}")
        if recipe.packing
        else message("samples longer than {new} tokens are cut: check how many there are", new=f"{half:,}")
    )
    rule = message("activations and logits grow with the longest sample")
    return Change("shorter", replace(recipe, seq_len=half), what, rule, risk)


def shard(model: Model, recipe: Recipe, count: int) -> Iterator[Change]:
    """The states over ``count`` GPUs: optimizer and gradients first (ZeRO-2), then the weights too."""
    what = "{name} on {count} GPUs"
    whole = recipe.method == "full" and recipe.trained is None
    if recipe.sharding.kind in ("none", "ddp", "zero1") and whole and _halves(recipe):
        spread = replace(
            recipe,
            weight_dtype=recipe.autocast or recipe.weight_dtype,
            autocast=None,
            master_weights=True,
            optimizer=replace(recipe.optimizer, state_dtype=DType.FP32),
            sharding=replace(recipe.sharding, kind="zero2", ranks=count),
        )
        rule = message("optimizer states and gradients are divided among the GPUs (Rajbhandari 2020, arXiv 1910.02054)")
        yield Change("shard", spread, message(what, name="DeepSpeed ZeRO-2", count=count), rule)
    spread_all = sharded(recipe, count)
    if spread_all is not None:
        names = {"zero3": "DeepSpeed ZeRO-3", "fsdp": "FSDP"}
        rule = message("weights, gradients and optimizer states are divided, each layer is gathered when it is needed")
        name = names[spread_all.sharding.kind]
        yield Change("shard", spread_all, message(what, name=name, count=count), rule)


def sharded(recipe: Recipe, count: int) -> Recipe | None:
    """Weights, gradients and states over ``count`` GPUs: as configured, else ZeRO-3 after ZeRO-1/2, else FSDP.

    None where that is not modelled: a quantised base under DeepSpeed, GaLore and LOMO, a part of the parameters.
    """
    kind, states = recipe.sharding.kind, recipe.optimizer.kind
    if states.low_rank or states.host or states.lags or recipe.trained is not None:
        return None
    if kind in ("zero3", "fsdp"):
        return on_gpus(recipe, count)
    if kind in ("zero1", "zero2"):
        return None if recipe.quant else replace(recipe, sharding=replace(recipe.sharding, kind="zero3", ranks=count))
    return replace(recipe, sharding=replace(recipe.sharding, kind="fsdp", ranks=count))


def _halves(recipe: Recipe) -> bool:
    return (recipe.autocast or recipe.weight_dtype) in (DType.BF16, DType.FP16) and recipe.optimizer.name == "adamw"


SINGLE: tuple[Callable[[Model, Recipe], Change | None], ...] = (
    evaluation,
    checkpointing,
    fused_loss,
    optimizer_8bit,
    lora,
    qlora,
    shorter,
)


def changed_fields(before: Recipe, after: Recipe) -> dict[str, tuple[str, str]]:
    """Dotted field → (value before, value after) as text, fields that differ only."""
    old, new = _texts(before), _texts(after)
    names = dict.fromkeys((*old, *new))
    return {name: (old.get(name, "none"), new.get(name, "none")) for name in names if old.get(name) != new.get(name)}


def _texts(recipe: Recipe) -> dict[str, str]:
    out = {}
    for name, value in flat(recipe):
        if value is not None and not name.startswith("stack"):
            out[name] = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return out
