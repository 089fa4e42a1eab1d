"""The model catalogue: counts, names, and agreement with config.json."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from finefit.catalog import models as catalogue
from finefit.errors import FinefitError, NotModelled, UnknownModel
from finefit.formats.hf_config import model_from_config
from finefit.formats.hf_families import TRAITS
from finefit.workload import DType
from finefit.workload.parameters import active_count, parameter_count

SHARED = Path(__file__).parents[3] / "shared" / "data" / "models.csv"
# Verified rows a family holds, 149 in all.
VERIFIED = {
    "llama": 38,
    "mistral": 7,
    "qwen": 3,
    "qwen2": 22,
    "qwen3": 5,
    "gemma": 2,
    "gemma2": 3,
    "gemma3_text": 2,
    "phi": 3,
    "phi3": 6,
    "gpt_neox": 3,
    "gpt_bigcode": 1,
    "gptj": 1,
    "opt": 1,
    "bloom": 5,
    "baichuan": 1,
    "internlm2": 3,
    "chatglm": 1,
    "glm4": 1,
    "minicpm": 2,
    "smollm3": 1,
    "olmo": 1,
    "olmo2": 4,
    "olmo3": 2,
    "starcoder2": 2,
    "granite": 4,
    "cohere": 3,
    "cohere2": 1,
    "seed_oss": 1,
    "apertus": 1,
    "arcee": 1,
    "exaone": 1,
    "exaone4": 2,
    "stablelm": 2,
    "mixtral": 3,
    "qwen2_moe": 2,
    "qwen3_moe": 3,
    "olmoe": 1,
    "deepseek": 1,
    "ernie4_5_moe": 2,
    "dots1": 1,
}
# Verified decoder rows with a language-model head whose type is left out, and why.
LEFT_OUT = {
    "granitemoehybrid": "a dense model built by the code of a hybrid family",
    "bitnet": "ternary weights and norms inside attention and MLP",
    "phi3small": "block-sparse attention",
    "nemotron-nas": "layers of different width",
    "lfm2": "convolution layers",
    "mamba": "no attention",
    "falcon_mamba": "no attention",
}


@pytest.mark.skipif(not SHARED.is_file(), reason="the verified counts are not beside the repository")
def test_counts_equal_every_verified_row_of_the_families() -> None:
    """Counts computed with transformers 5.24.0 and confirmed by a published figure; here from dimensions alone."""
    checked: dict[str, int] = {}
    left_out = set()
    for row in csv.DictReader(SHARED.open(encoding="utf-8")):
        family = row["model_type"]
        headless = row["tie_word_embeddings"] == "n/a"  # an embedding model: nothing to tie
        if row["verified"] != "yes" or headless or row["non_text_params"] not in ("", "0"):
            continue
        if family not in TRAITS:
            left_out |= set() if row["num_experts"] else {family}
            continue
        model = catalogue.find(row["hf_id"])
        assert parameter_count(model) == int(row["total_params_exact"]), row["hf_id"]
        if row["num_experts"]:
            assert active_count(model) == int(row["active_params"]), row["hf_id"]
        checked[family] = checked.get(family, 0) + 1
    assert all(checked.get(family, 0) >= count for family, count in VERIFIED.items())
    not_decoders = {"t5", "whisper"}
    assert left_out - not_decoders <= set(LEFT_OUT)


def test_every_modelled_row_counts_what_its_parameters_column_says() -> None:
    """The column comes from the library's own count (transformers 5.24.0, meta device), not from our formula."""
    counts = {entry.name: entry.parameters for entry in catalogue.entries()}
    models = list(catalogue.all_models())
    assert len(models) >= 214
    for model in models:
        if counts[model.name] is not None:
            assert parameter_count(model) == counts[model.name], model.name
    uncounted = [m.name for m in models if counts[m.name] is None]
    assert uncounted == ["mistralai/Ministral-3-8B-Base-2512", "OpenBuddy/openbuddy-zephyr-7b-v14.1"]


def test_rows_are_whole_and_names_unique() -> None:
    entries = list(catalogue.entries())
    names = [name.lower() for entry in entries for name in (entry.name, *entry.aliases)]
    assert len(entries) >= 360 and len(names) >= 600
    assert len(set(names)) == len(names)
    assert all(entry.source and entry.model_type and entry.verified for entry in entries)
    assert len(catalogue.all_names()) == len(names)


def test_every_row_gives_a_model_or_one_sentence_with_its_size() -> None:
    for entry in catalogue.entries():
        try:
            catalogue.find(entry.name)
        except NotModelled as error:
            assert "not modelled" in error.what
            assert entry.parameters is None or f"({entry.parameters:,} parameters)" in error.what


@pytest.mark.parametrize(
    ("text", "name", "count"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B-Instruct", 8_030_261_248),
        ("META-LLAMA/llama-3.1-8b-instruct", "meta-llama/Llama-3.1-8B-Instruct", 8_030_261_248),
        ("Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B-Instruct", 8_030_261_248),
        ("unsloth/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B-Instruct", 8_030_261_248),
        ("llama3-8b", "meta-llama/Meta-Llama-3-8B", 8_030_261_248),
        (" gpt2 ", "openai-community/gpt2", 124_439_808),
        ("qwen1.5-0.5b-chat", "Qwen/Qwen1.5-0.5B-Chat", 463_987_712),
    ],
)
def test_names_that_are_accepted(text: str, name: str, count: int) -> None:
    model = catalogue.find(text)
    assert (model.name, parameter_count(model), model.origin) == (name, count, "catalogue")


@pytest.mark.parametrize(
    ("text", "method"),
    [
        ("TheBloke/Mistral-7B-v0.1-GPTQ", "gptq"),
        ("Qwen/Qwen-7B-Chat-Int4", "gptq"),
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4", "gptq"),
        ("Qwen/Qwen2.5-7B-Instruct-AWQ", "awq"),
        ("unsloth/Llama-3.2-1B-Instruct-bnb-4bit", "bitsandbytes"),
        ("mistralai/Devstral-2-123B-Instruct-2512", "fp8"),
        ("Qwen/Qwen2.5-7B-Instruct", ""),
    ],
)
def test_quantised_copies_say_so(text: str, method: str) -> None:
    assert catalogue.find(text).checkpoint_quant == method


def test_unknown_names_list_the_nearest() -> None:
    with pytest.raises(UnknownModel) as caught:
        catalogue.find("Qwen/Qwen2.5-7B-Instrct", where="train.yaml:1")
    assert caught.value.where == "train.yaml:1"
    assert "Qwen/Qwen2.5-7B-Instruct" in str(caught.value.fix)
    with pytest.raises(UnknownModel, match=r"config\.json"):
        catalogue.find("zzzzzz")


def test_someone_elses_model_of_a_known_name_is_not_assumed_to_be_the_same() -> None:
    with pytest.raises(UnknownModel):
        catalogue.find("somebody/Llama-3.1-8B-Instruct")


def test_a_name_that_fits_two_shapes_is_not_guessed() -> None:
    """Mistral-7B v0.1 and v0.3 differ in vocabulary."""
    with pytest.raises(UnknownModel) as caught:
        catalogue.find("mistral-7b")
    assert "mistralai/Mistral-7B-v0.3" in str(caught.value.fix)


SAME: list[tuple[str, dict[str, Any]]] = [
    (
        "meta-llama/Meta-Llama-3.1-8B-Instruct",
        {
            "architectures": ["LlamaForCausalLM"],
            "attention_bias": False,
            "attention_dropout": 0.0,
            "hidden_act": "silu",
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "max_position_embeddings": 131072,
            "mlp_bias": False,
            "model_type": "llama",
            "num_attention_heads": 32,
            "num_hidden_layers": 32,
            "num_key_value_heads": 8,
            "rope_theta": 500000.0,
            "tie_word_embeddings": False,
            "torch_dtype": "bfloat16",
            "vocab_size": 128256,
        },
    ),
    (
        "Qwen/Qwen3-0.6B",
        {
            "architectures": ["Qwen3ForCausalLM"],
            "attention_bias": False,
            "head_dim": 128,
            "hidden_act": "silu",
            "hidden_size": 1024,
            "intermediate_size": 3072,
            "max_position_embeddings": 40960,
            "max_window_layers": 28,
            "model_type": "qwen3",
            "num_attention_heads": 16,
            "num_hidden_layers": 28,
            "num_key_value_heads": 8,
            "sliding_window": None,
            "tie_word_embeddings": True,
            "torch_dtype": "bfloat16",
            "use_sliding_window": False,
            "vocab_size": 151936,
        },
    ),
    (
        "google/gemma-2-2b",
        {
            "architectures": ["Gemma2ForCausalLM"],
            "attn_logit_softcapping": 50.0,
            "final_logit_softcapping": 30.0,
            "head_dim": 256,
            "hidden_activation": "gelu_pytorch_tanh",
            "hidden_size": 2304,
            "intermediate_size": 9216,
            "max_position_embeddings": 8192,
            "model_type": "gemma2",
            "num_attention_heads": 8,
            "num_hidden_layers": 26,
            "num_key_value_heads": 4,
            "sliding_window": 4096,
            "torch_dtype": "float32",
            "vocab_size": 256000,
        },
    ),
    (
        "microsoft/phi-2",
        {
            "architectures": ["PhiForCausalLM"],
            "attention_dropout": 0.0,
            "embd_pdrop": 0.0,
            "hidden_act": "gelu_new",
            "hidden_size": 2560,
            "intermediate_size": 10240,
            "max_position_embeddings": 2048,
            "model_type": "phi",
            "num_attention_heads": 32,
            "num_hidden_layers": 32,
            "num_key_value_heads": 32,
            "partial_rotary_factor": 0.4,
            "qk_layernorm": False,
            "resid_pdrop": 0.1,
            "tie_word_embeddings": False,
            "torch_dtype": "float16",
            "vocab_size": 51200,
        },
    ),
    (
        "Qwen/Qwen-1_8B-Chat",
        {
            "architectures": ["QWenLMHeadModel"],
            "attn_dropout_prob": 0.0,
            "emb_dropout_prob": 0.0,
            "hidden_size": 2048,
            "intermediate_size": 11008,
            "kv_channels": 128,
            "max_position_embeddings": 8192,
            "model_type": "qwen",
            "no_bias": True,
            "num_attention_heads": 16,
            "num_hidden_layers": 24,
            "rotary_pct": 1.0,
            "seq_length": 8192,
            "tie_word_embeddings": False,
            "vocab_size": 151936,
        },
    ),
    (
        "baichuan-inc/Baichuan2-7B-Chat",
        {
            "architectures": ["BaichuanForCausalLM"],
            "hidden_act": "silu",
            "hidden_size": 4096,
            "intermediate_size": 11008,
            "max_position_embeddings": 4096,
            "model_max_length": 4096,
            "model_type": "baichuan",
            "num_attention_heads": 32,
            "num_hidden_layers": 32,
            "tie_word_embeddings": False,
            "torch_dtype": "bfloat16",
            "vocab_size": 125696,
        },
    ),
    (
        "THUDM/chatglm3-6b",
        {
            "architectures": ["ChatGLMModel"],
            "add_bias_linear": False,
            "add_qkv_bias": True,
            "attention_dropout": 0.0,
            "ffn_hidden_size": 13696,
            "hidden_dropout": 0.0,
            "hidden_size": 4096,
            "kv_channels": 128,
            "model_type": "chatglm",
            "multi_query_attention": True,
            "multi_query_group_num": 2,
            "num_attention_heads": 32,
            "num_layers": 28,
            "padded_vocab_size": 65024,
            "rmsnorm": True,
            "seq_length": 8192,
            "torch_dtype": "float16",
        },
    ),
    (
        "bigcode/gpt_bigcode-santacoder",
        {
            "activation_function": "gelu_pytorch_tanh",
            "architectures": ["GPTBigCodeForCausalLM"],
            "attn_pdrop": 0.1,
            "embd_pdrop": 0.1,
            "model_type": "gpt_bigcode",
            "multi_query": True,
            "n_embd": 2048,
            "n_head": 16,
            "n_inner": 8192,
            "n_layer": 24,
            "n_positions": 2048,
            "resid_pdrop": 0.1,
            "torch_dtype": "float32",
            "vocab_size": 49280,
        },
    ),
    (
        "EleutherAI/pythia-160m",
        {
            "architectures": ["GPTNeoXForCausalLM"],
            "attention_dropout": 0.0,
            "hidden_act": "gelu",
            "hidden_dropout": 0.0,
            "hidden_size": 768,
            "intermediate_size": 3072,
            "max_position_embeddings": 2048,
            "model_type": "gpt_neox",
            "num_attention_heads": 12,
            "num_hidden_layers": 12,
            "rotary_pct": 0.25,
            "tie_word_embeddings": False,
            "torch_dtype": "float16",
            "use_parallel_residual": True,
            "vocab_size": 50304,
        },
    ),
    (
        "openai-community/gpt2",
        {
            "activation_function": "gelu_new",
            "architectures": ["GPT2LMHeadModel"],
            "attn_pdrop": 0.1,
            "embd_pdrop": 0.1,
            "model_type": "gpt2",
            "n_embd": 768,
            "n_head": 12,
            "n_layer": 12,
            "n_positions": 1024,
            "resid_pdrop": 0.1,
            "torch_dtype": "float32",
            "vocab_size": 50257,
        },
    ),
]


@pytest.mark.parametrize(("name", "config"), SAME, ids=[name for name, _ in SAME])
def test_name_and_config_give_the_same_model(name: str, config: dict[str, Any]) -> None:
    """The keys the model's own config.json holds, written out here."""
    from_file = model_from_config(config, name, "catalogue")
    assert catalogue.find(name) == from_file


def test_an_alias_differs_from_its_row_in_name_only() -> None:
    alias, row = catalogue.find("01-ai/Yi-34B-Chat"), catalogue.find("01-ai/Yi-1.5-34B")
    assert replace(alias, name=row.name) == row


def test_absent_dtype_is_said_to_be_absent() -> None:
    assert (
        catalogue.find("EleutherAI/gpt-j-6b").checkpoint_dtype,
        catalogue.find("EleutherAI/gpt-j-6b").dtype_stated,
    ) == (
        DType.FP32,
        False,
    )


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(catalogue.all_names()), st.text(max_size=12))
def test_any_text_gives_a_model_or_one_of_our_errors(name: str, noise: str) -> None:
    for text in (name, name + noise, noise):
        try:
            assert parameter_count(catalogue.find(text)) > 0
        except FinefitError as error:
            assert error.what and error.fix
