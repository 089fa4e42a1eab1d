"""What cards and servers cost to buy: dated Chinese prices."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from functools import cache

from finefit.catalog._tables import parse_day, parse_number, read_rows
from finefit.units import Money

_FILE = "cn_purchase.csv"


@dataclass(frozen=True, slots=True)
class Purchase:
    """One price of a card, or of a server with ``gpus`` of them.

    Attributes:
        low, price, high: of the whole, range and middle.
    """

    gpu_id: str
    gpus: int
    what: str
    low: Money
    price: Money
    high: Money
    date: dt.date
    confidence: str
    source: str
    licence: str


@cache
def all_purchases() -> tuple[Purchase, ...]:
    """Every row, in file order. Read once, on the first call."""
    return tuple(_purchase(row, f"{_FILE}:{line}") for line, row in enumerate(read_rows(_FILE), start=2))


def purchases_of(gpu_id: str) -> tuple[Purchase, ...]:
    """Prices of a card, servers first; empty where none is known."""
    return tuple(sorted((p for p in all_purchases() if p.gpu_id == gpu_id), key=lambda p: -p.gpus))


def _purchase(row: dict[str, str], where: str) -> Purchase:
    day = parse_day(row["date"], where=where)
    low, mid, high = (Money(parse_number(row[c], where=where), row["currency"], day) for c in ("low", "mid", "high"))
    return Purchase(
        gpu_id=row["gpu_id"],
        gpus=int(parse_number(row["gpus"], where=where)),
        what=row["what"],
        low=low,
        price=mid,
        high=high,
        date=day,
        confidence=row["confidence"],
        source=row["source"],
        licence=row["licence"],
    )
