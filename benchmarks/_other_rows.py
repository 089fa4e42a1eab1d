"""Rows of the parity matrix beyond decoders: vision-language models, encoders, encoder-decoders.

Dimensions are those of the published models with few layers, in tower and language model; a vision-language
model sees one picture of 448 x 448 pixels a sample. Sources: config.json of the model named.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from benchmarks._trace_rows import CHECKPOINTING, FULL, Row
from finefit.formats.hf_config import model_from_config
from finefit.workload import DType, Lora, Model, Quant, Recipe
from finefit.workload.lora import linear_modules
from finefit.workload.tower import Images

_QWEN2 = {
    "hidden_size": 3584,
    "num_hidden_layers": 3,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "intermediate_size": 18944,
    "vocab_size": 32000,
}
PICTURES: dict[str, dict[str, Any]] = {
    "qwen2-vl-7b": {"model_type": "qwen2_vl", "text_config": _QWEN2, "vision_config": {"depth": 3}},
    "qwen2.5-vl-7b": {
        "model_type": "qwen2_5_vl",
        "text_config": _QWEN2,
        "vision_config": {"depth": 3, "hidden_size": 1280, "fullatt_block_indexes": [2]},
    },
    "qwen3-vl-8b": {
        "model_type": "qwen3_vl",
        "text_config": {
            "hidden_size": 4096,
            "num_hidden_layers": 4,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "intermediate_size": 12288,
            "vocab_size": 32000,
        },
        "vision_config": {"depth": 4, "deepstack_visual_indexes": [0, 1, 2]},
    },
    "gemma3-4b": {
        "model_type": "gemma3",
        "text_config": {
            "hidden_size": 2560,
            "num_hidden_layers": 6,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "intermediate_size": 10240,
            "vocab_size": 32000,
            "sliding_window": 1024,
        },
        "vision_config": {"num_hidden_layers": 3},
    },
    "paligemma-3b": {
        "model_type": "paligemma",
        "text_config": {
            "hidden_size": 2048,
            "num_hidden_layers": 3,
            "num_attention_heads": 8,
            "num_key_value_heads": 1,
            "head_dim": 256,
            "intermediate_size": 16384,
            "vocab_size": 32000,
        },
        "vision_config": {"num_hidden_layers": 3},
    },
    "llava-7b": {
        "model_type": "llava",
        "text_config": {"num_hidden_layers": 3, "vocab_size": 32064},
        "vision_config": {"num_hidden_layers": 3},
    },
    "mistral-small-3.1": {
        "model_type": "mistral3",
        "text_config": {
            "model_type": "mistral",
            "hidden_size": 5120,
            "num_hidden_layers": 3,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "intermediate_size": 32768,
            "vocab_size": 32000,
            "sliding_window": None,
        },
        "vision_config": {"num_hidden_layers": 3, "image_size": 1540, "patch_size": 14, "hidden_act": "silu"},
    },
}
_BERT = {"num_hidden_layers": 3}
TEXTS: dict[str, dict[str, Any]] = {
    "bert-base-mlm": {"model_type": "bert", "architectures": ["BertForMaskedLM"], **_BERT},
    "bert-base-classify": {"model_type": "bert", "architectures": ["BertForSequenceClassification"], **_BERT},
    "roberta-base-tokens": {
        "model_type": "roberta",
        "architectures": ["RobertaForTokenClassification"],
        "vocab_size": 50265,
        "max_position_embeddings": 514,
        "type_vocab_size": 1,
        **_BERT,
    },
    "distilbert-mlm": {
        "model_type": "distilbert",
        "architectures": ["DistilBertForMaskedLM"],
        "n_layers": 3,
        "dim": 768,
        "n_heads": 12,
        "hidden_dim": 3072,
    },
    "modernbert-mlm": {
        "model_type": "modernbert",
        "architectures": ["ModernBertForMaskedLM"],
        "num_hidden_layers": 4,
        "vocab_size": 50368,
        "max_position_embeddings": 8192,
    },
    "nomic-mlm": {"model_type": "nomic_bert", "architectures": ["NomicBertForMaskedLM"], "vocab_size": 30528, **_BERT},
    "jina-v3-mlm": {
        "model_type": "jina_embeddings_v3",
        "architectures": ["JinaEmbeddingsV3ForMaskedLM"],
        "vocab_size": 32000,
        "hidden_size": 1024,
        "num_attention_heads": 16,
        "intermediate_size": 4096,
        **_BERT,
    },
    "deberta-v3-base-tokens": {
        "model_type": "deberta-v2",
        "architectures": ["DebertaV2ForTokenClassification"],
        "vocab_size": 128100,
        "relative_attention": True,
        "position_buckets": 256,
        "position_biased_input": False,
        **_BERT,
    },
    "whisper-small": {
        "model_type": "whisper",
        "d_model": 768,
        "encoder_layers": 3,
        "decoder_layers": 3,
        "encoder_attention_heads": 12,
        "encoder_ffn_dim": 3072,
        "max_target_positions": 512,
    },
    "t5-base": {"model_type": "t5", "d_model": 768, "num_heads": 12, "d_ff": 3072, "num_layers": 3},
    "flan-t5-large": {
        "model_type": "t5",
        "d_model": 1024,
        "num_heads": 16,
        "d_ff": 2816,
        "num_layers": 3,
        "feed_forward_proj": "gated-gelu",
    },
}
_TOWER_ALONE = ("tower", "projector")


def _methods(model: Model, base: Recipe) -> dict[str, Recipe]:
    lora = replace(base, method="lora", lora=Lora(16, 32, targets=linear_modules(model)))
    again, reentrant = CHECKPOINTING["nonre"], CHECKPOINTING["re"]
    found = {
        "full/none": base,
        "full/nonre": replace(base, **again),
        "lora/none": lora,
        "lora/nonre": replace(lora, **again),
        "full/amp": replace(base, weight_dtype=DType.FP32, autocast=DType.BF16),
        "full/eager": replace(base, attention="eager"),
        "full/padded": replace(base, padded=True),
    }
    if model.tower is not None:
        frozen = replace(lora, frozen=_TOWER_ALONE)
        quant = Quant("nf4", double=True, kbit_prepare=True)
        found |= {
            "full/frozen": replace(base, frozen=("tower",)),
            "lora/frozen/none": frozen,
            "lora/frozen/nonre": replace(frozen, **again),
            "qlora/frozen/re": replace(frozen, quant=quant, **reentrant),
        }
    return found


QUICK = frozenset({"full/none", "lora/nonre", "lora/frozen/nonre"})


def other_rows(quick: bool) -> Iterator[Row]:
    """Rows of these models; quick: three of each at most."""
    for configs, base in (
        (PICTURES, replace(FULL, seq_len=1024, images=Images(1, 448, 448))),
        (TEXTS, replace(FULL, micro_batch=4)),
    ):
        for name, config in configs.items():
            model = model_from_config({"dtype": "bfloat16", **config}, name, "benchmarks")
            eager = replace(base, attention="eager") if model.family == "deberta-v2" else base
            for method, recipe in _methods(model, eager).items():
                if not quick or method in QUICK:
                    yield Row(f"{name}/{method}", model, recipe)
