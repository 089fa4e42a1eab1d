"""Parameters and LoRA counts against what transformers and PEFT build (fixtures/library_parameters.py)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from finefit.errors import InputError, NotModelled
from finefit.formats.hf_config import model_from_config
from finefit.workload import Lora, Model
from finefit.workload.lora import adapter_shapes, linear_modules, lora_parameters, lora_targets, saved_numel
from finefit.workload.parameters import (
    Parameter,
    embedding_parameters,
    final_parameters,
    head_parameters,
    layer_kinds,
    layer_parameters,
    parameter_count,
    quantised_numel,
)

LIBRARY = json.loads((Path(__file__).parents[1] / "fixtures" / "library_parameters.json").read_text())
LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "intermediate_size": 11008,
    "vocab_size": 32000,
}


def model_of(config: dict[str, object]) -> Model:
    return model_from_config(config, "test", "test")


@pytest.mark.parametrize("name", LIBRARY["families"])
def test_every_tensor_of_a_family_has_the_library_name_and_shape(name: str) -> None:
    """transformers 5.24.0 on the meta device, a small configuration of each family."""
    built = LIBRARY["families"][name]
    model = model_of(built["config"])
    assert {p.name: list(p.shape) for p in layer_parameters(model, 0)} == built["layer"]
    last = layer_parameters(model, model.layers - 1)
    assert {p.name: list(p.shape) for p in last} == built.get("last", built["layer"])
    outside = (*embedding_parameters(model), *final_parameters(model), *head_parameters(model))
    assert {p.name: list(p.shape) for p in outside} == built["outside"]
    assert parameter_count(model) == built["count"]


@pytest.mark.parametrize("case", LIBRARY["lora"], ids=lambda c: f"{c['name']} r{c['rank']} {c['targets']}")
def test_trainable_parameters_equal_peft(case: dict) -> None:
    """peft 0.21.2 get_peft_model on the meta device."""
    model = model_of(case["config"])
    lora = Lora(
        rank=case["rank"],
        alpha=16,
        targets=lora_targets(model, case["targets"]),
        modules_to_save=tuple(case["modules_to_save"]),
    )
    assert lora_parameters(model, lora) == case["trainable"]


def test_known_lora_counts() -> None:
    """Rank 8 on q and v of a 7B Llama, rank 16 on all linear modules of Llama-3-8B: figures PEFT prints."""
    llama7 = model_of(LLAMA)
    llama3 = model_of({**LLAMA, "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256})
    assert lora_parameters(llama7, Lora(8, 16, targets=lora_targets(llama7, "q_proj,v_proj"))) == 4_194_304
    assert lora_parameters(llama3, Lora(16, 16, targets=lora_targets(llama3, "all"))) == 41_943_040


def test_adapter_shapes_are_in_then_out() -> None:
    gpt2 = model_of({"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257})
    assert adapter_shapes(gpt2, ("c_attn", "c_proj")) == (
        ("attn.c_attn", 768, 2304),
        ("attn.c_proj", 768, 768),
        ("mlp.c_proj", 3072, 768),
    )
    llama = model_of({**LLAMA, "num_key_value_heads": 8})
    assert adapter_shapes(llama, ("k_proj",)) == (("self_attn.k_proj", 4096, 1024),)


def test_quantised_elements_are_the_matrices_of_the_layers() -> None:
    """Llama-2-7B: bitsandbytes converts 4 H² and 3 H F a layer; embedding, head and norms stay."""
    model = model_of(LLAMA)
    assert quantised_numel(model) == 32 * (4 * 4096**2 + 3 * 4096 * 11008)
    assert parameter_count(model) - quantised_numel(model) == 2 * 32000 * 4096 + 65 * 4096


def test_targets_by_word_by_name_and_by_default() -> None:
    model = model_of(LLAMA)
    everything = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    assert linear_modules(model) == lora_targets(model, "all") == lora_targets(model, ["all-linear"]) == everything
    assert lora_targets(model, None) == ("q_proj", "v_proj")
    assert lora_targets(model, "q_proj, W_pack, q_proj") == ("q_proj",)  # PEFT ignores a name that fits nothing


def test_targets_that_fit_nothing_are_an_error_with_the_names_there_are() -> None:
    with pytest.raises(InputError, match="W_pack") as caught:
        lora_targets(model_of(LLAMA), "W_pack", where="train.yaml:7")
    assert caught.value.where == "train.yaml:7"
    assert "down_proj" in str(caught.value.fix)


def test_family_without_peft_default_is_an_error() -> None:
    config = {**LLAMA, "model_type": "olmo2"}
    with pytest.raises(InputError, match="no default"):
        lora_targets(model_of(config), None)


def test_a_layer_that_is_not_there() -> None:
    with pytest.raises(InputError, match="no layer 32"):
        layer_parameters(model_of(LLAMA), 32)


def test_scalar_like_parameter() -> None:
    assert Parameter("a.b.weight", (3, 5), "linear").numel == 15
    assert Parameter("a.b.weight", (3, 5), "linear").module == "a.b"


shapes = st.fixed_dictionaries(
    {
        "hidden_size": st.sampled_from([64, 128, 256]),
        "num_hidden_layers": st.integers(1, 6),
        "num_attention_heads": st.just(8),
        "num_key_value_heads": st.sampled_from([1, 2, 4, 8]),
        "intermediate_size": st.integers(1, 400),
        "vocab_size": st.integers(1, 1000),
        "tie_word_embeddings": st.booleans(),
        "model_type": st.sampled_from(["llama", "mistral", "qwen2", "phi", "phi3", "gemma2", "starcoder2", "olmo2"]),
    }
)


@given(shapes, st.integers(1, 64))
def test_lora_grows_with_rank_in_proportion_and_stays_in_the_layers(config: dict[str, object], rank: int) -> None:
    model = model_of(config)
    targets = lora_targets(model, "all-linear")
    one = lora_parameters(model, Lora(1, 1, targets=targets))
    assert lora_parameters(model, Lora(rank, 1, targets=targets)) == rank * one
    assert one == model.layers * sum(n_in + n_out for _, n_in, n_out in adapter_shapes(model, targets))


@given(shapes)
def test_counts_add_up(config: dict[str, object]) -> None:
    model = model_of(config)
    longer = replace(model, layers=model.layers + 1)
    layer = sum(p.numel for p in layer_parameters(model))
    assert parameter_count(longer) - parameter_count(model) == layer
    assert 0 < quantised_numel(model) <= model.layers * layer
    untied, tied = replace(model, tied=False), replace(model, tied=True)
    assert parameter_count(untied) - parameter_count(tied) == model.vocab * model.hidden
    # Saving the embedding and the head copies both, tied or not.
    assert saved_numel(tied, ("embed_tokens", "lm_head")) >= 2 * model.vocab * model.hidden


MIXTRAL = {**LLAMA, "model_type": "mixtral", "num_key_value_heads": 8, "intermediate_size": 14336}


def test_experts_are_no_linear_modules() -> None:
    """transformers 5.24.0 stacks them: neither LoRA on all linear modules nor bitsandbytes reaches them."""
    model = model_of(MIXTRAL)
    assert linear_modules(model) == ("q_proj", "k_proj", "v_proj", "o_proj")
    assert quantised_numel(model) == 32 * (2 * 4096**2 + 2 * 4096 * 1024)
    assert [p.shape for p in layer_parameters(model) if p.kind == "experts"] == [
        (8, 2 * 14336, 4096),
        (8, 4096, 14336),
    ]


def test_targets_that_peft_turns_into_experts_are_refused_not_ignored() -> None:
    with pytest.raises(NotModelled, match="w1, w2") as caught:
        lora_targets(model_of(MIXTRAL), "q_proj,w1,w2", where="train.yaml:9")
    assert caught.value.where == "train.yaml:9"
    assert "q_proj, k_proj, v_proj, o_proj" in str(caught.value.fix)


def test_layers_of_two_kinds() -> None:
    """Dense layers first, every other layer, and a list: each kind counts with its own tensors."""
    config = {**LLAMA, "model_type": "qwen3_moe", "num_hidden_layers": 6, "num_experts": 16, "mlp_only_layers": [3]}
    model = model_of({**config, "decoder_sparse_step": 2})
    assert [model.sparse(i) for i in range(6)] == [False, True, False, False, False, True]
    assert layer_kinds(model) == ((0, 4), (1, 2))
    dense, sparse = (sum(p.numel for p in layer_parameters(model, i)) for i in (0, 1))
    assert parameter_count(model) == 2 * 32000 * 4096 + 4096 + 4 * dense + 2 * sparse
    assert "gate_proj" in linear_modules(model)  # of the dense layers
    adapters = lora_parameters(model, Lora(1, 1, targets=("gate_proj", "o_proj")))
    assert adapters == 6 * (4096 + 4096) + 4 * (4096 + 11008)
