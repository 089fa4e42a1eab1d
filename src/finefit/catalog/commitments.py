"""Longer terms: what providers take off their on-demand price for a promise of months or years."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from functools import cache

from finefit.catalog._tables import parse_day, parse_number, read_rows

_FILE = "commitments.csv"


@dataclass(frozen=True, slots=True)
class Commitment:
    """A discount on the on-demand price.

    Attributes:
        days: length of the promise; the whole of it is paid, used or not.
        low, high: shares taken off, equal where the source names one.
    """

    provider: str
    term: str
    days: int
    low: Decimal
    high: Decimal
    as_of: dt.date
    source: str
    licence: str
    note: str

    @property
    def likely(self) -> Decimal:
        """The middle of both shares."""
        return (self.low + self.high) / 2


@cache
def all_commitments() -> tuple[Commitment, ...]:
    """Every row, in file order. Read once, on the first call."""
    return tuple(_commitment(row, f"{_FILE}:{line}") for line, row in enumerate(read_rows(_FILE), start=2))


def _commitment(row: dict[str, str], where: str) -> Commitment:
    low, high = (parse_number(row[column], where=where) for column in ("discount_low", "discount_high"))
    return Commitment(
        provider=row["provider"],
        term=row["term"],
        days=int(parse_number(row["days"], where=where)),
        low=low,
        high=high,
        as_of=parse_day(row["as_of"], where=where),
        source=row["source"],
        licence=row["licence"],
        note=row["note"],
    )
