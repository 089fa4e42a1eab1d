"""Bytes of checkpoints against what PyTorch, DeepSpeed and bitsandbytes write."""

from dataclasses import replace

import pytest

from finefit.cost import checkpoint_bytes, result_bytes
from finefit.errors import NotModelled
from finefit.workload import DType, Lora, Optimizer, Recipe

FULL = Recipe("full", DType.BF16, Optimizer("adamw"), 1024)


@pytest.mark.parametrize(
    ("recipe", "per_parameter"),
    [
        (FULL, 6),  # states follow the parameter's dtype (torch.optim.AdamW)
        (replace(FULL, optimizer=Optimizer("adamw", state_dtype=DType.FP32)), 10),
        (replace(FULL, weight_dtype=DType.FP32, autocast=DType.BF16), 12),
        (replace(FULL, master_weights=True), 14),  # DeepSpeed and Megatron distributed checkpoints
        (replace(FULL, optimizer=Optimizer("adamw_8bit")), 4),
        (replace(FULL, optimizer=Optimizer("sgd")), 2),
        (replace(FULL, optimizer=Optimizer("sgd", momentum=True)), 4),
    ],
)
def test_bytes_of_a_resumable_checkpoint(recipe, per_parameter):
    assert checkpoint_bytes(1000, 1000, recipe) == per_parameter * 1000


def test_adapters_of_an_8b_model():
    """Rank 16 on all linear modules of Llama-3-8B: 42M parameters, 168 MB and 336 MB of states."""
    recipe = replace(FULL, method="lora", lora=Lora(16, 32))
    adapters = 41_943_040
    assert result_bytes(8_030_261_248, adapters, recipe) == 167_772_160
    assert checkpoint_bytes(8_030_261_248, adapters, recipe) == 167_772_160 + 335_544_320


def test_the_result_of_full_training_is_the_model():
    assert result_bytes(7_000, 7_000, FULL) == 14_000


def test_unknown_optimizers_are_refused():
    with pytest.raises(NotModelled):
        checkpoint_bytes(10, 10, replace(FULL, optimizer=Optimizer("galore")))
