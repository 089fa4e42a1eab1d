"""One big card or several small ones; training oneself or a managed service."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from finefit.catalog.currency import convert
from finefit.catalog.managed import Managed, managed_for
from finefit.cost import BillItem
from finefit.cost.terms import break_even_tokens
from finefit.errors import NotModelled
from finefit.planner.answer import Fits
from finefit.planner.cards import cards_that_hold
from finefit.planner.levers import sharded
from finefit.planner.market import cost_of
from finefit.planner.project import Job
from finefit.resolve.gpus import on_gpus
from finefit.speed import Run, run_time, work
from finefit.units import Money
from finefit.workload import Cluster, Gpu, Lengths

_EACH = 4  # single cards and groups of small ones shown
_COUNTS = (1, 2, 4, 8)  # of the stated card: one machine
_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class ClusterLine:
    """The same job on other GPUs, at their median on-demand price.

    Attributes:
        spread: the states are divided over the GPUs, because one does not hold them.
        hours: of one run, None while the data's size is unknown; interval: its 90 % interval.
        cost: GPU-hours of one run; quoted: the same in the currency of the offers, None where that is the bill's;
            per_million: of a million trained tokens.
        communication: share of a step that is spent waiting for the other GPUs; lost: the same of ``cost``.
        against_one: price of a token as a multiple of that on one GPU of the kind; None where one does not hold it.
    """

    gpu: Gpu
    count: int
    spread: bool
    fits: Fits
    hours: float | None
    interval: tuple[float, float] | None
    price: Money | None
    cost: Money | None
    quoted: Money | None
    per_million: Money | None
    communication: float
    lost: Money | None
    against_one: float | None


@dataclass(frozen=True, slots=True)
class ManagedLine:
    """One managed service for this model and method.

    Attributes:
        price: of a million trained tokens, in the bill's currency.
        cost: of one run, the minimum charge included; None while its tokens are unknown.
        break_even: tokens from which training oneself is cheaper; None where it never is, or while what one's own
            training costs before the first token is unknown.
    """

    row: Managed
    price: Money
    cost: Money | None
    own_cheaper: bool
    break_even: Decimal | None


def run_tokens(lengths: Lengths, epochs: float | None) -> int | None:
    """Tokens of the data times passes over it, before padding; None while either is unknown."""
    tokens = lengths.tokens
    if tokens is None and lengths.samples is not None and lengths.mean is not None:
        tokens = round(lengths.samples * lengths.mean)
    return None if tokens is None or epochs is None else round(tokens * epochs)


def per_million(run: Run | None, gpus: int, price: Money | None, mean: float | None) -> Money | None:
    """GPU-hours of a million tokens of the data, padding paid for; of padded ones while the mean length is unknown."""
    if run is None or price is None:
        return None
    rate = run.tokens_per_second
    if mean:
        rate = 1000 * mean / (run.hours_per_1000_samples * 3600)
    return price * (Decimal(str(_MILLION / rate / 3600)) * gpus)


def cluster_lines(job: Job, lengths: Lengths) -> tuple[ClusterLine, ...]:
    """The stated card in other numbers, then the cheapest single cards and groups of smaller ones that hold the job."""
    model, stated = job.model, job.cluster
    lines: list[ClusterLine] = []
    one = None
    alone = on_gpus(job.recipe, 1)
    spread = sharded(alone, 2)
    held = {}
    if spread is not None:
        found = cards_that_hold(model, spread, lengths, kind="on-demand", currency=job.currency, prices=job.prices)
        held = {card.gpu.id: card for card, _ in found}
    least = held[stated.gpu.id].count if stated.gpu.id in held else None
    for count in sorted({*_COUNTS, stated.count}):
        if least is None or count < least:
            continue
        recipe = on_gpus(alone, count) if least == 1 else sharded(alone, count)
        if recipe is None:
            continue
        try:
            run = run_time(model, recipe, stated if count == stated.count else Cluster(stated.gpu, count), lengths)
        except NotModelled:
            continue
        line = _line(job, lengths, stated.gpu, count, run, held[stated.gpu.id].fits, spread=least != 1, one=one)
        one = line.per_million if count == 1 else one
        lines.append(line)
    others = []
    for card in held.values():
        recipe = alone if card.count == 1 else sharded(alone, card.count)
        if card.gpu.id == stated.gpu.id or card.price is None or recipe is None:
            continue
        try:
            run = run_time(model, recipe, Cluster(card.gpu, card.count), lengths)
        except NotModelled:
            continue
        others.append(_line(job, lengths, card.gpu, card.count, run, card.fits, spread=card.count > 1, one=None))
    others.sort(key=lambda line: line.per_million.amount if line.per_million else Decimal(0))
    single = [line for line in others if line.count == 1][:_EACH]
    several = [line for line in others if line.count > 1][:_EACH]
    return (*lines, *single, *several)


def _line(
    job: Job, lengths: Lengths, gpu: Gpu, count: int, run: Run, fits: Fits, *, spread: bool, one: Money | None
) -> ClusterLine:
    price = job.price_of(gpu, count, "on-demand")
    each = per_million(run, count, price.unit_price if price else None, _mean(lengths))
    cost = cost_of(run.hours, count, price)
    share = run.step.communication / run.step.seconds
    against = float(each.amount / one.amount) if each and one and one.amount else None
    return ClusterLine(
        gpu=gpu,
        count=count,
        spread=spread,
        fits=fits,
        hours=run.hours,
        interval=run.hours_interval,
        price=price.unit_price if price else None,
        cost=cost,
        quoted=cost_of(run.hours, count, replace(price, unit_price=price.quoted)) if price and price.quoted else None,
        per_million=each,
        communication=share,
        lost=cost * Decimal(str(share)) if cost else None,
        against_one=1.0 if count == 1 and each else against,
    )


def managed_lines(job: Job, lengths: Lengths, own: Money | None, fixed: Sequence[BillItem]) -> tuple[ManagedLine, ...]:
    """Managed services that train this model this way, cheapest first.

    Args:
        own: what a million tokens cost on one's own GPUs; fixed: items paid before the first token.
    """
    load = work(job.model, job.recipe)
    task = "sft" if job.recipe.task in ("sft", "pt") else job.recipe.task
    tokens = run_tokens(lengths, job.recipe.epochs)
    known = [item.amount for item in fixed if item.amount is not None]
    before = Money(sum((amount.amount for amount in known), Decimal(0)), job.currency) if known else None
    lines = []
    for row in managed_for(job.model.name, load.parameters, lora=job.recipe.lora is not None, task=task):
        if row.price is None:
            continue
        price = convert(row.price, job.currency, on=job.on)
        cost = None
        if tokens is not None:
            cost = price * (Decimal(tokens) / _MILLION)
            least = convert(row.minimum, job.currency, on=job.on) if row.minimum else None
            cost = least if least and least.amount > cost.amount else cost
        cheaper = own is not None and own.amount < price.amount
        even = break_even_tokens(before, price, own) if own is not None else None
        lines.append(ManagedLine(row, price, cost, cheaper, even))
    return tuple(sorted(lines, key=lambda line: line.price.amount))


def _mean(lengths: Lengths) -> float | None:
    if lengths.mean is not None:
        return lengths.mean
    return lengths.tokens / lengths.samples if lengths.tokens and lengths.samples else None
