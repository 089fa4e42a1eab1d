"""Budget and deadline: yes, no, or honestly unknown."""

from decimal import Decimal

import pytest

from finefit.cost import Price, Span, bill, gpu_item, storage_item, within_budget, within_deadline
from finefit.errors import InputError
from finefit.units import Money

RATE = Price(Money(Decimal(2), "USD"), "test")


def run_of(low: str, likely: str, high: str) -> Span:
    return Span(Decimal(low), Decimal(likely), Decimal(high))


@pytest.mark.parametrize(("budget", "meets"), [(47, "no"), (48, "unknown"), (71, "unknown"), (72, "yes")])
def test_budget_against_both_ends(budget, meets):
    """Four GPUs at 2 USD, 6-9 hours: 48 to 72 USD."""
    got = bill([gpu_item(run_of("6", "7", "9"), 4, RATE)])
    limit = within_budget(got, Money(Decimal(budget), "USD"), 4, RATE)
    assert limit.meets == meets
    assert limit.affordable_hours == Decimal(budget) / 8


def test_unknown_items_leave_a_fitting_budget_unknown_and_are_named():
    got = bill([gpu_item(run_of("1", "1", "1"), 1, RATE), storage_item(10**9, None, Decimal(1), None)])
    limit = within_budget(got, Money(Decimal(100), "USD"), 1, RATE)
    assert limit.meets == "unknown"
    assert "checkpoint storage" in limit.reason
    assert within_budget(got, Money(Decimal(1), "USD"), 1, RATE).meets == "no"


def test_a_bill_without_total_is_unknown_but_hours_are_affordable():
    limit = within_budget(bill([gpu_item(None, 1, RATE)]), Money(Decimal(100), "USD"), 1, RATE)
    assert (limit.meets, limit.affordable_hours) == ("unknown", 50)


def test_without_a_price_nothing_is_affordable_or_not():
    limit = within_budget(bill([gpu_item(run_of("1", "1", "1"), 1, None)]), Money(Decimal(9), "USD"), 1, None)
    assert (limit.meets, limit.affordable_hours) == ("unknown", None)


def test_budget_in_another_currency_is_refused():
    with pytest.raises(InputError, match="CNY"):
        within_budget(bill([gpu_item(run_of("1", "1", "1"), 1, RATE)]), Money(Decimal(9), "CNY"), 1, RATE)


@pytest.mark.parametrize(("seconds", "meets"), [(3 * 3600, "no"), (5 * 3600, "unknown"), (6 * 3600, "yes")])
def test_deadline_against_both_ends(seconds, meets):
    assert within_deadline(run_of("4", "5", "6"), seconds).meets == meets


def test_unknown_hours_leave_the_deadline_unknown():
    assert within_deadline(None, 3600).meets == "unknown"
