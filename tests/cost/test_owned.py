"""Buying against renting, by published prices and rents of August 2026 (CMIS Daily), worked by hand."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from finefit.cost.owned import Owned
from finefit.cost.terms import break_even, break_even_tokens, hours_paid
from finefit.errors import InputError
from finefit.units import Money


def cny(amount: str | int) -> Money:
    return Money(Decimal(amount), "CNY", None)


def owned(price: int, kilowatts: str, **changes: Decimal) -> Owned:
    return Owned(cny(price) * (Decimal(1) / 8), Decimal(kilowatts) / 8, cny("0.6"), **changes)


YEARS = {"life_years": Decimal(3), "residual": Decimal("0.3")}


@pytest.mark.parametrize(
    ("machine", "rent", "share"),
    [
        (owned(2_750_000, "10.2"), "15.1", 0.70),  # eight H100 against a rent of 15.1 CNY each
        (owned(230_000, "4.5", **YEARS), "1.27", 1.12),  # eight 4090 against a yearly rent: never
        (owned(230_000, "4.5", **YEARS), "1.88", 0.65),  # and by the hour
    ],
)
def test_utilisation_from_which_buying_pays(machine: Owned, rent: str, share: float) -> None:
    found = machine.break_even_utilisation(cny(rent))
    assert found is not None and float(found) == pytest.approx(share, abs=0.006)


def test_power_alone_may_cost_more_than_the_rent() -> None:
    assert owned(230_000, "4.5").break_even_utilisation(cny("0.1")) is None


@given(st.integers(1, 99))
def test_an_hour_costs_the_rent_at_break_even(rent: int) -> None:
    machine = owned(100_000, "4")
    share = machine.break_even_utilisation(cny(rent))
    assert share is not None
    used = Owned(machine.price, machine.kilowatts, machine.tariff, utilisation=share).hourly
    assert used is not None and used.amount == pytest.approx(Decimal(rent), rel=Decimal("1e-20"))


def test_hours_cost_nothing_known_without_utilisation() -> None:
    assert owned(100_000, "4").hourly is None


def test_two_currencies_are_refused() -> None:
    with pytest.raises(InputError, match="--power-price"):
        Owned(Money(Decimal(2000), "USD"), Decimal(1), cny("0.6"))


def test_a_discount_of_30_percent_pays_from_511_hours_a_month() -> None:
    """(1 - 0.3) · 730."""
    found = break_even(cny(7), cny(10), Decimal("7.3"))
    assert found is not None and (found.hours, found.utilisation, found.runs) == (511, Decimal("0.7"), 70)


def test_whole_terms_are_paid() -> None:
    assert [hours_paid(Decimal(h), Decimal(730)) for h in (0, 1, 730, 731)] == [730, 730, 730, 1460]


@given(st.decimals("0.1", "100000", places=1), st.sampled_from([168, 730, 8760]))
def test_no_more_than_one_term_is_paid_too_much(hours: Decimal, term: int) -> None:
    paid = hours_paid(hours, Decimal(term))
    assert paid % term == 0 and 0 <= paid - hours < term


def test_tokens_from_which_own_training_is_cheaper() -> None:
    """An hour of set-up on one H100 at 3.25 USD against 0.48 managed and 0.11 own a million: about 9M tokens."""

    def usd(amount: str) -> Money:
        return Money(Decimal(amount), "USD")

    found = break_even_tokens(usd("3.25"), usd("0.48"), usd("0.11"))
    assert found is not None and float(found) == pytest.approx(8.8e6, rel=0.01)
    assert break_even_tokens(None, usd("0.48"), usd("0.11")) is None
    assert break_even_tokens(usd("3.25"), usd("0.1"), usd("0.11")) is None
