"""What a plan and a memory answer say about evaluation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import finefit
from finefit.planner import levers
from finefit.resolve.any_config import resolve_any
from finefit.workload import DType, Model, Optimizer, Recipe

MODEL = Model("tiny", "llama", 256, 2, 4, 2, 64, 688, 40_000, tied=False)
FULL = Recipe("full", DType.BF16, Optimizer("adamw"), seq_len=256, micro_batch=2)
RUN = {"method": "qlora", "seq": 2048, "batch": 1, "checkpointing": "full", "gpu": "RTX 4090"}


def test_training_fits_and_evaluation_does_not() -> None:
    """Llama 3 8B: 8 rows of 2,048 tokens hold 10 · 16,384 · 128,256 bytes, 19.6 GiB, beside 5.4 GiB of weights."""
    answer = finefit.estimate("meta-llama/Meta-Llama-3-8B", eval_batch=8, **RUN)
    assert answer.fits.value == "no"
    assert answer.peak.phase == "evaluation"
    assert "training fits, evaluation does not: it runs 8 rows at once; 4 would fit" in answer.warnings
    assert finefit.estimate("meta-llama/Meta-Llama-3-8B", eval_batch=4, **RUN).fits.value == "yes"


def test_evaluation_that_fits_is_not_warned_of() -> None:
    answer = finefit.estimate("meta-llama/Meta-Llama-3-8B", eval_batch=1, **RUN)
    assert answer.fits.value == "yes"
    assert not any("evaluation" in warning for warning in answer.warnings)


def test_the_lever_goes_to_the_rows_of_training_then_to_one() -> None:
    first = levers.evaluation(MODEL, replace(FULL, eval_batch=8))
    assert first is not None and first.recipe == replace(FULL, eval_batch=2)
    second = levers.evaluation(MODEL, first.recipe)
    assert second is not None and second.recipe == replace(FULL, eval_batch=1)
    assert levers.evaluation(MODEL, second.recipe) is None
    assert levers.evaluation(MODEL, FULL) is None


@pytest.mark.parametrize(
    ("words", "rows"),
    [
        ("--val_dataset b --per_device_eval_batch_size 16", 16),
        ("--split_dataset_ratio 0.1", 1),  # its default: arguments/base_args of ms-swift 4.6.0
        ("--split_dataset_ratio 0", None),
        ("--val_dataset b --eval_strategy no", None),
        ("--val_dataset b --save_strategy no", None),
        ("--per_device_eval_batch_size 16", None),
    ],
)
def test_swift_evaluates_where_it_has_a_validation_set(tmp_path: Path, words: str, rows: int | None) -> None:
    script = tmp_path / "run.sh"
    script.write_text(f"swift sft --model Qwen/Qwen2.5-7B-Instruct --dataset a --max_length 4096 {words}\n")
    recipe = resolve_any(script).recipe
    assert recipe is not None and recipe.eval_batch == rows
