"""Bytes a token a layer that the trace of the real library gives, and the step must reproduce.

The expected figures were measured by tracing transformers 5.24.0 under fake tensors (a study published with
the project's facts); none of them is computed by the code under test.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from finefit.catalog.models import find
from finefit.memory.played import played
from finefit.step.size import Dims
from finefit.workload import DType, Lora, Model, Optimizer, Recipe

ALL_LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
FULL = Recipe(method="full", weight_dtype=DType.BF16, optimizer=Optimizer("adamw"), seq_len=2048)


def lora(*targets: str) -> Recipe:
    return replace(FULL, method="lora", lora=Lora(rank=16, alpha=16, targets=targets))


def held_after_forward(model: Model, recipe: Recipe, dims: Dims) -> int:
    """Bytes of activations alive when the loss block begins, not rounded to allocator blocks."""
    timeline = played(model, recipe)
    loss = next(mark.start for mark in timeline.marks if mark.phase == "loss")
    live: set[int] = set()
    for event in timeline.events[:loss]:
        if event >= 0:
            live.add(event)
        else:
            live.discard(~event)
    kept = [timeline.tensors[i] for i in live]
    return sum(t.size.raw(dims) for t in kept if t.category == "activations")


def per_token_and_layer(name: str, recipe: Recipe) -> float:
    dims = Dims(1, 2048, 16)
    deep, shallow = (held_after_forward(replace(find(name), layers=n), recipe, dims) for n in (4, 3))
    return (deep - shallow) / 2048


@pytest.mark.parametrize(
    ("name", "expected"),
    [("meta-llama/Llama-2-7b-hf", 186_504), ("meta-llama/Meta-Llama-3-8B", 200_840), ("Qwen/Qwen2.5-7B", 225_400)],
)
def test_full_fine_tuning_keeps_what_the_trace_keeps(name: str, expected: int) -> None:
    assert per_token_and_layer(name, FULL) == expected


@pytest.mark.parametrize(("targets", "expected"), [(("q_proj", "v_proj"), 164_616), (ALL_LINEAR, 274_504)])
def test_lora_keeps_an_fp32_copy_of_each_input(targets: tuple[str, ...], expected: int) -> None:
    assert per_token_and_layer("meta-llama/Llama-2-7b-hf", lora(*targets)) == expected


def test_checkpointing_keeps_one_hidden_state_a_layer() -> None:
    recipe = replace(FULL, checkpointing="full")
    assert per_token_and_layer("meta-llama/Llama-2-7b-hf", recipe) == 2 * 4096


def test_eager_attention_keeps_the_scores_in_fp32_and_16_bits() -> None:
    s, heads = 2048, 32
    eager = per_token_and_layer("meta-llama/Llama-2-7b-hf", replace(FULL, attention="eager"))
    assert eager - 186_504 == heads * s * (4 + 2) - 4 * heads  # both softmax outputs; no log-sum-exp
