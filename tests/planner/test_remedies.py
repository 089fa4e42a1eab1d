"""Remedies: in order, re-estimated, and never a change of what is computed under the name of a saving."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from decimal import Decimal

import pytest

from finefit import api
from finefit.memory.estimate import estimate
from finefit.planner import levers
from finefit.planner.answer import Fits
from finefit.planner.plan import Part, Plan, Verdict

DAY = dt.date(2026, 11, 30)


def plan(model: str = "meta-llama/Llama-3.1-8B", **question: object) -> Plan:
    answer = api.plan(model, as_of=DAY, **question)  # type: ignore[arg-type]
    assert isinstance(answer, Plan)
    return answer


@pytest.fixture(scope="module")
def full_8b() -> Plan:
    """Pure bf16: 8 bytes a parameter, 60 GiB of states."""
    return plan(method="full", seq=512, batch=1, gpu="RTX 4090", checkpointing="full")


@pytest.fixture(scope="module")
def long_lora() -> Plan:
    return plan(
        method="lora", seq=4096, batch=4, rank=16, targets="all-linear", gpu="RTX 4090", samples=1000, mean_length=900
    )


def test_what_is_too_large_has_its_own_cures(long_lora: Plan, full_8b: Plan) -> None:
    assert long_lora.too_large is Part.ACTIVATIONS  # 8 B weights in bf16 are 15 GiB of 23.6
    assert full_8b.too_large is Part.STATES
    assert full_8b.remedies[0].kind == "lora"


def test_saved_bytes_are_those_of_the_changed_recipe(long_lora: Plan) -> None:
    assert long_lora.remedies
    for remedy in long_lora.remedies:
        again = estimate(long_lora.model, remedy.recipe, arch="Ada")
        assert remedy.saved_bytes == long_lora.peak.allocated - again.allocated


def test_the_global_batch_stays(long_lora: Plan) -> None:
    before = long_lora.recipe
    for remedy in long_lora.remedies:
        after = remedy.recipe
        assert after.micro_batch * after.grad_accum == before.micro_batch * before.grad_accum


def test_those_that_suffice_come_first_and_lossless_before_lossy(long_lora: Plan) -> None:
    order = [Fits.YES, Fits.TIGHT, Fits.NO]
    ranks = [order.index(remedy.fits) for remedy in long_lora.remedies]
    assert ranks == sorted(ranks)
    first = long_lora.remedies[0]
    assert first.fits is Fits.YES and first.risk is None
    assert first.recipe.method == "lora" and first.recipe.quant is None and first.recipe.seq_len == 4096


def test_checkpointing_costs_about_a_forward_pass(long_lora: Plan) -> None:
    """Recomputing one forward of three or four passes (facts/throughput: 1/4 to 1/2 of the time of adapters)."""
    remedy = next(r for r in long_lora.remedies if r.kind == "checkpointing")
    assert remedy.slowdown is not None and 0.2 < remedy.slowdown < 0.55
    assert remedy.money is not None and remedy.money.amount > 0 and remedy.money_samples is None


def test_money_for_1000_samples_where_the_data_are_unknown() -> None:
    answer = plan("EleutherAI/pythia-70m", method="lora", seq=16384, batch=8, gpu="RTX 4090")
    assert answer.remedies
    assert {remedy.money_samples for remedy in answer.remedies if remedy.money} == {1000}


def test_settings_name_the_fields_that_changed(long_lora: Plan) -> None:
    for remedy in long_lora.remedies:
        if remedy.kind == "checkpointing":
            assert remedy.settings == {"checkpointing": ("none", "full")}
        if remedy.kind == "shorter":
            assert remedy.settings == {"seq_len": ("4096", "2048")} and remedy.risk is not None


def test_a_run_that_fits_needs_no_remedy() -> None:
    answer = plan("EleutherAI/pythia-70m", method="lora", seq=512, gpu="RTX 4090")
    assert answer.verdict is Verdict.SINGLE_CARD_OK and answer.fits is Fits.YES and answer.remedies == ()


def test_sharding_is_the_last_cure_and_says_how_many(full_8b: Plan) -> None:
    """60 GiB of states: two cards of 23.6 GiB cannot hold them, four can."""
    assert full_8b.verdict is Verdict.MUST_SHARD and full_8b.shard_count == 4
    suffice = [remedy.kind for remedy in full_8b.remedies if remedy.fits is Fits.YES]
    assert "shard" in suffice and set(suffice[suffice.index("shard") :]) == {"shard"}


def test_sharding_does_not_help_one_long_sample() -> None:
    """cases.md 7.5: more GPUs never reduce the activations of one sample."""
    answer = plan("EleutherAI/pythia-70m", method="full", seq=262144, batch=1, gpu="RTX 4090")
    assert answer.verdict is Verdict.DOES_NOT_FIT and answer.fits is Fits.NO and answer.shard_count is None


def test_more_cards_than_needed() -> None:
    answer = plan("EleutherAI/pythia-70m", method="lora", seq=1024, batch=1, gpu="8x RTX 4090")
    assert answer.fewer is not None
    assert (answer.fewer.count, answer.fewer.needed, answer.fewer.times_pay) == (8, 1, 8)
    assert 1 < answer.fewer.times_speed <= 8
    assert plan("EleutherAI/pythia-70m", method="lora", seq=1024, gpu="RTX 4090").fewer is None


def test_bill_is_hours_times_gpus_times_price() -> None:
    answer = plan(
        "EleutherAI/pythia-70m", method="lora", seq=1024, gpu="2x RTX 4090", samples=10_000, mean_length=512, epochs=2
    )
    assert answer.run is not None and answer.run.hours is not None and answer.price is not None and answer.bill
    item = next(item for item in answer.bill.items if item.name == "GPU-hours")
    assert item.amount is not None
    expected = Decimal(str(answer.run.hours)) * 2 * answer.price.amount
    assert item.amount.amount == pytest.approx(expected, rel=Decimal("1e-9"))
    assert answer.bill.total is not None
    assert answer.bill.total.amount == sum(item.amount.amount for item in answer.bill.items if item.amount)
    assert answer.bill_per_1000 is not None
    twenty_thousand = answer.bill_per_1000.amount * 20  # two epochs of 10,000
    assert twenty_thousand == pytest.approx(item.amount.amount, rel=Decimal("1e-6"))


def test_full_training_is_kept_by_sharding_with_lossless_changes() -> None:
    """Llama 3.1 8B, 4 rows of 2,048 tokens, no checkpointing: neither sharding nor checkpointing suffices alone."""
    answer = plan(method="full", seq=2048, batch=4, gpu="RTX 4090")
    joint = next(remedy for remedy in answer.remedies if remedy.kind.endswith("shard"))
    assert joint.fits is Fits.YES and joint.risk is None and "checkpointing" in joint.kind
    assert joint.recipe.method == "full" and joint.recipe.sharding.ranks == 4  # 60 GiB of states


def test_micro_batches_are_the_divisors_largest_first(long_lora: Plan) -> None:
    for b, smaller in ((1, []), (7, [1]), (36, [18, 12, 9, 6, 4, 3, 2, 1]), (2**31 - 1, [1])):
        changes = levers.micro_batches(long_lora.model, replace(long_lora.recipe, micro_batch=b))
        assert [change.recipe.micro_batch for change in changes] == smaller
