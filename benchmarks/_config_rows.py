"""Rows of the parity matrix for models read from a config.json: one file decides both sides.

Dimensions are those of the published models with few layers and a vocabulary of 32,000, so that the layers and
not the logits make the peak; sources: config.json of the model named.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from benchmarks._trace_rows import Row, core, variants
from finefit.formats.hf_config import model_from_config

CONFIGS: dict[str, dict[str, Any]] = {
    "command-r7b": {
        "model_type": "cohere2",
        "hidden_size": 4096,
        "num_hidden_layers": 4,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
    },
    "command-r-plus": {
        "model_type": "cohere",
        "hidden_size": 12288,
        "num_hidden_layers": 3,
        "num_attention_heads": 96,
        "num_key_value_heads": 8,
        "intermediate_size": 33792,
        "use_qk_norm": True,
    },
    "glm-4-9b": {
        "model_type": "glm4",
        "hidden_size": 4096,
        "num_hidden_layers": 3,
        "num_attention_heads": 32,
        "num_key_value_heads": 2,
        "head_dim": 128,
        "intermediate_size": 13696,
    },
    "exaone-4-32b": {
        "model_type": "exaone4",
        "hidden_size": 5120,
        "num_hidden_layers": 4,
        "num_attention_heads": 40,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 27392,
        "sliding_window": 4096,
        "sliding_window_pattern": 4,
    },
    "nemotron-mini-4b": {
        "model_type": "nemotron",
        "hidden_size": 3072,
        "num_hidden_layers": 3,
        "num_attention_heads": 24,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 9216,
    },
    "hunyuan-7b": {
        "model_type": "hunyuan_v1_dense",
        "hidden_size": 4096,
        "num_hidden_layers": 3,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 14336,
    },
    "apertus-8b": {
        "model_type": "apertus",
        "hidden_size": 4096,
        "num_hidden_layers": 3,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 21504,
    },
    "afm-4.5b": {
        "model_type": "arcee",
        "hidden_size": 2560,
        "num_hidden_layers": 3,
        "num_attention_heads": 20,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "intermediate_size": 18432,
    },
    "vaultgemma-1b": {
        "model_type": "vaultgemma",
        "hidden_size": 1152,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "intermediate_size": 6912,
    },
    "falcon-7b": {
        "model_type": "falcon",
        "hidden_size": 4544,
        "num_hidden_layers": 3,
        "num_attention_heads": 71,
    },
    "falcon-40b": {
        "model_type": "falcon",
        "hidden_size": 8192,
        "num_hidden_layers": 3,
        "num_attention_heads": 128,
        "num_kv_heads": 8,
        "new_decoder_architecture": True,
    },
    "gpt-j-6b": {
        "model_type": "gptj",
        "n_embd": 4096,
        "n_layer": 3,
        "n_head": 16,
        "n_positions": 2048,
        "rotary_dim": 64,
    },
    "gpt-neo-1.3b": {
        "model_type": "gpt_neo",
        "hidden_size": 2048,
        "num_layers": 4,
        "num_heads": 16,
        "attention_types": [[["global", "local"], 2]],
    },
    "opt-1.3b": {
        "model_type": "opt",
        "hidden_size": 2048,
        "num_hidden_layers": 3,
        "num_attention_heads": 32,
        "ffn_dim": 8192,
        "word_embed_proj_dim": 2048,
    },
    "bloom-1b7": {
        "model_type": "bloom",
        "hidden_size": 2048,
        "n_layer": 3,
        "n_head": 16,
    },
    "deepseek-v3": {
        "model_type": "deepseek_v3",
        "hidden_size": 7168,
        "num_hidden_layers": 3,
        "first_k_dense_replace": 1,
        "num_attention_heads": 128,
        "intermediate_size": 18432,
        "n_routed_experts": 32,  # of 256: the others are weights alone
    },
    "deepseek-v2-lite": {
        "model_type": "deepseek_v2",
        "hidden_size": 2048,
        "num_hidden_layers": 3,
        "first_k_dense_replace": 1,
        "num_attention_heads": 16,
        "intermediate_size": 10944,
        "moe_intermediate_size": 1408,
        "num_experts_per_tok": 6,
        "q_lora_rank": None,
    },
    "glm-4.7-flash": {
        "model_type": "glm4_moe_lite",
        "hidden_size": 2048,
        "num_hidden_layers": 3,
        "num_attention_heads": 20,
        "num_key_value_heads": 20,
        "intermediate_size": 10240,
    },
    "minicpm3-4b": {
        "model_type": "minicpm3",
        "hidden_size": 2560,
        "num_hidden_layers": 3,
        "num_attention_heads": 40,
        "intermediate_size": 6400,
    },
    "gpt-oss-20b": {
        "model_type": "gpt_oss",
        "hidden_size": 2880,
        "num_hidden_layers": 3,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "intermediate_size": 2880,
        "num_local_experts": 32,
    },
    "minimax-m2": {
        "model_type": "minimax_m2",
        "hidden_size": 3072,
        "num_hidden_layers": 3,
        "num_attention_heads": 48,
        "num_key_value_heads": 8,
        "intermediate_size": 1536,
        "num_local_experts": 64,  # of 256
        "rotary_dim": 64,
    },
    "hunyuan-a13b": {
        "model_type": "hunyuan_v1_moe",
        "hidden_size": 4096,
        "num_hidden_layers": 3,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 3072,
        "num_experts": 16,  # of 64
        "moe_topk": 8,
    },
    "hy3": {
        "model_type": "hy_v3",
        "hidden_size": 4096,
        "num_hidden_layers": 3,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "intermediate_size": 13312,
        "num_experts": 32,  # of 192
    },
    "solar-open-100b": {
        "model_type": "solar_open",
        "hidden_size": 4096,
        "num_hidden_layers": 3,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "n_routed_experts": 32,  # of 128
    },
    "mellum2-12b": {
        "model_type": "mellum",
        "hidden_size": 2304,
        "num_hidden_layers": 3,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "intermediate_size": 7168,
    },
    "qwen3.5-9b": {
        "model_type": "qwen3_5_text",
        "hidden_size": 4096,
        "num_hidden_layers": 4,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "intermediate_size": 12288,
    },
    "qwen3-next-80b": {
        "model_type": "qwen3_next",
        "hidden_size": 2048,
        "num_hidden_layers": 4,
        "num_attention_heads": 16,
        "num_experts": 64,  # of 512
    },
    "nemotron-h-8b": {
        "model_type": "nemotron_h",
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 21504,
        "layers_block_type": ["linear_attention", "mlp", "linear_attention", "full_attention", "mlp"],
    },
    "nemotron-3-nano": {
        "model_type": "nemotron_h",
        "hidden_size": 2688,
        "num_attention_heads": 32,
        "num_key_value_heads": 2,
        "intermediate_size": 1856,
        "mamba_num_heads": 64,
        "moe_intermediate_size": 1856,
        "moe_shared_expert_intermediate_size": 3712,
        "n_routed_experts": 32,  # of 128
        "num_experts_per_tok": 6,
        "layers_block_type": ["linear_attention", "moe", "full_attention", "moe"],
    },
    "granite-4.0-h-tiny-dense": {
        "model_type": "granitemoehybrid",
        "hidden_size": 2048,
        "num_hidden_layers": 4,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "shared_intermediate_size": 8192,
        "num_local_experts": 0,
        "mamba_n_heads": 64,
        "mamba_d_state": 128,
        "layer_types": ["mamba", "mamba", "attention", "mamba"],
    },
    "lfm2-1.2b": {
        "model_type": "lfm2",
        "hidden_size": 2048,
        "num_hidden_layers": 4,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 12288,
        "layer_types": ["conv", "conv", "full_attention", "conv"],
    },
    "lfm2-8b-a1b": {
        "model_type": "lfm2_moe",
        "hidden_size": 2048,
        "num_hidden_layers": 4,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 7168,
        "layer_types": ["conv", "conv", "full_attention", "conv"],
    },
    "mpt-7b": {
        "model_type": "mpt",
        "d_model": 4096,
        "n_layers": 3,
        "n_heads": 32,
        "max_seq_len": 2048,
    },
}

_QUICK = ("full/none", "lora/none", "lora/nonre")


def config_rows(quick: bool) -> Iterator[Row]:
    """Each model by method and checkpointing; quick: full and LoRA once each."""
    for name, config in CONFIGS.items():
        config = {"pad_token_id": None, "vocab_size": 32000, **config}
        model = model_from_config(config, name, "benchmarks")
        found = [*core(model), *(() if quick else variants(model))]
        for row in found:
            if not quick or row.name.split("/", 1)[1] in _QUICK:
                yield replace(row, recipe=replace(row.recipe, micro_batch=2, seq_len=2048), config=config)
