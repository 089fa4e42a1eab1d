"""What a step holds beyond what autograd saves, by the library's code.

bitsandbytes 0.50.2 autograd/_functions.py (``ctx.tensors``), transformers 5.24.0 masking_utils.py and
integrations/sdpa_attention.py, torch 2.13.0 LinearAlgebra.cpp (``matmul`` folds rows and heads).
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from finefit.memory.estimate import estimate, timeline
from finefit.step.size import Dims
from finefit.workload import DType, Lora, Model, Optimizer, Quant, Recipe

LAYERS, HIDDEN, FFN = 4, 512, 1024
LLAMA = Model("small", "llama", HIDDEN, LAYERS, 8, 8, 64, FFN, 1000, tied=False)
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
FULL = Recipe("full", DType.BF16, Optimizer("adamw", "fused"), seq_len=256, micro_batch=2)
EIGHT_BIT = replace(
    FULL,
    method="lora",
    lora=Lora(8, 16, targets=TARGETS, dtype=DType.BF16),
    quant=Quant("int8", kbit_prepare=False),
    checkpointing="full",
)


def held_after_forward(model: Model, recipe: Recipe) -> dict[tuple[str, int], int]:
    """How many activations of each operation and size are alive when the loss block of the last step begins."""
    events = timeline(model, recipe)
    dims = Dims(recipe.micro_batch, recipe.seq_len, recipe.lora.rank if recipe.lora else 0)
    start = max(mark.start for mark in events.marks if mark.phase == "loss")
    live: set[int] = set()
    for event in events.events[:start]:
        if event >= 0:
            live.add(event)
        else:
            live.discard(~event)
    found: dict[tuple[str, int], int] = {}
    for index in live:
        tensor = events.tensors[index]
        if tensor.category in ("activations", "buffers"):
            key = (tensor.op, tensor.size.raw(dims))
            found[key] = found.get(key, 0) + 1
    return found


def total(found: dict[tuple[str, int], int]) -> int:
    return sum(size * count for (_, size), count in found.items())


def test_eight_bit_layers_keep_their_inputs_under_checkpointing_without_reentry() -> None:
    reentrant = held_after_forward(LLAMA, replace(EIGHT_BIT, reentrant=True))
    other = held_after_forward(LLAMA, replace(EIGHT_BIT, reentrant=False))
    tokens = EIGHT_BIT.micro_batch * EIGHT_BIT.seq_len
    inputs = 3 * HIDDEN + FFN  # both norms' outputs, the attention's, the product of gate and up
    assert total(other) - total(reentrant) == LAYERS * 2 * tokens * inputs


@pytest.mark.parametrize("length", [255, 256, 400])
def test_from_the_sliding_window_on_each_layer_saves_a_mask(length: int) -> None:
    recipe = replace(FULL, seq_len=length)
    mistral = replace(LLAMA, family="mistral", sliding_window=256, layer_types=("sliding",) * LAYERS)
    found = held_after_forward(mistral, recipe)
    rows = -(-length // 16) * 16  # padded for the kernel
    mask = ("where", 2 * recipe.micro_batch * length * rows)
    assert found.get(mask, 0) == (LAYERS if length >= 256 else 0)


def test_layers_that_do_not_slide_save_no_mask() -> None:
    mixed = replace(LLAMA, sliding_window=128, layer_types=("sliding", "full", "sliding", "full"))
    found = held_after_forward(mixed, FULL)
    assert found["where", 2 * FULL.micro_batch * FULL.seq_len**2] == 2


def test_folding_tells_sliding_layers_from_others_where_the_window_counts() -> None:
    deep = replace(LLAMA, layers=24, sliding_window=128, layer_types=("sliding",) * 12 + ("full",) * 12)
    mask = 2 * FULL.micro_batch * FULL.seq_len**2
    short, long = (estimate(deep, replace(FULL, seq_len=s)).parts["activations"] for s in (127, 256))
    plain = replace(deep, sliding_window=None, layer_types=())
    bare_short, bare_long = (estimate(plain, replace(FULL, seq_len=s)).parts["activations"] for s in (127, 256))
    assert short == bare_short
    assert long - bare_long == pytest.approx(12 * mask, rel=0.05)  # efficient attention's log-sum-exp is padded


@pytest.mark.parametrize(("rows", "width"), [(2, HIDDEN), (1, 3 * HIDDEN)])
def test_eager_attention_copies_values_out_of_a_fused_product_unless_there_is_one_row(rows: int, width: int) -> None:
    phi3 = replace(LLAMA, family="phi3", fused_qkv=True, fused_gate_up=True)
    found = held_after_forward(phi3, replace(FULL, attention="eager", micro_batch=rows))
    op = "clone" if rows > 1 else "mm"
    assert found[op, 2 * rows * FULL.seq_len * width] >= LAYERS
    assert (("mm", 2 * rows * FULL.seq_len * 3 * HIDDEN) in found) == (rows == 1)
