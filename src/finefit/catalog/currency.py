"""Exchange rates with their dates, and money from one currency into another."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from functools import cache

from finefit.catalog._tables import parse_day, parse_number, read_rows
from finefit.catalog.user_rates import keep, user_rows
from finefit.errors import DataError, InputError
from finefit.units import Money

_FILE = "fx.csv"


@dataclass(frozen=True, slots=True)
class Rate:
    """One ``base`` cost ``rate`` ``quote`` on ``date``."""

    date: dt.date
    base: str
    quote: str
    rate: Decimal
    source: str
    licence: str = ""


@cache
def rates() -> tuple[Rate, ...]:
    """Every rate of the package and those the user has refreshed, oldest first; of one day the refreshed one last.

    Raises:
        InputError: the user's file is damaged.
    """
    try:
        own = [_rate(row) for row in user_rows()]
    except DataError as problem:
        raise InputError(
            f"a refreshed exchange rate is damaged: {problem.what}", fix="remove the file and run finefit rates refresh"
        ) from None
    return tuple(sorted([*map(_rate, read_rows(_FILE)), *own], key=lambda rate: rate.date))


def keep_rates(found: Iterable[Rate]) -> None:
    """Keep refreshed rates for every later answer.

    Raises:
        InputError: they cannot be kept.
    """
    keep(
        {
            "date": rate.date.isoformat(),
            "base": rate.base,
            "quote": rate.quote,
            "rate": f"{rate.rate:f}",
            "source": rate.source,
            "licence": rate.licence,
        }
        for rate in found
    )
    rates.cache_clear()


def rate_between(first: str, second: str, *, on: dt.date) -> Rate:
    """The newest rate between two currencies dated ``on`` or before; the oldest one if all are later.

    The rate is as quoted: its base may be either of the two.

    Raises:
        InputError: no rate between these currencies is known.
    """
    known = [rate for rate in rates() if {rate.base, rate.quote} == {first, second}]
    if not known:
        pairs = ", ".join(sorted({f"{rate.base}/{rate.quote}" for rate in rates()}))
        raise InputError(f"no exchange rate between {first} and {second} is known", fix=f"known: {pairs}")
    return next((rate for rate in reversed(known) if rate.date <= on), known[0])


def convert(money: Money, to: str, *, on: dt.date) -> Money:
    """``money`` in the currency ``to``, by the rate of :func:`rate_between`; not rounded.

    The result is as old as the older of price and rate.

    Raises:
        InputError: no rate between these currencies is known.
    """
    if money.currency == to:
        return money
    rate = rate_between(money.currency, to, on=on)
    amount = money.amount * rate.rate if money.currency == rate.base else money.amount / rate.rate
    return Money(amount, to, min(money.as_of or rate.date, rate.date))


def _rate(row: dict[str, str]) -> Rate:
    rate = parse_number(row["rate"], where=_FILE)
    return Rate(parse_day(row["date"], where=_FILE), row["base"], row["quote"], rate, row["source"], row["licence"])
