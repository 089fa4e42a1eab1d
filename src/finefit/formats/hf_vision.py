"""``vision_config`` and what stands beside it in a config.json → ``Tower``.

Defaults are those of transformers 5.24.0 ``models/<kind>/configuration_<kind>.py`` and of the processors in
``image_processing_<kind>.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from finefit.errors import InputError
from finefit.workload.model import Model
from finefit.workload.tower import Tower

# model_type of the whole -> model_type of its language model where text_config does not say it
TEXT_TYPES = {
    "qwen2_vl": "qwen2",
    "qwen2_5_vl": "qwen2",
    "qwen3_vl": "qwen3",
    "qwen3_vl_moe": "qwen3_moe",
    "gemma3": "gemma3_text",
    "paligemma": "gemma",
    "llava": "llama",
    "llava_next": "llama",
    "mistral3": "mistral",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
}
# Kinds whose tower is known by its number of parameters alone (``tower_parameters`` of a catalogue row), and the
# model_type of their language model
_OPAQUE = {
    "glm4v": "glm4",
    "glm4v_moe": "glm4_moe",
    "exaone4_5": "exaone4",
    "kimi_k25": "deepseek_v3",
    "phi4_multimodal": "phi3",
    "voxtral": "llama",
    "llama4": "llama4_text",
    "gemma4": "gemma4_text",
    "lfm2_vl": "lfm2",
    "mllama": "llama",  # its self-attention layers; those that attend to the tower are counted with it
}
# The class of the text_config gives these where the file leaves them out; keys as in config.json.
_TEXT_DEFAULTS: dict[str, dict[str, Any]] = {
    # configuration_gemma3.py Gemma3TextConfig
    "gemma3_text": {
        "vocab_size": 262_208,
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
    },
    # configuration_llama.py LlamaConfig
    "llama": {
        "vocab_size": 32_000,
        "hidden_size": 4096,
        "intermediate_size": 11_008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
    },
}


def text_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The language model's own configuration, with what the whole says for it.

    Qwen2-VL writes it flat, others under ``text_config``; both may be there, and the nested one wins.
    """
    kind = str(config["model_type"])
    nested = config.get("text_config")
    flat = {k: v for k, v in config.items() if k not in ("vision_config", "text_config", "architectures")}
    text = {**flat, **nested} if isinstance(nested, Mapping) else flat
    stated = nested.get("model_type") if isinstance(nested, Mapping) else None
    inner = TEXT_TYPES.get(kind) or _OPAQUE.get(kind) or str(stated or kind)
    if kind in ("llava", "llava_next", "mistral3") and stated:
        inner = str(stated)
    text["model_type"] = inner
    # The head belongs to the whole model, so its own key decides (transformers 5 reads no other).
    if "tie_word_embeddings" in config:
        text["tie_word_embeddings"] = config["tie_word_embeddings"]
    for key, value in _TEXT_DEFAULTS.get(inner, {}).items():
        if text.get(key) is None:
            text[key] = value
    return text


# Bounds of area in the preprocessor_config.json published with the weights: 4 to 16,384 tokens of 28 x 28 pixels,
# and for Qwen3-VL 64 to 16,384 of 32 x 32 (shortest_edge, longest_edge).
_QWEN2_PIXELS = (56 * 56, 28 * 28 * 16_384)
_QWEN3_PIXELS = (65_536, 16_777_216)


class _Vision:
    """Typed access to ``vision_config``; every complaint names the key."""

    def __init__(self, config: Mapping[str, Any], where: str) -> None:
        block = config.get("vision_config")
        self.block: Mapping[str, Any] = block if isinstance(block, Mapping) else {}
        self.whole, self.where = config, where

    def size(self, key: str, default: int, *others: str) -> int:
        """A positive integer of the block, under any of its names.

        Raises:
            InputError: something else than that.
        """
        for name in (key, *others):
            value = self.block.get(name)
            if value is not None:
                return self._whole_number(f"vision_config.{name}", value)
        return default

    def outer(self, key: str, default: int) -> int:
        """A positive integer beside the block."""
        value = self.whole.get(key)
        return default if value is None else self._whole_number(key, value)

    def _whole_number(self, key: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(f"{key} is {value!r}", where=self.where, fix=f"{key} must be a whole number above 0")
        return value

    def indices(self, key: str, default: tuple[int, ...], layers: int) -> tuple[int, ...]:
        """Indices of layers."""
        value = self.block.get(key)
        if value is None:
            return default
        if not isinstance(value, list) or not all(isinstance(i, int) and 0 <= i < layers for i in value):
            raise InputError(
                f"vision_config.{key} is {value!r}", where=self.where, fix=f"list layers from 0 to {layers - 1}"
            )
        return tuple(value)


def _body(keys: _Vision, family: str, hidden: int, layers: int, heads: int, ffn: int, **more: Any) -> Model:
    if hidden % heads:
        raise InputError(
            f"{heads} attention heads do not divide a vision tower of width {hidden}",
            where=keys.where,
            fix="check vision_config",
        )
    fields = {"norm": "layer", "gated_mlp": False, "qkv_bias": True, "o_bias": True, "mlp_bias": True, **more}
    return Model(family, family, hidden, layers, heads, heads, hidden // heads, ffn, 1, True, position="none", **fields)


def tower_from_config(config: Mapping[str, Any], out: int, where: str) -> Tower:
    """The vision tower a config.json describes (see ``has_tower``), for a language model of width ``out``.

    Raises:
        InputError: a key has an impossible value.
    """
    kind = str(config["model_type"])
    if kind in _OPAQUE:
        body = Model(kind, "siglip_vision_model", 1, 1, 1, 1, 1, 1, 1, True)
        return Tower(kind, body, 1, out, opaque=int(config["tower_parameters"]))
    return _READERS[kind](_Vision(config, where), kind, out)


def _qwen2(keys: _Vision, kind: str, out: int) -> Tower:
    hidden = keys.size("embed_dim", 1280)
    ffn = hidden * keys.size("mlp_ratio", 4)
    body = _body(
        keys,
        "qwen2_vl_vision",
        hidden,
        keys.size("depth", 32),
        keys.size("num_heads", 16),
        ffn,
        fused_qkv=True,
        activation=str(keys.block.get("hidden_act") or "quick_gelu"),
    )
    return _dynamic(keys, kind, body, out, 14, *_QWEN2_PIXELS)


def _qwen2_5(keys: _Vision, kind: str, out: int) -> Tower:
    layers = keys.size("depth", 32)
    body = _body(
        keys,
        "qwen2_5_vl_vision",
        keys.size("hidden_size", 3584),
        layers,
        keys.size("num_heads", 16),
        keys.size("intermediate_size", 3420),
        fused_qkv=True,
        gated_mlp=True,
        norm="rms",
    )
    full = keys.indices("fullatt_block_indexes", (7, 15, 23, 31), layers)
    window = keys.size("window_size", 112)
    return _dynamic(keys, kind, body, out, 14, *_QWEN2_PIXELS, full=full, window=window)


def _qwen3(keys: _Vision, kind: str, out: int) -> Tower:
    layers = keys.size("depth", 27)
    body = _body(
        keys,
        "qwen3_vl_vision",
        keys.size("hidden_size", 1152),
        layers,
        keys.size("num_heads", 16),
        keys.size("intermediate_size", 4304),
        fused_qkv=True,
        activation=str(keys.block.get("hidden_act") or "gelu_pytorch_tanh"),
    )
    taps = () if kind.startswith("qwen3_5") else keys.indices("deepstack_visual_indexes", (8, 16, 24), layers)
    positions = keys.size("num_position_embeddings", 2304)
    return _dynamic(keys, kind, body, out, 16, *_QWEN3_PIXELS, taps=taps, positions=positions)


def _dynamic(keys: _Vision, kind: str, body: Model, out: int, patch: int, least: int, most: int, **more: Any) -> Tower:
    patch = keys.size("patch_size", patch, "spatial_patch_size")
    temporal, merge = keys.size("temporal_patch_size", 2), keys.size("spatial_merge_size", 2)
    return Tower(kind, body, patch, out, temporal, merge, min_pixels=least, max_pixels=most, **more)


def _siglip(keys: _Vision, kind: str, out: int) -> Tower:
    gemma = kind == "gemma3"
    image, patch = keys.size("image_size", 896 if gemma else 224), keys.size("patch_size", 14)
    body = _body(
        keys,
        "siglip_vision_model",
        keys.size("hidden_size", 1152),
        keys.size("num_hidden_layers", 27),
        keys.size("num_attention_heads", 16),
        keys.size("intermediate_size", 4304),
        activation=str(keys.block.get("hidden_act") or "gelu_pytorch_tanh"),
    )
    positions = (image // patch) ** 2
    tokens = keys.outer("mm_tokens_per_image", 256) if gemma else positions
    return Tower(kind, body, patch, out, image=image, tokens=tokens, positions=positions)


def _clip(keys: _Vision, kind: str, out: int) -> Tower:
    image, patch = keys.size("image_size", 336), keys.size("patch_size", 14)
    body = _body(
        keys,
        "clip_vision_model",
        keys.size("hidden_size", 1024),
        keys.size("num_hidden_layers", 24),
        keys.size("num_attention_heads", 16),
        keys.size("intermediate_size", 4096),
        activation=str(keys.block.get("hidden_act") or "quick_gelu"),
    )
    count = (image // patch) ** 2
    return Tower(kind, body, patch, out, image=image, tokens=count, positions=count + 1)


def _pixtral(keys: _Vision, kind: str, out: int) -> Tower:
    body = _body(
        keys,
        "pixtral",
        keys.size("hidden_size", 1024),
        keys.size("num_hidden_layers", 24),
        keys.size("num_attention_heads", 16),
        keys.size("intermediate_size", 4096),
        norm="rms",
        gated_mlp=True,
        qkv_bias=False,
        o_bias=False,
        mlp_bias=False,
        activation=str(keys.block.get("hidden_act") or "gelu"),
    )
    image, patch = keys.size("image_size", 1024), keys.size("patch_size", 16)
    merge = keys.outer("spatial_merge_size", 2)
    bias = bool(keys.whole.get("multimodal_projector_bias", False))
    return Tower(kind, body, patch, out, merge=merge, image=image, projector_bias=bias)


_READERS = {
    "qwen2_vl": _qwen2,
    "qwen2_5_vl": _qwen2_5,
    "qwen3_vl": _qwen3,
    "qwen3_vl_moe": _qwen3,
    "qwen3_5": _qwen3,
    "qwen3_5_moe": _qwen3,
    "gemma3": _siglip,
    "paligemma": _siglip,
    "llava": _clip,
    "llava_next": _clip,
    "mistral3": _pixtral,
}


def has_tower(config: Mapping[str, Any]) -> bool:
    """Whether the file describes a vision tower of a kind that is read here."""
    if str(config.get("model_type")) in _OPAQUE:
        return isinstance(config.get("tower_parameters"), int)
    described = isinstance(config.get("vision_config"), Mapping) or isinstance(config.get("text_config"), Mapping)
    return described and str(config.get("model_type")) in _READERS
