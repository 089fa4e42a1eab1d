"""What keeping and moving data costs: storage by the month and traffic out of a provider, in marginal bands."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from itertools import pairwise

from finefit.catalog._tables import parse_day, parse_number, read_rows
from finefit.errors import DataError
from finefit.units import GB, GIB, Money

_FILE = "storage_egress.csv"
_DAYS_A_MONTH = Decimal("30.4375")  # 365.25 / 12
# Factor from a unit's price to one for a GB, and for storage a month. Providers say GB and bill GB or GiB without
# telling which; only a unit written GiB is converted.
_UNITS = {
    "GB-month": Decimal(1),
    "GiB-month": Decimal(GB) / Decimal(GIB),
    "GB-day": _DAYS_A_MONTH,
    "GB": Decimal(1),
}
_UNIT_GB = {"GiB-month": Decimal(GIB) / Decimal(GB)}


@dataclass(frozen=True, slots=True)
class Band:
    """The price of one more GB from ``from_gb`` up to ``to_gb`` (None: no upper end) of the month's volume."""

    from_gb: Decimal
    to_gb: Decimal | None
    price: Decimal


@dataclass(frozen=True, slots=True)
class Tariff:
    """One provider's price for a kind of storage (per GB and month) or of traffic (per GB).

    Attributes:
        kind: "object", "block" or "network" storage, or "egress".
        tier: "hot", "cool", "archive", "volume", "internet", "inter-region", ...
        bands: lowest first and without gaps; the last may end where the source ends.
        as_of: date of the oldest band.
    """

    provider: str
    kind: str
    tier: str
    bands: tuple[Band, ...]
    currency: str
    as_of: dt.date
    source: str
    licence: str
    confidence: str
    note: str = ""

    def cost(self, gb: Decimal | int, *, already_gb: Decimal | int = 0) -> Money | None:
        """Cost of ``gb`` more after ``already_gb`` in the same month, each GB at its own band's price.

        None where the volume goes beyond what the source prices.
        """
        start, end = Decimal(already_gb), Decimal(already_gb) + Decimal(gb)
        last = self.bands[-1].to_gb
        if last is not None and end > last:
            return None
        total = Decimal(0)
        for band in self.bands:
            upper = end if band.to_gb is None else min(end, band.to_gb)
            total += max(upper - max(start, band.from_gb), Decimal(0)) * band.price
        return Money(total, self.currency, self.as_of)


@cache
def all_tariffs() -> tuple[Tariff, ...]:
    """Every tariff of the package, in file order. Read once, on the first call."""
    groups: dict[tuple[str, str, str], list[dict[str, str]]] = {}
    for row in read_rows(_FILE):
        groups.setdefault((row["provider"], row["kind"], row["tier"]), []).append(row)
    return tuple(_tariff(rows) for rows in groups.values())


def tariffs(provider: str, kind: str | None = None) -> tuple[Tariff, ...]:
    """Tariffs of one provider (in any case), of one kind if given; empty where none is known."""
    return tuple(
        tariff
        for tariff in all_tariffs()
        if tariff.provider.lower() == provider.lower() and kind in (None, tariff.kind)
    )


def find_tariff(provider: str, kind: str, tier: str) -> Tariff | None:
    """One provider's tariff, or None: not known, which is not free."""
    return next((tariff for tariff in tariffs(provider, kind) if tariff.tier == tier), None)


def _tariff(rows: list[dict[str, str]]) -> Tariff:
    first = rows[0]
    where = f"{_FILE}, {first['provider']} {first['kind']} {first['tier']}"
    bands = tuple(sorted((_band(row, where) for row in rows), key=lambda band: band.from_gb))
    for below, above in pairwise(bands):
        if below.to_gb != above.from_gb:
            raise DataError(f"bands do not meet at {above.from_gb} GB", where=where)
    return Tariff(
        provider=first["provider"],
        kind=first["kind"],
        tier=first["tier"],
        bands=bands,
        currency=first["currency"],
        as_of=min(parse_day(row["as_of"], where=where) for row in rows),
        source=first["source"],
        licence=first["licence"],
        confidence=first["confidence"],
        note="; ".join(dict.fromkeys(row["note"] for row in rows if row["note"])),
    )


def _band(row: dict[str, str], where: str) -> Band:
    unit = row["unit"]
    if unit not in _UNITS:
        raise DataError(f"unknown unit {unit!r}", where=where)
    gb = _UNIT_GB.get(unit, Decimal(1))
    start, price = (parse_number(row[column], where=where) for column in ("from_gb", "price"))
    end = parse_number(row["to_gb"], where=where) * gb if row["to_gb"] else None
    return Band(start * gb, end, price * _UNITS[unit])
