"""DPO through TRL's own trainer: the reference's pass, pairs and the fused head against the modelled step."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("torch")
pytest.importorskip("trl")

from finefit.lab.trainers import trace_trainer
from finefit.memory.estimate import dims_of, timeline
from finefit.workload import DType, Lora, Model, Optimizer, Recipe
from finefit.workload.lora import linear_modules
from finefit.workload.recipe import Beside

# Llama-3.2-1B with two layers (meta-llama/Llama-3.2-1B config.json)
MODEL = Model("llama-1b", "llama", 2048, 2, 32, 8, 64, 8192, 128256, tied=True)
DPO = Recipe(
    "full",
    DType.BF16,
    Optimizer("adamw"),
    seq_len=512,
    micro_batch=2,
    task="dpo",
    autocast=DType.BF16,
    checkpointing="full",
    loss="chunked",
    padded=True,
    beside=Beside("copy"),
    stack={"transformers": "5.24.0", "trl": "1.16.0"},
)
ADAPTERS = Lora(16, 32, targets=linear_modules(MODEL), dtype=DType.FP32)
ROWS = {
    "full": DPO,
    "full without checkpointing": replace(DPO, checkpointing="none"),
    "fp32 weights": replace(DPO, weight_dtype=DType.FP32),
    "lora": replace(DPO, method="lora", lora=ADAPTERS, beside=Beside("self")),
}


@pytest.mark.parametrize("name", sorted(ROWS))
def test_the_modelled_step_is_that_of_the_trainer(name: str) -> None:
    """Within 0.5 % of the traced peak; the copy of the model is 2 or 4 bytes a parameter of it."""
    recipe = ROWS[name]
    dims = dims_of(recipe)
    traced = max(trace_trainer("dpo", MODEL, recipe).live_bytes(dims))
    modelled = max(timeline(MODEL, recipe).live_bytes(dims))
    assert modelled / traced - 1 == pytest.approx(0, abs=0.005)
