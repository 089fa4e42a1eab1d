"""A transformers config from the dimensions of a Model (transformers 5.24.0 configuration classes)."""

from __future__ import annotations

from typing import Any

from transformers import CONFIG_MAPPING

from finefit.errors import NotModelled
from finefit.lab.encoder import encoder_config
from finefit.lab.versions import TRANSFORMERS
from finefit.lab.vision import whole_config
from finefit.workload.model import Model

_LAYER_TYPES = {"full": "full_attention", "sliding": "sliding_attention"}
_MIXTURES = frozenset(
    ("mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "granitemoe", "phimoe", "glm4_moe", "dots1", "ernie4_5_moe")
)
_PLAIN = _MIXTURES | {
    *("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "phi", "phi3", "gpt_neox", "granite"),
    "ernie4_5",
}
_ROPE_THETA = 10_000.0  # values of the rotary table have no influence on its size


def _common(model: Model) -> dict[str, Any]:
    """Fields that most decoders share."""
    fields: dict[str, Any] = {
        "vocab_size": model.vocab,
        "hidden_size": model.hidden,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads,
        "head_dim": model.head_dim,
        "intermediate_size": model.ffn,
        "hidden_act": model.activation,
        "tie_word_embeddings": model.tied,
        "attention_dropout": model.attention_dropout,
        "max_position_embeddings": model.max_position or 1 << 17,
        # A padding id would be looked up in a vocabulary that may be smaller; it changes no size.
        "pad_token_id": None,
    }
    if model.rotary_fraction != 1.0:
        if TRANSFORMERS < (5, 0):
            fields["partial_rotary_factor"] = fields["rotary_pct"] = model.rotary_fraction
        else:
            fields["rope_parameters"] = {
                "rope_type": "default",
                "rope_theta": _ROPE_THETA,
                "partial_rotary_factor": model.rotary_fraction,
            }
    if model.layer_types:
        fields["layer_types"] = [_LAYER_TYPES[t] for t in model.layer_types]
    if model.sliding_window is not None:
        fields["sliding_window"] = model.sliding_window
        fields["use_sliding_window"] = True  # Qwen asks for both
    elif model.family in ("mistral", "mixtral"):
        fields["sliding_window"] = None
    return fields


def _family(model: Model) -> dict[str, Any]:
    """Fields of one family beside, or in place of, the common ones."""
    match model.family:
        case "llama" | "granite":
            return {"attention_bias": model.qkv_bias, "mlp_bias": model.mlp_bias}
        case "gemma" | "gemma2" | "gemma3_text":
            softcaps: dict[str, Any] = {"hidden_activation": model.activation, "attention_bias": model.qkv_bias}
            if model.family != "gemma":
                softcaps["attn_logit_softcapping"] = 50.0 if model.attention_softcap else None
                softcaps["final_logit_softcapping"] = 30.0 if model.final_softcap else None
            return softcaps
        case "phimoe":
            return {"attention_bias": model.qkv_bias, "lm_head_bias": model.head_bias}
        case "glm4_moe":
            return {"attention_bias": model.qkv_bias, "use_qk_norm": bool(model.qk_norm)}
        case "ernie4_5" | "ernie4_5_moe":
            return {"use_bias": model.mlp_bias}
        case "qwen3" | "qwen3_moe" | "olmoe" | "granitemoe" | "dots1":
            return {"attention_bias": model.qkv_bias}
        case "qwen2_moe":
            return {"qkv_bias": model.qkv_bias}
        case "phi":
            return {
                "qk_layernorm": bool(model.qk_norm),
                "resid_pdrop": model.residual_dropout,
                "embd_pdrop": model.embedding_dropout,
            }
        case "phi3":
            return {
                "resid_pdrop": model.residual_dropout,
                "embd_pdrop": model.embedding_dropout,
                "original_max_position_embeddings": model.max_position or 1 << 17,
            }
        case "gpt_neox":
            return {
                "use_parallel_residual": model.parallel_block,
                "attention_bias": model.qkv_bias,
                "hidden_dropout": model.residual_dropout,
            }
    return {}


def _experts(model: Model) -> dict[str, Any]:
    """Fields of a mixture of experts."""
    experts = model.experts
    if experts is None:
        return {}
    count, per_token = (
        ("moe_num_experts", "moe_k")
        if model.family == "ernie4_5_moe"
        else ("num_experts" if model.family == "olmoe" else "num_local_experts", "num_experts_per_tok")
    )
    fields: dict[str, Any] = {count: experts.count, per_token: experts.per_token, "norm_topk_prob": experts.normalised}
    first = len(experts.dense_layers)
    leading = experts.dense_layers == tuple(range(first))
    if not leading and model.family in ("glm4_moe", "dots1", "ernie4_5_moe"):
        raise NotModelled(f"{model.family} has its dense layers first", fix="trace a model of that form")
    if model.family in ("mixtral", "olmoe", "granitemoe", "phimoe"):  # they know one width, the experts'
        return {**fields, "intermediate_size": experts.width}
    fields["moe_intermediate_size"] = experts.width
    match model.family:
        case "qwen2_moe":
            return {
                **fields,
                "mlp_only_layers": list(experts.dense_layers),
                "num_experts": experts.count,
                "shared_expert_intermediate_size": experts.shared,
            }
        case "qwen3_moe":
            return {**fields, "mlp_only_layers": list(experts.dense_layers)}
        case "ernie4_5_moe":
            return {**fields, "moe_num_shared_experts": experts.shared // experts.width, "moe_layer_start_index": first}
    return {**fields, "n_shared_experts": experts.shared // experts.width, "first_k_dense_replace": first}


def config_of(model: Model) -> Any:
    """The configuration from which transformers builds this model.

    Raises:
        NotModelled: the tracer does not know how the family spells its dimensions.
    """
    if model.head != "lm":
        return encoder_config(model)
    if model.family in ("gpt2", "gpt_bigcode"):
        return CONFIG_MAPPING[model.family](
            vocab_size=model.vocab,
            n_positions=model.max_position or 1024,
            n_embd=model.hidden,
            n_layer=model.layers,
            n_head=model.heads,
            n_inner=model.ffn,
            activation_function=model.activation,
            attn_pdrop=model.attention_dropout,
            resid_pdrop=model.residual_dropout,
            embd_pdrop=model.embedding_dropout,
            tie_word_embeddings=model.tied,
            **({"multi_query": model.kv_heads == 1} if model.family == "gpt_bigcode" else {}),
        )
    if model.family not in _PLAIN:
        raise NotModelled(
            f"the tracer cannot build a model of type {model.family!r} from dimensions",
            fix=f"trace one of {', '.join(sorted((*_PLAIN, 'gpt2')))}",
        )
    fields = {**_common(model), **_family(model), **_experts(model)}
    return CONFIG_MAPPING[model.family](**fields) if model.tower is None else whole_config(model, fields)
