"""States of one matrix against the arithmetic of each optimizer's own code."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from finefit.memory.optimizers import Keeper
from finefit.resolve.optimizers import NAMES, optimizer
from finefit.step.ops import Param
from finefit.step.size import Dims
from finefit.workload.dtypes import DType
from finefit.workload.recipe import Optimizer

ROWS, COLS = 4096, 1024
DIMS = Dims(1, 1, 8)


def matrix(dtype: DType = DType.BF16, rows: int = ROWS, cols: int = COLS) -> Param:
    return Param("layers.0.q_proj.weight", dtype, rows * cols, True, "weights", shape=(rows, cols))


def held(found: Optimizer, param: Param) -> int:
    keeper = Keeper(found, wide=False, sharded=False)
    return sum(piece.size.raw(DIMS) for piece in keeper.states(param))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("adamw_torch", 2 * 2 * ROWS * COLS),  # states take the parameter's dtype
        ("paged_adamw_32bit", 2 * 4 * ROWS * COLS),  # bitsandbytes: fp32 whatever the parameter
        ("adamw_8bit", 2 * (ROWS * COLS + 4 * ROWS * COLS // 256)),
        ("lion_8bit", ROWS * COLS + 4 * ROWS * COLS // 256),
        ("ademamix_8bit", 3 * (ROWS * COLS + 4 * ROWS * COLS // 256)),
        ("adamw_torch_4bit", 2 * (ROWS * COLS // 2 + 4 * ROWS * COLS // 256 + 16 * 4)),
        ("adafactor", 4 * (ROWS + COLS)),
        ("came", 4 * ROWS * COLS + 2 * 4 * (ROWS + COLS)),
        ("adam_mini", 2 * ROWS * COLS + 2 * ROWS),
        ("muon", 2 * ROWS * COLS),
        ("lomo", 0),
        ("adalomo", 4 * (ROWS + COLS)),
        ("stable_adamw", 3 * 2 * ROWS * COLS),
        ("sgd", 0),
    ],
)
def test_states_of_a_matrix_in_bf16(name, expected):
    assert held(optimizer(name, where="optim"), matrix()) == expected


def projected(name: str, rank: int) -> Optimizer:
    found = optimizer(name, where="optim")
    return Optimizer(found.name, found.impl, found.state_dtype, rank=rank, targets=("q_proj",))


@pytest.mark.parametrize(
    ("dtype", "name", "expected"),
    [
        # 128 x 1024 projection, two states of 4096 x 128 (GaLore, arXiv 2403.03507, section 3: mr + 2nr)
        (DType.BF16, "galore_adamw", 2 * (128 * COLS + 2 * ROWS * 128)),
        (DType.BF16, "apollo_adamw", 2 * (128 * COLS + 2 * ROWS * 128)),
        # galore_projector.py returns Vh[:rank], a view of the whole 1024 x 1024 matrix, where nothing is cast
        (DType.FP32, "galore_adamw", 4 * (COLS * COLS + 2 * ROWS * 128)),
        (DType.FP32, "apollo_adamw", 4 * (128 * COLS + 2 * ROWS * 128)),
    ],
)
def test_states_of_a_projected_matrix(dtype, name, expected):
    assert held(projected(name, 128), matrix(dtype)) == expected


def test_only_named_modules_are_projected():
    other = Param("layers.0.mlp.up_proj.weight", DType.BF16, ROWS * COLS, True, "weights", shape=(ROWS, COLS))
    assert held(projected("galore_adamw", 128), other) == 2 * 2 * ROWS * COLS


def test_small_tensors_are_not_quantised():
    """bitsandbytes keeps fp32 below 4096 elements, torchao the parameter's dtype."""
    norm = Param("norm.weight", DType.BF16, 2048, True, "weights")
    assert held(optimizer("adamw_8bit", where="optim"), norm) == 2 * 4 * 2048
    assert held(optimizer("adamw_torch_8bit", where="optim"), norm) == 2 * 2 * 2048


def test_grokadamw_rests_on_the_host():
    assert optimizer("grokadamw", where="optim").kind.host


@given(
    name=st.sampled_from(sorted(name for name in NAMES if "galore" not in name and "apollo" not in name)),
    rows=st.integers(1, 3000),
    cols=st.integers(1, 3000),
    dtype=st.sampled_from([DType.BF16, DType.FP32]),
)
def test_no_optimizer_keeps_more_than_three_fp32_copies(name, rows, cols, dtype):
    """AdEMAMix is the largest; quantised states have constants, tables and rounding on top."""
    size = held(optimizer(name, where="optim"), matrix(dtype, rows, cols))
    assert 0 <= size <= 3 * 4 * rows * cols + 4096
