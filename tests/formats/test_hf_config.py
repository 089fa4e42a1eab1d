"""config.json of each family: odd spellings, class defaults, refusals; counts of real files beside the repository."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from finefit.errors import FinefitError, InputError, NotModelled
from finefit.formats.hf_config import model_from_config
from finefit.formats.hf_families import TRAITS
from finefit.formats.hf_refusals import REASONS
from finefit.workload import DType, Model
from finefit.workload.families import LAYOUTS
from finefit.workload.parameters import parameter_count

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "intermediate_size": 11008,
    "vocab_size": 32000,
}
SHARED = Path(__file__).parents[3] / "shared" / "model_configs"


def read(config: dict[str, Any]) -> Model:
    return model_from_config(config, "test", "config.json")


def test_every_family_has_both_a_layout_and_traits() -> None:
    assert set(TRAITS) <= set(LAYOUTS)
    assert not set(TRAITS) & set(REASONS)


def test_absent_keys_take_the_class_defaults() -> None:
    """LlamaConfig of transformers 5.24.0: untied, no biases, one key/value head per head, silu."""
    model = read(LLAMA)
    assert (model.tied, model.qkv_bias, model.kv_heads, model.head_dim) == (False, False, 32, 128)
    assert (model.activation, model.sliding_window, model.checkpoint_quant) == ("silu", None, "")
    assert parameter_count(model) == 6_738_415_616


@pytest.mark.parametrize(
    ("family", "tied"),
    [("llama", False), ("gemma", True), ("gemma2", True), ("gpt2", True), ("bloom", True), ("opt", True)],
)
def test_tying_without_a_key_is_the_family_default(family: str, tied: bool) -> None:
    assert read({**LLAMA, "model_type": family}).tied is tied


def test_gpt2_names_and_null_inner_width() -> None:
    """GPT-2 small: 124,439,808 parameters without the mask buffers."""
    model = read(
        {
            "model_type": "gpt2",
            "n_embd": 768,
            "n_layer": 12,
            "n_head": 12,
            "n_positions": 1024,
            "n_inner": None,
            "vocab_size": 50257,
        }
    )
    assert (model.ffn, model.position, model.max_position) == (3072, "learned", 1024)
    assert (model.attention_dropout, model.residual_dropout, model.embedding_dropout) == (0.1, 0.1, 0.1)
    assert parameter_count(model) == 124_439_808


def test_qwen1_ffn_is_half_the_intermediate_size_and_qkv_has_bias_despite_no_bias() -> None:
    """Qwen-1.8B: 1,836,828,672 parameters in its safetensors."""
    model = read(
        {
            **LLAMA,
            "model_type": "qwen",
            "hidden_size": 2048,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "intermediate_size": 11008,
            "vocab_size": 151936,
            "no_bias": True,
            "kv_channels": 128,
        }
    )
    assert (model.ffn, model.qkv_bias, model.kv_heads) == (5504, True, 16)
    assert (model.checkpoint_dtype, model.dtype_stated) == (DType.BF16, False)
    assert parameter_count(model) == 1_836_828_672


def test_chatglm_names() -> None:
    """GLM-4-9B-chat: 9,399,951,360 parameters in its safetensors."""
    model = read(
        {
            "model_type": "chatglm",
            "architectures": ["ChatGLMModel"],
            "hidden_size": 4096,
            "num_layers": 40,
            "num_attention_heads": 32,
            "ffn_hidden_size": 13696,
            "padded_vocab_size": 151552,
            "seq_length": 8192,
            "kv_channels": 128,
            "multi_query_attention": True,
            "multi_query_group_num": 2,
            "add_qkv_bias": True,
            "add_bias_linear": False,
            "rmsnorm": True,
        }
    )
    assert (model.kv_heads, model.max_position, model.qkv_bias, model.o_bias) == (2, 8192, True, False)
    assert parameter_count(model) == 9_399_951_360


def test_first_chatglm_is_refused() -> None:
    with pytest.raises(NotModelled, match="first-generation"):
        read({**LLAMA, "model_type": "chatglm"})


def test_explicit_head_dim_need_not_divide_the_hidden_size() -> None:
    """Gemma-7B (16 heads of 256 on 3072) and Qwen3-4B (32 of 128 on 2560, class default 128)."""
    gemma = read(
        {
            **LLAMA,
            "model_type": "gemma",
            "hidden_size": 3072,
            "num_hidden_layers": 28,
            "num_attention_heads": 16,
            "num_key_value_heads": 16,
            "head_dim": 256,
            "intermediate_size": 24576,
            "vocab_size": 256000,
        }
    )
    assert (gemma.q_width, parameter_count(gemma)) == (4096, 8_537_680_896)
    qwen = read(
        {
            **LLAMA,
            "model_type": "qwen3",
            "hidden_size": 2560,
            "num_hidden_layers": 36,
            "num_key_value_heads": 8,
            "intermediate_size": 9728,
            "vocab_size": 151936,
            "tie_word_embeddings": True,
        }
    )
    assert (qwen.head_dim, qwen.qk_norm, parameter_count(qwen)) == (128, "head", 4_022_468_096)


def test_multi_query_flag_gives_one_key_value_head() -> None:
    base = {
        "model_type": "gpt_bigcode",
        "n_embd": 2048,
        "n_layer": 24,
        "n_head": 16,
        "n_inner": 8192,
        "n_positions": 2048,
        "vocab_size": 49280,
    }
    assert read({**base, "multi_query": True}).kv_heads == 1
    assert read({**base, "multi_query": False}).kv_heads == 16
    assert parameter_count(read(base)) == 1_124_886_528  # SantaCoder


def test_phi_ignores_attention_bias_and_its_head_has_a_bias() -> None:
    """Phi-2: 2,779,683,840 parameters; phi-1's file says attention_bias false and the code has biases anyway."""
    phi = {
        **LLAMA,
        "model_type": "phi",
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "vocab_size": 51200,
        "attention_bias": False,
        "partial_rotary_factor": 0.4,
    }
    model = read(phi)
    assert (model.qkv_bias, model.head_bias, model.shared_norm, model.rotary_fraction) == (True, True, True, 0.4)
    assert parameter_count(model) == 2_779_683_840
    assert read({**phi, "model_type": "phi-msft"}).family == "phi"


def test_baichuan_13b_is_alibi_because_it_has_no_max_position_embeddings() -> None:
    assert read({**LLAMA, "model_type": "baichuan", "model_max_length": 4096}).position == "alibi"
    assert read({**LLAMA, "model_type": "baichuan", "max_position_embeddings": 4096}).position == "rope"


def test_internlm_bias_key() -> None:
    with_bias = read({**LLAMA, "model_type": "internlm", "bias": True})
    assert (with_bias.qkv_bias, with_bias.o_bias, with_bias.mlp_bias) == (True, True, False)
    assert not read({**LLAMA, "model_type": "internlm2", "bias": False}).qkv_bias


@pytest.mark.parametrize(
    ("key", "text", "dtype", "stated"),
    [
        ("torch_dtype", "bfloat16", DType.BF16, True),
        ("torch_dtype", "torch.bfloat16", DType.BF16, True),
        ("dtype", "float16", DType.FP16, True),
        ("torch_dtype", "float64", DType.FP64, True),
        ("torch_dtype", None, DType.FP32, False),
    ],
)
def test_dtype_spellings(key: str, text: str | None, dtype: DType, stated: bool) -> None:
    model = read({**LLAMA, key: text})
    assert (model.checkpoint_dtype, model.dtype_stated) == (dtype, stated)


@pytest.mark.parametrize(
    ("extra", "method"),
    [
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "gptq"),
        ({"quantization_config": {"quant_method": "awq"}}, "awq"),
        ({"quantization_config": {"load_in_4bit": True}}, "bitsandbytes"),
        ({"quantization_config": {"bits": 3}}, "unknown"),
        ({"bigdl_transformers_low_bit": "nf4"}, "bigdl-nf4"),
        ({"quantization_config": None}, ""),
    ],
)
def test_quantised_checkpoints_are_named(extra: dict[str, Any], method: str) -> None:
    assert read({**LLAMA, **extra}).checkpoint_quant == method


def test_sliding_windows() -> None:
    """Layer patterns of the configuration classes of transformers 5.24.0."""
    mistral = {**LLAMA, "model_type": "mistral"}
    assert read(mistral).sliding_window == 4096  # class default where the key is absent
    assert read({**mistral, "sliding_window": None}).sliding_window is None
    assert set(read(mistral).layer_types) == {"sliding"}
    gemma2 = read({**LLAMA, "model_type": "gemma2", "num_hidden_layers": 26})
    assert (gemma2.layer_types[:3], gemma2.layer_types.count("sliding")) == (("sliding", "full", "sliding"), 13)
    assert (gemma2.attention_softcap, gemma2.final_softcap) == (True, True)
    gemma3 = read(
        {
            **LLAMA,
            "model_type": "gemma3_text",
            "num_hidden_layers": 26,
            "sliding_window": 512,
            "sliding_window_pattern": 6,
        }
    )
    assert (gemma3.layer_types.count("full"), gemma3.layer_types.index("full"), gemma3.attention_softcap) == (
        4,
        5,
        False,
    )
    qwen2 = {**LLAMA, "model_type": "qwen2", "sliding_window": 131072, "max_window_layers": 28}
    assert read({**qwen2, "use_sliding_window": False}).sliding_window is None
    assert read({**qwen2, "use_sliding_window": True}).layer_types == ("full",) * 28 + ("sliding",) * 4
    named = ["full_attention", "sliding_attention"] * 16
    assert read({**LLAMA, "model_type": "olmo3", "layer_types": named}).layer_types[:2] == ("full", "sliding")


def test_opt_table_has_two_more_rows_and_350m_is_refused() -> None:
    """OPT-125M: 125,239,296 parameters."""
    opt = {
        "model_type": "opt",
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "ffn_dim": 3072,
        "vocab_size": 50272,
        "max_position_embeddings": 2048,
        "word_embed_proj_dim": 768,
    }
    assert parameter_count(read(opt)) == 125_239_296
    with pytest.raises(NotModelled, match="350M"):
        read({**opt, "word_embed_proj_dim": 512})


def test_architecture_stands_in_for_an_unknown_model_type() -> None:
    assert read({**LLAMA, "model_type": "phi4", "architectures": ["Phi3ForCausalLM"]}).family == "phi3"
    no_type = {k: v for k, v in LLAMA.items() if k != "model_type"}
    assert read({**no_type, "architectures": ["GPTNeoXForCausalLM"]}).family == "gpt_neox"
    with pytest.raises(InputError, match="neither model_type nor architectures"):
        read(no_type)


@pytest.mark.parametrize(
    ("config", "what"),
    [
        ({"model_type": "mistral_large4"}, "mixture of experts"),
        ({**LLAMA, "num_experts": 8}, "mixture of experts"),
        ({**LLAMA, "model_type": "longcat_flash", "kv_lora_rank": 512}, "latent attention"),
        ({**LLAMA, "vision_config": {"hidden_size": 1024}}, "vision-language"),
        ({**LLAMA, "model_type": "qwen", "visual": {"width": 1664}}, "vision-language"),
        ({**LLAMA, "architectures": ["MllamaForConditionalGeneration"]}, "vision-language"),
        ({"model_type": "qwen3_5"}, "vision-language"),
        ({"model_type": "jamba"}, "hybrid"),
        ({"model_type": "mamba"}, "state-space"),
        ({"model_type": "electra"}, "encoder"),
        ({"model_type": "bart"}, "encoder-decoder"),
        ({**LLAMA, "block_configs": [{}]}, "differ in width"),
        ({**LLAMA, "draft_vocab_size": 32000}, "draft model"),
        ({**LLAMA, "architectures": ["LlamaForSequenceClassification"]}, "another head"),
        ({**LLAMA, "model_type": "internlm2", "architectures": ["InternLM2ForRewardModel"]}, "another head"),
        ({**LLAMA, "model_type": "never_heard_of"}, "never_heard_of"),
        ({**LLAMA, "model_type": "stablelm", "qk_layernorm": True}, "qk_layernorm"),
    ],
)
def test_others_are_refused_in_one_sentence_that_names_what_they_are(config: dict[str, Any], what: str) -> None:
    with pytest.raises(NotModelled, match=what) as caught:
        read(config)
    assert "not modelled" in caught.value.what
    assert caught.value.where == "config.json" and caught.value.fix


@pytest.mark.parametrize(
    ("extra", "key"),
    [
        ({"hidden_size": None}, "hidden_size"),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"vocab_size": "many"}, "vocab_size"),
        ({"num_key_value_heads": 5}, "key/value heads"),
        ({"num_attention_heads": 9000}, "attention heads"),
        ({"attention_dropout": 3}, "attention_dropout"),
        ({"torch_dtype": "int3"}, "dtype"),
        ({"intermediate_size": [1, 2]}, "intermediate_size"),
        ({"model_type": "olmo3", "layer_types": ["full_attention"]}, "layer_types"),
    ],
)
def test_impossible_values_name_the_key(extra: dict[str, Any], key: str) -> None:
    with pytest.raises(InputError, match=key):
        read({**LLAMA, **extra})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 200_000) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
KEYS = [
    *LLAMA,
    "n_embd",
    "num_key_value_heads",
    "head_dim",
    "tie_word_embeddings",
    "sliding_window",
    "layer_types",
    "use_sliding_window",
    "max_window_layers",
    "rope_parameters",
    "rotary_pct",
    "torch_dtype",
    "architectures",
    "quantization_config",
    "attention_dropout",
    "multi_query_group_num",
    "multi_query_attention",
    "padded_vocab_size",
    "rotary_dim",
    "expansion_ratio",
    "sliding_window_pattern",
]


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(TRAITS)), st.dictionaries(st.sampled_from(KEYS), json_values, max_size=5))
def test_any_json_gives_a_model_or_one_of_our_errors(family: str, changes: dict[str, Any]) -> None:
    try:
        model = read({**LLAMA, "padded_vocab_size": 65024, "model_type": family, **changes})
    except FinefitError as error:
        assert error.what
    else:
        assert parameter_count(model) > 0


@pytest.mark.skipif(not SHARED.is_dir(), reason="the collection of real config.json files is not beside the repository")
def test_real_files_give_the_counts_of_the_library_or_one_sentence() -> None:
    """Each file either counts as transformers 5.24.0 counts it on the meta device, or is refused."""
    counted, refused, unknown_to_transformers = 0, 0, set()
    rows = list(csv.DictReader((SHARED / "MANIFEST.csv").open(encoding="utf-8")))
    for row in rows:
        config = json.loads((SHARED / row["file"]).read_text(encoding="utf-8"))
        try:
            model = model_from_config(config, row["hf_id"], row["file"])
        except NotModelled as error:
            refused += 1
            assert "\n" not in str(error)
            continue
        if row["tf524_params"]:
            assert parameter_count(model) == int(row["tf524_params"]), row["file"]
            counted += 1
        else:
            unknown_to_transformers.add(model.family)
    assert counted >= 50
    assert counted + refused + len(unknown_to_transformers) == len(rows)
    # Decoders with code of their own beside the weights; counted against models.csv instead.
    assert unknown_to_transformers == {
        "baichuan",
        "internlm2",
        "phi3",
        "orion",
        "qwen",
        "chatglm",
        "deepseek",
        "falcon",
    }
