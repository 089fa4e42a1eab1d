"""Managed fine-tuning: what providers charge for training on their machines, by model size and method.

Rows without a price name a service whose price page nobody could read: the price is unknown, and the link says where
it stands.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from functools import cache

from finefit.catalog._tables import parse_day, parse_number, read_rows
from finefit.errors import DataError
from finefit.units import Money

_FILE = "managed_finetune.csv"
_BILLION = 10**9
PER_MILLION = "1M-tokens"
UNITS = (PER_MILLION, "GPU-hour", "hour")


@dataclass(frozen=True, slots=True)
class Managed:
    """One price of one service.

    Attributes:
        models: the provider's class or model, as it writes it.
        from_parameters, to_parameters: the class by total parameters, both ends included; None open. Both None: the
            row is for the models it names.
        method: "full", "lora" or "any"; task: "sft", "dpo" or "rl".
        unit: "1M-tokens" of training, "GPU-hour" or "hour".
        price: None unknown.
        evidence: "quoted" from the provider's page, "secondary" from somebody who read it, "none".
        minimum: charge a job at least, None where the source names none.
        counts: which tokens are charged.
    """

    provider: str
    models: str
    from_parameters: int | None
    to_parameters: int | None
    method: str
    task: str
    unit: str
    price: Money | None
    as_of: dt.date | None
    evidence: str
    source: str
    link: str
    minimum: Money | None
    counts: str
    note: str

    def takes(self, name: str, parameters: int, *, lora: bool, task: str) -> bool:
        """Whether the row is for a model of that name and size, trained so."""
        if self.task != task or self.method not in ("any", "lora" if lora else "full"):
            return False
        if self.from_parameters is None and self.to_parameters is None:
            return name.rpartition("/")[2].lower() == self.models.lower()
        return (self.from_parameters or 0) <= parameters <= (self.to_parameters or parameters)


@cache
def all_managed() -> tuple[Managed, ...]:
    """Every row, in file order. Read once, on the first call."""
    return tuple(_managed(row, f"{_FILE}:{line}") for line, row in enumerate(read_rows(_FILE), start=2))


def managed_for(name: str, parameters: int, *, lora: bool, task: str) -> tuple[Managed, ...]:
    """Prices a million tokens for a model, dearest last; of several rows of one provider the one that names it."""
    best: dict[str, Managed] = {}
    for row in all_managed():
        if row.price is not None and row.unit == PER_MILLION and row.takes(name, parameters, lora=lora, task=task):
            held = best.get(row.provider)
            if held is None or held.to_parameters is not None:
                best[row.provider] = row
    return tuple(
        sorted(best.values(), key=lambda row: (row.price.currency, row.price.amount) if row.price else ("", Decimal(0)))
    )


def _managed(row: dict[str, str], where: str) -> Managed:
    day = parse_day(row["as_of"], where=where) if row["as_of"] else None
    if row["unit"] not in UNITS:
        raise DataError(f"unknown unit {row['unit']!r}", where=where)

    def money(text: str) -> Money | None:
        return Money(parse_number(text, where=where), row["currency"], day) if text else None

    def size(text: str) -> int | None:
        return int(parse_number(text, where=where) * _BILLION) if text else None

    return Managed(
        provider=row["provider"],
        models=row["models"],
        from_parameters=size(row["from_b"]),
        to_parameters=size(row["to_b"]),
        method=row["method"],
        task=row["task"],
        unit=row["unit"],
        price=money(row["price"]),
        as_of=day,
        evidence=row["evidence"],
        source=row["source"],
        link=row["link"],
        minimum=money(row["minimum"]),
        counts=row["counts"],
        note=row["note"],
    )
