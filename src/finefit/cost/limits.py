"""Does the run stay within a budget and a deadline?"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from finefit.cost.bill import Bill, Price, Span
from finefit.errors import InputError
from finefit.units import Money

_SECONDS_PER_HOUR = 3600


@dataclass(frozen=True, slots=True)
class Limit:
    """An answer and its reason.

    Attributes:
        meets: "yes" if the upper end of the interval is within, "no" if the lower end is beyond,
            "unknown" between the two and where a figure is missing.
        affordable_hours: hours on the GPUs of the run that the budget pays for, None without a price.
    """

    meets: str
    reason: str
    affordable_hours: Decimal | None = None


def within_budget(bill: Bill, budget: Money, gpus: int, price: Price | None) -> Limit:
    """Compare a bill with a budget.

    Raises:
        InputError: the budget is in another currency than the prices.
    """
    hours = None
    if price is not None:
        _same_currency(budget, price.unit_price)
        each = price.unit_price.amount * gpus
        hours = budget.amount / each if each else None
    if bill.total is None or bill.low is None or bill.high is None:
        return Limit("unknown", "the bill has no total", hours)
    _same_currency(budget, bill.total)
    if bill.low.amount > budget.amount:
        return Limit("no", f"at least {bill.low.amount:.2f} {budget.currency}", hours)
    if bill.high.amount > budget.amount:
        return Limit("unknown", f"between {bill.low.amount:.2f} and {bill.high.amount:.2f} {budget.currency}", hours)
    if bill.unknown:
        return Limit("unknown", f"the rest fits; unknown: {', '.join(bill.unknown)}", hours)
    return Limit("yes", f"at most {bill.high.amount:.2f} {budget.currency}", hours)


def within_deadline(hours: Span | None, deadline_seconds: float) -> Limit:
    """Compare the hours of a run with a deadline."""
    if hours is None:
        return Limit("unknown", "hours of the run unknown")
    deadline = Decimal(str(deadline_seconds)) / _SECONDS_PER_HOUR
    if hours.low > deadline:
        return Limit("no", f"at least {hours.low:.1f} h")
    if hours.high > deadline:
        return Limit("unknown", f"between {hours.low:.1f} and {hours.high:.1f} h")
    return Limit("yes", f"at most {hours.high:.1f} h")


def _same_currency(budget: Money, other: Money) -> None:
    if budget.currency != other.currency:
        raise InputError(
            f"the budget is in {budget.currency}, the prices in {other.currency}",
            where="--budget",
            fix=f"give the budget in {other.currency}",
        )
