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


@pytest.mark.parametrize(
    ("version", "copies"), [("4.46.3", 0), ("4.48.1", 1), ("4.55.4", 1), ("4.56.0", 0), ("5.24.0", 0)]
)
def test_sdpa_was_given_copies_of_heads_whose_output_is_copied_back(version: str, copies: int) -> None:
    """4.48 to 4.55 integrations/sdpa_attention.py: query, key and value ``.contiguous()``."""
    found = held_after_forward(LLAMA, replace(FULL, stack={"transformers": version}))
    size = 2 * FULL.micro_batch * FULL.seq_len * HIDDEN
    assert found.get(("clone", size), 0) == 4 * copies * LAYERS  # q, k, v and the output


@pytest.mark.parametrize(("rows", "held"), [(2, 1), (1, 0)])
def test_shifted_logits_of_one_row_are_no_copy(rows: int, held: int) -> None:
    """loss_utils.py until 4.48: ``logits[..., :-1, :].contiguous()``."""
    recipe = replace(FULL, micro_batch=rows, stack={"transformers": "4.48.1"})
    made = [t for t in timeline(LLAMA, recipe).tensors if t.op == "contiguous" and t.category == "logits"]
    assert bool(made) == bool(held)


@pytest.mark.parametrize(("version", "held"), [("4.57.6", 1), ("5.24.0", 0)])
def test_gpt2_kept_a_mask_of_all_positions_a_layer(version: str, held: int) -> None:
    gpt2 = Model(
        "g", "gpt2", HIDDEN, LAYERS, 8, 8, 64, FFN, 1000, tied=True, activation="gelu_new", gated_mlp=False,
        norm="layer", qkv_bias=True, o_bias=True, mlp_bias=True, position="learned", max_position=512, fused_qkv=True,
    )  # fmt: skip
    found = held_after_forward(gpt2, replace(FULL, stack={"transformers": version}))
    assert found.get(("attn.bias", 512 * 512), 0) == held * LAYERS
