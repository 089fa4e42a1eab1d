"""Evaluation against what ``Trainer.prediction_step`` holds (transformers 5.24.0), and its place in a run."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from finefit.memory.allocator import replay
from finefit.memory.estimate import at_peak, dims_of, estimate, measure, timeline
from finefit.memory.evaluation import evaluation_recipe
from finefit.workload import DType, Lora, Model, Optimizer, Quant, Recipe, Sharding

VOCAB, TOKENS = 40_000, 256
MODEL = Model("tiny", "llama", 256, 2, 4, 2, 64, 688, VOCAB, tied=False)
FULL = Recipe("full", DType.BF16, Optimizer("adamw", "fused"), seq_len=TOKENS, micro_batch=1)
LORA = replace(FULL, method="lora", lora=Lora(8, 16, targets=("q_proj", "v_proj")), checkpointing="full")


@pytest.mark.parametrize("recipe", [FULL, LORA, replace(LORA, quant=Quant("nf4", double=True))])
@pytest.mark.parametrize("rows", [4, 8])
def test_a_batch_holds_its_logits_in_16_bits_in_fp32_and_as_log_softmax(recipe: Recipe, rows: int) -> None:
    """loss_utils.py ForCausalLMLoss: 2 + 4 + 4 bytes a token and word, without gradients."""
    peak = estimate(MODEL, replace(recipe, eval_batch=rows))
    assert peak.phase == "evaluation"
    assert peak.parts["gradients"] == 0
    assert peak.parts["logits"] == pytest.approx(10 * rows * TOKENS * VOCAB, abs=2048)


def test_two_batches_differ_by_the_tensors_of_a_row() -> None:
    """A row: ten bytes of logits a word, the last norm's output in 16 bits, ids, labels and mask of int64."""
    four, five = (estimate(MODEL, replace(FULL, eval_batch=rows)).phases["evaluation"] for rows in (4, 5))
    assert five - four == pytest.approx(TOKENS * (10 * VOCAB + 2 * 256 + 4 * 8), rel=1e-3)


def test_nothing_is_kept_of_layers_and_nothing_recomputed() -> None:
    """Twice the layers hold the same beside their weights and states."""
    deep = replace(MODEL, layers=4)
    peaks = [estimate(model, replace(FULL, eval_batch=8)) for model in (MODEL, deep)]
    assert peaks[0].parts["activations"] == peaks[1].parts["activations"]


def test_mixed_precision_caches_16_bit_weights_without_gradients_too() -> None:
    """autocast_mode.cpp cached_cast asks whether the leaf requires a gradient, not whether one is recorded."""
    recipe = replace(FULL, weight_dtype=DType.FP32, autocast=DType.BF16, eval_batch=8)
    events, _ = at_peak(MODEL, recipe)
    copies = [t for t in events.tensors if t.phase == "evaluation" and (t.op, t.category) == ("to", "buffers")]
    assert len(copies) == 7 * MODEL.layers + 1


def test_liger_leaves_the_logits_out_since_transformers_asks_it_to() -> None:
    liger = replace(FULL, loss="fused_linear", fused_kernels=True, eval_batch=8)
    old = replace(liger, stack={"transformers": "4.55.4"})
    now, before = (estimate(MODEL, recipe).phases["evaluation"] for recipe in (liger, old))
    assert before - now > 9 * 8 * TOKENS * VOCAB


def test_text_generating_trainers_are_left_out() -> None:
    assert evaluation_recipe(replace(FULL, task="grpo", eval_batch=8)) is None
    assert evaluation_recipe(FULL) is None


def test_training_alone_is_unchanged() -> None:
    alone, both = estimate(MODEL, FULL), estimate(MODEL, replace(FULL, eval_batch=1))
    assert {**both.phases, "evaluation": 0} == {**alone.phases, "evaluation": 0}
    assert both.allocated == max(alone.allocated, both.phases["evaluation"])


@settings(deadline=None, max_examples=15)
@given(rows=st.integers(1, 12), sharded=st.booleans(), batch=st.integers(1, 8), adapters=st.booleans())
def test_the_list_of_events_and_the_folded_form_agree(rows: int, sharded: bool, batch: int, adapters: bool) -> None:
    recipe = replace(LORA if adapters else FULL, micro_batch=batch, eval_batch=rows)
    if sharded:
        recipe = replace(recipe, sharding=Sharding("fsdp", 4))
    model = replace(MODEL, layers=9)
    events, dims = timeline(model, recipe, workspace=0), dims_of(recipe)
    live = list(events.live_bytes(dims))
    start = next(mark.start for mark in events.marks if mark.phase == "evaluation")
    peak = estimate(model, recipe)
    workspaces = peak.parts["workspace"] if peak.phase == "evaluation" else estimate(model, FULL).parts["workspace"]
    assert max(live[start - 1 :]) == peak.phases["evaluation"] - workspaces
    assert live[-1] == live[start - 1]  # nothing stays


def test_the_replay_and_the_explanation_see_evaluation() -> None:
    recipe = replace(FULL, eval_batch=16)
    peak = measure(MODEL, recipe)
    assert peak.reserved is not None and peak.reserved >= peak.allocated
    alone = replay(timeline(MODEL, FULL), dims_of(FULL)).reserved
    assert peak.reserved > alone
    events, dims = at_peak(MODEL, recipe)
    assert dims.b == 16
    assert max(events.live_bytes(dims)) == peak.allocated
