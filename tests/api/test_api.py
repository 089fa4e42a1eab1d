"""The façade: what it takes, what it refuses, and that the same question gives the same bytes."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import jsonschema
import pytest

import finefit
from finefit import api
from finefit.errors import InputError, NotModelled, UnknownGpu, UnknownModel
from finefit.planner.answer import Fits, MemoryAnswer
from finefit.planner.plan import MethodTable, Plan, Verdict
from finefit.report.json_output import dumps

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "src" / "finefit" / "examples" / "llama3_8b_qlora.yaml"
SCHEMAS = {
    f"finefit/{name}/1": json.loads((ROOT / "docs" / "schema" / f"{name}.json").read_text("utf-8"))
    for name in ("memory", "plan")
}
DAY = "2026-11-30"
ASKED = {"gpu": "RTX 4090", "samples": 52_000, "mean_length": 180, "budget": "200USD", "deadline": "48h"}
SMALLEST = "EleutherAI/pythia-70m"  # six layers: quick to replay
SMALL = {"method": "lora", "seq": 512, "rank": 8}


def validate(answer: object) -> dict:
    """The answer's JSON as it is printed, checked against the committed schema."""
    found = json.loads(dumps(answer))  # type: ignore[arg-type]
    jsonschema.validate(found, SCHEMAS[found["schema"]], jsonschema.Draft202012Validator)
    return found


@pytest.fixture(scope="module")
def example() -> Plan:
    answer = api.plan(
        EXAMPLE, gpu="RTX 4090", samples=52_000, mean_length=180, budget="200USD", deadline="48h", as_of=DAY
    )
    assert isinstance(answer, Plan)
    return answer


def test_schemas_are_schemas() -> None:
    for schema in SCHEMAS.values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_the_example_config(example: Plan) -> None:
    found = validate(example)
    assert found["verdict"] == "single_card_ok" and found["fits_as_configured"] == "yes"
    assert found["steps"]["parameters"] == 8_030_261_248  # safetensors of Meta-Llama-3-8B
    assert found["steps"]["trained_parameters"] == 41_943_040  # PEFT, rank 16 on every linear layer
    assert found["inputs"]["lora.rank"] == {"value": 16, "source": "stated (llama3_8b_qlora.yaml:13)"}
    assert found["run"]["steps"] == 9750  # 52,000 x 3 epochs / (2 x 8)
    assert found["budget"]["meets"] == "yes" and found["deadline"]["meets"] == "yes"
    assert all(
        sum(found["parts"].values()) - found["parts"]["context"] == found["peak"]["allocated_bytes"] for _ in [0]
    )
    peak = found["peak"]
    assert peak["allocated_bytes"] < peak["required_bytes"] <= peak["device_bytes"]


def test_every_shape_of_answer_keeps_the_contract() -> None:
    validate(api.plan(SMALLEST, as_of=DAY))
    validate(api.plan(SMALLEST, **SMALL, as_of=DAY))
    validate(api.plan(SMALLEST, **SMALL, gpu="A100-80GB", kinds=("spot", "community"), as_of=DAY))
    validate(api.plan(SMALLEST, **SMALL, gpu="Tesla T4", as_of=DAY))
    validate(api.memory(SMALLEST, **SMALL, as_of=DAY))
    validate(api.memory(SMALLEST, **SMALL, gpu="2x RTX 4090", as_of=DAY))
    validate(api.plan(SMALLEST, method="full", seq=16384, batch=8, gpu="RTX 4090", as_of=DAY))


def test_same_question_same_bytes(example: Plan) -> None:
    again = api.plan(str(EXAMPLE), **ASKED, as_of=dt.date(2026, 11, 30))
    assert dumps(again) == dumps(example)


def test_older_prices_drift_further(example: Plan) -> None:
    early = api.plan(SMALLEST, **SMALL, gpu="RTX 4090", as_of="2026-09-01")
    assert isinstance(early, Plan)
    by_provider = {line.provider: line for line in early.offers}
    for line in example.offers:
        assert line.age_days > by_provider[line.provider].age_days
        assert line.drift[1] > by_provider[line.provider].drift[1]


def test_prices_published_after_the_day_are_unknown_on_it() -> None:
    early = api.plan(SMALLEST, **SMALL, gpu="RTX 4090", as_of="1999-01-01")
    between = api.plan(SMALLEST, **SMALL, gpu="RTX 4090", as_of="2026-06-30")
    assert isinstance(early, Plan) and isinstance(between, Plan)
    assert early.bill is not None
    assert [i.source for i in early.bill.items if i.name == "set-up"] == ["price unknown"]
    assert (early.offers, early.price) == ((), None) and any("no published" in n.text for n in early.notes)
    assert between.offers and all(line.date <= dt.date(2026, 6, 30) for line in between.offers)


def test_without_a_gpu_nothing_is_assumed() -> None:
    answer = api.plan(SMALLEST, **SMALL, as_of=DAY)
    assert isinstance(answer, Plan)
    assert answer.verdict is Verdict.UNDECIDED and answer.fits is Fits.UNKNOWN and answer.run is None
    assert answer.bill is None and answer.steps.margin is None and answer.peak.device
    assert answer.cards and all(card.margin.low <= card.margin.usable for card in answer.cards)
    sizes = [card.gpu.memory_nominal_gb for card in answer.cards]
    assert sizes == sorted(sizes)


def test_cards_that_hold_it_agree_with_naming_the_card() -> None:
    answer = api.plan(SMALLEST, method="full", seq=2048, batch=1, accum=2, as_of=DAY)
    assert isinstance(answer, Plan)
    held = {card.gpu.id: card for card in answer.cards}
    for name in ("RTX 4090", "H100 80GB"):
        stated = api.memory(SMALLEST, method="full", seq=2048, batch=1, accum=2, gpu=name, as_of=DAY)
        assert isinstance(stated, MemoryAnswer) and stated.cluster and stated.margin
        card = held[stated.cluster.gpu.id]
        assert card.fits is stated.fits and card.margin.low == stated.margin.low
        # two workspaces, each in a segment rounded to 2 MiB
        assert abs(card.margin.high - stated.margin.high) <= 2 * 2 * 2**20


def test_unknown_data_give_no_total() -> None:
    answer = api.plan(SMALLEST, **SMALL, gpu="RTX 4090", budget="5USD", as_of=DAY)
    assert isinstance(answer, Plan) and answer.run and answer.bill and answer.budget
    assert answer.run.hours is None and answer.bill.total is None and answer.bill_per_1000 is not None
    assert answer.run.upper_bound and answer.budget.meets == "unknown"


def test_currency_of_the_budget_is_that_of_the_bill() -> None:
    answer = api.plan(SMALLEST, **SMALL, gpu="RTX 4090", samples=1000, budget="1500CNY", as_of=DAY)
    assert isinstance(answer, Plan) and answer.price and answer.bill and answer.bill.total
    assert answer.price.currency == answer.bill.total.currency == "CNY"


@pytest.mark.parametrize(
    ("call", "error", "where"),
    [
        (lambda: api.plan("no/such-model", **SMALL), UnknownModel, "MODEL"),
        (lambda: api.plan(SMALLEST, gpu="RTX 9999", **SMALL), UnknownGpu, "--gpu"),
        (lambda: api.plan(SMALLEST, method="lorra", seq=1), InputError, "--method"),
        (lambda: api.plan("missing.yaml"), InputError, "missing.yaml"),
        (lambda: api.plan(EXAMPLE, rank=8), InputError, "--rank"),
        (lambda: api.plan(SMALLEST, overrides={"a": "b"}, **SMALL), InputError, "--set"),
        (lambda: api.plan(EXAMPLE, samples=5, data="x.json"), InputError, "--data"),
        (lambda: api.plan(EXAMPLE, as_of="yesterday"), InputError, "--as-of"),
        (lambda: api.plan(EXAMPLE, budget="200"), InputError, "--budget"),
        (lambda: api.plan(EXAMPLE, deadline="24"), InputError, "--deadline"),
        (lambda: api.plan(EXAMPLE, currency="EUR"), InputError, "--currency"),
        (lambda: api.plan(EXAMPLE, gpu="RTX 4090", kinds=()), InputError, "--kinds"),
        (lambda: api.plan("databricks/dbrx-instruct", **SMALL), NotModelled, "MODEL"),
    ],
)
def test_wrong_input_names_the_place_and_the_fix(call, error: type[InputError], where: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert caught.value.fix and where in (caught.value.where or "")


def test_overrides_change_the_config() -> None:
    changes = {"cutoff_len": 512, "model_name_or_path": SMALLEST}
    answer = api.plan(EXAMPLE, overrides=changes, gpu="RTX 4090", as_of=DAY)
    assert isinstance(answer, Plan) and answer.recipe.seq_len == 512 and answer.model.name == SMALLEST


def test_the_package_exports_lazily() -> None:
    assert finefit.plan is api.plan and finefit.estimate is api.memory
    assert set(finefit.__all__) <= set(dir(finefit))
    with pytest.raises(AttributeError):
        _ = finefit.no_such_name


def test_quantisation_of_the_table_is_that_of_qlora_alone() -> None:
    plain = finefit.estimate("Qwen/Qwen2.5-7B", seq=512)
    eight = finefit.estimate("Qwen/Qwen2.5-7B", seq=512, quant_bits=8)
    assert isinstance(plain, MethodTable) and isinstance(eight, MethodTable)
    assert [cell.method for cell in plain.cells] == [cell.method for cell in eight.cells] == ["full", "lora", "qlora"]
    assert plain.cells[:2] == eight.cells[:2]
    assert plain.cells[2].low < eight.cells[2].low < eight.cells[1].low


def test_a_micro_batch_beyond_all_devices_is_answered() -> None:
    answer = finefit.estimate("Qwen/Qwen2.5-7B", method="full", seq=512, batch=10**9)
    assert isinstance(answer, MemoryAnswer) and answer.peak.reserved is not None
    assert 10**18 < answer.peak.allocated <= answer.peak.reserved


@pytest.mark.parametrize(
    ("gpu", "precision", "attention", "doubts"),
    [
        ("V100-32GB", "bf16", "flash2", ["has no bf16 units", "FlashAttention-2 does not run"]),
        ("T4", "fp16", "sdpa", []),
        ("A100-80GB", "bf16", "flash2", []),
        ("MI300X", "bf16", "sdpa", ["runs no CUDA"]),
        ("Gaudi 3", "bf16", "sdpa", ["runs no CUDA"]),
        ("M4 Max", "bf16", "sdpa", ["runs no CUDA"]),
    ],
)
def test_what_a_card_lacks_is_said(gpu: str, precision: str, attention: str, doubts: list[str]) -> None:
    answer = finefit.estimate("gpt2", method="full", seq=128, gpu=gpu, precision=precision, attention=attention)
    said = [warning for warning in answer.warnings if "is read as" not in warning]
    assert len(said) == len(doubts) and all(part in text for part, text in zip(doubts, said, strict=True))


def test_arguments_that_nobody_takes_are_refused() -> None:
    with pytest.raises(TypeError, match="seqlen"):
        api.plan(SMALLEST, method="lora", seqlen=128)  # type: ignore[call-arg]


def test_a_path_is_as_good_as_its_text(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    gpt2 = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50257}
    config.write_text(json.dumps({**gpt2, "torch_dtype": "float32"}), encoding="utf-8")
    by_path = finefit.estimate(config, method="full", seq=128, as_of=DAY)
    assert dumps(by_path) == dumps(finefit.estimate(str(config), method="full", seq=128, as_of=DAY))
