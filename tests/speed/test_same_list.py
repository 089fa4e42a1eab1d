"""Time and memory see the same step: FLOPs of the op list equal those the time model counts from shapes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from finefit.catalog.models import find
from finefit.speed.work import work
from finefit.step.build import build_step
from finefit.step.size import Dims
from finefit.workload import DType, Lora, Optimizer, Quant, Recipe

MODELS = [
    "meta-llama/Llama-2-7b-hf", "meta-llama/Llama-3.2-1B", "mistralai/Mistral-7B-v0.1", "Qwen/Qwen2.5-7B",
    "Qwen/Qwen3-8B", "microsoft/phi-2", "microsoft/Phi-3-mini-4k-instruct", "openai-community/gpt2",
    "EleutherAI/pythia-1b", "baichuan-inc/Baichuan2-7B-Chat", "internlm/internlm2_5-7b-chat", "Qwen/Qwen-7B-Chat",
    "mistralai/Mixtral-8x7B-v0.1", "Qwen/Qwen3-30B-A3B", "Qwen/Qwen1.5-MoE-A2.7B", "allenai/OLMoE-1B-7B-0924",
]  # fmt: skip
FULL = Recipe("full", DType.BF16, Optimizer("adamw"), seq_len=384, micro_batch=3, attention="eager")


@pytest.mark.parametrize("name", MODELS)
def test_forward_flops_of_both_agree(name: str) -> None:
    model = replace(find(name), sliding_window=None, layer_types=())
    for folded in (False, True):
        step, counted = build_step(model, FULL, folded=folded), work(model, FULL)
        dims = Dims(3, 384)
        products = counted.linear_flops + counted.expert_flops
        assert 3 * step.flops("linear", dims) == products  # forward, and two products backward
        assert 3 * step.flops("head", dims) == counted.head_flops
        assert 3 * step.flops("attention", dims) == counted.attention_flops


def test_a_frozen_base_has_no_weight_gradients_in_either() -> None:
    model = find("meta-llama/Llama-3.1-8B")
    targets = ("q_proj", "down_proj")
    recipe = replace(FULL, method="lora", lora=Lora(16, 32, targets=targets), quant=Quant("nf4", double=True))
    step, counted, dims = build_step(model, recipe, folded=True), work(model, recipe), Dims(3, 384, 16)
    assert 2 * step.flops("linear", dims) + 3 * step.flops("lora", dims) == counted.linear_flops
