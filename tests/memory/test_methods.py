"""Adapters, parts of the parameters and stored quantisation, against published counts and the libraries' own rules."""

from __future__ import annotations

from dataclasses import replace

import pytest

from finefit.catalog.models import find
from finefit.memory.estimate import estimate
from finefit.resolve.flags import resolve_flags
from finefit.workload import DType, Lora, Optimizer, Quant, Recipe, Trained
from finefit.workload.lora import lora_parameters
from finefit.workload.selection import trained_parameters

LLAMA_3B = find("meta-llama/Llama-3.2-3B")
FULL = Recipe("full", DType.BF16, Optimizer("adamw"), 512, checkpointing="full")


@pytest.mark.parametrize(
    ("lora", "count"),
    [
        # huggingface/peft method_comparison/MetaMathQA results, Llama-3.2-3B
        (Lora(32, 64, targets=("q_proj", "v_proj"), kind="dora"), 9_289_728),
        (Lora(32, 64, targets=("q_proj", "v_proj"), kind="lora_fa"), 3_670_016),
        (Lora(32, 64, targets=("q_proj", "v_proj"), kind="oft", block=96), 8_171_520),
        (Lora(256, 1, targets=("q_proj", "v_proj"), kind="vera"), 129_024),
        (Lora(1, 1, targets=("k_proj", "v_proj", "down_proj"), kind="ia3", feedforward=("down_proj",)), 286_720),
        # and the number of the rank of each of the 56 modules, which peft 0.21.2 trains too
        (Lora(64, 64, targets=("q_proj", "v_proj"), kind="adalora"), 18_353_664 + 56),
    ],
)
def test_trained_parameters_of_adapters(lora, count):
    assert lora_parameters(LLAMA_3B, lora) == count


def test_a_frozen_part_has_no_gradients_and_no_states():
    """The last layer of Llama-3.2-3B: 100,669,440 parameters; gradients and two moments of 2 bytes each."""
    layer = 3072 * (3072 + 2 * 1024) + 3072 * 3072 + 3 * 3072 * 8192 + 2 * 3072
    recipe = replace(FULL, method="freeze", trained=Trained((27,)))
    assert trained_parameters(LLAMA_3B, recipe) == layer
    parts = estimate(LLAMA_3B, replace(recipe, seq_len=8)).parts
    assert parts["optimizer"] == 2 * 2 * layer


def test_layers_below_the_trained_ones_keep_nothing():
    kept = [
        estimate(LLAMA_3B, replace(FULL, method="freeze", trained=Trained((index,)), checkpointing="none")).parts
        for index in (0, 14, 27)
    ]
    activations = [parts["activations"] for parts in kept]
    assert activations == sorted(activations, reverse=True)


def test_only_trained_layers_are_checkpointed_where_the_tool_says_so():
    """LLaMA-Factory runs the frozen layers above a trained one without checkpointing."""
    first = Trained((0,))
    everywhere = estimate(LLAMA_3B, replace(FULL, method="freeze", trained=first, micro_batch=4)).allocated
    selective = replace(first, selective=True)
    assert estimate(LLAMA_3B, replace(FULL, method="freeze", trained=selective, micro_batch=4)).allocated > everywhere


def test_dora_costs_more_than_lora_and_a_frozen_a_less():
    lora = Lora(16, 32, targets=("q_proj", "v_proj"))
    by_kind = {
        kind: estimate(LLAMA_3B, replace(FULL, method="lora", lora=replace(lora, kind=kind), checkpointing="none"))
        for kind in ("lora", "dora", "lora_fa")
    }
    assert by_kind["lora_fa"].allocated < by_kind["lora"].allocated < by_kind["dora"].allocated


def test_gptq_stores_half_a_byte_with_scales_and_zero_points():
    """4 bits, and per 128 weights an fp16 scale and a 4-bit zero point; the group of each input in int32."""
    mistral = replace(find("mistralai/Mistral-7B-v0.1"), checkpoint_quant="gptq")
    linear = 32 * (4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 14336)
    groups = linear // 128
    inputs = 32 * (6 * 4096 + 14336)
    other = 2 * (2 * 32000 * 4096 + 65 * 4096)
    recipe = replace(
        FULL,
        method="lora",
        weight_dtype=DType.FP16,
        lora=Lora(16, 32, targets=("q_proj",)),
        quant=Quant("gptq", compute_dtype=DType.FP16, bits=4, group=128),
    )
    exact = linear // 2 + 2 * groups + groups // 2 + 4 * inputs + other
    held = estimate(mistral, recipe).parts["weights"]
    assert exact <= held < exact + 512 * 2000  # each tensor in blocks of 512


@pytest.mark.parametrize(
    "method", ["dora", "lora-fa", "adalora", "vera", "oft", "ia3", "rslora", "pissa", "lora+", "freeze"]
)
def test_every_method_of_the_flags_gives_an_answer(method):
    recipe = resolve_flags("meta-llama/Llama-3.2-3B", method=method, seq=256, batch=1).recipe
    assert estimate(LLAMA_3B, recipe).allocated > 6 * 10**9
