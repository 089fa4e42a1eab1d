"""Mixture-of-experts keys: how each family spells them, and what cannot be."""

from __future__ import annotations

from typing import Any

import pytest

from finefit.errors import InputError, NotModelled
from finefit.formats.hf_config import model_from_config
from finefit.workload import Experts

BASE = {"hidden_size": 64, "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 99}


def experts(model_type: str, **keys: Any) -> Experts:
    found = model_from_config({**BASE, "model_type": model_type, **keys}, "test", "config.json").experts
    assert found is not None
    return found


def test_class_defaults_stand_in_for_absent_keys() -> None:
    """transformers 5.24.0 configuration_mixtral.py, _qwen3_moe.py, _glm4_moe.py, _ernie4_5_moe.py."""
    assert experts("mixtral") == Experts(8, 2, 14336)
    assert experts("qwen3_moe") == Experts(128, 8, 768, normalised=False)
    assert experts("glm4_moe") == Experts(128, 8, 1408, shared=1408, dense_layers=(0,))
    assert experts("ernie4_5_moe") == Experts(64, 6, 1536, shared=3072, dense_layers=(0,))


def test_layers_without_experts() -> None:
    keys = {"n_routed_experts": 4, "num_experts_per_tok": 1, "moe_intermediate_size": 8}
    assert experts("deepseek", first_k_dense_replace=2, moe_layer_freq=2, **keys).dense_layers == (0, 1, 3, 5)
    assert experts("qwen2_moe", decoder_sparse_step=3, mlp_only_layers=[2]).dense_layers == (0, 1, 2, 3, 4)
    assert experts("ernie4_5_moe", moe_layer_start_index=2, moe_layer_end_index=4).dense_layers == (0, 1, 5)
    assert experts("ernie4_5_moe", moe_layer_start_index=0, moe_layer_interval=2).dense_layers == (0, 2, 4)


@pytest.mark.parametrize(
    ("model_type", "keys", "says"),
    [
        ("mixtral", {"num_experts_per_tok": 9}, "9 of 8"),
        ("mixtral", {"num_local_experts": 0}, "num_local_experts"),
        ("qwen3_moe", {"mlp_only_layers": 3}, "mlp_only_layers"),
        ("qwen3_moe", {"mlp_only_layers": ["a"]}, "mlp_only_layers"),
        ("glm4_moe", {"n_shared_experts": -1}, "n_shared_experts"),
        ("glm4_moe", {"first_k_dense_replace": "one"}, "first_k_dense_replace"),
        ("deepseek", {}, "n_routed_experts"),
    ],
)
def test_impossible_values_name_the_key(model_type: str, keys: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        experts(model_type, **keys)
    assert caught.value.where == "config.json"
    assert caught.value.fix


def test_clipped_attention_is_refused() -> None:
    assert experts("olmoe", clip_qkv=None).count == 64
    with pytest.raises(NotModelled, match="clips"):
        experts("olmoe", clip_qkv=8.0)
