"""The hand-built step against the real trainers: equal to 0.0001 GiB in every phase."""

from __future__ import annotations

from dataclasses import replace

import pytest

from finefit.errors import NotModelled
from finefit.workload import DType, Lora, Model, Optimizer, Quant, Recipe

torch = pytest.importorskip("torch", reason="needs the trace extra: pip install 'finefit[trace]'")
for name in ("transformers", "peft", "trl", "datasets", "bitsandbytes"):
    pytest.importorskip(name, reason="needs the trace extra")

from finefit.lab.diff import phase_peaks  # noqa: E402
from finefit.lab.trace import trace  # noqa: E402
from finefit.lab.trainers import trace_trainer  # noqa: E402

TOLERANCE = 2**30 // 10_000
MODEL = Model("tiny", "llama", 256, 3, 4, 2, 64, 688, 40_000, tied=True)
FULL = Recipe("full", DType.BF16, Optimizer("adamw", "fused"), seq_len=256, micro_batch=2)
MIXED = replace(FULL, weight_dtype=DType.FP32, autocast=DType.BF16)
LORA = replace(FULL, method="lora", lora=Lora(8, 16, targets=("q_proj", "v_proj", "down_proj")), autocast=DType.BF16)
QLORA = replace(LORA, quant=Quant("nf4", double=True, kbit_prepare=True), checkpointing="full")
# TRL quantises without prepare_model_for_kbit_training and casts adapters of 4-bit models to bf16 (sft_trainer.py).
TRL_QLORA = replace(QLORA, quant=Quant("nf4", double=True), lora=replace(QLORA.lora, dtype=DType.BF16))

CASES = {
    "trainer: bf16": ("trainer", FULL),
    "trainer: bf16, checkpointed, evaluated": ("trainer", replace(FULL, checkpointing="full", eval_batch=8)),
    "trainer: mixed": ("trainer", MIXED),
    "trainer: mixed, accumulated, evaluated": ("trainer", replace(MIXED, grad_accum=2, eval_batch=8)),
    "trainer: mixed, reentrant": ("trainer", replace(MIXED, checkpointing="full", reentrant=True)),
    "trainer: 8-bit optimizer": ("trainer", replace(FULL, optimizer=Optimizer("adamw_8bit"))),
    "trainer: LoRA": ("trainer", LORA),
    "trainer: QLoRA": ("trainer", QLORA),
    "sft: bf16, evaluated": ("sft", replace(FULL, loss="chunked", eval_batch=8)),
    "sft: mixed, checkpointed": ("sft", replace(MIXED, loss="chunked", checkpointing="full")),
    "sft: LoRA": ("sft", replace(LORA, loss="chunked")),
    "sft: QLoRA": ("sft", replace(TRL_QLORA, loss="chunked")),
}


@pytest.mark.parametrize("case", CASES)
def test_hand_built_step_equals_the_trainer(case: str) -> None:
    kind, recipe = CASES[case]
    real, ours = trace_trainer(kind, MODEL, recipe), trace(MODEL, recipe)
    left, right = phase_peaks(real, real.dims), phase_peaks(ours, ours.dims)
    assert {name: peak.bytes for name, peak in left.items()} == pytest.approx(
        {name: right[name].bytes for name in left}, abs=TOLERANCE
    )


@pytest.mark.parametrize(("recipe", "copies"), [(FULL, 1), (LORA, 0)])
def test_dpo_is_twice_the_rows_and_a_frozen_copy(recipe: Recipe, copies: int) -> None:
    """Chosen and rejected run as one batch; the reference is a second model, or the one without its adapters."""
    recipe = replace(recipe, loss="chunked")
    real, ours = trace_trainer("dpo", MODEL, recipe), trace(MODEL, replace(recipe, micro_batch=4))
    h, v, k, f = 256, 40_000, 128, 688
    copy = 2 * copies * (v * h + h + 3 * (2 * h * h + 2 * h * k + 3 * h * f + 2 * h))
    peaks = [phase_peaks(t, t.dims)["backward"].bytes for t in (real, ours)]
    assert peaks[0] == pytest.approx(peaks[1] + copy, abs=TOLERANCE)


@pytest.mark.parametrize(
    ("kind", "recipe"),
    [
        ("grpo", FULL),
        ("sft", FULL),
        ("trainer", replace(FULL, loss="chunked")),
        ("trainer", replace(FULL, optimizer=Optimizer("adamw", "foreach"))),
    ],
)
def test_what_a_trainer_cannot_do_is_refused(kind: str, recipe: Recipe) -> None:
    with pytest.raises(NotModelled):
        trace_trainer(kind, MODEL, recipe)
