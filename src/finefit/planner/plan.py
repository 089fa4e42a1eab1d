"""The answer: does the run fit, how long, at what price, and what to change.

Three kinds of answer, by what was asked:

- ``Plan``: a model, a method and a length (all of them in a config): the whole answer.
- ``MethodTable``: a model alone, method or length missing: full / LoRA / QLoRA × 1k / 2k / 4k.
- ``LargestModels``: a GPU alone: the largest models it trains, by method.

Bytes are integers, times are seconds or hours as named, money is ``units.Money``. None means unknown.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from finefit.catalog.currency import Rate
from finefit.catalog.offers import PriceSummary
from finefit.cost import Bill, Limit
from finefit.memory.peak import Peak
from finefit.planner.answer import Fits, Margin
from finefit.planner.message import Message
from finefit.planner.step_parts import StepPart
from finefit.speed import Run
from finefit.units import Money
from finefit.workload import Cluster, Gpu, Lengths, Model, Recipe, Source


class Verdict(StrEnum):
    """What kind of job this is on cards of the stated kind."""

    SINGLE_CARD_OK = "single_card_ok"  # one card holds it
    SINGLE_CARD_TIGHT = "single_card_tight"  # one card may hold it: the bracket straddles its memory
    MUST_SHARD = "must_shard"  # one card does not; several, with the states spread over them, do
    DOES_NOT_FIT = "does_not_fit"  # not on the cards of one machine either, as long as the rest stays as it is
    UNDECIDED = "undecided"  # no GPU was stated


class Part(StrEnum):
    """What of the memory is too large for the card: the two have different cures."""

    STATES = "states"  # weights, adapters, gradients, optimizer states: method, precision, sharding
    ACTIVATIONS = "activations"  # activations and logits: batch, length, checkpointing, fused loss


@dataclass(frozen=True, slots=True)
class Steps:
    """The four steps people should think in, each with its figures, per GPU.

    Attributes:
        parameters, trained: all parameters, and those the optimizer updates.
        weights_16bit: bytes of all parameters at 2 bytes each: the yardstick.
        weights: bytes of the weights as they lie on one GPU (quantised or sharded where they are), adapters apart.
        states: weights, adapters, gradients and optimizer states together, as they are held while the optimizer steps.
        multiplier: ``states / weights_16bit``.
        activations: bytes of activations, logits, buffers and workspace at the fullest point of forward and
            backward; ``logits`` is their share of logits and loss.
        tokens: padded tokens of a micro-batch at the longest sample.
        margin: None while no GPU is stated.
    """

    parameters: int
    trained: int
    weights_16bit: int
    weights: int
    states: int
    multiplier: float
    activations: int
    logits: int
    tokens: int
    margin: Margin | None


@dataclass(frozen=True, slots=True)
class Remedy:
    """One change, re-estimated with the changed recipe.

    Attributes:
        kind: "micro_batch", "checkpointing", "fused_loss", "optimizer_8bit", "lora", "qlora", "shorter", "shard";
            joined by "+" where a change builds on an earlier one ("checkpointing+fused_loss").
        change: what to change, in one sentence.
        settings: dotted recipe field → (value before, value after), as text.
        saved_bytes: tensor bytes saved at the peak on each GPU; negative where it needs more.
        slowdown: additional time for the same samples as a share (0.25: a quarter longer); None unknown.
        money: additional cost of the run at the median price, negative when cheaper; None unknown.
        money_samples: samples that ``money`` is for: 1000, or None when it is for the whole run.
        risk: what it may do to the result, None where it changes nothing but memory and time.
        rule: why it helps.
        peak_bytes: upper end of the bracket afterwards, or its lower end where that is beyond the card already.
        fits: whether it fits the stated GPUs then.
        recipe: the changed recipe.
    """

    kind: str
    change: Message
    settings: Mapping[str, tuple[str, str]]
    saved_bytes: int
    slowdown: float | None
    money: Money | None
    money_samples: int | None
    risk: Message | None
    rule: Message
    peak_bytes: int
    fits: Fits
    recipe: Recipe


@dataclass(frozen=True, slots=True)
class CardFit:
    """One kind of card that holds the run, for an answer without stated GPUs.

    Attributes:
        count: GPUs needed with the recipe's own sharding; 1 where one holds it.
        margin: bracket and usable memory on each of them.
        hours_per_1000: hours for 1,000 samples; None where no speed of the card is known.
        price: median on-demand price of a GPU-hour; None without offers.
        cost_per_1000: GPU-hours of 1,000 samples at that price.
    """

    gpu: Gpu
    count: int
    fits: Fits
    margin: Margin
    hours_per_1000: float | None
    price: Money | None
    cost_per_1000: Money | None


@dataclass(frozen=True, slots=True)
class OfferLine:
    """One published price for GPUs that hold the run.

    Attributes:
        price: of one GPU and hour; gpus_billed: GPUs paid for (machines are let whole).
        age_days: days between the price's date and the answer's.
        drift: factors around the price between which today's is expected.
        hourly: all GPUs billed, for one hour.
        per_1000: 1,000 samples; total: the whole run. GPU-hours only, None where the time is unknown.
        converted: the whole run, 1,000 samples while its hours are unknown, in the bill's currency; None where it is
            quoted in that or the time is unknown.
    """

    provider: str
    gpu: Gpu
    kind: str
    region: str
    price: Money
    gpus_billed: int
    date: dt.date
    age_days: int
    drift: tuple[Decimal, Decimal]
    hourly: Money
    per_1000: Money | None
    total: Money | None
    confidence: str
    source: str
    converted: Money | None = None


@dataclass(frozen=True, slots=True)
class FewerCards:
    """More GPUs than needed: ``needed`` hold it too, ``count`` GPUs cost ``count / needed`` times as much an hour.

    Attributes:
        times_pay: price an hour, as a multiple; times_speed: samples a second, as a multiple.
    """

    count: int
    needed: int
    times_pay: float
    times_speed: float


@dataclass(frozen=True, slots=True)
class Plan:
    """The whole answer for one workload.

    Attributes:
        model_text: what the user called the model; origin: the config's path, or "flags".
        sources: where each input came from, by dotted field name ("lora.rank", "model", "lengths.samples").
        cluster: the stated GPUs, None without.
        peak: the four numbers, the parts at the peak and its phase, on the fullest GPU.
        context: bytes outside the allocator included in ``peak.device``: CUDA context, communication buffers.
        verdict, fits: on this kind of card; on the stated GPUs as configured.
        too_large: what does not fit, None where nothing is known to.
        shard_count: GPUs that hold it with the states spread over them, where ``verdict`` is ``must_shard``.
        fewer: one is enough, None where it is not or only one was stated.
        remedies: in order of preference; empty where it fits.
        cards: cards that hold it, smallest first; only without stated GPUs.
        prices: low, median and high of the offers, by kind and currency: {"on-demand": {"USD": ...}}.
        offers: cheapest first for the work, one line each.
        run: time, None where it is unknown; ``run_unknown`` then says why; step_explained: where a step's time
            goes, where that is asked for.
        bill, bill_per_1000: of the whole run (total None where the number of samples is unknown), and of
            1,000 samples (GPU-hours alone).
        price: the GPU-hour that the bill is based on; None without offers; price_source: what it is the median of;
            price_quoted: as published, None where that is in the bill's currency.
        rate: the exchange rate behind what was converted, None where nothing was.
        budget, deadline: None where none was stated.
    """

    model: Model
    model_text: str
    recipe: Recipe
    lengths: Lengths
    cluster: Cluster | None
    origin: str
    sources: Mapping[str, Source]
    as_of: dt.date
    catalog_revision: str
    peak: Peak
    context: int
    steps: Steps
    verdict: Verdict
    fits: Fits
    too_large: Part | None = None
    shard_count: int | None = None
    fewer: FewerCards | None = None
    remedies: tuple[Remedy, ...] = ()
    cards: tuple[CardFit, ...] = ()
    prices: Mapping[str, Mapping[str, PriceSummary]] = field(default_factory=lambda: MappingProxyType({}))
    price: Money | None = None
    price_quoted: Money | None = None
    price_source: str = ""
    rate: Rate | None = None
    offers: tuple[OfferLine, ...] = ()
    run: Run | None = None
    run_unknown: Message | None = None
    step_explained: tuple[StepPart, ...] = ()
    bill: Bill | None = None
    bill_per_1000: Money | None = None
    budget: Limit | None = None
    deadline: Limit | None = None
    notes: tuple[Message, ...] = ()
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The JSON contract object."""
        from finefit.planner.contract import plan_object

        return plan_object(self)


@dataclass(frozen=True, slots=True)
class TableCell:
    """One method at one length.

    Attributes:
        low, high: bracket of one GPU's need, without and with cached blocks; CUDA context included. ``high`` is None
            where ``low`` is beyond the stated card already.
        fits: on the stated GPU; unknown without one.
        smallest_gb: nominal GB of the smallest card in the catalogue that surely holds it, None where none does
            and with a stated GPU.
    """

    method: str
    seq_len: int
    low: int
    high: int | None
    fits: Fits
    smallest_gb: float | None


@dataclass(frozen=True, slots=True)
class MethodTable:
    """A model without a method or a length: what each choice needs on one GPU, under the printed assumptions."""

    model: Model
    model_text: str
    parameters: int
    missing: tuple[str, ...]
    cluster: Cluster | None
    cells: tuple[TableCell, ...]
    as_of: dt.date
    catalog_revision: str
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The JSON contract object."""
        from finefit.planner.contract import table_object

        return table_object(self)


@dataclass(frozen=True, slots=True)
class LargestModel:
    """One model that a card trains by one method; ``margin`` at the length of the answer."""

    method: str
    name: str
    parameters: int
    fits: Fits
    margin: Margin


@dataclass(frozen=True, slots=True)
class LargestModels:
    """A GPU without a model: the largest catalogue models it trains, by method, under the printed assumptions."""

    cluster: Cluster
    seq_len: int
    models: tuple[LargestModel, ...]
    as_of: dt.date
    catalog_revision: str
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The JSON contract object."""
        from finefit.planner.contract import largest_object

        return largest_object(self)


Answer = Plan | MethodTable | LargestModels
