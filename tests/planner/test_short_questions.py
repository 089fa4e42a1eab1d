"""Answers to short questions: a model alone, a GPU alone."""

from __future__ import annotations

import datetime as dt

import pytest

from finefit import api
from finefit.errors import InputError
from finefit.planner.answer import Fits
from finefit.planner.plan import LargestModels, MethodTable, Plan

DAY = dt.date(2026, 11, 30)


def test_a_model_alone_gives_three_methods_at_three_lengths() -> None:
    table = api.plan("EleutherAI/pythia-70m", as_of=DAY)
    assert isinstance(table, MethodTable)
    assert [(c.method, c.seq_len) for c in table.cells] == [
        (method, length) for method in ("full", "lora", "qlora") for length in (1024, 2048, 4096)
    ]
    assert set(table.missing) == {"method", "seq"}
    assert all(cell.fits is Fits.UNKNOWN and cell.high >= cell.low for cell in table.cells)
    assert any("checkpointing" in line for line in table.assumptions)


def test_longer_samples_never_need_less() -> None:
    table = api.plan("EleutherAI/pythia-70m", as_of=DAY)
    assert isinstance(table, MethodTable)
    for method in ("full", "lora", "qlora"):
        lows = [cell.low for cell in table.cells if cell.method == method]
        assert lows == sorted(lows)


def test_what_was_stated_is_kept() -> None:
    table = api.plan("EleutherAI/pythia-70m", method="lora", rank=64, gpu="RTX 4090", as_of=DAY)
    assert isinstance(table, MethodTable)
    assert [(c.method, c.seq_len) for c in table.cells] == [("lora", n) for n in (1024, 2048, 4096)]
    assert all(cell.fits is Fits.YES for cell in table.cells)
    assert not any("rank" in line for line in table.assumptions)
    by_length = api.memory("EleutherAI/pythia-70m", seq=777, as_of=DAY)
    assert isinstance(by_length, MethodTable)
    assert [(c.method, c.seq_len) for c in by_length.cells] == [(m, 777) for m in ("full", "lora", "qlora")]


def test_a_gpu_alone_gives_the_largest_models() -> None:
    answer = api.plan(gpu="RTX 4090", as_of=DAY)
    assert isinstance(answer, LargestModels)
    best = {method: max(row.parameters for row in answer.models if row.method == method and row.fits is Fits.YES)
            for method in ("full", "lora", "qlora")}  # fmt: skip
    assert best["full"] < best["lora"] < best["qlora"]
    # Weights alone bound them: 8 bytes a parameter in full, 2 under LoRA, half a byte under QLoRA (23.6 GiB).
    usable = answer.cluster.gpu.memory
    assert 8 * best["full"] < usable and 2 * best["lora"] < usable and best["qlora"] / 2 < usable
    assert best["qlora"] > 30e9  # 33B models on 24 GB: QLoRA, arXiv 2305.14314, section 1
    for row in answer.models:
        assert (row.margin.high <= usable) == (row.fits is Fits.YES)


def test_nothing_at_all_is_asked_back() -> None:
    with pytest.raises(InputError, match="nothing to plan"):
        api.plan(as_of=DAY)


def test_a_method_that_is_refused_is_left_out_by_name() -> None:
    """transformers from 5.5 on does not quantise FalconLinear (integrations/bitsandbytes.py)."""
    table = api.memory("tiiuae/falcon-7b")
    assert isinstance(table, MethodTable)
    assert {cell.method for cell in table.cells} == {"full", "lora"}
    assert [each for each in table.warnings if each.startswith("QLoRA is left out: transformers from 5.5")]


def test_cards_for_a_run_are_priced_with_the_rate_that_converts_them() -> None:
    """Without a GPU the cheapest offers are shown in the currency of the bill, whatever they are quoted in."""
    plan = api.plan("Qwen/Qwen2.5-0.5B", method="full", seq=128, samples=9, mean_length=99, epochs=1, currency="CNY")
    assert isinstance(plan, Plan) and plan.rate is not None
    assert {line.converted.currency for line in plan.offers if line.converted} == {"CNY"}
