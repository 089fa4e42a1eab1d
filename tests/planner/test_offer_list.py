"""The list of offers: filters, order, age, conversion."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from finefit import pricing
from finefit.catalog.gpu_table import card_by_id
from finefit.catalog.offers import Kind, all_offers
from finefit.errors import InputError, UnknownGpu
from finefit.units import GIB

DAY = "2026-11-30"


def test_every_row_has_age_source_kind_and_place() -> None:
    found = pricing.offers(as_of=DAY)
    assert len(found.rows) == len(all_offers()) > 400
    for row in found.rows:
        assert row.offer.source and row.offer.licence and row.offer.kind in list(Kind)
        assert row.age_days == (dt.date(2026, 11, 30) - row.offer.date).days
        assert row.stale is (row.age_days > 7)
        assert row.region in found.checks
    prices = [row.price.amount for row in found.rows]
    assert prices == sorted(prices)


@given(
    gpu=st.sampled_from([None, "RTX 4090", "H100", "A100 80GB"]),
    least=st.sampled_from([None, "24", "40GB", "79GiB"]),
    kinds=st.sampled_from(["", "spot", "on-demand,monthly"]),
    region=st.sampled_from([None, "mainland", "overseas", "unknown", "us-east"]),
)
def test_filters_keep_exactly_what_they_say(gpu: str | None, least: str | None, kinds: str, region: str | None) -> None:
    found = pricing.offers(gpu=gpu, min_memory=least, kinds=kinds, region=region, as_of=DAY)
    everything = pricing.offers(as_of=DAY).rows
    sizes = {None: 0.0, "24": 24.0, "40GB": 40.0}
    wanted = [
        row
        for row in everything
        if (gpu is None or row.offer.gpu_id == {"RTX 4090": "rtx-4090", "H100": "h100-sxm-80"}.get(gpu, "a100-sxm-80"))
        and (not kinds or row.offer.kind in kinds.split(","))
        and (region is None or row.region == region or (region == "us-east" and "us-east" in row.offer.region))
        and (
            card_by_id(row.offer.gpu_id).gpu.memory >= 79 * GIB
            if least == "79GiB"
            else card_by_id(row.offer.gpu_id).gpu.memory_nominal_gb >= sizes[least]
        )
    ]
    assert found.rows == tuple(wanted)


def test_yuan_by_the_dated_rate() -> None:
    found = pricing.offers(gpu="RTX 4090", currency="cny", as_of=DAY)
    assert found.rate is not None and found.rate.rate == Decimal("6.7394")
    for row in found.rows:
        factor = Decimal("6.7394") if row.offer.price.currency == "USD" else 1
        assert row.price.amount == row.offer.price.amount * factor and row.price.currency == "CNY"


def test_fresh_on_the_day() -> None:
    found = pricing.offers(gpu="H100", kinds="on-demand", as_of="2026-08-22")
    fresh = [row for row in found.rows if row.offer.date == dt.date(2026, 8, 22)]
    assert fresh and not any(row.stale for row in fresh) and all(row.drift == (1, 1) for row in fresh)


def test_json_has_what_the_rows_have() -> None:
    found = pricing.offers(gpu="RTX 5090", as_of=DAY)
    told = found.to_dict()
    assert told["schema"] == "finefit/offers/1" and len(told["offers"]) == len(found.rows)
    first = told["offers"][0]
    assert {"source", "kind", "region_class", "age_days", "stale", "licence"} <= set(first)
    assert Decimal(first["price_per_gpu_hour"]["amount"]) == round(found.rows[0].price.amount, 4)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"min_memory": "much"}, "--min-memory"),
        ({"kinds": "free"}, "--kinds"),
        ({"region": "atlantis"}, "--region"),
        ({"currency": "EUR"}, "--currency"),
    ],
)
def test_wrong_filters(asked: dict[str, str], words: str) -> None:
    with pytest.raises(InputError, match=words):
        pricing.offers(**asked)  # type: ignore[arg-type]


def test_names_of_several_cards_are_asked_back() -> None:
    for name in ("RTX 6000", "12G card"):
        with pytest.raises(UnknownGpu, match="write one of"):
            pricing.gpus(name)
    one = pricing.gpus("4090", as_of=DAY)
    assert one.one and one.gpus[0].card.gpu.id == "rtx-4090" and len(one.variants) == 3
    assert len(pricing.gpus(as_of=DAY).to_dict()["gpus"]) == 105
