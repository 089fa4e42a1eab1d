"""One tensor-parallel rank: split layers by the plan, everything else whole."""

from __future__ import annotations

from dataclasses import replace

import pytest

from finefit.errors import NotModelled
from finefit.memory.timeline import Timeline
from finefit.workload import DType, Lora, Model, Optimizer, Recipe

pytest.importorskip("torch", reason="needs the trace extra: pip install 'finefit[trace]'")
pytest.importorskip("transformers", reason="needs the trace extra")

from finefit.lab.tensor_parallel import trace_tensor_parallel
from finefit.lab.trace import trace

TINY = Model("tiny", "llama", 1024, 3, 16, 4, 64, 2816, 8192, tied=False)
FULL = Recipe("full", DType.BF16, Optimizer("adamw", "fused"), 256, 2)
SPLIT = 3 * (1024 * (1024 + 256 + 256 + 1024) + 3 * 1024 * 2816) + 8192 * 1024  # linear layers and the head
WHOLE = 8192 * 1024 + 7 * 1024  # embedding and norms


def alive_at(timeline: Timeline, end: int) -> list[int]:
    """Tensors held after that many events."""
    held: set[int] = set()
    for event in timeline.events[:end]:
        held.symmetric_difference_update((event if event >= 0 else ~event,))
    return sorted(held)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_a_rank_holds_its_part_of_linear_layers(ranks: int) -> None:
    timeline = trace_tensor_parallel(TINY, FULL, ranks)
    held = [timeline.tensors[i] for i in alive_at(timeline, len(timeline.events))]
    assert sum(t.size.numel for t in held if t.category == "weights") == 2 * (SPLIT // ranks + WHOLE)
    states = sum(t.size.numel for t in held if t.category == "optimizer" and t.size.numel > 4)
    assert states == 2 * 2 * (SPLIT // ranks + WHOLE)


def test_saved_activations_fall_where_layers_are_split() -> None:
    """A layer saves 16·h + 8 bytes a token in its norms, whole on each rank; the rest is split by heads and width."""
    ranks, tokens = 4, 512
    held = []
    for timeline in (trace(TINY, FULL), trace_tensor_parallel(TINY, FULL, ranks)):
        start = next(m.start for m in timeline.marks if m.phase == "loss" and m.step == 2)
        tensors = [timeline.tensors[i] for i in alive_at(timeline, start)]
        held.append(
            sum(t.size.numel for t in tensors if t.layer == 1 and t.category == "activations" and t.size.numel > 64)
        )
    norms = (16 * 1024 + 8) * tokens
    assert held[1] - norms == pytest.approx((held[0] - norms) / ranks, rel=0.02)


@pytest.mark.parametrize(
    ("model", "recipe", "ranks"),
    [
        (TINY, FULL, 8),
        (replace(TINY, tied=True), FULL, 2),
        (TINY, replace(FULL, method="lora", lora=Lora(8, 16, targets=("q_proj",))), 2),
    ],
)
def test_what_cannot_be_split_is_refused(model: Model, recipe: Recipe, ranks: int) -> None:
    with pytest.raises(NotModelled):
        trace_tensor_parallel(model, recipe, ranks)
