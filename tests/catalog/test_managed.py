"""Managed prices, commitments and purchase prices: rows, classes and dates."""

from __future__ import annotations

from decimal import Decimal

from finefit.catalog.commitments import all_commitments
from finefit.catalog.gpu_table import card_by_id
from finefit.catalog.managed import UNITS, all_managed, managed_for
from finefit.catalog.purchases import all_purchases, purchases_of


def test_prices_of_an_8b_model_by_lora() -> None:
    """Fireworks 0.50 (its page of 2026-10-08), Together 0.48 with 4 USD a job, Tinker by name."""
    found = {row.provider: row for row in managed_for("Qwen/Qwen3-8B", 8_190_735_360, lora=True, task="sft")}
    assert found["Fireworks"].price and found["Fireworks"].price.amount == Decimal("0.50")
    assert found["Together"].price and found["Together"].price.amount == Decimal("0.48")
    assert found["Together"].minimum and found["Together"].minimum.amount == 4
    assert found["Tinker"].price and found["Tinker"].price.amount == Decimal("0.44")


def test_classes_by_size_and_method() -> None:
    def fireworks(parameters: int, *, lora: bool) -> Decimal | None:
        rows = managed_for("some/model", parameters, lora=lora, task="sft")
        return next((row.price.amount for row in rows if row.provider == "Fireworks" and row.price), None)

    assert fireworks(8 * 10**9, lora=False) == 1
    assert fireworks(70 * 10**9, lora=True) == 3
    assert fireworks(70 * 10**9, lora=False) == 6
    assert fireworks(400 * 10**9, lora=True) == 10


def test_every_price_has_evidence_and_every_row_without_one_a_link() -> None:
    assert len(all_managed()) > 50
    for row in all_managed():
        assert row.unit in UNITS and row.source
        if row.price is None:
            assert row.link.startswith("https://")
        else:
            assert row.evidence in ("quoted", "secondary") and row.price.amount > 0


def test_commitments_are_shares_with_dates() -> None:
    aws = {row.term: row for row in all_commitments() if row.provider == "AWS"}
    assert aws["3y all upfront"].likely == Decimal("0.60") and aws["3y all upfront"].days == 1095
    for row in all_commitments():
        assert 0 < row.low <= row.high < 1 and row.days >= 7 and row.source and row.licence


def test_purchases_are_of_cards_of_the_catalogue() -> None:
    for row in all_purchases():
        assert card_by_id(row.gpu_id) and row.low.amount <= row.price.amount <= row.high.amount
        assert row.price.currency == "CNY" and row.gpus in (1, 8)
    assert [row.gpus for row in purchases_of("rtx-4090")] == [8, 1]
    assert purchases_of("rtx-5090") == ()
