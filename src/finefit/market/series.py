"""The price of a card over time: one point a day, from the bundled history and the user's own."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from statistics import median
from typing import Any

from finefit.catalog.currency import convert
from finefit.catalog.revision import catalog_revision
from finefit.market.prices import Observed
from finefit.planner.plain import head, money, plain
from finefit.units import Money

HISTORY_SCHEMA = "finefit/history/1"


@dataclass(frozen=True, slots=True)
class Point:
    """Prices of one day: lowest, median and highest of ``prices`` offers."""

    day: dt.date
    low: Decimal
    median: Decimal
    high: Decimal
    prices: int


@dataclass(frozen=True, slots=True)
class Series:
    """Days in order; days without a price are left out.

    Attributes:
        sources: what the prices were taken from, with its licence.
    """

    gpu_id: str
    name: str
    kind: str
    currency: str
    points: tuple[Point, ...]
    sources: tuple[str, ...]
    as_of: dt.date
    catalog_revision: str
    notes: tuple[str, ...] = ()

    def before(self, days: int) -> Point | None:
        """The point nearest to so many days before the last one, at most a week off; None where there is none."""
        if not self.points:
            return None
        wanted = self.points[-1].day - dt.timedelta(days=days)
        nearest = min(self.points, key=lambda point: abs((point.day - wanted).days))
        return nearest if abs((nearest.day - wanted).days) <= 7 else None

    def to_dict(self) -> dict[str, Any]:
        """The JSON contract object."""

        def told(amount: Decimal, day: dt.date) -> object:
            return money(Money(amount, self.currency, day))

        return {
            **head(HISTORY_SCHEMA, self.as_of, self.catalog_revision),
            "gpu": self.gpu_id,
            "kind": self.kind,
            "currency": self.currency,
            "points": [
                {
                    "date": point.day.isoformat(),
                    "low": plain(point.low),
                    "median": plain(point.median),
                    "high": plain(point.high),
                    "offers": point.prices,
                }
                for point in self.points
            ],
            "latest": told(self.points[-1].median, self.points[-1].day) if self.points else None,
            "sources": list(self.sources),
            "notes": list(self.notes),
        }


def series(
    gpu_id: str,
    name: str,
    rows: Iterable[Observed],
    *,
    kind: str,
    currency: str,
    on: dt.date,
    notes: tuple[str, ...] = (),
) -> Series:
    """Prices of one kind as points a day. Of one offer and day the last row counts."""
    wanted = {
        (row.provider, row.region, row.min_gpus, row.currency, row.source, row.day): row
        for row in rows
        if row.kind == kind and row.day <= on
    }
    by_day: dict[dt.date, list[Decimal]] = defaultdict(list)
    for row in wanted.values():
        by_day[row.day].append(convert(row.price, currency, on=on).amount)
    points = tuple(
        Point(day, min(prices), median(prices), max(prices), len(prices)) for day, prices in sorted(by_day.items())
    )
    sources = tuple(sorted({f"{row.source} ({row.licence})" if row.licence else row.source for row in wanted.values()}))
    return Series(gpu_id, name, kind, currency, points, sources, on, catalog_revision(), notes)
