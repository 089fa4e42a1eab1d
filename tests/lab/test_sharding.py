"""One rank of a sharded run: what it holds follows from what sharding means."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import pytest

from finefit.errors import NotModelled
from finefit.memory.timeline import Timeline
from finefit.workload import DType, Lora, Model, Optimizer, Quant, Recipe, Sharding

torch = pytest.importorskip("torch", reason="needs the trace extra: pip install 'finefit[trace]'")
pytest.importorskip("transformers", reason="needs the trace extra")

from finefit.lab import sharding  # noqa: E402
from finefit.lab.diff import phase_peaks  # noqa: E402
from finefit.lab.trace import trace  # noqa: E402

RANKS = 4
TINY = Model("tiny", "llama", 1024, 4, 16, 4, 64, 2816, 8192, tied=False)
FULL = Recipe("full", DType.BF16, Optimizer("adamw", "fused"), 256, 2, sharding=Sharding("fsdp", RANKS))
ALONE = replace(FULL, sharding=Sharding())
# embedding and head; a layer's attention, MLP and norms; the last norm
UNIT = 1024 * (1024 + 256 + 256 + 1024) + 3 * 1024 * 2816 + 2 * 1024
PARAMETERS = 2 * 8192 * 1024 + 4 * UNIT + 1024

trace_sharded = lru_cache(maxsize=None)(sharding.trace_sharded)  # tests share traces


def resident(timeline: Timeline, category: str) -> int:
    """Bytes of a category that are never freed."""
    freed = {~event for event in timeline.events if event < 0}
    kept = (t for i, t in enumerate(timeline.tensors) if i not in freed and t.category == category)
    return sum(t.size.numel for t in kept)


def test_a_rank_holds_its_part_of_weights_and_states() -> None:
    timeline = trace_sharded(TINY, FULL)
    assert timeline.dims is not None and timeline.dims.n == RANKS
    assert resident(timeline, "weights") == 2 * PARAMETERS / RANKS
    steps = 4 * len([t for t in timeline.tensors if t.op == "load" and t.category == "weights"])  # AdamW's counters
    assert resident(timeline, "optimizer") == 2 * 2 * PARAMETERS / RANKS + steps


def test_gradients_of_the_optimizer_step_are_the_ranks_own() -> None:
    timeline = trace_sharded(TINY, FULL)
    start = next(m.start for m in timeline.marks if m.phase == "optimizer" and m.step == 2)
    alive: set[int] = set()
    for event in timeline.events[:start]:
        alive.symmetric_difference_update((event if event >= 0 else ~event,))
    held = sum(timeline.tensors[i].size.numel for i in alive if timeline.tensors[i].category == "gradients")
    assert held == 2 * PARAMETERS / RANKS


@pytest.mark.parametrize(
    "recipe",
    [
        FULL,
        replace(FULL, checkpointing="full"),
        replace(FULL, weight_dtype=DType.FP32, autocast=DType.BF16),
        replace(FULL, method="lora", lora=Lora(8, 16, targets=("q_proj", "down_proj")), checkpointing="full"),
        replace(FULL, grad_accum=2),
    ],
)
def test_every_free_follows_its_allocation_and_a_step_leaves_nothing(recipe: Recipe) -> None:
    timeline = trace_sharded(TINY, recipe)
    alive: set[int] = set()
    for event in timeline.events:
        if event >= 0:
            assert event not in alive
            alive.add(event)
        else:
            alive.remove(~event)
    assert {timeline.tensors[i].category for i in alive} <= {"weights", "adapters", "buffers", "optimizer", "workspace"}


def test_a_layer_is_gathered_whole_and_given_back() -> None:
    """Forward: a layer's weights in 16 bits, twice while they are copied out of the collective's flat output."""
    timeline = trace_sharded(TINY, replace(FULL, checkpointing="full"))
    gathered = [t for t in timeline.tensors if t.op == "all_gather" and t.layer == 1 and t.phase == "forward"]
    assert sum(t.size.numel for t in gathered) == 2 * (2 * 2 * UNIT)  # two steps, flat output and copies


def test_activations_are_those_of_one_gpu() -> None:
    """Sharding splits no activation: what the loss phase holds beyond weights and states is the same."""
    sharded, alone = trace_sharded(TINY, FULL), trace(TINY, ALONE)

    def activations(timeline: Timeline) -> int:
        start = next(m.start for m in timeline.marks if m.phase == "loss" and m.step == 2)
        alive: set[int] = set()
        for event in timeline.events[:start]:
            alive.symmetric_difference_update((event if event >= 0 else ~event,))
        kinds = ("activations", "logits")
        return sum(timeline.tensors[i].size.numel for i in alive if timeline.tensors[i].category in kinds)

    assert activations(sharded) == pytest.approx(activations(alone), rel=0.001)


def test_the_peak_falls_with_the_ranks() -> None:
    few, many = (
        max(p.bytes for p in phase_peaks(t, t.dims).values())
        for t in (trace_sharded(TINY, replace(FULL, sharding=Sharding("fsdp", n))) for n in (2, 8))
        if t.dims is not None
    )
    saved = (2 + 4) * PARAMETERS * (1 / 2 - 1 / 8)  # weights and states; gradients are not held at the peak
    assert few - many == pytest.approx(saved, rel=0.05)


def test_everything_is_undone() -> None:
    before = torch.cuda.Stream, torch.cuda.current_device, torch.UntypedStorage.resize_
    trace_sharded(TINY, FULL)
    assert before == (torch.cuda.Stream, torch.cuda.current_device, torch.UntypedStorage.resize_)
    assert not torch.distributed.is_initialized()


@pytest.mark.parametrize(
    "recipe",
    [
        replace(FULL, sharding=Sharding("zero3", 4)),
        replace(FULL, sharding=Sharding("fsdp", 4, offload_optimizer=True)),
        replace(FULL, quant=Quant("nf4"), method="lora", lora=Lora(8, 16, targets=("q_proj",))),
    ],
)
def test_other_sharding_is_refused(recipe: Recipe) -> None:
    with pytest.raises(NotModelled):
        trace_sharded(TINY, recipe)
