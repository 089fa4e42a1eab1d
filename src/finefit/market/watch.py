"""Watches: "H100 < 2.5 USD" is told of once the price is there, and again only when it moves."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, select, update

from finefit.catalog.gpu_names import find_gpu
from finefit.catalog.offers import FRESH_DAYS, Kind
from finefit.errors import InputError, SourceUnreachable
from finefit.market import schema
from finefit.market.prices import MICRO, Observed
from finefit.market.store import Store
from finefit.units import parse_money

_CONDITION = re.compile(
    r"(?P<gpu>.+?)\s*(?:(?P<kind>on-demand|spot|community|monthly|yearly)\s*)?[<＜]\s*(?P<price>.+)"
)
_FORM = 'write "H100 < 2.5 USD" or "H100 spot < 1.5 USD"'


@dataclass(frozen=True, slots=True)
class Watch:
    """A price of a GPU-hour under which somebody wants to be told.

    Attributes:
        id: its number in the database; told: price and day it was last told of.
    """

    id: int
    gpu_id: str
    kind: str
    micros: int
    currency: str
    text: str
    told: tuple[dt.date, int] | None


@dataclass(frozen=True, slots=True)
class Met:
    """A watch whose price is there; ``new`` where it was not told of before."""

    watch: Watch
    price: Observed
    new: bool


def add(store: Store, condition: str) -> Watch:
    """Keep a watch; the same one twice is one.

    Raises:
        InputError: not a condition; UnknownGpu: no such card, or several.
    """
    found = _CONDITION.fullmatch(condition.strip())
    if not found:
        raise InputError(f"{condition[:60]!r} is not a condition", where="CONDITION", fix=_FORM)
    price = parse_money(found["price"], where="CONDITION")
    micros = int((price.amount * MICRO).to_integral_value())
    if not 0 < micros < 100_000 * MICRO:
        raise InputError(f"{found['price'][:20]} is not the price of a GPU-hour", where="CONDITION", fix=_FORM)
    gpu = find_gpu(found["gpu"], where="CONDITION").gpu
    kind = found["kind"] or str(Kind.ON_DEMAND)
    row = {"gpu_id": gpu.id, "kind": kind, "micros": micros, "currency": price.currency}
    with store.writing() as connection:
        known = [watch for watch in _read(connection) if _same(watch, row)]
        if not known:
            connection.execute(schema.watches.insert().values(**row, text=condition.strip()))
            known = [watch for watch in _read(connection) if _same(watch, row)]
    return known[0]


def all_watches(store: Store) -> list[Watch]:
    """Every watch, oldest first."""
    with store.writing() as connection:
        return _read(connection)


def remove(store: Store, number: int) -> None:
    """Forget a watch.

    Raises:
        InputError: no watch has that number.
    """
    with store.writing() as connection:
        if not connection.execute(delete(schema.watches).where(schema.watches.c.id == number)).rowcount:
            raise InputError(f"no watch has the number {number}", where="NUMBER", fix="see finefit watch list")


def check(store: Store, *, on: dt.date) -> list[Met]:
    """Watches that are met by a fresh price, cheapest first; those told of before at this price are not new."""
    prices = [row for row in store.newest(on) if (on - row.day).days <= FRESH_DAYS]
    met = []
    with store.writing() as connection:
        for watch in _read(connection):
            fitting = [
                row
                for row in prices
                if (row.gpu_id, row.kind, row.currency) == (watch.gpu_id, watch.kind, watch.currency)
                and row.micros < watch.micros
            ]
            if fitting:
                best = min(fitting, key=lambda row: (row.micros, row.provider, row.region))
                met.append(Met(watch, best, watch.told is None or watch.told[1] != best.micros))
    return met


def told(store: Store, met: list[Met]) -> None:
    """Note that somebody was told, so that the next check does not tell it again."""
    with store.writing() as connection:
        for each in met:
            connection.execute(
                update(schema.watches)
                .where(schema.watches.c.id == each.watch.id)
                .values(told_day=each.price.day, told_micros=each.price.micros)
            )


def notify(urls: list[str], title: str, body: str) -> None:
    """Send a message through apprise.

    Raises:
        InputError: apprise is not installed, or does not know a URL.
        SourceUnreachable: a message could not be delivered.
    """
    try:
        import apprise
    except ImportError:
        raise InputError("messages need apprise", where="--notify", fix='pip install "finefit[history]"') from None
    sender = apprise.Apprise()
    for url in urls:
        if not sender.add(url):
            raise InputError("not a URL that apprise knows", where="--notify", fix="see the apprise documentation")
    if not sender.notify(title=title, body=body):
        raise SourceUnreachable("a message could not be delivered", where="--notify", fix="check the URL")


def _read(connection: Any) -> list[Watch]:
    rows = connection.execute(select(schema.watches).order_by(schema.watches.c.id)).mappings()
    return [
        Watch(
            id=row["id"],
            gpu_id=row["gpu_id"],
            kind=row["kind"],
            micros=row["micros"],
            currency=row["currency"],
            text=row["text"],
            told=None if row["told_day"] is None else (row["told_day"], row["told_micros"]),
        )
        for row in rows
    ]


def _same(watch: Watch, row: dict[str, Any]) -> bool:
    return all(getattr(watch, name) == value for name, value in row.items())
