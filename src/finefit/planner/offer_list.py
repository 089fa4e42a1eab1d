"""Offers as a list: which, where, how old, and what they cost in the reader's currency."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from finefit.catalog.currency import Rate, convert, rate_between
from finefit.catalog.gpu_names import find_gpu
from finefit.catalog.gpu_table import card_by_id
from finefit.catalog.offers import FRESH_DAYS, Kind, Offer, SkippedName, age_days, all_offers, drift_band, skipped_names
from finefit.catalog.regions import CHECKS, RegionClass, region_class
from finefit.catalog.revision import catalog_revision
from finefit.errors import InputError
from finefit.units import GIB, Money

OFFERS_SCHEMA = "finefit/offers/1"
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*(gib|gb|g)?", re.I)


@dataclass(frozen=True, slots=True)
class OfferRow:
    """One offer with what a reader must know to trust it.

    Attributes:
        price: of a GPU-hour in the currency asked for; ``offer.price`` is as quoted.
        stale: older than a week.
        drift: factors around the price between which today's is expected.
    """

    offer: Offer
    price: Money
    age_days: int
    stale: bool
    drift: tuple[Decimal, Decimal]
    region: RegionClass


@dataclass(frozen=True, slots=True)
class OfferList:
    """Offers in order of price, and what the order rests on.

    Attributes:
        rate: the exchange rate behind converted prices, None where none was needed.
        checks: what to look up in each class of region that occurs.
        skipped: published names that no card of the catalogue answers to.
    """

    rows: tuple[OfferRow, ...]
    currency: str
    rate: Rate | None
    checks: dict[RegionClass, str]
    skipped: tuple[SkippedName, ...]
    as_of: dt.date
    catalog_revision: str
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The JSON contract object."""
        from finefit.planner.listing_contract import offers_object

        return offers_object(self)


def list_offers(
    *,
    on: dt.date,
    gpu: str | None = None,
    min_memory: str | None = None,
    kinds: tuple[str, ...] = (),
    region: str | None = None,
    currency: str = "USD",
    offers: Iterable[Offer] | None = None,
) -> OfferList:
    """Offers that answer to every filter, cheapest first.

    Args:
        gpu: a card's name; min_memory: of each GPU, "40" or "40GB" on the box, "39GiB" as torch reports it.
        kinds: terms; all of them where empty.
        region: mainland, hong-kong, overseas, unknown, or a part of a region's name ("us-east").
        offers: instead of the bundled ones.

    Raises:
        UnknownGpu: no such card, or several of that name.
        InputError: a memory, kind, region or currency that does not exist.
    """
    wanted, notes = None, tuple[str, ...]()
    if gpu is not None:
        match = find_gpu(gpu, where="--gpu")
        wanted, notes = match.gpu.id, match.notes
    least = None if min_memory is None else _memory(min_memory)
    places = None if region is None else _region(region)
    rows = []
    for offer in all_offers(on) if offers is None else offers:
        if wanted not in (None, offer.gpu_id) or (kinds and offer.kind not in kinds):
            continue
        if offer.date > on:  # not known on the day of the answer
            continue
        if least is not None and not _holds(offer.gpu_id, *least):
            continue
        place = region_class(offer)
        if places is not None and place != places and not (region and region.lower() in offer.region.lower()):
            continue
        age = age_days(offer, on)
        price = convert(offer.price, currency, on=on)
        rows.append(OfferRow(offer, price, age, age > FRESH_DAYS, drift_band(offer, on), place))
    rows.sort(key=lambda row: (row.price.amount, row.offer.provider, row.offer.gpu_id, row.offer.region))
    foreign = {row.offer.price.currency for row in rows} - {currency}
    return OfferList(
        rows=tuple(rows),
        currency=currency,
        rate=rate_between(min(foreign), currency, on=on) if foreign else None,
        checks={place: CHECKS[place] for place in RegionClass if any(row.region is place for row in rows)},
        skipped=skipped_names(),
        as_of=on,
        catalog_revision=catalog_revision(),
        notes=notes,
    )


def _memory(text: str) -> tuple[float, bool]:
    """A number, and whether it is of GiB as torch reports them rather than of the GB on the box."""
    found = _MEMORY.fullmatch(text.strip())
    if not found:
        raise InputError(f"{text[:20]!r} is not a size of memory", where="--min-memory", fix="write 40GB or 39GiB")
    return float(found[1]), (found[2] or "").lower() == "gib"


def _holds(gpu_id: str, least: float, reported: bool) -> bool:
    gpu = card_by_id(gpu_id).gpu
    return gpu.memory >= least * GIB if reported else gpu.memory_nominal_gb >= least


def _region(text: str) -> RegionClass | str:
    """A class of region, or the text itself where some region's name holds it."""
    given = text.strip().lower()
    if given in list(RegionClass):
        return RegionClass(given)
    names = sorted({offer.region for offer in all_offers() if offer.region})
    if not given or not any(given in name.lower() for name in names):
        fix = f"write one of: {', '.join([*RegionClass, *names])}"
        raise InputError(f"no offer is from a region {text[:40]!r}", where="--region", fix=fix)
    return given


def check_kinds(text: str) -> tuple[str, ...]:
    """Kinds of offers from "spot,monthly".

    Raises:
        InputError: a kind that does not exist.
    """
    kinds = tuple(kind.strip() for kind in text.split(",") if kind.strip())
    wrong = next((kind for kind in kinds if kind not in list(Kind)), None)
    if wrong is not None:
        raise InputError(
            f"{wrong[:20]!r} is not a kind of offer", where="--kinds", fix=f"write some of {', '.join(Kind)}"
        )
    return kinds
