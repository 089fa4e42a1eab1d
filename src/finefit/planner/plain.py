"""Values as JSON has them: what every object of the contract is built from."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal
from typing import TYPE_CHECKING, Any

from finefit import __version__

if TYPE_CHECKING:
    import datetime as dt

    from finefit.catalog.currency import Rate
    from finefit.units import Money

_CENT = Decimal("0.0001")


def head(schema: str, as_of: dt.date, revision: str) -> dict[str, Any]:
    """The four fields every object starts with."""
    return {
        "schema": schema,
        "finefit_version": __version__,
        "catalog_revision": revision,
        "as_of": as_of.isoformat(),
    }


def money(found: Money | None) -> dict[str, str | None] | None:
    """Amount as text, currency and date; None unknown."""
    if found is None:
        return None
    return {
        "amount": plain(found.amount),
        "currency": found.currency,
        "as_of": None if found.as_of is None else found.as_of.isoformat(),
    }


def exchange_rate(rate: Rate | None) -> dict[str, str] | None:
    """The rate that prices were converted at; None where none was."""
    if rate is None:
        return None
    return {
        "base": rate.base,
        "quote": rate.quote,
        "rate": plain(rate.rate),
        "date": rate.date.isoformat(),
        "source": rate.source,
    }


def plain(value: Decimal) -> str:
    """A decimal with four digits after the point, as text."""
    return str(value.quantize(_CENT, rounding=ROUND_HALF_EVEN))


def number(value: float | None) -> float | None:
    """Nine significant digits; None unknown."""
    return None if value is None else float(f"{value:.9g}")
