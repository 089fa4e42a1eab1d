"""Rental offers row by row, their selection, age and summaries."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from finefit.catalog import offers as market
from finefit.catalog._tables import read_rows
from finefit.catalog.gpu_table import cards
from finefit.catalog.offers import Kind, Offer
from finefit.errors import InputError, UnknownGpu
from finefit.units import Money

GPU_IDS = {card.gpu.id for card in cards()}
COLLECTED = dt.date(2026, 11, 30)
BOUNDS = {"USD": (Decimal("0.02"), Decimal(20)), "CNY": (Decimal("0.5"), Decimal(60))}  # dearest: GB300, B300 node


def offer(**changes: object) -> Offer:
    fields: dict[str, object] = {
        "provider": "somewhere",
        "gpu_id": "rtx-4090",
        "price": Money(Decimal("0.50"), "USD", dt.date(2026, 8, 1)),
        "kind": Kind.ON_DEMAND,
        "region": "",
        "min_gpus": 1,
        "date": dt.date(2026, 8, 1),
        "source": "a page",
        "licence": "MIT",
        "confidence": "medium",
        "dataset": "a data set",
    }
    return Offer(**(fields | changes))  # type: ignore[arg-type]


# ---- the rows ----------------------------------------------------------------------------------------------------


def test_every_published_row_is_offered_outdated_or_skipped() -> None:
    rows = [row for row in read_rows("offers.csv") if row["kind"] != "serverless"]
    chinese = read_rows("cn_prices.csv")
    assert (len(rows), len(chinese)) == (634 - 51, 40)
    keys = len(market.all_offers())
    skipped = sum(name.rows for name in market.skipped_names())
    # 583 + 40 rows less 30 skipped; of the rest the outdated and same-day doubles fall away
    assert skipped == 30
    assert 400 < keys < len(rows) + len(chinese) - skipped


def test_every_offer_is_plausible() -> None:
    for row in market.all_offers():
        assert row.gpu_id in GPU_IDS, row
        low, high = BOUNDS[row.price.currency]
        assert low <= row.price.amount <= high, row
        assert row.price.as_of == row.date, row
        assert dt.date(2026, 5, 1) <= row.date <= COLLECTED, row
        assert row.source and row.licence and row.dataset, row
        assert row.confidence in {"high", "medium", "low"}, row
        assert row.min_gpus in {1, 2, 4, 8, 16}, row
        assert (row.region == "CN") == (row.price.currency == "CNY"), row


def test_one_offer_of_each_key() -> None:
    keys = [(o.provider, o.gpu_id, o.kind, o.region, o.min_gpus) for o in market.all_offers()]
    assert len(keys) == len(set(keys))


def test_every_alias_points_to_a_known_card_or_to_none_on_purpose() -> None:
    rows = read_rows("gpu_aliases.csv")
    assert len({row["name"] for row in rows}) == len(rows) == 108
    for row in rows:
        assert row["gpu_id"] in GPU_IDS or (row["gpu_id"] == "" and "not in gpus.csv" in row["note"])


def test_skipped_names_are_cards_the_catalogue_lacks_or_sizes_that_do_not_exist() -> None:
    reasons = {name.name: name.reason for name in market.skipped_names()}
    assert reasons["Tesla P40"] == reasons["Hygon BW1000"] == "not in the catalogue of GPUs"
    assert reasons["NVIDIA B300"] == "180 GB is not a size of this card"
    assert reasons["A10"].startswith("4 GB")  # Azure's sixth of an A10


# ---- selection ---------------------------------------------------------------------------------------------------


def prices(gpu_id: str, provider: str, **filters: object) -> list[tuple[Kind, Decimal, str]]:
    found = market.offers_for(gpu_id, kinds=list(Kind), count=8)
    return [
        (o.kind, o.price.amount, o.region)
        for o in found
        if o.provider == provider and all(getattr(o, key) == value for key, value in filters.items())
    ]


def test_the_newest_row_wins() -> None:
    """AutoDL's RTX 4090 is listed on 2026-07-27 and 2026-08-20; TensorDock's in two data sets."""
    (autodl,) = market.offers_for("rtx-4090", kinds=["on-demand"])[:1]
    assert (autodl.provider, autodl.price.amount, autodl.date) == ("AutoDL", Decimal("1.88"), dt.date(2026, 8, 20))
    tensordock = [o for o in market.offers_for("rtx-4090") if o.provider == "tensordock"]
    assert [o.date for o in tensordock] == [dt.date(2026, 8, 22)]


def test_a_renamed_provider_is_one() -> None:
    """DataCrunch 2026-08-22 at 3.25 replaces Verda 2026-05-24 at 2.29."""
    assert prices("h100-sxm-80", "verda", kind=Kind.ON_DEMAND) == [(Kind.ON_DEMAND, Decimal("3.25"), "")]
    assert prices("h100-sxm-80", "datacrunch") == []


def test_of_two_prices_on_one_day_the_dearer() -> None:
    """RunPod's secure PRO 6000: server 2.09, workstation 1.89."""
    assert prices("rtx-pro-6000", "runpod", kind=Kind.ON_DEMAND) == [(Kind.ON_DEMAND, Decimal("2.09"), "")]


def test_kinds_are_told_apart() -> None:
    """RunPod 2026-08-22: MI300X secure 2.39; A100 PCIe secure 1.39, community 1.19."""
    assert (Kind.ON_DEMAND, Decimal("2.39"), "") in prices("mi300x", "runpod")
    assert (Kind.COMMUNITY, Decimal("1.19"), "") in prices("a100-pcie-80", "runpod")
    assert all(o.kind is Kind.ON_DEMAND for o in market.offers_for("a100-pcie-80"))


@pytest.mark.parametrize(
    ("gpu_id", "provider", "amount"),
    [  # "size by vram_gb": one name, two memories
        ("a100-sxm-40", "jarvislabs", "0.89"),
        ("a100-sxm-80", "jarvislabs", "1.49"),
        ("a100-pcie-40", "coreweave", "2.06"),
        ("a100-pcie-80", "coreweave", "2.21"),
        ("a100-sxm-80", "gcp", "5.07"),
        ("a100-sxm-40", "gcp", "3.673"),
        ("a10", "oci", "2.0"),
    ],
)
def test_memory_picks_the_variant(gpu_id: str, provider: str, amount: str) -> None:
    assert Decimal(amount) in [price for _, price, _ in prices(gpu_id, provider)]


def test_large_machines_need_as_many_gpus() -> None:
    alone = market.offers_for("h100-sxm-80", count=1)
    eight = market.offers_for("h100-sxm-80", count=8)
    assert all(o.min_gpus == 1 for o in alone)
    assert set(alone) < set(eight)
    assert any(o.min_gpus == 8 and o.provider == "aws" for o in eight)


@pytest.mark.parametrize(("count", "billed"), [(1, 8), (8, 8), (9, 16), (16, 16)])
def test_whole_machines_are_billed(count: int, billed: int) -> None:
    assert offer(min_gpus=8).gpus_billed(count) == billed
    assert offer().gpus_billed(count) == count


@pytest.mark.parametrize("gpu_id", ["h200-sxm", "h100-sxm-80", "b300-sxm", "rtx-4090"])
def test_chinese_month_prices_are_a_720_hour_share_of_the_server(gpu_id: str) -> None:
    (row,) = [r for r in read_rows("cn_prices.csv") if r["gpu_id"] == gpu_id and r["unit"] == "8-GPU server-month"]
    (yearly,) = market.offers_for(gpu_id, kinds=["yearly"], count=8)
    assert yearly.price.currency == "CNY" and yearly.min_gpus == 8 and yearly.region == "CN"
    assert yearly.price.amount == pytest.approx(Decimal(row["price_cny"]) / 8 / 720, abs=Decimal("0.006"))


def test_chinese_terms_and_conditions() -> None:
    (monthly,) = market.offers_for("l20", kinds=["monthly"])
    assert (monthly.provider, monthly.price.amount) == ("Tianyi Cloud (ctyun)", Decimal("10.48"))
    (h20,) = market.offers_for("h20-96")
    assert h20.kind is Kind.ON_DEMAND and h20.note.startswith("member")


def test_a_card_of_two_devices_is_priced_by_the_device() -> None:
    """SMM: 8 Ascend 910C for 65,000 CNY a month; torch sees 16 devices."""
    (found,) = market.offers_for("ascend-910c", kinds=["yearly"], count=16)
    assert found.min_gpus == 16
    assert found.price.amount == pytest.approx(Decimal(65000) / 16 / 720, abs=Decimal("0.006"))


def test_wrong_questions() -> None:
    with pytest.raises(UnknownGpu):
        market.offers_for("rtx-9090")
    with pytest.raises(InputError, match="not a kind"):
        market.offers_for("rtx-4090", kinds=["ondemand"])


def test_medians_agree_with_the_market_history() -> None:
    """On-demand medians of August 2026 over daily histories (another selection of providers): within 30 %."""
    history = {
        "h100-sxm-80": "3.27",
        "h200-sxm": "4.49",
        "b200-sxm": "6.79",
        "a100-sxm-80": "2.05",
        "l40s": "1.54",
        "rtx-4090": "0.53",
        "rtx-5090": "0.96",
        "mi300x": "2.79",
    }
    for gpu_id, median in history.items():
        found = market.price_summary(market.offers_for(gpu_id))["USD"].median.amount
        assert abs(found / Decimal(median) - 1) <= Decimal("0.3"), gpu_id


# ---- age and drift -----------------------------------------------------------------------------------------------


def test_age() -> None:
    assert market.age_days(offer(), dt.date(2026, 8, 31)) == 30
    assert market.age_days(offer(), dt.date(2026, 7, 1)) == 0


@pytest.mark.parametrize(
    ("changes", "rate"),
    [
        ({}, "0.025"),
        ({"kind": Kind.YEARLY}, "0.025"),
        ({"kind": Kind.COMMUNITY}, "0.04"),
        ({"kind": Kind.SPOT}, "0.04"),
        ({"provider": "vast-ai"}, "0.04"),
    ],
)
def test_drift_by_the_month(changes: dict[str, object], rate: str) -> None:
    row = offer(date=dt.date(2026, 1, 1), **changes)
    low, high = market.drift_band(row, dt.date(2027, 1, 1))
    assert high - 1 == pytest.approx(Decimal(rate) * 12, rel=Decimal("0.001"))
    assert 1 - low == pytest.approx(high - 1)


def test_a_week_is_fresh() -> None:
    assert market.drift_band(offer(), dt.date(2026, 8, 8)) == (1, 1)
    low, high = market.drift_band(offer(), dt.date(2026, 8, 9))
    assert low < 1 < high


@given(st.integers(0, 4000), st.integers(0, 4000))
def test_the_band_only_widens_and_never_goes_below_zero(first: int, second: int) -> None:
    early, late = sorted((first, second))
    start = offer().date
    one = market.drift_band(offer(), start + dt.timedelta(early))
    two = market.drift_band(offer(), start + dt.timedelta(late))
    assert 0 <= two[0] <= one[0] <= 1 <= one[1] <= two[1]


# ---- summaries ---------------------------------------------------------------------------------------------------

amounts = st.decimals(Decimal("0.01"), Decimal(50), places=2)


@given(st.lists(amounts, min_size=1, max_size=9))
def test_median_is_in_the_middle(values: list[Decimal]) -> None:
    summary = market.price_summary([offer(price=Money(value, "USD")) for value in values])["USD"]
    assert (summary.low.amount, summary.high.amount, summary.offers) == (min(values), max(values), len(values))
    assert sum(value < summary.median.amount for value in values) <= len(values) / 2
    assert sum(value > summary.median.amount for value in values) <= len(values) / 2


def test_summaries_by_currency_and_converted() -> None:
    rows = [offer(price=Money(Decimal(price), "USD")) for price in ("0.40", "0.60")]
    rows.append(offer(price=Money(Decimal("6.7394"), "CNY"), date=dt.date(2026, 10, 1)))  # 1 USD on 2026-08-22
    by_currency = market.price_summary(rows)
    assert list(by_currency) == ["CNY", "USD"]
    assert by_currency["USD"].median.amount == Decimal("0.50")
    assert (by_currency["USD"].oldest, by_currency["CNY"].newest) == (dt.date(2026, 8, 1), dt.date(2026, 10, 1))
    together = market.price_summary_in(rows, "USD", on=COLLECTED)
    assert together is not None
    assert (together.low.amount, together.median.amount, together.high.amount) == (
        Decimal("0.40"),
        Decimal("0.60"),
        Decimal(1),
    )


def test_no_offers_no_summary() -> None:
    assert market.price_summary([]) == {}
    assert market.price_summary_in([], "USD", on=COLLECTED) is None


@pytest.mark.parametrize(("day", "price"), [("2026-06-01", "2.39"), ("2026-08-21", "2.39"), ("2026-08-22", "2.89")])
def test_a_day_in_the_past_keeps_the_offer_that_a_newer_one_replaced(day: str, price: str) -> None:
    """Both rows of RunPod's H100 PCIe are in the file: 2.39 USD on 2026-05-24, 2.89 USD on 2026-08-22."""
    rows = market.offers_for("h100-pcie-80", on=dt.date.fromisoformat(day))
    assert [row.price.amount for row in rows if row.provider == "runpod"] == [Decimal(price)]
