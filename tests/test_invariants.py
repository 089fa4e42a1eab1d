"""What must hold for every estimate (cases.md 7; each was broken by a real tool)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from finefit.memory.estimate import estimate
from finefit.resolve import on_gpus, resolve_flags
from finefit.workload import DType, Model, Recipe
from finefit.workload.lora import lora_parameters
from finefit.workload.parameters import parameter_count, quantised_numel

NAMES = ("meta-llama/Llama-3.1-8B", "Qwen/Qwen3-8B", "google/gemma-2-2b", "EleutherAI/pythia-70m", "microsoft/phi-2")
names = st.sampled_from(NAMES)
batches, ranks = st.integers(1, 16), st.integers(1, 256)
lengths = st.integers(8, 8192)
SOME = settings(max_examples=60, deadline=None)

flags = st.fixed_dictionaries(
    {
        "batch": batches,
        "seq": lengths,
        "checkpointing": st.sampled_from(["none", "full", "reentrant"]),
        "attention": st.sampled_from(["eager", "sdpa", "flash2"]),
        "optimizer": st.sampled_from(["adamw_torch_fused", "adamw_torch", "adamw_bnb_8bit", "sgd"]),
        "loss": st.sampled_from(["full", "fused_linear"]),
        "accum": st.integers(1, 4),
        "padded": st.booleans(),
    }
)


def built(name: str, method: str, given: dict[str, Any], **more: Any) -> tuple[Model, Recipe]:
    extra = {} if method == "full" else {"targets": "all-linear", "rank": 16}
    resolved = resolve_flags(name, method=method, **{**extra, **given, **more})
    assert resolved.recipe is not None
    return resolved.model, resolved.recipe


def allocated(name: str, method: str, given: dict[str, Any], **more: Any) -> int:
    return estimate(*built(name, method, given, **more)).allocated


@SOME
@given(names, flags)
def test_qlora_needs_no_more_than_lora(name: str, given: dict[str, Any]) -> None:
    """With the 16-bit compute dtype of the base and nothing upcast to fp32 (the exceptions are tests below)."""
    assert allocated(name, "qlora", given) <= allocated(name, "lora", given) + dequantised(name)


def dequantised(name: str) -> int:
    """The one tensor QLoRA has and LoRA has not: the largest weight matrix unpacked for its product."""
    model, _ = built(name, "full", {"seq": 8})
    widest = max(model.ffn * (2 if model.fused_gate_up else 1), model.q_width + 2 * model.kv_width, model.hidden)
    return 2 * widest * model.hidden


@SOME
@given(names, flags)
def test_lora_needs_no_more_than_full_where_the_states_decide(name: str, given: dict[str, Any]) -> None:
    """At the optimizer step, whatever the activations: adapters of rank 16 against all weights."""
    lora, full = (estimate(*built(name, method, given)) for method in ("lora", "full"))
    assert lora.phases["optimizer"] <= full.phases["optimizer"]


@pytest.mark.parametrize("name", NAMES[:3])
@pytest.mark.parametrize("seq", [512, 2048])
def test_the_usual_order(name: str, seq: int) -> None:
    """One sample at a time under gradient checkpointing: QLoRA, LoRA, full, each well below the next."""
    given = {"seq": seq, "batch": 1, "checkpointing": "full"}
    qlora, lora, full = (allocated(name, method, given) for method in ("qlora", "lora", "full"))
    assert qlora < lora < full


def test_exception_a_quantised_base_is_not_sharded() -> None:
    """Qwen#916: sharded 16-bit weights beat replicated 4-bit ones from a few GPUs on (72 B, 18 GB a GPU on 8)."""
    given = {"seq": 512, "batch": 1, "checkpointing": "full"}
    model, lora = built("Qwen/Qwen2.5-72B-Instruct", "lora", given, sharding="zero3", precision="bf16")
    _, qlora = built("Qwen/Qwen2.5-72B-Instruct", "qlora", given)
    assert estimate(model, on_gpus(lora, 8)).allocated < estimate(model, on_gpus(qlora, 8)).allocated


def test_exception_fp32_upcast() -> None:
    """LF#4772: QLoRA 72 GB, LoRA 66 GB: prepare_model_for_kbit_training keeps embeddings, head and norms in fp32."""
    given = {"seq": 512, "batch": 1, "checkpointing": "full"}
    model, plain = built("Qwen/Qwen3-8B", "qlora", given)
    _, upcast = built("Qwen/Qwen3-8B", "qlora", given, kbit_prepare=True)
    left = parameter_count(model) - quantised_numel(model)
    grown = estimate(model, upcast).phases["load"] - estimate(model, plain).phases["load"]
    assert grown == pytest.approx(2 * left, rel=1e-3)  # two bytes more for each parameter that stays unquantised


@SOME
@given(names, st.sampled_from(["full", "lora", "qlora"]), flags, st.integers(1, 16), st.integers(0, 4096))
def test_never_falls_with_batch_or_length(
    name: str, method: str, given: dict[str, Any], rows: int, tokens: int
) -> None:
    model, recipe = built(name, method, {**given, "padded": True})
    more = replace(recipe, micro_batch=recipe.micro_batch + rows - 1, seq_len=recipe.seq_len + tokens)
    assert estimate(model, recipe).allocated <= estimate(model, more).allocated


@SOME
@given(names, st.sampled_from(["lora", "qlora"]), flags, ranks, ranks)
def test_never_falls_with_rank(name: str, method: str, given: dict[str, Any], one: int, other: int) -> None:
    small, large = (allocated(name, method, given, rank=rank) for rank in sorted((one, other)))
    assert small <= large


@SOME
@given(names, st.sampled_from(["full", "lora", "qlora"]), flags, st.sampled_from([1, 2, 3, 8]), st.booleans())
def test_never_below_the_resident_weights(
    name: str, method: str, given: dict[str, Any], count: int, sharded: bool
) -> None:
    """Two bytes a parameter, half a byte where NF4 holds it, divided among the ranks where the weights are sharded."""
    model, recipe = built(name, method, given, sharding="fsdp" if sharded else "none", precision="bf16")
    peak = estimate(model, on_gpus(recipe, count))
    packed = quantised_numel(model) if method == "qlora" else 0
    floor = (parameter_count(model) - packed) * 2 + packed // 2
    if recipe.lora is not None:
        floor += lora_parameters(model, recipe.lora) * DType.FP32.bytes
    assert peak.allocated >= floor // (count if sharded else 1)
    assert peak.allocated == sum(peak.parts.values()) == max(peak.phases.values())


@SOME
@given(names, st.sampled_from(["full", "lora", "qlora"]), flags, st.integers(2, 64), st.integers(2, 64))
def test_ddp_does_not_fall_with_more_gpus(name: str, method: str, given: dict[str, Any], one: int, other: int) -> None:
    model, recipe = built(name, method, given)
    fewer, more = (estimate(model, on_gpus(recipe, count)).allocated for count in sorted((one, other)))
    assert estimate(model, on_gpus(recipe, 1)).allocated <= fewer <= more


@pytest.mark.parametrize(
    ("name", "alias", "config"),
    [
        (
            "meta-llama/Llama-3.1-8B",
            "llama-3.1-8b",
            {
                "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
                "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "hidden_act": "silu",
                "tie_word_embeddings": False, "max_position_embeddings": 131072, "torch_dtype": "bfloat16",
                "rms_norm_eps": 1e-5, "attention_bias": False,
            },
        ),
        (
            "Qwen/Qwen3-8B",
            "qwen3-8b",
            {
                "model_type": "qwen3", "hidden_size": 4096, "num_hidden_layers": 36, "num_attention_heads": 32,
                "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 12288, "vocab_size": 151936,
                "hidden_act": "silu", "tie_word_embeddings": False, "max_position_embeddings": 40960,
                "torch_dtype": "bfloat16", "attention_bias": False, "use_sliding_window": False,
            },
        ),
    ],
)  # fmt: skip
def test_same_model_by_name_alias_or_config(name: str, alias: str, config: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config), encoding="utf-8")
    given = {"seq": 2048, "batch": 2}
    for method in ("full", "lora", "qlora"):
        peaks = [estimate(*built(said, method, given)) for said in (name, alias, str(file), str(tmp_path))]
        assert all(peak == peaks[0] for peak in peaks)
