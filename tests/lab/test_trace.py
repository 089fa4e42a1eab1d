"""The trace against the closed forms of the library code, and its own rules."""

from __future__ import annotations

from dataclasses import replace

import pytest

from finefit.errors import NotModelled
from finefit.workload import DType, Lora, Model, Optimizer, Quant, Recipe, Sharding
from finefit.workload.recipe import Parallel

torch = pytest.importorskip("torch", reason="needs the trace extra: pip install 'finefit[trace]'")
transformers = pytest.importorskip("transformers", reason="needs the trace extra")

from finefit.lab.diff import live_at, phase_peaks  # noqa: E402
from finefit.lab.trace import _check_elsewhere, self_check, trace  # noqa: E402

LLAMA_7B = Model("llama-7b", "llama", 4096, 2, 32, 32, 128, 11008, 32000, tied=False)
LLAMA_8B = Model("llama-8b", "llama", 4096, 2, 32, 8, 128, 14336, 128256, tied=False)
QWEN_7B = Model("qwen2.5-7b", "qwen2", 3584, 2, 28, 4, 128, 18944, 152064, tied=False, qkv_bias=True)
TINY = Model("tiny", "llama", 256, 2, 4, 2, 64, 688, 1000, tied=False)
FULL = Recipe("full", DType.BF16, Optimizer("adamw", "fused"), seq_len=256, micro_batch=2)
QV = ("q_proj", "v_proj")
ALL = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def saved_per_token(model: Model, recipe: Recipe, layer: int = 1) -> float:
    """Activation bytes a token that one layer holds when the last step's loss begins."""
    timeline = trace(model, recipe)
    start = next(m.start for m in timeline.marks if m.phase == "loss" and m.step == 2)
    held = sum(
        t.size.raw(timeline.dims)
        for t in live_at(timeline, start - 1)
        if t.layer == layer and t.category == "activations"
    )
    return held / (recipe.micro_batch * recipe.seq_len)


# 2(8h+4) + 4·A·D + 4·K·D + 4·A + 8·F with all weights trained; the fused kernel's seed and offset are 32 bytes a layer.
@pytest.mark.parametrize(("model", "expected"), [(LLAMA_7B, 186_504), (LLAMA_8B, 200_840), (QWEN_7B, 225_400)])
def test_saved_activations_of_a_layer(model: Model, expected: int) -> None:
    assert saved_per_token(model, FULL) == pytest.approx(expected, abs=1)


# 2(4h+4) + 4·A·D + 4·K·D + 4·A + 6·F on a frozen base, and 4·in + 4·r for each adapted module.
@pytest.mark.parametrize(("targets", "expected"), [(QV, 164_616), (ALL, 274_504)])
def test_saved_activations_of_a_layer_with_adapters(targets: tuple[str, ...], expected: int) -> None:
    recipe = replace(FULL, method="lora", lora=Lora(16, 32, targets=targets))
    assert saved_per_token(LLAMA_7B, recipe) == pytest.approx(expected, abs=1)


def test_checkpointing_keeps_one_hidden_state_a_layer() -> None:
    assert saved_per_token(LLAMA_7B, replace(FULL, checkpointing="full"), layer=0) == pytest.approx(2 * 4096, abs=1)


def test_same_trace_twice() -> None:
    assert trace(TINY, FULL) == trace(TINY, FULL)


def test_every_free_follows_its_allocation() -> None:
    timeline = trace(TINY, replace(FULL, checkpointing="full", grad_accum=2))
    alive: set[int] = set()
    for event in timeline.events:
        if event >= 0:
            assert event not in alive
            alive.add(event)
        else:
            alive.remove(~event)
    kinds = {timeline.tensors[i].category for i in alive}
    assert kinds <= {"weights", "buffers", "optimizer", "workspace"}


def test_optimizer_states_exist_from_the_second_step_on() -> None:
    timeline = trace(TINY, FULL)
    first, second = (phase_peaks(timeline, timeline.dims, step=n)["forward"].bytes for n in (1, 2))
    parameters = 2 * 1000 * 256 + 256 + 2 * (2 * 256 * 256 + 2 * 256 * 128 + 3 * 256 * 688 + 2 * 256)
    states = 2 * 2 * parameters
    workspace = 8_519_680  # of the backward thread, from the first backward on
    assert second - first - workspace == pytest.approx(states, rel=0.02)


def test_patches_are_undone() -> None:
    from torch import nn

    before = nn.Module._apply, nn.functional.scaled_dot_product_attention, torch.cuda.synchronize
    trace(TINY, FULL)
    assert before == (nn.Module._apply, nn.functional.scaled_dot_product_attention, torch.cuda.synchronize)
    assert not torch.cuda.is_available()
    with pytest.raises((AssertionError, RuntimeError)):
        torch.zeros(1, device="cuda")
    x = torch.randn(8, 8, requires_grad=True)
    nn.functional.silu(x).sum().backward()
    assert x.grad is not None and bool(torch.isfinite(x.grad).all())


def test_self_check_accepts_the_pinned_torch() -> None:
    self_check()


def test_another_torch_is_tried_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("finefit.lab.trace.TORCH", "2.0.0")
    with pytest.warns(UserWarning, match="tested on torch 2.0.0"):
        trace(TINY, FULL)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import sys; sys.exit('torch 9 traces a known step wrongly')", "traces a known step wrongly"),
        ("import os; os.abort()", "ends the process"),
    ],
)
def test_another_torch_is_refused_where_the_self_check_fails(
    code: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("finefit.lab.trace.TORCH", "2.0.0")
    monkeypatch.setattr("finefit.lab.trace._CHECK", code)
    _check_elsewhere.cache_clear()
    with pytest.warns(UserWarning), pytest.raises(NotModelled, match=said):
        trace(TINY, FULL)
    _check_elsewhere.cache_clear()


def test_traces_leave_nothing_behind_for_the_next() -> None:
    """Also after one that failed: the same recipe gives the same events and bytes."""
    first = trace(TINY, FULL)
    trace(TINY, replace(FULL, checkpointing="full", reentrant=True, weight_dtype=DType.FP32, autocast=DType.BF16))
    with pytest.raises(NotModelled):
        trace(replace(TINY, family="chatglm"), FULL)
    verbosity = transformers.logging.get_verbosity()
    assert trace(TINY, FULL) == first
    assert transformers.logging.get_verbosity() == verbosity


def test_quantised_weights_take_what_bitsandbytes_stores() -> None:
    """0.5 B a weight, an 8-bit constant for 64 weights, an fp32 one for 256 of those, tables of 16 and 256."""
    recipe = replace(
        FULL, method="lora", lora=Lora(8, 16, targets=QV), quant=Quant("nf4", double=True), checkpointing="full"
    )
    timeline = trace(LLAMA_7B, recipe)
    packed = [
        t.size.raw(timeline.dims)
        for t in timeline.tensors
        if t.op == "load" and t.module == "model.layers.0.mlp.up_proj"
    ]
    numel = 4096 * 11008
    assert sorted(packed) == sorted([numel // 2, numel // 64, 4 * numel // (64 * 256), 4 * 16, 4 * 256, 4])


@pytest.mark.parametrize(
    "recipe",
    [
        replace(FULL, sharding=Sharding("fsdp", 8)),
        replace(FULL, compiled=True),
        replace(FULL, loss="fused_linear"),
        replace(FULL, attention="flash3"),
        replace(FULL, optimizer=Optimizer("lion")),
        replace(FULL, task="dpo"),
        replace(FULL, parallel=Parallel(pipeline=2)),
        replace(FULL, weight_dtype=DType.FP64),
        replace(FULL, method="lora", lora=Lora(8, 16, targets=QV), quant=Quant("gptq")),
    ],
)
def test_what_cannot_be_traced_is_refused(recipe: Recipe) -> None:
    with pytest.raises(NotModelled):
        trace(TINY, recipe)


def test_unknown_family_is_refused() -> None:
    with pytest.raises(NotModelled, match="chatglm"):
        trace(replace(TINY, family="chatglm"), FULL)
