"""Evaluation and saving, the fused output layer of TRL and flash-attention, against what their code allocates."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from finefit.errors import NotModelled
from finefit.workload import DType, Lora, Model, Optimizer, Quant, Recipe

torch = pytest.importorskip("torch", reason="needs the trace extra: pip install 'finefit[trace]'")
pytest.importorskip("transformers", reason="needs the trace extra")
pytest.importorskip("trl", reason="needs the trace extra")

from finefit.lab.diff import live_at, phase_peaks  # noqa: E402
from finefit.lab.trace import trace  # noqa: E402
from finefit.memory.timeline import Timeline  # noqa: E402

H, V, T = 256, 40_000, 512
MODEL = Model("tiny", "llama", H, 2, 4, 2, 64, 688, V, tied=False)
FULL = Recipe("full", DType.BF16, Optimizer("adamw", "fused"), seq_len=256, micro_batch=2)
LORA = replace(FULL, method="lora", lora=Lora(8, 16, targets=("q_proj", "v_proj")))


def large_at_peak(timeline: Timeline, phase: str, at_least: int) -> Counter[int]:
    """Sizes of tensors of some size alive at a phase's peak, without weights and optimizer states."""
    peak = phase_peaks(timeline, timeline.dims)[phase]
    return Counter(
        t.size.raw(timeline.dims)
        for t in live_at(timeline, peak.event)
        if t.category not in ("weights", "optimizer") and t.size.raw(timeline.dims) >= at_least
    )


def test_evaluation_holds_the_logits_three_times() -> None:
    """bf16 logits in the outputs, their fp32 copy and the log-softmax (loss_utils.py); no gradients, no states."""
    rows = 4
    timeline = trace(MODEL, replace(FULL, eval_batch=rows))
    tokens = rows * FULL.seq_len
    assert large_at_peak(timeline, "evaluation", tokens * V) == {2 * tokens * V: 1, 4 * tokens * V: 2}


def test_mixed_precision_evaluation_returns_fp32_logits() -> None:
    """accelerate converts outputs at the end: bf16 and fp32 logits live together, after the loss let go of its own."""
    timeline = trace(MODEL, replace(FULL, weight_dtype=DType.FP32, autocast=DType.BF16, eval_batch=2))
    logits = [t for t in timeline.tensors if t.phase == "evaluation" and t.size.raw(timeline.dims) == 4 * T * V]
    assert len(logits) == 3  # of the loss: fp32 copy, log-softmax; of accelerate: the outputs


@pytest.mark.parametrize("recipe", [FULL, LORA])
def test_saving_takes_no_memory_of_the_device(recipe: Recipe) -> None:
    """Contiguous tensors go to the host one by one."""
    timeline = trace(MODEL, replace(recipe, eval_batch=2))
    assert "evaluation" in phase_peaks(timeline, timeline.dims)
    assert [t for t in timeline.tensors if t.phase == "save"] == []


def test_without_evaluation_there_is_no_such_phase() -> None:
    timeline = trace(MODEL, FULL)
    assert "evaluation" not in phase_peaks(timeline, timeline.dims)


def test_fused_output_layer_holds_one_tile_and_fp32_gradients() -> None:
    """trl 1.16.0 chunked_logprob.py: a tile of min(N, 4096) × 32,768, grad_weight and its sum in fp32.

    N is the batch without the last position of each row, whose label is cut off.
    """
    timeline = trace(MODEL, replace(FULL, loss="chunked"))
    n = 2 * (FULL.seq_len - 1)
    sizes = large_at_peak(timeline, "backward", 2 * n * 32_768)
    assert sizes[2 * n * 32_768] == 1
    assert sizes[4 * V * H] == 1
    assert not any(size >= 2 * T * V for size in sizes if size != 4 * V * H)


def test_flash_attention_saves_what_the_flash_operator_does() -> None:
    ours, package = (trace(MODEL, replace(FULL, attention=name)) for name in ("sdpa", "flash2"))
    assert phase_peaks(ours, ours.dims)["backward"].bytes == phase_peaks(package, package.dims)["backward"].bytes


def test_padded_flash_attention_is_refused() -> None:
    with pytest.raises(NotModelled, match="padded"):
        trace(MODEL, replace(FULL, attention="flash2", padded=True))


def test_packed_rows_are_full_rows() -> None:
    assert trace(MODEL, replace(FULL, packing=True)) == trace(MODEL, FULL)


def test_recast_brings_embeddings_back_to_16_bits() -> None:
    """k-bit preparation made them fp32; norms stay so (trl 0.13.0 peft_module_casting_to_bf16)."""
    quant = Quant("nf4", double=True, kbit_prepare=True)
    prepared = replace(LORA, quant=quant, autocast=DType.BF16)
    weights = []
    for recipe in (prepared, replace(prepared, quant=replace(quant, recast=True))):
        timeline = trace(MODEL, recipe)
        held = live_at(timeline, len(timeline.events) - 1)
        weights.append(sum(t.size.raw(timeline.dims) for t in held if t.category == "weights"))
    assert weights[0] - weights[1] == 2 * 2 * V * H


def test_nothing_is_cast_back_that_was_not_prepared() -> None:
    """TRL casts what ``prepare_model_for_kbit_training`` made fp32; the recipe's flag alone says nothing."""
    plain = replace(LORA, quant=Quant("nf4", double=True))
    assert trace(MODEL, plain) == trace(MODEL, replace(plain, quant=Quant("nf4", double=True, recast=True)))
