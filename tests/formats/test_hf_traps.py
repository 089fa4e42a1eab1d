"""Configurations that break naive readers; each is a small file of our own with the trap of a published one."""

from __future__ import annotations

from typing import Any

import pytest

from finefit.errors import InputError
from finefit.formats.hf_config import model_from_config
from finefit.workload import Model
from finefit.workload.parameters import parameter_count

SMALL = {
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "intermediate_size": 96,
    "vocab_size": 100,
}


def read(**config: Any) -> Model:
    return model_from_config(config, "trap", "config.json")


def test_falcon_7b_has_one_key_head_by_a_flag_alone() -> None:
    """tiiuae/falcon-7b: model_type RefinedWebModel, n_head and n_layer, multi_query, no other key about heads."""
    model = read(model_type="RefinedWebModel", hidden_size=64, n_layer=2, n_head=8, vocab_size=100, multi_query=True)
    assert (model.family, model.kv_heads, model.ffn, model.shared_norm) == ("falcon", 1, 256, True)


def test_the_new_falcon_has_its_own_key_heads_in_spite_of_multi_query() -> None:
    """falcon-40b: num_kv_heads 8 and multi_query true, because of new_decoder_architecture."""
    model = read(model_type="falcon", **SMALL, num_kv_heads=4, multi_query=True, new_decoder_architecture=True)
    assert (model.kv_heads, model.shared_norm) == (4, False)


def test_latent_attention_ignores_the_stated_key_heads() -> None:
    """DeepSeek-V2-Lite: q_lora_rank null; every head has keys of its own, 192 wide, and values 128 wide."""
    model = read(model_type="deepseek_v2", **SMALL, q_lora_rank=None, num_key_value_heads=2, num_experts_per_tok=2)
    assert model.latent is not None
    assert (model.latent.query, model.kv_heads, model.head_dim, model.latent.value) == (None, 8, 192, 128)


def test_kimi_k2_is_deepseek_v3_under_another_name() -> None:
    config = {**SMALL, "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_group": 1}
    assert parameter_count(read(model_type="kimi_k2", **config)) == parameter_count(
        read(model_type="deepseek_v3", **config)
    )


def test_letters_say_which_layer_is_what() -> None:
    """Nemotron-H: hybrid_override_pattern; Nemotron 3 Ultra: no num_hidden_layers, layers_block_type counts."""
    wide = {"hidden_size": 64, "num_attention_heads": 8, "vocab_size": 100, "intermediate_size": 96}
    letters = read(model_type="nemotron_h", **wide, num_hidden_layers=4, hybrid_override_pattern="M-*-")
    words = read(model_type="nemotron_h", **wide, layers_block_type=["mamba", "mlp", "attention", "mlp"])
    assert letters.layer_types == words.layer_types == ("mamba2", "mlp", "full", "mlp")
    assert words.layers == 4 and words.experts is None
    with pytest.raises(InputError, match="which layer"):
        read(model_type="nemotron_h", **wide, num_hidden_layers=4, hybrid_override_pattern="M?*-")


def test_every_fourth_layer_attends_where_no_list_says_so() -> None:
    """Qwen3-Next: the file has no layer_types; queries carry a gate of their own width."""
    model = read(model_type="qwen3_next", **SMALL)
    assert model.layer_types == ("linear", "linear", "linear", "full")
    assert model.output_gate


def test_lfm2_takes_two_thirds_of_the_stated_width() -> None:
    """LFM2-1.2B: 12288 becomes 8192, a multiple of 256; tie_embedding is another name of the tie."""
    model = read(model_type="lfm2", **{**SMALL, "intermediate_size": 12288}, full_attn_idxs=[1], tie_embedding=False)
    assert (model.ffn, model.tied, model.layer_types) == (8192, False, ("conv", "full", "conv", "conv"))


def test_layers_without_rotation() -> None:
    """Cohere 2 rotates in sliding layers alone; SmolLM 3 leaves out every fourth."""
    assert read(model_type="cohere2", **SMALL).unrotated == (3,)
    assert read(model_type="cohere2", **{**SMALL, "sliding_window": None}).unrotated == ()
    assert read(model_type="smollm3", **SMALL).unrotated == (3,)
    assert read(model_type="smollm3", **SMALL, no_rope_layers=[0, 1, 1, 1]).unrotated == (0,)


def test_embedding_models_lack_the_head_their_size_suggests() -> None:
    """Qwen3-Embedding: V·H fewer than the language model of the same dimensions."""
    whole, body = (
        read(model_type="qwen3", **SMALL, num_key_value_heads=2, architectures=[name])
        for name in ("Qwen3ForCausalLM", "Qwen3Model")
    )
    assert parameter_count(whole) - parameter_count(body) == 100 * 64
