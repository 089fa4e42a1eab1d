"""Encoders for the tracer: their configuration, class and labels (transformers 5.24.0)."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from transformers import CONFIG_MAPPING

from finefit.workload.dtypes import DType
from finefit.workload.model import Model
from finefit.workload.recipe import Recipe

_DTYPES = {DType.FP32: torch.float32, DType.BF16: torch.bfloat16, DType.FP16: torch.float16}
_CLASSES = {
    "mlm": "AutoModelForMaskedLM",
    "token": "AutoModelForTokenClassification",
    "seq2seq": "AutoModelForSeq2SeqLM",
    "whisper": "AutoModelForSpeechSeq2Seq",
}


def encoder_config(model: Model) -> Any:
    """The configuration of an encoder, or an encoder-decoder, from its dimensions."""
    if model.family == "whisper":
        decoder = model.layers - model.encoder_layers
        return CONFIG_MAPPING["whisper"](
            vocab_size=model.vocab,
            d_model=model.hidden,
            encoder_layers=model.encoder_layers,
            decoder_layers=decoder,
            encoder_attention_heads=model.heads,
            decoder_attention_heads=model.heads,
            encoder_ffn_dim=model.ffn,
            decoder_ffn_dim=model.ffn,
            num_mel_bins=model.mel_bins,
            max_target_positions=model.max_position,
            dropout=model.residual_dropout,
            **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"), 1),
        )
    if model.head == "seq2seq":
        return CONFIG_MAPPING[model.family](
            vocab_size=model.vocab,
            d_model=model.hidden,
            d_kv=model.head_dim,
            d_ff=model.ffn,
            num_layers=model.encoder_layers,
            num_decoder_layers=model.layers - model.encoder_layers,
            num_heads=model.heads,
            relative_attention_num_buckets=model.relative_positions,
            dropout_rate=model.residual_dropout,
            feed_forward_proj="gated-gelu" if model.gated_mlp else model.activation,
            pad_token_id=0,
            decoder_start_token_id=0,
        )
    sizes = {"attention_probs_dropout_prob": model.attention_dropout, "hidden_dropout_prob": model.residual_dropout}
    fields: dict[str, Any] = {
        "vocab_size": model.vocab,
        "hidden_size": model.hidden,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "intermediate_size": model.ffn,
        "max_position_embeddings": model.max_position,
        "tie_word_embeddings": model.tied,
        "num_labels": model.labels,
        "pad_token_id": 1,
    }
    match model.family:
        case "distilbert":
            sizes = {"attention_dropout": model.attention_dropout, "dropout": model.residual_dropout}
            fields |= {"dim": model.hidden, "n_heads": model.heads, "hidden_dim": model.ffn, "n_layers": model.layers}
            for key in ("hidden_size", "num_attention_heads", "num_hidden_layers", "intermediate_size"):
                fields.pop(key)
        case "modernbert":
            sizes = {}
            fields |= dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"), 1)
        case "deberta-v2":
            fields |= {
                "relative_attention": bool(model.relative_positions),
                "position_buckets": model.relative_positions // 2,
                "pos_att_type": ["p2c", "c2p"],
                "share_att_key": True,
                "norm_rel_ebd": "layer_norm",
                "position_biased_input": model.position == "learned",
                "type_vocab_size": model.token_types,
            }
        case _:
            fields["type_vocab_size"] = model.token_types
    return CONFIG_MAPPING[model.family](**fields, **sizes)


def auto_class(model: Model) -> Any:
    """The class with the head of the model; a model without one is traced as a classifier of rows."""
    return getattr(
        transformers,
        _CLASSES.get("whisper" if model.family == "whisper" else model.head, "AutoModelForSequenceClassification"),
    )


def labels(model: Model, recipe: Recipe, device: str) -> dict[str, Any]:
    """One label a row where the head gives one vector a row; the sound of Whisper, without ids or a mask."""
    if model.family == "whisper":
        shape = (recipe.micro_batch, model.mel_bins, 2 * model.source_positions)
        sound = torch.zeros(shape, dtype=_DTYPES[recipe.weight_dtype], device=device)
        return {"input_features": sound, "input_ids": None, "attention_mask": None}
    if model.head in ("lm", "mlm", "token", "seq2seq"):
        return {}
    return {"labels": torch.zeros(recipe.micro_batch, dtype=torch.long, device=device)}
