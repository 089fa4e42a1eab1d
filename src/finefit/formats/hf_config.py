"""Hugging Face ``config.json`` → ``Model``.

Keys are read under every name the library accepts for them (``attribute_map`` of the configuration
classes of transformers 5.24.0), absent ones get the default of the family's class.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from finefit.errors import InputError, NotModelled
from finefit.formats.hf_encoder import encoder_of, is_encoder, is_seq2seq, seq2seq_of
from finefit.formats.hf_experts import experts
from finefit.formats.hf_families import SAME_AS, TRAITS, Flag, Traits
from finefit.formats.hf_particulars import particulars
from finefit.formats.hf_refusals import is_headless, reason
from finefit.formats.hf_vision import has_tower, text_config, tower_from_config
from finefit.workload.dtypes import DType
from finefit.workload.model import Model

_DTYPES = {
    "float32": DType.FP32,
    "float": DType.FP32,
    "float64": DType.FP64,
    "double": DType.FP64,
    "bfloat16": DType.BF16,
    "float16": DType.FP16,
    "half": DType.FP16,
}
_PERIOD = {"alternate": 2, "third": 4, "fifth": 6}  # one full-attention layer in so many


class _Keys:
    """Typed access to a configuration; every complaint names the file and the key."""

    def __init__(self, config: Mapping[str, Any], where: str) -> None:
        self.config, self.where = config, where

    def get(self, *names: str) -> Any:
        """Value of the first name that is present and not null."""
        for name in names:
            if self.config.get(name) is not None:
                return self.config[name]
        return None

    def size(self, *names: str, default: int | None = None) -> int:
        """A positive integer.

        Raises:
            InputError: absent without a default, or not a positive integer.
        """
        value = self.get(*names)
        if value is None:
            if default is not None:
                return default
            raise InputError(f"{names[0]} is missing", where=self.where, fix=f"add {names[0]} to config.json")
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(
                f"{names[0]} is {value!r}", where=self.where, fix=f"{names[0]} must be a whole number above 0"
            )
        return value

    def number(self, *names: str, default: float) -> float:
        """A number from 0 to 1.

        Raises:
            InputError: not a number, or outside that range.
        """
        value = self.get(*names)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise InputError(
                f"{names[0]} is {value!r}", where=self.where, fix=f"{names[0]} must be a number from 0 to 1"
            )
        return float(value)

    def flag(self, flag: Flag) -> bool:
        """A switch the code fixes, or a config key with a default."""
        if isinstance(flag, bool):
            return flag
        key, default = flag
        value = self.get(key)
        return default if value is None else bool(value)


def model_from_config(config: Mapping[str, Any], name: str, origin: str) -> Model:
    """Architecture that a ``config.json`` describes.

    Args:
        config: the parsed file.
        name: name the model is shown by.
        origin: where it came from ("catalogue", a path, "Hub id@revision"); also the place in errors.

    Raises:
        NotModelled: understood but not a decoder with a language-model head modelled here.
        InputError: a needed key is missing or has an impossible value.
    """
    if has_tower(config):
        model = model_from_config(text_config(config), name, origin)
        return replace(model, tower=tower_from_config(config, model.hidden, origin))
    keys = _Keys(config, origin)
    if is_seq2seq(config):
        return seq2seq_of(keys, *_dtype(keys, Traits()), name)
    if is_encoder(config):
        return encoder_of(keys, *_dtype(keys, Traits()), name)
    refused = reason(config)
    if refused:
        raise NotModelled(f"{name} is {refused}, which is not modelled yet", where=origin, fix=_FIX)
    family = _family(config, name, origin)
    traits = TRAITS[family]
    model = _read(keys, family, traits, name, origin)
    model = particulars(keys, _particulars(keys, model))
    if is_headless(config):
        model = replace(model, head="embedding", tied=False)
    if not model.head_dim or not model.ffn:
        raise InputError(
            f"{model.heads} attention heads on a hidden size of {model.hidden} leave nothing for each",
            where=origin,
            fix="check hidden_size, num_attention_heads and intermediate_size",
        )
    if model.heads % model.kv_heads:
        raise InputError(
            f"{model.heads} attention heads cannot share {model.kv_heads} key/value heads",
            where=origin,
            fix="num_attention_heads must be a multiple of num_key_value_heads",
        )
    return model


_FIX = "use a text decoder (llama, mistral, qwen, gemma, phi, gpt2, mixtral, qwen3_moe, ...)"


def _family(config: Mapping[str, Any], name: str, origin: str) -> str:
    model_type = config.get("model_type")
    architectures = config.get("architectures")
    architecture = architectures[0] if isinstance(architectures, list) and architectures else None
    for spelling in (model_type, architecture):
        if isinstance(spelling, str):
            family = SAME_AS.get(spelling, spelling)
            if family in TRAITS:
                return family
    if model_type is None and architecture is None:
        raise InputError(
            "neither model_type nor architectures is given",
            where=origin,
            fix='add "model_type", for example "llama", to config.json',
        )
    raise NotModelled(
        f"{name} has model type {model_type or architecture}, which is not modelled yet", where=origin, fix=_FIX
    )


def _read(keys: _Keys, family: str, traits: Traits, name: str, origin: str) -> Model:
    hidden = keys.size("hidden_size", "n_embd", "d_model")
    listed = keys.get("layers_block_type")  # Nemotron-H names its layers and need not count them
    count = len(listed) if isinstance(listed, list) and listed else None
    layers = keys.size("num_hidden_layers", "n_layer", "num_layers", "n_layers", default=count)
    heads = keys.size("num_attention_heads", "n_head", "num_heads", "n_heads")
    has_kv = "num_key_value_heads" in keys.config  # present but null: one per head, as the classes do
    kv_heads = keys.size("num_key_value_heads", default=heads if has_kv or not traits.kv_heads else traits.kv_heads)
    head_dim = keys.size("head_dim", "kv_channels", default=traits.head_dim or hidden // heads)
    window, layer_types = _attention_pattern(keys, traits, layers)
    dtype, stated = _dtype(keys, traits)
    attention_drop, residual_drop, embedding_drop = traits.dropouts
    return Model(
        name=name,
        family=family,
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        ffn=keys.size("intermediate_size", "n_inner", "ffn_hidden_size", "ffn_dim", default=4 * hidden),
        vocab=keys.size("vocab_size", "padded_vocab_size"),
        tied=keys.flag(("tie_word_embeddings", traits.tied)),
        activation=str(keys.get("hidden_activation", "hidden_act", "activation_function") or traits.activation),
        gated_mlp=traits.gated,
        norm=traits.norm,
        norm_weight=traits.norm_weight,
        norm_bias=traits.norm_bias,
        post_norm=traits.post_norm,
        embedding_norm=traits.embedding_norm,
        qkv_bias=keys.flag(traits.qkv_bias),
        o_bias=keys.flag(traits.o_bias),
        mlp_bias=keys.flag(traits.mlp_bias),
        head_bias=keys.flag(traits.head_bias),
        qk_norm=traits.qk_norm,
        sandwich_norms=traits.sandwich,
        parallel_block=keys.flag(traits.parallel),
        shared_norm=traits.shared_norm,
        position=traits.position,
        max_position=keys.size(
            "max_position_embeddings", "n_positions", "seq_length", "max_seq_len", default=traits.max_position
        ),
        rotary_fraction=_rotary_fraction(keys, traits),
        fused_qkv=traits.fused_qkv,
        fused_gate_up=traits.fused_gate_up,
        attention_dropout=keys.number(
            "attention_dropout",
            "attn_pdrop",
            "attn_dropout_prob",
            "attention_probs_dropout_prob",
            default=attention_drop,
        ),
        residual_dropout=keys.number(
            "resid_pdrop", "hidden_dropout", "residual_dropout", "resid_dropout", "dropout", default=residual_drop
        ),
        embedding_dropout=keys.number(
            "embd_pdrop", "emb_dropout_prob", "emb_pdrop", "embed_dropout", "embedding_dropout", default=embedding_drop
        ),
        attention_softcap=_softcap(keys, "attn_logit_softcapping", traits.attention_softcap),
        final_softcap=_softcap(keys, "final_logit_softcapping", traits.final_softcap),
        sliding_window=window,
        layer_types=layer_types,
        experts=experts(keys, family, layers),
        checkpoint_dtype=dtype,
        dtype_stated=stated,
        checkpoint_quant=_quant(keys),
        checkpoint_bits=_quant_size(keys, "bits", "w_bit"),
        checkpoint_group=_quant_size(keys, "group_size", "q_group_size"),
        origin=origin,
    )


def _rotary_fraction(keys: _Keys, traits: Traits) -> float:
    """Share of the head dimension that is rotated; newer files keep it among ``rope_parameters``."""
    rope = keys.get("rope_parameters")
    nested = _Keys(rope if isinstance(rope, Mapping) else {}, keys.where)
    default = nested.number("partial_rotary_factor", default=traits.rotary_fraction)
    return keys.number("partial_rotary_factor", "rotary_pct", default=default)


def _softcap(keys: _Keys, key: str, default: float | None) -> bool:
    """A cap is on unless the key is written as null; the class default counts where it is absent."""
    return bool(keys.config.get(key, default))


def _attention_pattern(keys: _Keys, traits: Traits, layers: int) -> tuple[int | None, tuple[str, ...]]:
    """(sliding window, kind of each layer); (None, ()) when every layer attends to everything."""
    if not traits.sliding:
        return None, ()
    window = keys.config.get("sliding_window", keys.config.get("window_size", traits.window))
    if traits.sliding in ("late", "switched") and not keys.config.get("use_sliding_window"):
        window = None
    if window is None:
        return None, ()
    window = keys.size("sliding_window", "window_size", default=traits.window)
    named = keys.get("layer_types")
    if isinstance(named, list):
        kinds = tuple(_layer_kind(keys, kind) for kind in named)
        if len(kinds) != layers:
            raise InputError(
                f"layer_types names {len(kinds)} layers, num_hidden_layers says {layers}",
                where=keys.where,
                fix="make both agree",
            )
    elif traits.sliding in ("all", "switched"):
        kinds = ("sliding",) * layers
    elif traits.sliding == "late":  # configuration_qwen2.py: layer i slides if i >= max_window_layers (default 28)
        first = keys.get("max_window_layers")
        first = 28 if not isinstance(first, int) else first
        kinds = tuple("sliding" if i >= first else "full" for i in range(layers))
    elif traits.sliding == "named":
        kinds = ("full",) * layers
    elif traits.sliding == "odd":
        kinds = tuple("sliding" if i % 2 else "full" for i in range(layers))
    else:
        period = keys.size("sliding_window_pattern", "_sliding_window_pattern", default=_PERIOD[traits.sliding])
        kinds = tuple("sliding" if (i + 1) % period else "full" for i in range(layers))
    return (window, kinds) if "sliding" in kinds else (None, ())


def _layer_kind(keys: _Keys, kind: object) -> str:
    if kind not in ("full_attention", "sliding_attention"):
        raise NotModelled(f"layer type {kind!r} is not modelled yet", where=keys.where, fix=_FIX)
    return "sliding" if kind == "sliding_attention" else "full"


def _dtype(keys: _Keys, traits: Traits) -> tuple[DType, bool]:
    """Stored dtype; where no key says it, what the remote code picks, else fp32 (torch's default dtype)."""
    stated = keys.get("dtype", "torch_dtype")
    if stated is None:
        return _DTYPES[traits.dtype or "float32"], False
    text = str(stated).removeprefix("torch.")
    if text not in _DTYPES:
        raise InputError(f"dtype {stated!r} is not known", where=keys.where, fix=f"use one of {', '.join(_DTYPES)}")
    return _DTYPES[text], True


def _quant_size(keys: _Keys, *names: str) -> int | None:
    """Bits or group size of the stored weights; None where the file does not say."""
    block = keys.get("quantization_config", "compression_config")
    value = next((block[name] for name in names if name in block), None) if isinstance(block, Mapping) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value and abs(value) < 2**31 else None


def _quant(keys: _Keys) -> str:
    """Name of the method the stored weights are quantised with, "" for none that the file mentions."""
    block = keys.get("quantization_config", "compression_config")
    if isinstance(block, Mapping):
        method = block.get("quant_method")
        if method:
            return str(method)
        return "bitsandbytes" if block.get("load_in_4bit") or block.get("load_in_8bit") else "unknown"
    low_bit = keys.get("bigdl_transformers_low_bit")  # ipex-llm writes its own key
    return f"bigdl-{low_bit}" if low_bit else ""


def _particulars(keys: _Keys, model: Model) -> Model:
    """What a family spells in its own way."""
    family = model.family
    if family == "qwen":  # modeling_qwen.py QWenMLP: w1 and w2 are intermediate_size // 2 wide
        return replace(model, ffn=model.ffn // 2)
    if family == "chatglm":
        return _chatglm(keys, model)
    if family == "gpt_bigcode":  # modeling_gpt_bigcode.py: one key/value head with multi_query, the default
        return replace(model, kv_heads=1 if keys.flag(("multi_query", True)) else model.heads)
    if family == "gptj":
        return replace(model, rotary_fraction=keys.size("rotary_dim", default=64) / model.head_dim)
    if family == "baichuan":  # the 13B code has no rotary position and no max_position_embeddings
        alibi = "max_position_embeddings" not in keys.config
        context = keys.size("max_position_embeddings", "model_max_length", default=model.max_position)
        return replace(model, position="alibi" if alibi else "rope", max_position=context)
    if family == "opt":
        if keys.get("word_embed_proj_dim") not in (None, model.hidden) or keys.get("do_layer_norm_before") is False:
            raise NotModelled(
                f"{model.name} projects its embedding or norms after attention (OPT-350M), which is not modelled yet",
                where=keys.where,
                fix=_FIX,
            )
        # modeling_opt.py OPTLearnedPositionalEmbedding.offset = 2
        return replace(model, max_position=model.max_position + 2)
    if family == "mpt":
        return replace(model, ffn=model.hidden * keys.size("expansion_ratio", default=4))
    if family == "glm4_moe":  # GLM-4.5 has norms of queries and keys, GLM-4.5-Air has none
        return replace(model, qk_norm="head" if keys.flag(("use_qk_norm", False)) else "")
    if family == "olmoe" and keys.get("clip_qkv") is not None:
        raise NotModelled(
            f"{model.name} clips queries, keys and values, which is not modelled yet", where=keys.where, fix=_FIX
        )
    if family in ("cohere", "phi", "stablelm"):
        return _optional_norms(keys, model)
    return model


def _chatglm(keys: _Keys, model: Model) -> Model:
    """ChatGLM2, ChatGLM3 and GLM-4-9B (modeling_chatglm.py); the first ChatGLM is built otherwise."""
    if keys.get("padded_vocab_size") is None:
        raise NotModelled(
            f"{model.name} is a first-generation ChatGLM, which is not modelled yet", where=keys.where, fix=_FIX
        )
    everywhere = keys.flag(("add_bias_linear", False))
    grouped = keys.flag(("multi_query_attention", False))
    return replace(
        model,
        kv_heads=keys.size("multi_query_group_num", default=1) if grouped else model.heads,
        vocab=keys.size("padded_vocab_size"),
        norm="rms" if keys.flag(("rmsnorm", True)) else "layer",
        qkv_bias=everywhere or model.qkv_bias,
        o_bias=everywhere,
        mlp_bias=everywhere,
    )


def _optional_norms(keys: _Keys, model: Model) -> Model:
    if model.family == "cohere":  # Command R+: one norm vector a head
        return replace(model, qk_norm="each" if keys.flag(("use_qk_norm", False)) else "")
    if keys.flag(("qk_layernorm", False)):
        raise NotModelled(
            f"{model.name} normalises queries and keys (qk_layernorm), which is not modelled for {model.family} yet",
            where=keys.where,
            fix=_FIX,
        )
    return replace(model, shared_norm=model.parallel_block)  # StableLM: a parallel block has one norm
