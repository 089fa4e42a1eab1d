"""Rental offers for one GPU: which, how dear, how old, and how far off they may be by now."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from decimal import Decimal

from finefit.catalog.currency import convert
from finefit.catalog.gpu_table import card_by_id
from finefit.catalog.offer_table import Kind, Offer, SkippedName, all_offers, skipped_names
from finefit.errors import InputError
from finefit.units import Money

__all__ = [
    "DRIFT_LIST",
    "DRIFT_MARKET",
    "FRESH_DAYS",
    "Kind",
    "Offer",
    "PriceList",
    "PriceSummary",
    "SkippedName",
    "age_days",
    "all_offers",
    "drift_band",
    "is_marketplace",
    "newest",
    "offers_for",
    "price_summary",
    "price_summary_in",
    "skipped_names",
]

FRESH_DAYS = 7  # list prices move weekly at most, so an older row may have been overtaken

# On-demand medians moved by 17 % (A100 80 GB), 19 % (B200), 22 % (H100 SXM) and 25 % (H200) from October 2025 to
# August 2026, marketplaces by more: 2.5 % and 4 % a month of age cover what was seen (daily prices of
# tugot17/gpu-price-tracker and gpurentalprices.com).
DRIFT_LIST = Decimal("0.025")
DRIFT_MARKET = Decimal("0.04")
_MONTH = Decimal("30.4375")  # days, 365.25 / 12
# Marketplaces by their sources: labelled so (tardellirs/gpu-pricing: akash, spheron), or moving by more than 2 %
# on most days (gpurentalprices.com: Vast 73 %, Spheron 33 %; list-price clouds 0 to 4 %).
_MARKETPLACES = frozenset(("akash", "spheron", "vast-ai"))


@dataclass(frozen=True, slots=True)
class PriceSummary:
    """Lowest, median and highest of some offers in one currency, for one GPU and hour, and how old they are."""

    low: Money
    median: Money
    high: Money
    offers: int
    oldest: dt.date
    newest: dt.date


@dataclass(frozen=True, slots=True)
class PriceList:
    """The prices an answer is made from.

    Attributes:
        on: the day of the answer: prices dated later were not known then.
        offers: all that are known, refreshed ones among them; the bundled ones where None.
    """

    on: dt.date
    offers: tuple[Offer, ...] | None = None

    def of(self, gpu_id: str, *, kinds: Collection[str], count: int) -> tuple[Offer, ...]:
        """As ``offers_for``."""
        return offers_for(gpu_id, kinds=kinds, count=count, on=self.on, offers=self.offers)


def newest(refreshed: Iterable[Offer], on: dt.date) -> tuple[Offer, ...]:
    """Offers known on a day; of the same provider, card, terms, region and machine the newer one."""
    found = {}
    known = [offer for offer in refreshed if offer.date <= on]
    for offer in sorted([*all_offers(on), *known], key=lambda offer: offer.date):
        found[offer.provider, offer.gpu_id, offer.kind, offer.region, offer.min_gpus, offer.price.currency] = offer
    return tuple(found.values())


def offers_for(
    gpu_id: str,
    *,
    kinds: Collection[str] = (Kind.ON_DEMAND,),
    count: int = 1,
    on: dt.date | None = None,
    offers: Iterable[Offer] | None = None,
) -> tuple[Offer, ...]:
    """Offers for a GPU of the catalogue, cheapest amount first within each currency.

    Args:
        kinds: terms wanted, :class:`Kind` values ("on-demand", "spot", "community", "monthly", "yearly").
        count: GPUs needed; machines that are only let with more GPUs than that are left out.
        on: the day of the answer: prices dated later were not known then. All if left out.
        offers: to choose from; the bundled ones if left out.

    Raises:
        UnknownGpu: no GPU of the catalogue has this id.
        InputError: a kind that does not exist.
    """
    card_by_id(gpu_id)
    for kind in kinds:
        if kind not in list(Kind):
            raise InputError(f"{kind!r} is not a kind of offer", fix=f"one of: {', '.join(Kind)}")
    known = all_offers(on) if offers is None else offers
    found = (o for o in known if o.gpu_id == gpu_id and o.kind in kinds and o.min_gpus <= count)
    return tuple(sorted(found, key=lambda o: (o.price.currency, o.price.amount, o.provider, o.region, o.min_gpus)))


def age_days(offer: Offer, on: dt.date) -> int:
    """Days from the offer's date to ``on``; 0 for an offer dated later."""
    return max((on - offer.date).days, 0)


def drift_band(offer: Offer, on: dt.date) -> tuple[Decimal, Decimal]:
    """Factors (low, high) around the offer's price between which today's price is expected; (1, 1) while fresh.

    The band widens with each month of age by 2.5 % for list prices and by 4 % for marketplaces, community clouds
    and spot, whose prices follow demand.
    """
    age = age_days(offer, on)
    if age <= FRESH_DAYS:
        return Decimal(1), Decimal(1)
    follows_demand = offer.kind in (Kind.COMMUNITY, Kind.SPOT) or is_marketplace(offer.provider)
    width = (DRIFT_MARKET if follows_demand else DRIFT_LIST) * age / _MONTH
    return max(1 - width, Decimal(0)), 1 + width


def is_marketplace(provider: str) -> bool:
    """Whether the machines are other people's, let through a marketplace."""
    return provider in _MARKETPLACES


def price_summary(offers: Iterable[Offer]) -> dict[str, PriceSummary]:
    """Low, median and high by the currency the offers are quoted in; currencies without offers are absent."""
    rows = tuple(offers)
    currencies = sorted({offer.price.currency for offer in rows})
    return {
        currency: _summary([(o.price, o.date) for o in rows if o.price.currency == currency]) for currency in currencies
    }


def price_summary_in(offers: Iterable[Offer], currency: str, *, on: dt.date) -> PriceSummary | None:
    """Low, median and high of all offers together, converted at the dated rate; None without offers.

    Raises:
        InputError: no exchange rate into ``currency`` is known.
    """
    priced = [(convert(offer.price, currency, on=on), offer.date) for offer in offers]
    return _summary(priced) if priced else None


def _summary(priced: list[tuple[Money, dt.date]]) -> PriceSummary:
    prices = sorted((price for price, _ in priced), key=lambda price: price.amount)
    dates = [date for _, date in priced]
    lower, upper = prices[(len(prices) - 1) // 2], prices[len(prices) // 2]
    as_of = min(lower.as_of or min(dates), upper.as_of or min(dates))
    median = Money((lower.amount + upper.amount) / 2, lower.currency, as_of)
    return PriceSummary(prices[0], median, prices[-1], len(prices), min(dates), max(dates))
