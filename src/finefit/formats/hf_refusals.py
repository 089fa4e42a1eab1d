"""Why a configuration is not modelled yet: one phrase each, from its model_type or from its keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from finefit.formats.hf_experts import MIXTURES
from finefit.formats.hf_families import SAME_AS, TRAITS

_MOE = "a mixture of experts of another form than those modelled"
_MLA_MOE = "a mixture of experts with multi-head latent attention"
_HYBRID = "a hybrid of attention and linear-attention or state-space layers"
_HYBRID_MOE = "a hybrid mixture of experts (attention and linear-attention or state-space layers)"
_VISION = "a vision-language model"
_AUDIO = "an audio-language model"
_OMNI = "a multi-modal model"
_ENCODER = "an encoder without a language-model head"
_SEQ2SEQ = "an encoder-decoder model"
_SSM = "a state-space model"
_MLA = "a dense decoder with multi-head latent attention"
_NAS = "a decoder whose layers differ in width, some without attention"

_TYPES: dict[str, str] = {
    _MOE: "dbrx mistral_large4 mimo_v2_flash step3p7",
    _MLA_MOE: "deepseek_v32 deepseek_v4 deepseek_ref longcat_flash glm_moe_dsa mistral4",
    _HYBRID: "olmo_hybrid recurrent_gemma",
    _HYBRID_MOE: "jamba kimi_linear minimax bailing_hybrid kimi_k3",
    _SSM: "mamba mamba2 falcon_mamba rwkv rwkv5 rwkv6 rwkv7",
    _VISION: "mllama mistral3 qwen2_vl qwen2_5_vl qwen3_vl qwen3_vl_moe gemma3 gemma4 paligemma llava llava_next "
    "llava_llama llama4 glm4v glm4v_moe glm5_next kimi_k25 phi3_v ernie4_5_vl_moe minimax_m3_vl minimax_m3 "
    "exaone4_5 lfm2_vl qwen3_5 qwen3_5_moe muse_glimmer multi_modality deepseek_vl_v2 clip internvl_chat minicpmv "
    "idefics2 idefics3 smolvlm",
    _AUDIO: "voxtral qwen2_audio ultravox",
    _OMNI: "phi4_multimodal phi4mm inkling_mm_model qwen2_5_omni gemma3n minicpmo",
    _ENCODER: "bert roberta xlm-roberta modernbert deberta deberta-v2 distilbert nomic_bert jina_embeddings_v3 electra",
    _SEQ2SEQ: "t5 mt5 umt5 bart mbart pegasus",
    "a speech encoder-decoder model": "whisper",
    "a decoder with per-layer embeddings and alternating updates": "gemma3n_text",
    "a decoder with block-sparse attention": "phi3small",
    _NAS: "nemotron-nas",
    "a decoder with ternary weights": "bitnet",
}
REASONS: dict[str, str] = {model_type: why for why, types in _TYPES.items() for model_type in types.split()}

_EXPERT_KEYS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "num_routed_experts")
_OTHER_MODALITY = {
    "vision_config": _VISION,
    "visual": _VISION,
    "img_processor": _VISION,
    "mm_vision_tower": _VISION,
    "language_config": _VISION,
    "audio_config": _AUDIO,
    "thinker_config": _OMNI,
}


def reason(config: Mapping[str, Any]) -> str | None:
    """What this configuration is, when that is not modelled; None when nothing speaks against it."""
    model_type = str(config.get("model_type") or "")
    if model_type in REASONS:
        return REASONS[model_type]
    for key, what in _OTHER_MODALITY.items():
        if config.get(key):
            return what
    if SAME_AS.get(model_type, model_type) not in MIXTURES and any(_many(config.get(key)) for key in _EXPERT_KEYS):
        return _MLA_MOE if config.get("kv_lora_rank") else _MOE
    if config.get("kv_lora_rank") and SAME_AS.get(model_type, model_type) not in TRAITS:
        return _MLA
    if config.get("block_configs"):
        return _NAS
    if config.get("is_encoder_decoder"):
        return _SEQ2SEQ
    return _head(config, model_type)


def _head(config: Mapping[str, Any], model_type: str) -> str | None:
    """Reasons that lie in the head rather than the body."""
    architectures = config.get("architectures")
    name = str(architectures[0]) if isinstance(architectures, list) and architectures else ""
    if config.get("draft_vocab_size") or "Eagle" in name:
        return "a draft model for speculative decoding"
    if "Reward" in name or name.endswith(("Classification", "ForQuestionAnswering")):
        return f"a decoder with another head than a language model's ({name})"
    if name.endswith("ForConditionalGeneration"):
        return _VISION
    return None


def is_headless(config: Mapping[str, Any]) -> bool:
    """The weights hold a body alone, as those of embedding models do (chatglm's class name lacks the head it has)."""
    architectures = config.get("architectures")
    name = str(architectures[0]) if isinstance(architectures, list) and architectures else ""
    body = name.endswith("Model") and not name.endswith("LMHeadModel")
    return body and config.get("model_type") != "chatglm"


def _many(value: Any) -> bool:
    if isinstance(value, list):
        return any(_many(item) for item in value)
    return isinstance(value, int) and value > 1
