"""Once or often: from how many hours a month on a longer term is cheaper than paying by the hour."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal

from finefit.units import Money

HOURS_A_MONTH = Decimal(730)  # 8760 / 12, as clouds bill a month
HOURS_A_YEAR = Decimal(8760)


@dataclass(frozen=True, slots=True)
class BreakEven:
    """Where a term that is paid used or not meets one that is paid by the hour.

    Attributes:
        hours: of use a month; above 730 it never pays.
        utilisation: the same as a share of the month.
        runs: runs a month, None while the hours of one are unknown.
    """

    hours: Decimal
    utilisation: Decimal
    runs: Decimal | None


def break_even(term: Money, by_the_hour: Money, run_hours: Decimal | None) -> BreakEven | None:
    """``h* = term · 730 / hourly``; None where an hour costs nothing.

    Args:
        term: price of a GPU-hour of the term, paid for every hour of the month; by_the_hour: in the same currency.
    """
    if term.currency != by_the_hour.currency:
        raise ValueError(f"{term.currency} against {by_the_hour.currency}")
    if not by_the_hour.amount:
        return None
    share = term.amount / by_the_hour.amount
    hours = share * HOURS_A_MONTH
    return BreakEven(hours, share, hours / run_hours if run_hours else None)


def hours_paid(hours: Decimal, term: Decimal) -> Decimal:
    """Hours that are paid for so many of use: whole terms of so many hours, at least one."""
    return max(math.ceil(hours / term), 1) * term


def break_even_tokens(fixed: Money | None, managed: Money, own: Money) -> Decimal | None:
    """Tokens from which training oneself is cheaper than a managed service.

    Args:
        fixed: what one's own training costs before the first token (set-up, engineer's hours); None unknown.
        managed, own: of a million tokens.

    Returns:
        None where ``fixed`` is unknown or one's own tokens are not cheaper.
    """
    margin = managed.amount - own.amount
    if fixed is None or margin <= 0:
        return None
    return fixed.amount / margin * 10**6
