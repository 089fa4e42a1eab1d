"""What a family spells in its own way and what differs from layer to layer.

Read in transformers 5.24.0 ``models/<family>/configuration_<family>.py`` and ``modeling_<family>.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from finefit.errors import InputError, NotModelled
from finefit.workload.model import Latent, LinearAttention, Mamba2, Model


class Keys(Protocol):
    """Typed access to a configuration (``hf_config``)."""

    config: Mapping[str, Any]
    where: str

    def get(self, *names: str) -> Any: ...
    def size(self, *names: str, default: int | None = None) -> int: ...
    def flag(self, flag: bool | tuple[str, bool]) -> bool: ...


def particulars(keys: Keys, model: Model) -> Model:
    """The model with what only its family has."""
    read = _READERS.get(model.family)
    return read(keys, model) if read else model


def _falcon(keys: Keys, model: Model) -> Model:
    """FalconConfig: key/value heads by architecture, one norm a layer or two, ALiBi in the RW models."""
    new = keys.flag(("new_decoder_architecture", False))
    grouped = keys.size("num_kv_heads", "n_head_kv", default=model.heads)
    norms = keys.size("num_ln_in_parallel_attn", default=2 if new else 1)
    return replace(
        model,
        kv_heads=grouped if new else 1 if keys.flag(("multi_query", True)) else model.heads,
        ffn=keys.size("ffn_hidden_size", default=4 * model.hidden),
        shared_norm=model.parallel_block and norms == 1,
        position="alibi" if keys.flag(("alibi", False)) else "rope",
    )


def _unrotated_full(keys: Keys, model: Model) -> Model:
    """Cohere 2 and EXAONE 4 rotate in sliding layers alone, where there are any."""
    full = tuple(i for i, kind in enumerate(model.layer_types) if kind == "full")
    return replace(model, unrotated=full if model.sliding_window else ())


def _listed_unrotated(keys: Keys, model: Model) -> Model:
    """SmolLM 3 and Llama 4: ``no_rope_layers`` holds 0 where a layer has no rotary position."""
    listed = keys.get("no_rope_layers")
    if listed is None:
        period = keys.size("no_rope_layer_interval", default=4)
        return replace(model, unrotated=tuple(i for i in range(model.layers) if (i + 1) % period == 0))
    if not isinstance(listed, list) or len(listed) != model.layers:
        raise InputError(
            "no_rope_layers does not name every layer", where=keys.where, fix=f"give {model.layers} numbers, 0 or 1"
        )
    return replace(model, unrotated=tuple(i for i, rotated in enumerate(listed) if not rotated))


_LATENT: dict[str, tuple[int, int, int, int, int]] = {  # defaults: q_lora_rank, kv_lora_rank, nope, rope, value
    "deepseek_v2": (1536, 512, 128, 64, 128),
    "deepseek_v3": (1536, 512, 128, 64, 128),
    "glm4_moe_lite": (768, 512, 192, 64, 256),
    "minicpm3": (768, 256, 64, 32, 0),
}


def _latent(keys: Keys, model: Model) -> Model:
    """Multi-head latent attention: ``q_lora_rank`` null means one query matrix; every head has its own keys."""
    query, key_value, nope, rope, value = _LATENT[model.family]
    stated = "q_lora_rank" in keys.config
    latent = Latent(
        query=None if stated and keys.config["q_lora_rank"] is None else keys.size("q_lora_rank", default=query),
        key_value=keys.size("kv_lora_rank", default=key_value),
        nope=keys.size("qk_nope_head_dim", default=nope),
        rope=keys.size("qk_rope_head_dim", default=rope),
        value=keys.size("v_head_dim", default=value or model.hidden // model.heads),
    )
    return replace(model, kv_heads=model.heads, head_dim=latent.nope + latent.rope, latent=latent)


def _minimax(keys: Keys, model: Model) -> Model:
    """MiniMax-M2 rotates the first ``rotary_dim`` elements of a head."""
    turned = keys.size("rotary_dim", default=model.head_dim)
    return replace(model, rotary_fraction=min(turned, model.head_dim) / model.head_dim)


def _gated_delta(keys: Keys, model: Model) -> Model:
    """Qwen3-Next and Qwen3.5: every fourth layer has attention, the others a gated delta net."""
    listed = keys.get("layer_types")
    if listed is None:
        period = keys.size("full_attention_interval", default=4)
        kinds = tuple("linear" if (i + 1) % period else "full" for i in range(model.layers))
    else:
        kinds = _kinds(keys, model, listed, {"linear_attention": "linear", "full_attention": "full"})
    linear = LinearAttention(
        key_heads=keys.size("linear_num_key_heads", default=16),
        value_heads=keys.size("linear_num_value_heads", default=32),
        key_dim=keys.size("linear_key_head_dim", default=128),
        value_dim=keys.size("linear_value_head_dim", default=128),
        conv=keys.size("linear_conv_kernel_dim", default=4),
    )
    return replace(model, layer_types=kinds, linear=linear, output_gate=True)


_NEMOTRON_WORDS = {
    "linear_attention": "mamba2",
    "mamba": "mamba2",
    "full_attention": "full",
    "attention": "full",
    "mlp": "mlp",
    "moe": "moe",
}
_NEMOTRON_LETTERS = {"M": "mamba2", "*": "full", "-": "mlp", "E": "moe"}


def _nemotron_h(keys: Keys, model: Model) -> Model:
    """Each layer is one mixer, named in ``layers_block_type`` or by a letter of ``hybrid_override_pattern``.

    Raises:
        InputError: a mixer or a letter that is not known.
    """
    listed, pattern = keys.get("layers_block_type", "layer_types"), keys.get("hybrid_override_pattern")
    words: Mapping[str, str] = _NEMOTRON_WORDS
    if listed is None and isinstance(pattern, str):
        listed, words = list(pattern), _NEMOTRON_LETTERS
    if not isinstance(listed, list) or not listed or not all(kind in words for kind in listed):
        raise InputError(
            "no list says which layer is what",
            where=keys.where,
            fix="add layers_block_type or hybrid_override_pattern as the model's config.json has it",
        )
    kinds = tuple(words[kind] for kind in listed)
    mamba = Mamba2(
        heads=keys.size("mamba_num_heads", "mamba_n_heads", default=128),
        head_dim=keys.size("mamba_head_dim", "mamba_d_head", default=64),
        state=keys.size("ssm_state_size", "mamba_d_state", default=128),
        groups=keys.size("mamba_n_groups", "n_groups", default=8),
        conv=keys.size("mamba_d_conv", "conv_kernel", default=4),
        chunk=keys.size("mamba_chunk_size", "chunk_size", default=128),
        conv_bias=keys.flag(("use_conv_bias", True)),
        bias=keys.flag(("use_bias", False)),
    )
    experts = model.experts
    if experts is not None:
        dense = tuple(i for i, kind in enumerate(kinds) if kind != "moe")
        latent = keys.config.get("moe_latent_size")
        experts = replace(experts, dense_layers=dense, latent=latent if isinstance(latent, int) else 0)
    return replace(
        model, layers=len(kinds), layer_types=kinds, mamba2=mamba, experts=experts if "moe" in kinds else None
    )


def _granite_hybrid(keys: Keys, model: Model) -> Model:
    """Granite 4.0: attention or Mamba 2 in each layer, an MLP of ``shared_intermediate_size``.

    Raises:
        NotModelled: the sizes with routed experts beside that MLP.
    """
    if keys.config.get("num_local_experts", 8) != 0:
        raise NotModelled(
            f"{model.name} has routed experts beside its MLP, which are not modelled yet for granitemoehybrid",
            where=keys.where,
            fix="take a dense size of the family",
        )
    listed = keys.get("layer_types", "layers_block_type")
    words = {"mamba": "mamba2", "linear_attention": "mamba2", "attention": "full", "full_attention": "full"}
    kinds = ("mamba2",) * model.layers if listed is None else _kinds(keys, model, listed, words)
    heads = keys.size("mamba_n_heads", default=128)
    width = keys.get("mamba_d_head")
    inner = keys.size("mamba_expand", default=2) * model.hidden
    mamba = Mamba2(
        heads=heads,
        head_dim=width if isinstance(width, int) else inner // heads,
        state=keys.size("mamba_d_state", default=256),
        groups=keys.size("mamba_n_groups", default=1),
        conv=keys.size("mamba_d_conv", default=4),
        chunk=keys.size("mamba_chunk_size", default=256),
        conv_bias=keys.flag(("mamba_conv_bias", True)),
        bias=keys.flag(("mamba_proj_bias", False)),
    )
    rotary = keys.get("position_embedding_type") == "rope"
    return replace(
        model,
        ffn=keys.size("shared_intermediate_size", default=1024),
        layer_types=kinds if "mamba2" in kinds else (),
        mamba2=mamba if "mamba2" in kinds else None,
        position="rope" if rotary else "none",
    )


def _lfm2(keys: Keys, model: Model) -> Model:
    """LFM2: a short convolution or attention in each layer; the MLP's width is two thirds of what the file says."""
    listed, attending = keys.get("layer_types"), keys.get("full_attn_idxs")
    if listed is None:
        full = range(model.layers) if not isinstance(attending, list) else attending
        kinds = tuple("full" if i in full else "conv" for i in range(model.layers))
    else:
        kinds = _kinds(keys, model, listed, {"conv": "conv", "full_attention": "full"})
    width = keys.size("block_ff_dim", "intermediate_size", default=12288)
    if model.family == "lfm2" and keys.flag(("block_auto_adjust_ff_dim", True)):
        multiplier, multiple = keys.get("block_ffn_dim_multiplier"), keys.size("block_multiple_of", default=256)
        width = 2 * width // 3
        if "block_ffn_dim_multiplier" not in keys.config or multiplier is not None:
            width = int((multiplier if isinstance(multiplier, int | float) else 1) * width)
            width = multiple * -(-width // multiple)
    tied = keys.flag(("tie_embedding", model.tied))
    return replace(
        model, ffn=width, layer_types=kinds, tied=tied, conv_width=keys.size("conv_L_cache", default=3),
        conv_bias=keys.flag(("conv_bias", False)),
    )  # fmt: skip


def _kinds(keys: Keys, model: Model, listed: object, words: Mapping[str, str]) -> tuple[str, ...]:
    """``layer_types`` in this program's words.

    Raises:
        InputError: another number of layers, or a word that the family does not know.
    """
    if not isinstance(listed, list) or len(listed) != model.layers or not all(kind in words for kind in listed):
        raise InputError(
            "layer_types does not fit the model",
            where=keys.where,
            fix=f"name {model.layers} layers, each {' or '.join(words)}",
        )
    return tuple(words[kind] for kind in listed)


_READERS: dict[str, Callable[[Keys, Model], Model]] = {
    "falcon": _falcon,
    "cohere2": _unrotated_full,
    "exaone4": _unrotated_full,
    "smollm3": _listed_unrotated,
    "minimax_m2": _minimax,
    **dict.fromkeys(("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"), _gated_delta),
    "granitemoehybrid": _granite_hybrid,
    "lfm2": _lfm2,
    "lfm2_moe": _lfm2,
    "nemotron_h": _nemotron_h,
    **dict.fromkeys(_LATENT, _latent),
}
