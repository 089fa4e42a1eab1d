"""Money items against worked figures, and sums that never hide what is unknown."""

import datetime as dt
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from finefit.catalog.storage import tariffs
from finefit.cost import Price, Span, bill, egress_item, gpu_item, setup_item, storage_item
from finefit.errors import InputError
from finefit.units import Money

DAY = dt.date(2026, 8, 22)


def usd(amount: str, day: dt.date | None = DAY) -> Money:
    return Money(Decimal(amount), "USD", day)


def price(amount: str, low: str = "1", high: str = "1") -> Price:
    return Price(usd(amount), "test", Decimal(low), Decimal(high))


def flat(amount: str):
    return lambda gb: usd(amount) * gb


def hours(low: str, likely: str, high: str) -> Span:
    return Span(Decimal(low), Decimal(likely), Decimal(high))


GCP = tariffs("GCP", "egress")[0].cost


def test_gpu_hours_of_a_published_run():
    """StarCoder-15B, 8 A100 at 12 USD an hour together, 15.5 h: about 190 USD with set-up (godot-dodo#11)."""
    item = gpu_item(Span.exact(Decimal("15.5")), 8, price("1.5"))
    assert item.amount == usd("186.00")
    assert item.quantity.likely == 124


def test_ends_join_the_time_interval_and_the_price_drift():
    item = gpu_item(hours("8", "10", "12"), 2, price("1", "0.95", "1.05"))
    assert (item.low.amount, item.amount.amount, item.high.amount) == (Decimal("15.2"), 20, Decimal("25.2"))


def test_set_up_of_an_8b_model():
    """16 GB of weights take 0.5-3 minutes at 0.5-0.1 GB/s; boot, image and environment 6-30."""
    item = setup_item(16 * 10**9, 1, price("60"))
    assert float(item.low.amount) == pytest.approx(6 + 0.533, abs=0.01)
    assert float(item.high.amount) == pytest.approx(30 + 2.667, abs=0.01)
    assert "7 to 33 minutes" in item.source
    assert item.amount.amount == pytest.approx((item.low.amount + item.high.amount) / 2)


def test_every_gpu_waits_for_the_set_up():
    one, eight = setup_item(10**9, 1, price("1")), setup_item(10**9, 8, price("1"))
    assert eight.amount.amount == pytest.approx(8 * one.amount.amount)


def test_storage_counts_decimal_gigabytes_and_months():
    item = storage_item(14 * 10**9, 3, Decimal("0.5"), flat("0.10"))
    assert item.quantity.likely == 21
    assert item.amount == usd("2.100")
    assert item.unit_price.amount == Decimal("0.1")


def test_egress_prices_each_band_on_its_own_share():
    """SkyPilot's egress put the whole volume at the last band, so 1.05 TB cost less than 1 TB (of 1024 GB)."""
    assert egress_item(1_000 * 10**9, GCP).amount.amount == Decimal("120.00")
    assert egress_item(1_050 * 10**9, GCP).amount.amount == 1024 * Decimal("0.12") + 26 * Decimal("0.11")


def test_free_egress_is_known_and_costs_nothing():
    item = egress_item(50 * 10**9, flat("0"))
    assert item.amount.amount == 0
    assert not bill([gpu_item(hours("1", "1", "1"), 1, price("1")), item]).lower_bound


@pytest.mark.parametrize(
    "item",
    [
        gpu_item(None, 8, price("2")),
        gpu_item(hours("1", "2", "3"), 8, None),
        setup_item(None, 1, price("2")),
        storage_item(None, 3, Decimal(1), flat("1")),
        storage_item(10**9, None, Decimal(1), flat("1")),
        storage_item(10**9, 3, Decimal(1), None),
        egress_item(None, GCP),
        egress_item(10**9, None),
        egress_item(10**9, lambda gb: None),
    ],
)
def test_a_missing_price_or_quantity_is_unknown_and_says_why(item):
    assert (item.amount, item.low, item.high) == (None, None, None)
    assert "unknown" in item.source


def test_a_bill_with_unknown_items_is_a_lower_bound():
    got = bill([gpu_item(hours("1", "2", "3"), 1, price("2")), storage_item(10**9, 1, Decimal(1), None)])
    assert got.total == usd("4")
    assert got.unknown == ("checkpoint storage",)
    assert got.lower_bound


def test_without_gpu_hours_there_is_no_total():
    got = bill([gpu_item(None, 1, price("2")), storage_item(10**9, 1, Decimal(1), flat("1"))])
    assert (got.total, got.low, got.high) == (None, None, None)


def test_currencies_are_not_added():
    yuan = Money(Decimal(1), "CNY")
    with pytest.raises(InputError, match="CNY"):
        bill([gpu_item(hours("1", "1", "1"), 1, price("1")), storage_item(10**9, 1, Decimal(1), lambda gb: yuan * gb)])


def test_a_sum_is_as_old_as_its_oldest_price():
    old = usd("1", dt.date(2026, 1, 1))
    got = bill([gpu_item(hours("1", "1", "1"), 1, price("1")), storage_item(10**9, 1, Decimal(1), lambda gb: old * gb)])
    assert got.total.as_of == dt.date(2026, 1, 1)


amounts = st.decimals(0, 1000, places=3, allow_nan=False)


@given(amounts, st.integers(1, 64), amounts)
def test_card_hours_times_price_is_the_gpu_item(wall, gpus, rate):
    item = gpu_item(Span.exact(wall), gpus, Price(Money(rate, "USD"), "test"))
    assert item.amount.amount == wall * gpus * rate
    assert item.quantity.likely == wall * gpus


@given(st.lists(st.tuples(amounts, amounts), min_size=1, max_size=5))
def test_the_total_is_the_sum_of_the_lines(lines):
    items = [gpu_item(Span.exact(wall), 1, Price(Money(rate, "USD"), "test")) for wall, rate in lines]
    assert bill(items).total.amount == sum(wall * rate for wall, rate in lines)


@given(st.integers(1, 10**13), st.integers(1, 10**13))
def test_egress_never_falls_with_volume(a, b):
    small, large = sorted((a, b))
    assert egress_item(small, GCP).amount.amount <= egress_item(large, GCP).amount.amount
