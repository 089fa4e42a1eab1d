"""A few small traces stand for every batch, length, rank and depth: held to whole traces that were not used."""

from __future__ import annotations

from dataclasses import replace

import pytest

from finefit.errors import NotModelled
from finefit.memory.allocator import replay
from finefit.memory.timeline import Mark, Tensor, Timeline
from finefit.memory.tracefile import read
from finefit.step.size import Dims, fixed
from finefit.workload import DType, Lora, Model, Optimizer, Quant, Recipe

pytest.importorskip("torch", reason="needs the trace extra: pip install 'finefit[trace]'")
pytest.importorskip("transformers", reason="needs the trace extra")

from finefit.lab.compiled import compile_trace, keep, points
from finefit.lab.fit import NoFormulaError, symbolic
from finefit.lab.fold import NotAlikeError, fold
from finefit.lab.trace import trace

TINY = Model("tiny", "llama", 512, 6, 8, 2, 64, 1376, 1000, tied=False)
WIDE = Model("llama-8b", "llama", 4096, 32, 32, 8, 128, 14336, 128256, tied=False)
WINDOW = replace(TINY, family="mistral", sliding_window=1024)
MIXED = replace(
    TINY,
    family="gemma3_text",
    layer_types=("sliding", "full", "sliding", "sliding", "sliding", "full"),
    sliding_window=512,
    sandwich_norms=True,
    qk_norm="head",
    activation="gelu_pytorch_tanh",
    tied=True,
)
FULL = Recipe("full", DType.BF16, Optimizer("adamw", "fused"), 2048, 2)
LORA = replace(FULL, method="lora", lora=Lora(16, 32, targets=("q_proj", "v_proj", "down_proj")))
QLORA = replace(LORA, quant=Quant("nf4", double=True), checkpointing="full", reentrant=True)
WORKSPACE = 8_519_680  # of each of two cuBLAS handles before Hopper

CASES = {
    "full": (TINY, FULL, 3, 777),
    "one row": (TINY, replace(FULL, micro_batch=1), 1, 1234),
    "few tokens": (TINY, FULL, 2, 64),
    "foreach, checkpointed": (
        TINY,
        replace(FULL, optimizer=Optimizer("adamw", "foreach"), checkpointing="full"),
        4,
        999,
    ),
    "padded": (TINY, replace(FULL, padded=True), 3, 1040),
    "padded to no multiple of 16": (TINY, replace(FULL, padded=True, seq_len=2047), 3, 1001),
    "adapters": (TINY, LORA, 5, 640),
    "4 bits, reentrant": (TINY, QLORA, 2, 1111),
    "accumulation": (TINY, replace(LORA, grad_accum=4), 2, 512),
    "8-bit states": (TINY, replace(FULL, optimizer=Optimizer("adamw_8bit")), 2, 555),
    "above the window, no multiple of 16": (WINDOW, replace(FULL, seq_len=1500), 2, 1333),
    "below the window": (WINDOW, replace(FULL, seq_len=512), 2, 1023),
    "at the window": (WINDOW, FULL, 2, 1024),
    "layers of two kinds": (MIXED, replace(FULL, seq_len=300), 2, 444),
    "real depth": (WIDE, replace(FULL, checkpointing="full"), 3, 2053),
}


def asked(timeline: Timeline, dims: Dims) -> list[int]:
    """What the allocator is asked for, in order: bytes taken, or given back as negative numbers."""
    sizes = [t.size.block(dims) for t in timeline.tensors]
    signed = (sizes[event] if event >= 0 else -sizes[~event] for event in timeline.events)
    return [nbytes for nbytes in signed if nbytes]


@pytest.mark.parametrize("name", CASES)
def test_equals_a_whole_trace_that_was_not_used(name: str) -> None:
    model, recipe, rows, length = CASES[name]
    found = compile_trace(model, recipe)
    rank = 9 if recipe.lora else 0
    dims = Dims(rows, length, rank)
    assert dims not in found.points
    lora = replace(recipe.lora, rank=rank) if recipe.lora else None
    whole = trace(model, replace(recipe, micro_batch=rows, seq_len=length, lora=lora))
    stored = read(found.data)

    assert found.folded == (not model.layer_types)
    assert asked(found.program.unfold(model.layers), dims) == asked(whole, dims)
    assert replay(stored.timeline(WORKSPACE), dims) == replay(whole, dims)
    last = min(mark.start for mark in whole.marks if mark.step == whole.marks[-1].step)
    steady = max(list(whole.live_bytes(dims))[last:])
    assert stored.compiled.evaluate(dims).allocated + 2 * WORKSPACE == steady


def test_names_of_unfolded_layers_are_those_of_the_trace() -> None:
    found = compile_trace(TINY, LORA)
    whole = trace(TINY, LORA)
    mine = found.program.unfold(TINY.layers)
    assert [(t.module, t.layer, t.op, t.category) for t in mine.tensors] == [
        (t.module, t.layer, t.op, t.category) for t in whole.tensors
    ]


def test_a_class_without_long_rows_stays_below_its_limit() -> None:
    assert all(dims.s < 1024 for dims in points(WINDOW, replace(FULL, seq_len=512)))
    assert all(dims.s >= 1024 for dims in points(WINDOW, FULL))


def test_kept_traces_are_found_again(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    from finefit.memory import store

    monkeypatch.setattr(store, "cache_folder", lambda: tmp_path)
    assert store.load(TINY, FULL) is None
    path = keep(TINY, FULL, trace(TINY, FULL))
    assert path.parent == tmp_path
    found = store.load(TINY, replace(FULL, micro_batch=7, seq_len=300))
    assert found is not None and found.versions["torch"] == store.VERSIONS["torch"]


def test_a_trace_that_differs_is_not_kept(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    from finefit.memory import store

    monkeypatch.setattr(store, "cache_folder", lambda: tmp_path)
    with pytest.raises(NotModelled, match="differs"):
        keep(TINY, FULL, trace(TINY, replace(FULL, keeps_outputs=True)))
    with pytest.raises(NotModelled, match="Ampere"):
        keep(TINY, FULL, trace(TINY, FULL), arch="sm75")


def _one(nbytes: int, dims: Dims, events: tuple[int, ...] = (0, ~0)) -> Timeline:
    tensor = Tensor(fixed(nbytes), "activations", "forward", "mm")
    return Timeline((tensor,), events, (Mark(0, "forward", 1),), dims=dims)


def test_a_sum_has_no_formula() -> None:
    traces = [_one(2 * d.b * d.s + 6, d) for d in (Dims(2, 1543), Dims(3, 1999))]
    with pytest.raises(NoFormulaError, match="mm"):
        symbolic(traces, vocab=1000)


def test_another_order_has_no_formula() -> None:
    with pytest.raises(NoFormulaError, match="order"):
        symbolic([_one(8, Dims(2, 3)), _one(8, Dims(3, 5), (0,))], vocab=1000)


def test_layers_that_differ_do_not_fold() -> None:
    four = trace(replace(TINY, layers=4), FULL)
    third = next(i for i, t in enumerate(four.tensors) if t.layer == 2 and t.phase == "forward")
    tensors = [replace(t, op="other") if i == third else t for i, t in enumerate(four.tensors)]
    with pytest.raises(NotAlikeError):
        fold(replace(four, tensors=tuple(tensors)), trace(replace(TINY, layers=3), FULL))
