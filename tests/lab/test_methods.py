"""Adapters, parts of the parameters and optimizers of a small model against the libraries' own code."""

from __future__ import annotations

from dataclasses import replace

import pytest

from finefit.workload import DType, Lora, Model, Optimizer, Recipe, Trained

torch = pytest.importorskip("torch", reason="needs the trace extra: pip install 'finefit[trace]'")
pytest.importorskip("peft", reason="needs the trace extra")

from finefit.lab.diff import phase_peaks  # noqa: E402
from finefit.lab.trace import trace  # noqa: E402
from finefit.memory.estimate import timeline  # noqa: E402

MODEL = Model("tiny", "llama", 512, 3, 4, 2, 128, 1376, 32_000, tied=False)
FULL = Recipe("full", DType.BF16, Optimizer("adamw", "fused"), seq_len=256, micro_batch=2)
ADAPTERS = Lora(8, 16, targets=("q_proj", "v_proj", "down_proj"))


def off(recipe: Recipe) -> float:
    """Relative error of the modelled peak."""
    modelled, traced = (max(p.bytes for p in phase_peaks(t, t.dims).values()) for t in _both(recipe))
    return abs(modelled / traced - 1)


def _both(recipe: Recipe):  # type: ignore[no-untyped-def]
    traced = trace(MODEL, recipe)
    return replace(timeline(MODEL, recipe), dims=traced.dims), traced


@pytest.mark.parametrize("kind", ["dora", "lora_fa", "adalora", "vera", "oft", "ia3"])
@pytest.mark.parametrize("checkpointing", ["none", "full"])
def test_adapters(kind: str, checkpointing: str) -> None:
    lora = replace(ADAPTERS, kind=kind, block=32 if kind == "oft" else 0, feedforward=("down_proj",) * (kind == "ia3"))
    assert off(replace(FULL, method="lora", lora=lora, checkpointing=checkpointing)) < 0.01


@pytest.mark.parametrize(
    "trained",
    [
        Trained((2,)),
        Trained((0,)),
        Trained(None, ("norm",), ("norm",)),
        Trained((1,), dtype=DType.FP32, selective=True),
    ],
)
def test_parts(trained: Trained) -> None:
    recipe = replace(FULL, method="freeze", trained=trained)
    if trained.selective:
        recipe = replace(recipe, checkpointing="full", reentrant=True)
    assert off(recipe) < 0.005


@pytest.mark.parametrize("name", ["adafactor", "lion_8bit", "ademamix_32bit", "rmsprop", "adagrad"])
def test_optimizers(name: str) -> None:
    impl = "foreach" if name in ("rmsprop", "adagrad") else "loop"
    states = DType.UINT8 if name.endswith("8bit") else None
    assert off(replace(FULL, optimizer=Optimizer(name, impl, states), micro_batch=1, seq_len=16)) < 0.005
