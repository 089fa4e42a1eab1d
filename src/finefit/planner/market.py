"""Prices of the GPUs that hold a run: offers in order, low / median / high, and the bill."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal

from finefit.catalog.currency import convert
from finefit.catalog.offers import Offer, PriceList, PriceSummary, age_days, drift_band, price_summary
from finefit.catalog.storage import Tariff, all_tariffs
from finefit.cost import (
    Bill,
    BillItem,
    Price,
    Span,
    bill,
    checkpoint_bytes,
    egress_item,
    gpu_item,
    result_bytes,
    setup_item,
    storage_item,
)
from finefit.planner.plan import OfferLine
from finefit.speed import Run, work
from finefit.units import Money
from finefit.workload import Cluster, Gpu, Model, Recipe

KEPT_CHECKPOINTS, KEPT_MONTHS = 1, Decimal(1)
KEPT = "one checkpoint is kept for one month"
REFRESHED = "prices that finefit offers refresh has kept stand in for the bundled ones of the same offers"


@dataclass(frozen=True, slots=True)
class Market:
    """Offers for one kind of card.

    Attributes:
        summaries: low, median and high by kind and currency, as quoted.
        price: the unit price the bill is made at: the median of the first kind with offers in the currency.
    """

    offers: tuple[Offer, ...]
    summaries: Mapping[str, Mapping[str, PriceSummary]]
    price: Price | None


def market(gpu: Gpu, count: int, kinds: Collection[str], currency: str, prices: PriceList) -> Market:
    """Offers of the wanted kinds. Quotes in ``currency`` make the price; others, converted, only where there are none.

    Raises:
        InputError: a kind that does not exist.
    """
    offers = prices.of(gpu.id, kinds=kinds, count=count)
    by_kind = {kind: [offer for offer in offers if offer.kind == kind] for kind in kinds}
    summaries = {kind: price_summary(found) for kind, found in by_kind.items() if found}
    quoted = [offer for found in by_kind.values() for offer in found]
    price = None
    for kind, found in by_kind.items():
        own = [offer for offer in found if offer.price.currency == currency]
        if own or (found and not any(offer.price.currency == currency for offer in quoted)):
            price = _price(kind, own or found, currency, prices.on)
            break
    return Market(offers, summaries, price)


def _price(kind: str, offers: list[Offer], currency: str, on: dt.date) -> Price:
    """Median of some offers; its drift is the widest band among them."""
    quotes = sorted(offer.price.amount for offer in offers)  # one currency: of two, only that of the bill is taken
    dates = [offer.date for offer in offers]
    bands = [drift_band(offer, on) for offer in offers]
    middle = (quotes[(len(quotes) - 1) // 2] + quotes[len(quotes) // 2]) / 2
    quoted = Money(middle, offers[0].price.currency, min(dates))
    median = convert(quoted, currency, on=on)
    span = f"{min(dates)} to {max(dates)}" if min(dates) < max(dates) else f"{min(dates)}"
    source = f"median of {len(offers)} {kind} offers dated {span}" if offers[1:] else f"one {kind} offer dated {span}"
    foreign = None if quoted.currency == currency else quoted
    return Price(median, source, min(low for low, _ in bands), max(high for _, high in bands), foreign)


def offer_lines(
    gpu: Gpu, offers: Iterable[Offer], count: int, run: Run | None, currency: str, on: dt.date
) -> tuple[OfferLine, ...]:
    """One line an offer, cheapest for the work first. Money stays in the currency it is quoted in."""
    lines = []
    for offer in offers:
        billed = offer.gpus_billed(count)
        hourly = offer.price * billed
        per_1000 = None if run is None else hourly * hours_of(run.hours_per_1000_samples)
        total = None if run is None or run.hours is None else hourly * hours_of(run.hours)
        cost = per_1000 if total is None else total
        lines.append(
            OfferLine(
                provider=offer.provider,
                gpu=gpu,
                kind=str(offer.kind),
                region=offer.region,
                price=offer.price,
                gpus_billed=billed,
                date=offer.date,
                age_days=age_days(offer, on),
                drift=drift_band(offer, on),
                hourly=hourly,
                per_1000=per_1000,
                total=total,
                converted=None if cost is None or cost.currency == currency else convert(cost, currency, on=on),
                confidence=offer.confidence,
                source=offer.source,
            )
        )
    return tuple(sorted(lines, key=lambda line: _order(line, currency, on)))


def _order(line: OfferLine, currency: str, on: dt.date) -> tuple[Decimal, Decimal, str, str]:
    work_cost = convert(line.per_1000 or line.hourly, currency, on=on).amount
    return work_cost, convert(line.hourly, currency, on=on).amount, line.provider, line.region


def cost_of(hours: float | None, gpus: int, price: Price | None) -> Money | None:
    """GPU-hours at a price; None where either is unknown."""
    return None if hours is None or price is None else price.unit_price * (hours_of(hours) * gpus)


def span_of(run: Run | None) -> Span | None:
    """Hours of a run with the ends of their interval; None while they are unknown."""
    if run is None or run.hours is None or run.hours_interval is None:
        return None
    return Span.of(run.hours_interval[0], run.hours, run.hours_interval[1])


def run_bill(model: Model, recipe: Recipe, cluster: Cluster, run: Run, price: Price | None, currency: str) -> Bill:
    """Every money item of the run at one price; storage and traffic at the tariffs known in that currency."""
    load = work(model, recipe)
    gpus = cluster.count
    hours = span_of(run)
    weights = load.parameters * model.checkpoint_dtype.bytes
    checkpoint = checkpoint_bytes(load.parameters, load.trained, recipe)
    result = result_bytes(load.parameters, load.trained, recipe)
    disks = [t for t in all_tariffs() if t.kind == "block" and t.tier != "volume-stopped" and t.currency == currency]
    lines = [t for t in all_tariffs() if t.kind == "egress" and t.tier == "internet" and t.currency == currency]
    return bill(
        [
            gpu_item(hours, gpus, price),
            setup_item(weights, gpus, price),
            among(disks, lambda tariff, why: storage_item(checkpoint, KEPT_CHECKPOINTS, KEPT_MONTHS, tariff, why)),
            among(lines, lambda tariff, why: egress_item(result, tariff, why)),
        ]
    )


def among(tariffs: list[Tariff], item: Callable[[Callable[[Decimal], Money | None] | None, str], BillItem]) -> BillItem:
    """An item at the median of several providers' tariffs, between the cheapest and the dearest."""
    made = [item(tariff.cost, f"{tariff.provider} {tariff.tier}, {tariff.as_of}") for tariff in tariffs]
    priced = [(line.amount.amount, line) for line in made if line.amount is not None]
    if not priced:
        return item(None, "")
    priced.sort(key=lambda pair: pair[0])
    middle = priced[len(priced) // 2][1]
    providers = len({tariff.provider for tariff in tariffs})
    dates = [tariff.as_of for tariff in tariffs]
    source = f"median of {providers} providers' tariffs dated {min(dates)} to {max(dates)}"
    return replace(middle, low=priced[0][1].amount, high=priced[-1][1].amount, source=source)


def hours_of(hours: float) -> Decimal:
    """Hours as an exact decimal of their shortest form."""
    return Decimal(str(hours))
