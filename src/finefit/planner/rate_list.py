"""The exchange rates of an answer: which are known on a day, how old, from whom."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

from finefit.catalog.currency import Rate, rates
from finefit.catalog.offers import FRESH_DAYS
from finefit.catalog.revision import catalog_revision
from finefit.planner.plain import head, plain

RATES_SCHEMA = "finefit/rates/1"


@dataclass(frozen=True, slots=True)
class RateList:
    """Rates dated on the day of the answer or before, newest first; the first is the one that prices are converted at.

    Attributes:
        stale: the newest one is older than a week.
    """

    rates: tuple[Rate, ...]
    stale: bool
    as_of: dt.date
    catalog_revision: str

    def age_days(self, rate: Rate) -> int:
        """Days from a rate to the day of the answer."""
        return (self.as_of - rate.date).days

    def to_dict(self) -> dict[str, Any]:
        """The JSON contract object."""
        return {
            **head(RATES_SCHEMA, self.as_of, self.catalog_revision),
            "stale": self.stale,
            "rates": [
                {
                    "date": rate.date.isoformat(),
                    "age_days": self.age_days(rate),
                    "base": rate.base,
                    "quote": rate.quote,
                    "rate": plain(rate.rate),
                    "source": rate.source,
                    "licence": rate.licence,
                }
                for rate in self.rates
            ],
        }


def list_rates(*, on: dt.date) -> RateList:
    """Every rate known on a day.

    Raises:
        InputError: the user's file of rates is damaged.
    """
    known = tuple(rate for rate in reversed(rates()) if rate.date <= on)
    stale = not known or (on - known[0].date).days > FRESH_DAYS
    return RateList(known, stale, on, catalog_revision())
