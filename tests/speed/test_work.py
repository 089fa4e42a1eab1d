"""FLOPs and bytes of a micro-batch against published closed forms."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from speed_cases import ALL_LINEAR, GPT2, LLAMA_7B, LLAMA_32_3B, full, lora, qlora

from finefit.errors import InputError
from finefit.speed.work import work
from finefit.workload import Lora, Trained

# matrices of LLaMA-7B: 32·(4·4096² + 3·4096·11008), head 4096·32000 (meta-llama/llama params.json)
LAYERS, HEAD = 6_476_005_376, 131_072_000


def megatron(model, b, s, *, recompute):
    """FLOPs of a GPT step: 72·B·L·s·h²·(1 + s/6h + V/12hL), 96 and V/16hL with recomputation.

    Narayanan et al. 2021, 2104.04473, equation 3 and its form without recomputation.
    """
    h, n_layers, v = model.hidden, model.layers, model.vocab
    if recompute:
        return 96 * b * s * n_layers * h * h, 96 * b * s * n_layers * h * s / 6, 6 * b * s * h * v
    return 72 * b * s * n_layers * h * h, 72 * b * s * n_layers * h * s / 6, 6 * b * s * h * v


@pytest.mark.parametrize("checkpointing", ["none", "full"])
def test_gpt_step_is_megatrons_formula(checkpointing):
    got = work(GPT2, full(512, 4, attention="eager", checkpointing=checkpointing))
    layers, attention, head = megatron(GPT2, 4, 512, recompute=checkpointing == "full")
    assert got.linear_flops == layers
    assert got.head_flops == head
    assert got.attention_flops == pytest.approx(attention / 2)  # the formula counts the square, we its causal half


def test_full_is_six_flops_a_weight_and_token():
    got = work(LLAMA_7B, full(1000))
    assert got.linear_flops == 6 * LAYERS * 1000
    assert got.head_flops == 6 * HEAD * 1000


def test_adapters_are_four_flops_a_frozen_weight_and_six_an_adapter():
    got = work(LLAMA_7B, lora(1000, rank=8, targets=("q_proj", "v_proj")))
    assert got.trained == 4_194_304  # tloen/alpaca-lora prints this count
    assert got.linear_flops == (4 * LAYERS + 6 * 4_194_304) * 1000
    assert got.head_flops == 4 * HEAD * 1000


def test_full_checkpointing_repeats_the_layers_but_not_the_head():
    plain, recomputed = work(LLAMA_7B, full(1000)), work(LLAMA_7B, full(1000, checkpointing="full"))
    assert recomputed.linear_flops * 6 == plain.linear_flops * 8
    assert recomputed.head_flops == plain.head_flops
    assert recomputed.attention_flops == pytest.approx(plain.attention_flops * 4.5 / 3.5)


def test_adapters_are_recomputed_with_their_layer():
    got = work(LLAMA_7B, lora(1000, rank=8, targets=("q_proj", "v_proj"), checkpointing="full"))
    assert got.linear_flops == (6 * LAYERS + 8 * 4_194_304) * 1000


def test_a_trained_head_costs_its_gradient():
    saved = lora(1000)
    saved = replace(saved, lora=replace(saved.lora, modules_to_save=("lm_head",)))
    assert work(LLAMA_7B, saved).head_flops == 6 * HEAD * 1000
    assert work(LLAMA_7B, saved).trained - work(LLAMA_7B, lora(1000)).trained == HEAD


def test_a_tied_head_is_paid_for():
    assert work(LLAMA_32_3B, full(10)).head_flops == 6 * 3072 * 128256 * 10


def test_quantised_weights_are_unpacked_in_every_pass():
    assert work(LLAMA_7B, qlora()).dequantised == 2 * LAYERS
    assert work(LLAMA_7B, qlora(checkpointing="full")).dequantised == 3 * LAYERS
    assert work(LLAMA_7B, lora()).dequantised == 0


def test_sliding_window_counts_the_scores_inside_it():
    """Exact count of causal pairs within w, over many tokens: Σ min(i, w)."""
    s, w = 8192, 1024
    windowed = replace(LLAMA_7B, sliding_window=w, layer_types=("sliding",) * 32)
    pairs = sum(min(i, w) for i in range(1, s + 1))
    all_pairs = s * (s + 1) // 2
    ratio = work(windowed, full(s)).attention_flops / work(LLAMA_7B, full(s)).attention_flops
    assert ratio == pytest.approx(pairs / all_pairs, rel=1e-3)


def test_a_window_longer_than_the_row_changes_nothing():
    windowed = replace(LLAMA_7B, sliding_window=4096, layer_types=("sliding",) * 32)
    assert work(windowed, full(2048)) == work(LLAMA_7B, full(2048))


def test_only_eager_attention_moves_scores():
    assert work(LLAMA_7B, full()).softmax_bytes == 0
    # vTrain on A100: 6.9 accesses of 2 bytes a score; 2 rows, 32 heads, 32 layers, 512² scores
    scores = 2 * 32 * 32 * 512 * 512
    assert work(LLAMA_7B, full(512, 2, attention="eager")).softmax_bytes == pytest.approx(13.8 * scores, rel=0.02)


@pytest.mark.parametrize("bad", [full(0), full(10, 0), replace(full(), method="lora")])
def test_impossible_recipes_are_refused(bad):
    with pytest.raises(InputError):
        work(LLAMA_7B, bad)


@given(st.integers(1, 4096), st.integers(1, 64), st.integers(1, 256))
def test_work_grows_with_length_batch_and_rank(s, b, r):
    small = work(LLAMA_7B, lora(s, b, rank=r))
    for larger in (lora(s + 1, b, rank=r), lora(s, b + 1, rank=r), lora(s, b, rank=r + 1)):
        assert work(LLAMA_7B, larger).flops > small.flops


@given(st.integers(1, 8192), st.integers(1, 16))
def test_flops_of_adapters_lie_between_two_thirds_and_all_of_full(s, b):
    adapters = work(LLAMA_7B, replace(lora(s, b), lora=Lora(8, 16, targets=ALL_LINEAR))).flops
    whole = work(LLAMA_7B, full(s, b)).flops
    assert 2 / 3 * whole <= adapters < whole


def test_frozen_layers_below_have_no_backward():
    """Backward stops at the lowest trained layer: last 8 of 32 layers, forward 1, inputs 8/32, weights 8/32."""
    last = Trained(tuple(range(24, 32)), outside=("norm", "lm_head"))
    whole, part = work(LLAMA_7B, full(512)), work(LLAMA_7B, full(512, trained=last))
    assert part.linear_flops == pytest.approx(whole.linear_flops / 3 * (1 + 8 / 32 + 8 / 32))
    assert part.head_flops == whole.head_flops
    assert part.attention_flops == pytest.approx(whole.attention_flops / 3.5 * (1 + 2.5 * 8 / 32))
    assert part.trained < whole.trained / 3


def test_a_trained_embedding_is_reached_through_all_layers():
    part = work(LLAMA_7B, full(512, trained=Trained((31,), outside=("embed_tokens",))))
    assert part.linear_flops == pytest.approx(work(LLAMA_7B, full(512)).linear_flops / 3 * (1 + 1 + 1 / 32))
    assert part.head_flops == 2 * 2 * 512 * 4096 * 32000


def test_selected_modules_alone_have_weight_gradients():
    """The MLP of every layer: 3·H·F of 4·H² + 3·H·F weights."""
    part = work(LLAMA_7B, full(512, trained=Trained(modules=("mlp",))))
    share = 3 * 11008 / (4 * 4096 + 3 * 11008)
    assert part.linear_flops == pytest.approx(work(LLAMA_7B, full(512)).linear_flops / 3 * (2 + share))
