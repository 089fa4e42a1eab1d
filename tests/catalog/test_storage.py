"""Storage and egress tariffs."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from finefit.catalog import storage
from finefit.catalog.storage import Tariff

TARIFFS = storage.all_tariffs()


def find(provider: str, kind: str, tier: str) -> Tariff:
    tariff = storage.find_tariff(provider, kind, tier)
    assert tariff is not None
    return tariff


@pytest.mark.parametrize("tariff", TARIFFS, ids=lambda t: f"{t.provider}-{t.kind}-{t.tier}")
def test_tariff_is_plausible(tariff: Tariff) -> None:
    assert tariff.kind in {"object", "block", "network", "egress"}
    assert tariff.currency in {"USD", "CNY"}
    assert tariff.source and tariff.licence and tariff.confidence in {"high", "medium", "low"}
    assert dt.date(2025, 1, 1) <= tariff.as_of <= dt.date(2026, 11, 30)
    assert tariff.bands[0].from_gb == 0
    for band in tariff.bands:
        assert 0 <= band.price <= Decimal("0.6")
        assert band.to_gb is None or band.to_gb > band.from_gb
    priced = [band.price for band in tariff.bands if band.price]
    assert priced == sorted(priced, reverse=True)  # beyond a free allowance, volume never gets dearer


def test_keys_are_unique() -> None:
    assert len({(t.provider.lower(), t.kind, t.tier) for t in TARIFFS}) == len(TARIFFS)


@pytest.mark.parametrize(
    ("provider", "gb", "cost"),
    [
        ("AWS", 100, "0"),  # free each month
        ("AWS", 200, "9.00"),
        ("AWS", 10240 + 1000, "997.60"),  # 10,140 · 0.09 + 1,000 · 0.085
        ("gcp", 1024, "122.88"),
        ("gcp", 1075, "128.49"),  # 1.05 TB: more than 1.0 TB, each GB at its own band's price
        ("OCI", 10240, "0"),
        ("runpod", 5000, "0"),
    ],
)
def test_egress_in_marginal_bands(provider: str, gb: int, cost: str) -> None:
    money = find(provider, "egress", "internet").cost(gb)
    assert money is not None and money.amount == Decimal(cost) and money.currency == "USD"


def test_beyond_the_last_known_band_is_unknown() -> None:
    azure = find("Azure", "egress", "internet")
    assert azure.cost(51200) is not None
    assert azure.cost(51201) is None
    assert azure.cost(1, already_gb=51200) is None


def test_units_are_brought_to_gb_and_month() -> None:
    """0.0066 CNY a GB and day; 0.09 USD a GiB and month after the first TiB."""
    disk = find("AutoDL", "block", "data-disk").cost(100)
    assert disk is not None and disk.amount == pytest.approx(Decimal("20.09"), abs=Decimal("0.01"))
    volume = find("Modal", "network", "volume")
    tib_in_gb = Decimal(2**40) / 10**9
    free, priced = volume.cost(tib_in_gb), volume.cost(2 * tib_in_gb)
    assert free is not None and free.amount == 0
    assert priced is not None and priced.amount == pytest.approx(Decimal(1024) * Decimal("0.09"))


def test_a_stopped_disk_costs_double() -> None:
    running = find("RunPod", "block", "volume").cost(100)
    stopped = find("RunPod", "block", "volume-stopped").cost(100)
    assert running is not None and stopped is not None
    assert stopped.amount == 2 * running.amount == 20


def test_unknown_is_none_and_not_free() -> None:
    assert storage.find_tariff("AWS", "network", "volume") is None
    assert storage.tariffs("nobody") == ()
    assert {t.kind for t in storage.tariffs("aws")} == {"object", "block", "egress"}
    assert all(t.kind == "egress" for t in storage.tariffs("AWS", "egress"))


volumes = st.decimals(0, 200_000, places=1)


@given(st.sampled_from(TARIFFS), volumes, volumes)
def test_two_parts_cost_what_the_whole_costs(tariff: Tariff, first: Decimal, second: Decimal) -> None:
    whole, one, two = tariff.cost(first + second), tariff.cost(first), tariff.cost(second, already_gb=first)
    if whole is None:
        assert two is None
    else:
        assert one is not None and two is not None
        assert one.amount + two.amount == pytest.approx(whole.amount)
        assert whole.amount >= one.amount
