"""The whole bill: what is unknown stays unknown, settings from flags and file, comparisons that add up."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from finefit import api, pricing
from finefit.app import cli, cost_command
from finefit.cost.settings import CostSettings
from finefit.errors import FinefitError, InputError
from finefit.planner.cost_answer import CostAnswer
from finefit.planner.cost_settings import NAMES, read_settings
from finefit.report.cost_text import cost_page
from finefit.units import Money

EXAMPLE = Path(__file__).parents[2] / "src" / "finefit" / "examples" / "llama3_8b_qlora.yaml"
DAY = "2026-11-30"


@cache
def answer(gpu: str = "2x RTX 4090", **asked: str) -> CostAnswer:
    known = {name: value for name, value in asked.items() if name in NAMES}
    rest = {name: value for name, value in asked.items() if name not in NAMES}
    return pricing.cost(
        EXAMPLE,
        gpu=gpu,
        samples=52000,
        mean_length=180,
        settings=known,
        as_of=DAY,
        **rest,  # type: ignore[arg-type]
    )


def amounts(found: CostAnswer) -> dict[str, Money | None]:
    return {item.name: item.amount for item in (*found.project.run.items, *found.project.whole.items)}


UNSAID = (
    "cold storage", "upload", "minimum charge", "failed attempts", "queueing", "debugging", "forgotten to release",
    "data storage", "image storage", "disk while stopped", "engineers",
)  # fmt: skip


def test_what_nobody_stated_is_unknown_and_never_zero() -> None:
    found = answer()
    assert {name for name, amount in amounts(found).items() if amount is None} == set(UNSAID)
    assert set(found.project.whole.unknown) == set(UNSAID)
    assert found.project.whole.total and found.project.run.total
    assert found.project.whole.total.amount == found.project.run.total.amount


def test_every_item_can_be_stated() -> None:
    stated = {
        "cold_months": "6", "upload_gb": "10", "upload_price": "0USD", "minimum_charge": "10USD",
        "failed_attempts": "2", "queue_hours": "1", "debug_hours": "3", "idle_hours": "8", "data_gb": "20",
        "image_gb": "30", "stopped_days": "5",
        "engineer_hours": "4", "engineer_rate": "60USD", "runs": "3",
    }  # fmt: skip
    found = answer(**stated)
    assert found.project.whole.unknown == ()
    told = amounts(found)
    price = found.project.price
    assert price is not None and told["engineers"] == Money(Decimal(240), "USD")
    assert told["debugging"] and told["debugging"].amount == 3 * 2 * price.unit_price.amount
    assert told["upload"] and told["upload"].amount == 0  # stated to be free
    rental = sum(told[name].amount for name in ("GPU-hours", "interruptions", "set-up"))  # type: ignore[union-attr]
    assert told["minimum charge"] and told["minimum charge"].amount == max(10 - rental, 0)
    assert told["failed attempts"] and told["failed attempts"].amount == pytest.approx(rental)  # two, half way each
    assert told["runs"] and found.project.run.total and told["runs"].amount == 3 * found.project.run.total.amount
    assert found.project.whole.total is not None
    assert found.project.whole.total.amount == sum(i.amount.amount for i in found.project.whole.items if i.amount)


def test_prices_that_the_user_states_stand_in_for_published_ones() -> None:
    found = answer(
        gpu_price="0.5USD", setup_minutes="30", storage_price="0.2USD", cold_price="0.01USD", cold_months="2",
        egress_price="0.1USD", download_gb="40", data_gb="10", stopped_days="30.4375", stopped_gb="50",
    )  # fmt: skip
    told = amounts(found)
    assert told["set-up"] == Money(Decimal("0.5"), "USD")  # half an hour of two GPUs
    assert told["egress"] == Money(Decimal(4), "USD")
    assert told["data storage"] == Money(Decimal(2), "USD")
    assert told["disk while stopped"] == Money(Decimal(10), "USD")  # at the price of a disk
    disk, cold = told["checkpoint storage"], told["cold storage"]
    assert disk and cold and cold.amount / 2 / Decimal("0.01") == disk.amount / Decimal("0.2")
    gpu = next(item for item in found.project.run.items if item.name == "GPU-hours")
    assert gpu.unit_price == Money(Decimal("0.5"), "USD") and gpu.source == "stated"
    dearer = amounts(answer(stopped_price="0.4USD", storage_price="0.2USD", stopped_days="30.4375", stopped_gb="50"))
    assert dearer["disk while stopped"] == Money(Decimal(20), "USD")


def test_the_users_price_is_of_the_bills_terms_and_of_the_stated_card_alone() -> None:
    usual, own = answer(terms="spot"), answer(terms="spot", gpu_price="0.01CNY")
    price = {line.kind: line.price for line in own.terms}
    assert own.project.price == price["spot"] and price["spot"] is not None
    assert price["spot"].quoted == Money(Decimal("0.01"), "CNY")
    assert price["on-demand"] == {line.kind: line.price for line in usual.terms}["on-demand"]
    assert own.clusters == usual.clusters
    cheap = {(line.gpu.id, line.count): line for line in answer(gpu_price="0.01USD").clusters}
    for line in usual.clusters:
        if line.gpu.id == "rtx-4090":
            assert cheap[line.gpu.id, line.count].price == Money(Decimal("0.01"), "USD")
        elif (line.gpu.id, line.count) in cheap:
            assert cheap[line.gpu.id, line.count] == line
    with pytest.raises(InputError, match="--card-price"):
        answer(terms="owned", gpu_price="1USD")


def test_a_price_of_a_card_that_nobody_offers_makes_a_bill() -> None:
    asked = {"method": "lora", "seq": 512, "samples": 100, "epochs": 1, "as_of": DAY, "terms": "spot"}
    unknown = pricing.cost("Qwen/Qwen3-0.6B", gpu="H20", **asked)  # type: ignore[arg-type]
    stated = pricing.cost("Qwen/Qwen3-0.6B", gpu="H20", settings={"gpu_price": "1USD"}, **asked)  # type: ignore[arg-type]
    assert unknown.project.run.total is None and stated.project.run.total is not None


def test_other_gpus_show_hours_within_an_interval_and_the_published_currency() -> None:
    found = answer(currency="CNY")
    assert found.rate is not None and found.rate.rate == Decimal("6.7394")
    for line in found.clusters:
        assert line.interval and line.hours and line.interval[0] < line.hours < line.interval[1]
    converted = [line for line in found.clusters if line.quoted]
    assert converted and len(converted) < len(found.clusters)
    for line in converted:
        assert line.cost and line.quoted and line.cost.amount == pytest.approx(line.quoted.amount * found.rate.rate)


def test_a_disk_of_a_stopped_machine_costs_twice_at_runpod() -> None:
    """RunPod: 0.20 USD a GB-month stopped, 0.10 running (docs.runpod.io/pods/storage)."""
    found = answer(provider="RunPod", stopped_days="30.4375", stopped_gb="100", data_gb="100")
    told = amounts(found)
    assert told["disk while stopped"] and told["disk while stopped"].amount == 20
    assert told["data storage"] and told["data storage"].amount == 10


def test_egress_goes_on_in_the_band_of_the_month() -> None:
    """AWS: 100 GB a month free, then 0.09 USD (2026-05-06)."""
    free = answer(provider="AWS", download_gb="50")
    later = answer(provider="AWS", download_gb="50", egress_before_gb="100")
    across = answer(provider="AWS", download_gb="50", egress_before_gb="80")
    told = [amounts(found)["egress"] for found in (free, later, across)]
    assert [each.amount for each in told if each] == [0, Decimal("4.50"), Decimal("2.70")]


def test_spot_is_refused_without_a_checkpoint_to_go_on_from() -> None:
    with pytest.raises(InputError, match="save_only_model: spot machines") as refused:
        pricing.cost(EXAMPLE, gpu="RTX 4090", terms="spot", overrides={"save_only_model": "true"}, samples=52000)
    assert refused.value.exit_code == 2
    lines = {line.kind: line for line in pricing.cost(
        EXAMPLE, gpu="RTX 4090", overrides={"save_strategy": "'no'"}, samples=52000, as_of=DAY
    ).terms}  # fmt: skip
    assert lines["spot"].refused is not None and lines["spot"].project is None
    assert lines["on-demand"].refused is None


def test_a_plan_on_spot_prices_is_refused_too() -> None:
    with pytest.raises(InputError, match="saves no checkpoint"):
        api.plan(EXAMPLE, gpu="RTX 4090", kinds=("spot",), overrides={"save_only_model": "true"})
    assert api.plan(EXAMPLE, gpu="RTX 4090", kinds=("spot",), samples=1000, as_of=DAY).price is not None


def test_spot_and_the_deadline() -> None:
    """A run of about 7.6 h with interruptions twice a day and an hour's wait each no longer ends within 8 h at best."""
    calm = answer(terms="spot", deadline="24h")
    assert calm.deadline is not None and calm.deadline.meets == "yes"
    assert "spot: Deadline kept" in str(cost_page(calm, "en", cells=80))
    wild = answer(terms="spot", deadline="5h", hours_between_interruptions="2", spot_wait_hours="1")
    assert wild.deadline is not None and wild.deadline.meets == "no"
    assert wild.project.wall and calm.project.wall and wild.project.wall.likely > calm.project.wall.likely


def test_buying_asks_for_an_unknown_price() -> None:
    asked = answer(gpu="2x RTX 5090")
    bought = asked.terms[-1]
    assert bought.kind == "owned" and bought.project is None and "--card-price" in str(bought.unknown)
    told = answer(gpu="2x RTX 5090", card_price="2500USD", utilisation="0.5").terms[-1]
    assert told.price is not None and told.break_even is not None
    assert told.break_even.hours == told.break_even.utilisation * 730


def test_a_month_of_a_term_is_paid_whole() -> None:
    lines = {line.name: line for line in answer(gpu="8x H100", currency="CNY", runs_per_month="2").terms}
    yearly = lines["yearly"]
    assert yearly.price is not None and yearly.month is not None
    assert yearly.month.amount == yearly.price.unit_price.amount * 730 * 8
    assert yearly.project is not None
    assert "unused hours of the term" in {item.name for item in yearly.project.whole.items}
    aws = next(line for line in answer(gpu="8x H100").terms if line.name == "AWS 3y all upfront")
    assert aws.price and aws.break_even is not None and "not GPU-specific" in aws.note
    assert aws.project is not None and answer().run is not None
    unused = next(item for item in aws.project.whole.items if item.name == "unused hours of the term")
    assert unused.quantity is not None and 0.99 < float(unused.quantity.likely) / (3 * 8760 * 8) < 1


def test_one_card_against_several() -> None:
    lines = {(line.gpu.id, line.count): line for line in answer().clusters}
    one, eight = lines["rtx-4090", 1], lines["rtx-4090", 8]
    assert one.communication == 0 and one.lost is not None and one.lost.amount == 0
    assert one.hours and eight.hours and one.hours > eight.hours > one.hours / 8
    assert eight.against_one is not None and eight.against_one > 1
    assert any(line.spread and line.gpu.memory < one.gpu.memory for line in lines.values())


def test_the_stated_network_is_that_of_the_stated_machines() -> None:
    asked = {"gpu": "2 x 8 H100", "method": "full", "seq": 512, "sharding": "zero3", "samples": 900, "epochs": 1}
    slow, fast = (
        pricing.cost("Qwen/Qwen2.5-0.5B", network=gbit, as_of=DAY, **asked)  # type: ignore[arg-type]
        for gbit in (25, 3200)
    )
    lines = [next(line for line in found.clusters if line.count == 16) for found in (slow, fast)]
    for line, found in zip(lines, (slow, fast), strict=True):
        assert found.run and line.hours == pytest.approx(found.run.hours)
    assert lines[0].communication > lines[1].communication


def test_managed_services_and_break_even() -> None:
    found = answer(engineer_hours="2", engineer_rate="50USD")
    line = next(line for line in found.managed if line.row.provider == "Fireworks")
    assert found.tokens == 52000 * 180 * 3 and found.per_million is not None
    assert line.cost is not None and line.cost.amount == Decimal("0.50") * found.tokens / 10**6
    setup = amounts(found)["set-up"]
    assert setup is not None and line.break_even is not None
    assert line.break_even == pytest.approx((setup.amount + 100) / (Decimal("0.5") - found.per_million.amount) * 10**6)


def test_a_minimum_charge_of_a_small_job() -> None:
    small = pricing.cost(EXAMPLE, gpu="RTX 4090", samples=100, mean_length=100, as_of=DAY)
    line = next(line for line in small.managed if line.row.provider == "Together")
    assert line.cost == Money(Decimal(4), "USD", dt.date(2026, 5, 1))


def test_unknown_size_of_the_data_has_no_total() -> None:
    found = pricing.cost("llama-3-8b", gpu="RTX 4090", method="qlora", seq=1024, as_of=DAY)
    assert found.project.run.total is None and found.project.whole.total is None
    assert "GPU-hours" in found.project.whole.unknown


def test_settings_of_a_file_and_flags_that_win(tmp_path: Path) -> None:
    file = tmp_path / "finefit.toml"
    file.write_text('[cost]\nruns = 3\nengineer_rate = "60USD"\ndebug_hours = 1.5\n')
    found, sources = read_settings({"runs": "5", "idle_hours": None}, file)
    assert (found.runs, found.debug_hours, found.idle_hours) == (5, Decimal("1.5"), None)
    assert found.engineer_rate == Money(Decimal(60), "USD")
    assert str(sources["runs"]) == "stated (--runs)" and str(sources["debug_hours"]) == "stated (finefit.toml:4)"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[cost]\nrunz = 3\n", "finefit.toml:2.*runz.*did you mean runs"),
        ("runs = 3\n", "finefit.toml:1.*no setting"),
        ("[cost]\nruns = 2.5\n", "whole number"),
        ("[cost]\npue = -1\n", "between"),
        ("[cost]\nengineer_rate = 60\n", "not an amount of money"),
        ("[cost]\nruns = true\n", "not a value of runs"),
        ("[cost\n", "not TOML"),
    ],
)
def test_wrong_files(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "finefit.toml").write_text(text)
    with pytest.raises(InputError, match=words):
        read_settings({}, tmp_path / "finefit.toml")


@settings(max_examples=60)
@given(name=st.sampled_from(NAMES), value=st.text(max_size=12))
def test_any_text_is_a_setting_or_our_error(name: str, value: str) -> None:
    try:
        found, _ = read_settings({name: value}, None)
        assert isinstance(found, CostSettings)
    except FinefitError as error:
        assert error.where and error.where.startswith("--") and error.fix


def test_every_setting_has_a_flag() -> None:
    assert set(cost_command.SETTINGS) == set(NAMES)


def test_the_command_prints_and_gates(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["cost", str(EXAMPLE), "--gpu", "RTX 4090", "--samples", "1000", "--mean-length", "100", "--as-of", DAY]
    assert cli.main([*asked, "--lang", "en"]) == 0
    shown = capsys.readouterr().out
    assert "unknown: hours of engineers not stated" in shown and "Managed services" in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert cli.main(["cost", str(EXAMPLE)]) == 2 and "--gpu" in capsys.readouterr().err


def test_a_price_of_another_currency_shows_both_and_the_rate() -> None:
    """1 USD = 6.7394 CNY on 2026-08-22 (catalog/data/fx.csv)."""
    answer = pricing.cost("Qwen/Qwen3-0.6B", gpu="H100", method="lora", seq=512, currency="CNY", as_of="2026-12-01")
    price, rate = answer.project.price, answer.rate
    assert price is not None and price.quoted is not None and rate is not None
    assert (price.unit_price.currency, price.quoted.currency) == ("CNY", "USD")
    assert price.unit_price.amount == price.quoted.amount * rate.rate
    found = answer.to_dict()
    assert found["exchange_rate"]["date"] == "2026-08-22"
    assert found["quoted_price"]["currency"] == "USD"


def test_an_unknown_price_is_the_reason_of_an_unknown_total() -> None:
    answer = pricing.cost(
        "Qwen/Qwen3-0.6B", gpu="H20", method="lora", seq=512, samples=100, epochs=1, terms="spot", as_of="2026-12-01"
    )
    (runs,) = (item for item in answer.project.whole.items if item.name == "runs")
    assert runs.amount is None and runs.source == "price unknown"


def test_a_deadline_on_terms_without_known_interruptions_is_undecided_for_that_reason() -> None:
    answer = pricing.cost(
        "Qwen/Qwen3-0.6B", gpu="RTX 4090", method="lora", seq=512, samples=100, epochs=1, terms="community",
        deadline="1d12h", as_of="2026-12-01",
    )  # fmt: skip
    assert answer.deadline is not None and answer.deadline.meets == "unknown"
    assert "interruptions" in answer.deadline.reason


def test_the_bill_explains_the_time_of_a_step_as_the_plan_does() -> None:
    asked = {"gpu": "RTX 4090", "samples": 52000, "mean_length": 180, "as_of": DAY, "explain": True}
    bill, plan = pricing.cost(EXAMPLE, **asked), api.plan(EXAMPLE, **asked)  # type: ignore[arg-type]
    assert bill.run and bill.step_explained == plan.step_explained
    assert sum(part.seconds for part in bill.step_explained) == pytest.approx(bill.run.step_seconds, rel=0.2)
    assert answer().step_explained == ()


def test_checkpoints_are_written_once_in_the_bill() -> None:
    """Interruptions hold the writes at the best interval; the config's own writes are not paid beside them."""
    found = answer(hours_between_interruptions="100")
    assert found.run and found.run.hours and found.run.checkpoint_seconds > 0 and found.project.lost
    hours = next(item.quantity for item in found.project.run.items if item.name == "GPU-hours")
    assert hours is not None
    saved = float(hours.likely) / 2 + found.run.checkpoint_seconds / 3600
    assert saved == pytest.approx(found.run.hours)
