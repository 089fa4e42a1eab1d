"""Allocations that people reported, computed by the named term with the row's own dimensions.

Each quoted figure is a line of somebody's log or error message; the formula has no free parameter. Issue
numbers are those of the repositories named.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from finefit.catalog.models import find
from finefit.memory.estimate import estimate
from finefit.memory.states import States
from finefit.step.build import build_step
from finefit.step.ops import Op, Param
from finefit.step.size import Dims
from finefit.units import GIB
from finefit.workload import DType, Lora, Model, Optimizer, Recipe, Sharding
from finefit.workload.lora import saved_numel
from finefit.workload.parameters import embedding_parameters

MB, GB = 10**6, 10**9
FULL = Recipe(method="full", weight_dtype=DType.BF16, optimizer=Optimizer("adamw"), seq_len=1)
TINY = Model("vocabulary only", "llama", 64, 1, 1, 1, 64, 64, 1, tied=False)


def logits(op: str, tokens: int, vocab: int) -> int:
    """Bytes of the output of an operation of the loss, for ``tokens`` tokens."""
    step = build_step(replace(TINY, vocab=vocab), FULL)
    ops = [item for block in step.blocks for item in block.program if isinstance(item, Op)]
    made = next(item for item in reversed(ops) if item.name == op and item.category == "logits")
    return step.values[made.outs[0]].size.raw(Dims(1, tokens))


@pytest.mark.parametrize(
    ("who", "tokens", "vocab", "quoted"),
    [
        ("LLaMA-Factory#4642", 32_768, 152_064, 18.6 * GIB),
        ("unsloth#465", 19_820, 128_256, 9.47 * GIB),
        ("LLaMA-Factory#5545", 51_974, 128_256, 26.7 * GB),
        ("trl#4585", 20_480, 151_936, 12.45 * GB),
        ("trl#3678", 2 * 256, 151_665, 310.6 * MB),
        ("OpenRLHF PR#718", 16 * 1_024, 32_768, 2_147 * MB),
    ],
)
def test_logits_in_fp32(who: str, tokens: int, vocab: int, quoted: float) -> None:
    assert logits("log_softmax", tokens, vocab) == pytest.approx(quoted, rel=0.02), who


def test_logits_in_16_bits() -> None:
    """axolotl docs: eight rows of 16 × 2,048 tokens at a vocabulary of 151,936 take 74.2 GiB."""
    assert logits("mm", 8 * 16 * 2_048, 151_936) == pytest.approx(74.2 * GIB, rel=0.02)


def state(recipe: Recipe, params: float, name: str) -> int:
    """Bytes of one optimizer state on one rank for ``params`` trained parameters."""
    states = States(build_step(TINY, recipe), recipe)
    sizes = {n: size for n, size, _ in states.optimizer(Param("all", DType.BF16, int(params), True, "weights"))}
    return sizes[name].raw(Dims(1, 1, n=recipe.sharding.ranks))


def deepspeed(kind: str, ranks: int, **more: bool) -> Recipe:
    return replace(FULL, master_weights=True, sharding=Sharding(kind, ranks, **more))


@pytest.mark.parametrize(
    ("who", "params", "ranks", "quoted_gib"),
    [
        ("LLaMA-Factory#260, one rank's fp32 copy before it is cut", 7.0007e9, 1, 26.08),
        ("dllm#9, ZeRO-2 on two GPUs", 8.02e9, 2, 14.9),
        ("LLaMA-Factory#1221, eight GPUs", 6.738e9, 8, 3.14),
    ],
)
def test_fp32_master_of_one_rank(who: str, params: float, ranks: int, quoted_gib: float) -> None:
    assert state(deepspeed("zero2", ranks), params, "fp32_master") == pytest.approx(quoted_gib * GIB, rel=0.02), who


def test_fsdp_shard_of_an_fp32_model() -> None:
    """lit-llama#397: 6.738e9 fp32 parameters on four GPUs are 6.28 GiB each."""
    recipe = replace(FULL, weight_dtype=DType.FP32, sharding=Sharding("fsdp", 4))
    weight = States(build_step(TINY, recipe), recipe).weight(Param("all", DType.FP32, 6_738_000_000, True, "weights"))
    assert weight.raw(Dims(1, 1, n=4)) == pytest.approx(6.28 * GIB, rel=0.02)


def test_zero3_steps_a_sub_group_at_a_time() -> None:
    """LLaMA-Factory#5590: out of memory asking for 3.74 GiB in stage3.py step."""
    recipe = deepspeed("zero3", 4)
    temporary = States(build_step(find("meta-llama/Llama-2-7b-hf"), recipe), recipe).sub_group()
    assert temporary is not None
    assert temporary.raw(Dims(1, 1, n=4)) == pytest.approx(3.74 * GIB, rel=0.02)


def test_embedding_of_a_large_vocabulary() -> None:
    """gemma#54: 256,128 × 2,048 in 16 bits is 1,049,100,288 bytes."""
    (embedding,) = embedding_parameters(replace(TINY, vocab=256_128, hidden=2_048))
    assert embedding.numel * DType.BF16.bytes == 1_049_100_288


def test_host_copy_of_an_fp32_checkpoint() -> None:
    """FastChat#114: each rank that loads LLaMA-7B in fp32 takes 25.7 GiB of host RAM."""
    recipe = replace(FULL, weight_dtype=DType.FP32, sharding=Sharding("zero3", 1, offload_params=True))
    host = estimate(find("huggyllama/llama-7b"), recipe).host
    assert host == pytest.approx(25.7 * GIB, rel=0.03)


def test_added_tokens_make_embedding_and_head_trainable() -> None:
    """LLaMA-Factory#6285: resizing the vocabulary under LoRA adds 1.05 billion trainable parameters."""
    model = find("meta-llama/Meta-Llama-3-8B")
    assert saved_numel(model, ("embed_tokens", "lm_head")) == pytest.approx(1.05e9, rel=0.02)


def test_optimizer_of_a_72b_model_in_host_ram() -> None:
    """Qwen3#804: 72B full fine-tuning with the optimizer offloaded fails on 800 GB of host RAM."""
    recipe = deepspeed("zero2", 1, offload_optimizer=True)
    assert estimate(find("Qwen/Qwen2.5-72B"), recipe).host > 800 * GB


def test_adapters_are_not_the_base() -> None:
    """The same optimizer under LoRA holds states for the adapters only."""
    model = find("meta-llama/Meta-Llama-3-8B")
    lora = replace(FULL, method="lora", lora=Lora(8, 16, targets=("q_proj", "v_proj")))
    # 3,407,872 trainable parameters (PEFT, Llama-3-8B, rank 8 on q and v), two fp32 states each
    assert estimate(model, lora).parts["optimizer"] == pytest.approx(2 * 4 * 3_407_872, rel=0.001)
