"""Where machines stand, by the clouds' own names of their regions."""

from __future__ import annotations

import dataclasses
import datetime as dt
from decimal import Decimal

import pytest

from finefit.catalog.offers import Kind, Offer, all_offers
from finefit.catalog.regions import CHECKS, RegionClass, region_class
from finefit.units import Money

OFFER = Offer(
    provider="somecloud",
    gpu_id="rtx-4090",
    price=Money(Decimal(1), "USD", dt.date(2026, 8, 22)),
    kind=Kind.ON_DEMAND,
    region="",
    min_gpus=1,
    date=dt.date(2026, 8, 22),
    source="https://example.com",
    licence="MIT",
    confidence="medium",
    dataset="test",
)


@pytest.mark.parametrize(
    ("region", "place"),
    [
        ("CN", "mainland"),
        ("cn-north-1", "mainland"),  # AWS China (Beijing)
        ("chinaeast2", "mainland"),  # Azure China
        ("ap-guangzhou", "mainland"),  # Tencent Cloud
        ("cn-hongkong", "hong-kong"),  # Alibaba Cloud
        ("ap-hongkong", "hong-kong"),  # Tencent Cloud
        ("ap-east-1", "hong-kong"),  # AWS
        ("eastasia", "hong-kong"),  # Azure
        ("asia-east2", "hong-kong"),  # GCP
        ("asia-east1", "overseas"),  # GCP Taiwan
        ("us-east-1", "overseas"),
        ("eastus", "overseas"),
        ("southeastasia", "overseas"),  # Azure Singapore
    ],
)
def test_named_regions(region: str, place: str) -> None:
    assert region_class(dataclasses.replace(OFFER, region=region)) == place


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({}, "overseas"),  # a global list in USD
        ({"kind": Kind.COMMUNITY}, "unknown"),
        ({"provider": "vast-ai"}, "unknown"),
        ({"price": Money(Decimal(1), "CNY", None)}, "unknown"),
    ],
)
def test_regions_that_are_not_named(changes: dict[str, object], place: str) -> None:
    assert region_class(dataclasses.replace(OFFER, **changes)) == place  # type: ignore[arg-type]


def test_chinese_prices_are_from_the_mainland_and_every_class_has_a_note() -> None:
    assert {region_class(o) for o in all_offers() if o.price.currency == "CNY"} == {RegionClass.MAINLAND}
    assert set(CHECKS) == set(RegionClass)
