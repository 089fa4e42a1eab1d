"""Exchange rates and conversion."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from finefit.catalog import currency
from finefit.errors import InputError
from finefit.units import Money

DAY = dt.date(2026, 11, 30)


def test_rates_are_dated_and_plausible() -> None:
    for rate in currency.rates():
        assert rate.source and dt.date(2026, 1, 1) <= rate.date <= DAY
        if (rate.base, rate.quote) == ("USD", "CNY"):
            assert 6 < rate.rate < 8  # since 2008


def test_both_directions() -> None:
    """1 USD = 6.7394 CNY on 2026-08-22."""
    dollars = Money(Decimal(10), "USD", dt.date(2026, 10, 1))
    yuan = currency.convert(dollars, "CNY", on=DAY)
    assert yuan == Money(Decimal("67.394"), "CNY", dt.date(2026, 8, 22))  # as old as the rate
    assert currency.convert(Money(Decimal("67.394"), "CNY"), "USD", on=DAY).amount == 10


def test_an_older_price_stays_old() -> None:
    price = Money(Decimal(1), "USD", dt.date(2026, 5, 1))
    assert currency.convert(price, "CNY", on=DAY).as_of == dt.date(2026, 5, 1)


def test_same_currency_is_untouched() -> None:
    price = Money(Decimal("1.23"), "USD", dt.date(2026, 5, 1))
    assert currency.convert(price, "USD", on=DAY) is price


def test_unknown_currency() -> None:
    with pytest.raises(InputError, match="EUR") as caught:
        currency.convert(Money(Decimal(1), "USD"), "EUR", on=DAY)
    assert "USD/CNY" in str(caught.value.fix)


def test_the_newest_rate_not_after_the_day(monkeypatch: pytest.MonkeyPatch) -> None:
    table = tuple(
        currency.Rate(dt.date(2026, month, 1), "USD", "CNY", Decimal(rate), "test")
        for month, rate in ((3, 7), (6, 8), (9, 9))
    )
    monkeypatch.setattr(currency, "rates", lambda: table)
    chosen = [currency.rate_between("CNY", "USD", on=dt.date(2026, month, 15)).rate for month in (1, 3, 6, 8, 12)]
    assert chosen == [7, 7, 8, 8, 9]


@given(st.decimals(Decimal("0.01"), Decimal(10**6), places=2))
def test_there_and_back(amount: Decimal) -> None:
    there = currency.convert(Money(amount, "CNY"), "USD", on=DAY)
    assert currency.convert(there, "CNY", on=DAY).amount == pytest.approx(amount)
