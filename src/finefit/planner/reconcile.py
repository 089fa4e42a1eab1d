"""Which term does another figure leave out? Known mistakes are tried on the same run, the closest first.

The mistakes are those that people and calculators make (docs/memory.md): parts forgotten, another method or
length, a rule of bytes a parameter, all GPUs for one, GB for GiB.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from finefit.catalog.revision import catalog_revision
from finefit.errors import NotModelled
from finefit.memory.estimate import estimate
from finefit.memory.peak import Peak
from finefit.planner import levers
from finefit.planner.fit import gpus_per_node, outside_bytes, reserved_bytes
from finefit.planner.message import Message, message
from finefit.planner.plain import head
from finefit.resolve.resolved import Resolved
from finefit.units import GIB
from finefit.workload import DType, Model, Recipe
from finefit.workload.cluster import Cluster
from finefit.workload.parameters import parameter_count

SCHEMA = "finefit/reconcile/1"
_CLOSE = 0.05  # figures are written with two digits, and rules of thumb are rounder still
_NO_CHANGE = 0.01  # a mistake that changes our own figure by less explains nothing
_SHOWN = 4
SAME = message("nothing: the same tensors are counted")

# Bytes a parameter that rules of thumb give full fine-tuning with Adam.
_RULES: tuple[tuple[int, Message], ...] = (
    (8, message("weights, gradients and two states of 2 bytes each (pure bf16)")),
    (12, message("weights and gradients of 2 bytes, two states of 4")),
    (16, message("weights, gradients and two states of 4 bytes, or 2 + 2 with an fp32 copy (ZeRO, arXiv 1910.02054)")),
    (18, message("weights in 2 and 4 bytes, gradients of 4, two states of 4 (LLaMA-Factory's table for AMP)")),
)


@dataclass(frozen=True, slots=True)
class Guess:
    """A mistake, and the figure it would give.

    Attributes:
        cause: what would have been done; arithmetic: how the figure comes about.
        nbytes: the figure; off: relative distance of it to the other one, signed.
        unit: it agrees if the other figure's unit was GiB where GB was written, or the reverse.
    """

    cause: Message
    arithmetic: Message
    nbytes: int
    off: float
    unit: bool


@dataclass(frozen=True, slots=True)
class Reconciled:
    """Our figures, the other one, and the guesses, the closest first; ``explained``: the first is within 5 %."""

    model: Model
    recipe: Recipe
    cluster: Cluster | None
    as_of: dt.date
    ours: Peak
    other: int
    guesses: tuple[Guess, ...]
    explained: bool
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The JSON contract object."""
        return {
            **head(SCHEMA, self.as_of, catalog_revision()),
            "model": self.model.name,
            "allocated_bytes": self.ours.allocated,
            "device_bytes": self.ours.device,
            "other_bytes": self.other,
            "explained": self.explained,
            "guesses": [
                {
                    "cause": str(guess.cause),
                    "arithmetic": str(guess.arithmetic),
                    "bytes": guess.nbytes,
                    "relative_difference": guess.off,
                    "unit_mistaken": guess.unit,
                }
                for guess in self.guesses
            ],
            "assumptions": list(self.assumptions),
            "warnings": list(self.warnings),
        }


def reconcile(resolved: Resolved, cluster: Cluster | None, other: tuple[int, int], as_of: dt.date) -> Reconciled:
    """Try known mistakes on a complete workload.

    Args:
        other: the other figure in bytes, as written and in the other unit (``units.parse_bytes``).

    Raises:
        InputError: the recipe is incomplete.
        NotModelled: the memory of the recipe is not modelled.
    """
    work = resolved.workload(cluster)
    arch = cluster.gpu.arch if cluster else None
    peak = estimate(work.model, work.recipe, arch=arch)
    reserved = reserved_bytes(work.model, work.recipe, arch)
    peak = replace(peak, reserved=reserved, device=reserved + outside_bytes(arch, gpus_per_node(cluster)))
    tried = [
        _closer(cause, arithmetic, nbytes, other)
        for cause, arithmetic, nbytes in _causes(work.model, work.recipe, peak, resolved, cluster)
        if nbytes > 0 and (cause is SAME or abs(nbytes / peak.allocated - 1) > _NO_CHANGE)
    ]
    ranked = sorted(tried, key=lambda guess: (guess.unit and abs(guess.off) <= _CLOSE, abs(guess.off)))
    near = [guess for guess in ranked if abs(guess.off) <= _CLOSE]
    nearest = sorted(tried, key=lambda guess: abs(guess.off))
    return Reconciled(
        model=work.model,
        recipe=work.recipe,
        cluster=cluster,
        as_of=as_of,
        ours=peak,
        other=other[0],
        guesses=tuple((near or nearest)[:_SHOWN]),
        explained=bool(near),
        assumptions=resolved.assumptions,
        warnings=resolved.warnings,
    )


def _closer(cause: Message, arithmetic: Message, nbytes: int, other: tuple[int, int]) -> Guess:
    """Against the figure as written, or in the other unit where only that is close."""
    written, switched = (nbytes / figure - 1 for figure in other)
    mistaken = abs(switched) <= _CLOSE < abs(written)
    return Guess(cause, arithmetic, nbytes, switched if mistaken else written, mistaken)


def _causes(
    model: Model, recipe: Recipe, peak: Peak, resolved: Resolved, cluster: Cluster | None
) -> Iterator[tuple[Message, Message, int]]:
    """(cause, arithmetic, bytes) of every mistake that can be made on this run."""
    whole = peak.allocated
    yield SAME, message("allocated: {size}", size=_gib(whole)), whole
    assert peak.device is not None and peak.reserved is not None  # reconcile fills both
    yield (
        message("it is what nvidia-smi shows, not the tensors alone"),
        message("reserved by the allocator and the CUDA context: {size}", size=_gib(peak.device)),
        peak.device,
    )
    yield from _forgotten(peak)
    yield from _by_rule(model, recipe, peak)
    yield from _of_another_run(model, recipe, resolved)
    count = cluster.count if cluster else recipe.sharding.ranks
    if count > 1:
        times = message("{size} × {count} GPUs", size=_gib(whole), count=count)
        yield message("it is the sum over all GPUs, and each one has to hold its own"), times, whole * count
        divided = message("{size} / {count} GPUs", size=_gib(whole), count=count)
        yield message("memory is divided by the number of GPUs, as if all of it were sharded"), divided, whole // count


def _forgotten(peak: Peak) -> Iterator[tuple[Message, Message, int]]:
    """Parts of the peak left out."""
    parts, whole = peak.parts, peak.allocated
    states = sum(parts.get(name, 0) for name in ("weights", "adapters", "gradients", "optimizer"))
    left_out = (
        (message("optimizer states are forgotten"), message("optimizer states"), parts.get("optimizer", 0)),
        (message("logits and loss are forgotten"), message("logits and loss"), parts.get("logits", 0)),
        (message("activations and logits are forgotten"), message("all but states"), whole - states),
    )
    for cause, name, nbytes in left_out:
        if nbytes > _CLOSE / 2 * whole:
            arithmetic = message(
                "{size} − {part} {name} = {rest}",
                size=_gib(whole),
                part=_gib(nbytes),
                name=name,
                rest=_gib(whole - nbytes),
            )
            yield cause, arithmetic, whole - nbytes


def _by_rule(model: Model, recipe: Recipe, peak: Peak) -> Iterator[tuple[Message, Message, int]]:
    """Bytes a parameter, alone and with our activations."""
    parameters = parameter_count(model)
    run = sum(peak.parts.get(name, 0) for name in ("activations", "logits", "buffers", "workspace"))

    def product(factor: object) -> str:
        return f"{parameters / 1e9:.2f}e9 × {factor} B"

    yield (
        message("inference is taken for training: the weights in 16 bits alone"),
        message("{product} = {size}", product=product(2), size=_gib(2 * parameters)),
        2 * parameters,
    )
    if recipe.quant is not None:
        yield (
            message("the weights in 4 bits alone (LLaMA-Factory's table for QLoRA)"),
            message("{product} = {size}", product=product(0.5), size=_gib(parameters // 2)),
            parameters // 2,
        )
    for factor, rule in _RULES if recipe.method == "full" else ():
        states = factor * parameters
        yield (
            message("a rule of {factor} bytes a parameter and no activations: {rule}", factor=factor, rule=rule),
            message("{product} = {size}", product=product(factor), size=_gib(states)),
            states,
        )
        yield (
            message("another stack's precision, {factor} bytes a parameter: {rule}", factor=factor, rule=rule),
            message(
                "{product} + {run} activations, logits and buffers = {size}",
                product=product(factor),
                run=_gib(run),
                size=_gib(states + run),
            ),
            states + run,
        )


def _of_another_run(model: Model, recipe: Recipe, resolved: Resolved) -> Iterator[tuple[Message, Message, int]]:
    """The same question with one input changed."""
    for cause, other in _runs(model, recipe, resolved):
        try:
            nbytes = estimate(model, other).allocated
        except NotModelled:
            continue
        yield cause, message("the tensors of that run: {size}", size=_gib(nbytes)), nbytes


def _runs(model: Model, recipe: Recipe, resolved: Resolved) -> Iterator[tuple[Message, Recipe]]:
    full = replace(recipe, method="full", lora=None, quant=None, weight_dtype=_half(model, recipe))
    if recipe.method == "lora":
        yield message("full fine-tuning is taken for {method}", method=recipe.method_label), full
    for change, name in ((levers.lora(model, recipe), "LoRA"), (levers.qlora(model, recipe), "QLoRA")):
        if change is not None:
            yield message("{name} is taken for {method}", name=name, method=recipe.method_label), change.recipe
    if recipe.quant is not None:
        plain = replace(recipe, quant=None, weight_dtype=_half(model, recipe))
        yield message("LoRA on 16-bit weights is taken for QLoRA"), plain
    mean = resolved.lengths.mean
    if mean and not recipe.packing and mean < recipe.seq_len:
        short = replace(recipe, seq_len=max(1, round(mean)))
        yield message("the mean length, {mean} tokens, is taken for the longest", mean=f"{mean:,.0f}"), short
    if recipe.micro_batch > 1:
        yield (
            message("one row is taken for a micro-batch of {rows}", rows=recipe.micro_batch),
            replace(recipe, micro_batch=1),
        )
    if recipe.checkpointing == "none":
        yield message("gradient checkpointing is taken to be on"), replace(recipe, checkpointing="full")
    else:
        yield message("gradient checkpointing is taken to be off"), replace(recipe, checkpointing="none")
    if recipe.sharding.kind in ("zero1", "zero2", "zero3", "fsdp"):
        alone = replace(recipe, sharding=replace(recipe.sharding, kind="none", ranks=1))
        yield message("the states are taken to be whole on each GPU"), alone


def _half(model: Model, recipe: Recipe) -> DType:
    return recipe.autocast or (DType.BF16 if model.checkpoint_dtype is DType.FP32 else model.checkpoint_dtype)


def _gib(nbytes: int) -> str:
    return f"{nbytes / GIB:.2f} GiB"
