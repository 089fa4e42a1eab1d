"""Module names of each family's decoder, as its modelling code spells them.

A ``Layout`` says what the modules are called; ``Model`` says how wide they are and which exist.
Names are those of transformers 5.24.0 ``models/<family>/modeling_<family>.py``; of ``qwen``,
``baichuan``, ``internlm``, ``internlm2``, ``chatglm``, ``exaone``, ``xverse``, ``orion``,
``minicpm`` and ``deepseek``, which transformers does not hold, of the ``modeling_*.py`` beside the weights.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from finefit.errors import NotModelled


@dataclass(frozen=True, slots=True)
class Layout:
    """Names of the modules of one decoder.

    Attributes:
        embedding, position, embedding_norm, final_norm, head: modules outside the layers, without the
            path of the body; ``position`` is the learned table ("" where there is none).
        norms: the hidden-wide norms of a layer, in order of use. A shared norm keeps the first only.
        attention, mlp: the containers inside a layer.
        q, k, v or qkv: projections, apart or as one matrix (``Model.fused_qkv``).
        gate, up or gate_up: likewise (``Model.fused_gate_up``); ``up`` alone where the MLP is not gated.
        q_norm, k_norm: norms of queries and keys (``Model.qk_norm``).
        moe: container of a mixture of experts; router, experts, shared, shared_gate: what is inside it.
        per_expert: every expert is a module with linear modules of its own. Otherwise all are stacked in
            ``experts.gate_up_proj`` (E, 2I, H) and ``experts.down_proj`` (E, H, I), as transformers 5 has them.
        conv1d: matrices are GPT-2's Conv1D, stored (in, out).
    """

    embedding: str = "embed_tokens"
    position: str = ""
    embedding_norm: str = ""
    final_norm: str = "norm"
    head: str = "lm_head"
    norms: tuple[str, ...] = ("input_layernorm", "post_attention_layernorm")
    attention: str = "self_attn"
    q: str = "q_proj"
    k: str = "k_proj"
    v: str = "v_proj"
    qkv: str = "qkv_proj"
    out: str = "o_proj"
    q_norm: str = "q_norm"
    k_norm: str = "k_norm"
    mlp: str = "mlp"
    gate: str = "gate_proj"
    up: str = "up_proj"
    gate_up: str = "gate_up_proj"
    down: str = "down_proj"
    moe: str = "mlp"
    router: str = "gate"
    experts: str = "experts"
    shared: str = "shared_experts"
    shared_gate: str = "shared_expert_gate"
    per_expert: bool = False
    conv1d: bool = False


_LLAMA = Layout()
_SANDWICH = replace(
    _LLAMA,
    norms=(
        "input_layernorm",
        "post_attention_layernorm",
        "pre_feedforward_layernorm",
        "post_feedforward_layernorm",
    ),
)
_AFTER = replace(_LLAMA, norms=("post_attention_layernorm", "post_feedforward_layernorm"))
_GPT2 = Layout(
    embedding="wte",
    position="wpe",
    final_norm="ln_f",
    norms=("ln_1", "ln_2"),
    attention="attn",
    qkv="c_attn",
    out="c_proj",
    up="c_fc",
    down="c_proj",
    conv1d=True,
)
_NEOX = Layout(
    embedding="embed_in",
    final_norm="final_layer_norm",
    attention="attention",
    qkv="query_key_value",
    out="dense",
    up="dense_h_to_4h",
    down="dense_4h_to_h",
)

_LFM2 = replace(
    _LLAMA,
    final_norm="embedding_norm",
    norms=("operator_norm", "ffn_norm"),
    out="out_proj",
    q_norm="q_layernorm",
    k_norm="k_layernorm",
    mlp="feed_forward",
    gate="w1",
    up="w3",
    down="w2",
)

LAYOUTS: dict[str, Layout] = {
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "ministral": _LLAMA,
    "ministral3": _LLAMA,
    "qwen2": _LLAMA,
    "qwen3": _LLAMA,
    "granite": _LLAMA,
    "smollm3": _LLAMA,
    "seed_oss": _LLAMA,
    "mimo": _LLAMA,
    "arcee": _LLAMA,
    "nemotron": _LLAMA,
    "ernie4_5": _LLAMA,
    "minicpm": _LLAMA,
    "internlm": _LLAMA,
    "internlm3": _LLAMA,
    "xverse": _LLAMA,
    "orion": _LLAMA,
    "olmo": _LLAMA,
    "stablelm": _LLAMA,
    "cohere": _LLAMA,
    "cohere2": _LLAMA,
    "gemma": _LLAMA,
    "gemma2": _SANDWICH,
    "gemma3_text": _SANDWICH,
    "vaultgemma": replace(_LLAMA, norms=("input_layernorm", "pre_feedforward_layernorm")),
    "glm": _LLAMA,
    "glm4": replace(
        _LLAMA,
        norms=("input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm", "post_mlp_layernorm"),
    ),
    "hunyuan_v1_dense": replace(_LLAMA, q_norm="query_layernorm", k_norm="key_layernorm"),
    "apertus": replace(_LLAMA, norms=("attention_layernorm", "feedforward_layernorm")),
    "olmo2": _AFTER,
    "olmo3": _AFTER,
    "exaone4": _AFTER,
    "phi": replace(_LLAMA, final_norm="final_layernorm", out="dense", up="fc1", down="fc2"),
    "phi3": _LLAMA,
    "starcoder2": replace(_LLAMA, up="c_fc", down="c_proj"),
    "baichuan": replace(_LLAMA, qkv="W_pack"),
    "internlm2": Layout(
        embedding="tok_embeddings",
        head="output",
        norms=("attention_norm", "ffn_norm"),
        attention="attention",
        qkv="wqkv",
        out="wo",
        mlp="feed_forward",
        gate="w1",
        up="w3",
        down="w2",
    ),
    "qwen": replace(_GPT2, position="", up="w1", gate="w2", conv1d=False),
    "exaone": Layout(
        embedding="wte",
        final_norm="ln_f",
        norms=("ln_1", "ln_2"),
        attention="attn.attention",
        out="out_proj",
        gate="c_fc_0",
        up="c_fc_1",
        down="c_proj",
    ),
    "chatglm": replace(
        _NEOX,
        embedding="word_embeddings",
        final_norm="final_layernorm",
        head="output_layer",
        attention="self_attention",
        gate_up="dense_h_to_4h",
    ),
    "mixtral": _LLAMA,
    "qwen2_moe": replace(_LLAMA, shared="shared_expert"),
    "qwen3_moe": _LLAMA,
    "olmoe": _LLAMA,
    "granitemoe": replace(_LLAMA, moe="block_sparse_moe", router="router"),
    "phimoe": replace(_LLAMA, router="router"),
    "glm4_moe": _LLAMA,
    "dots1": _LLAMA,
    "ernie4_5_moe": _LLAMA,
    "deepseek": replace(_LLAMA, per_expert=True),
    "minimax_m2": _LLAMA,
    "hunyuan_v1_moe": replace(
        _LLAMA, q_norm="query_layernorm", k_norm="key_layernorm", router="gate", shared="shared_mlp"
    ),
    "hy_v3": _LLAMA,
    "solar_open": _LLAMA,
    "mellum": _LLAMA,
    "gpt_oss": replace(_LLAMA, router="router"),
    "nemotron_h": replace(
        _LLAMA,
        embedding="embeddings",
        final_norm="norm_f",
        norms=("norm",),
        attention="mixer",
        mlp="mixer",
        moe="mixer",
    ),
    "granitemoehybrid": replace(
        _LLAMA,
        mlp="shared_mlp",
        gate_up="input_linear",
        down="output_linear",
        moe="block_sparse_moe",
        router="router",
    ),
    "lfm2": _LFM2,
    "lfm2_moe": replace(_LFM2, moe="feed_forward"),
    "qwen3_next": replace(_LLAMA, shared="shared_expert"),
    "qwen3_5_text": _LLAMA,
    "qwen3_5_moe_text": replace(_LLAMA, shared="shared_expert"),
    "deepseek_v2": _LLAMA,
    "deepseek_v3": _LLAMA,
    "glm4_moe_lite": _LLAMA,
    "minicpm3": _LLAMA,
    "gpt2": _GPT2,
    "gpt_bigcode": replace(_GPT2, conv1d=False),
    "gpt_neo": replace(
        _GPT2, attention="attn.attention", q="q_proj", k="k_proj", v="v_proj", out="out_proj", conv1d=False
    ),
    "gptj": replace(_GPT2, position="", out="out_proj", up="fc_in", down="fc_out", conv1d=False),
    "gpt_neox": _NEOX,
    "bloom": replace(
        _NEOX,
        embedding="word_embeddings",
        embedding_norm="word_embeddings_layernorm",
        final_norm="ln_f",
        attention="self_attention",
    ),
    "falcon": replace(
        _NEOX,
        embedding="word_embeddings",
        final_norm="ln_f",
        norms=("input_layernorm", "post_attention_layernorm"),
        attention="self_attention",
    ),
    "mpt": Layout(
        embedding="wte",
        final_norm="norm_f",
        norms=("norm_1", "norm_2"),
        attention="attn",
        qkv="Wqkv",
        out="out_proj",
        mlp="ffn",
    ),
    "opt": Layout(
        position="embed_positions",
        final_norm="final_layer_norm",
        norms=("self_attn_layer_norm", "final_layer_norm"),
        out="out_proj",
        mlp="",
        up="fc1",
        down="fc2",
    ),
}

# Layers of vision towers, by the module that holds them.
_ENCODER = Layout(norms=("layer_norm1", "layer_norm2"), out="out_proj", up="fc1", down="fc2")
_QWEN_VISION = Layout(norms=("norm1", "norm2"), attention="attn", qkv="qkv", out="proj", up="fc1", down="fc2")
LAYOUTS |= {
    "siglip_vision_model": _ENCODER,
    "clip_vision_model": _ENCODER,
    "qwen2_vl_vision": _QWEN_VISION,
    "qwen2_5_vl_vision": replace(_QWEN_VISION, up="up_proj", down="down_proj"),
    "qwen3_vl_vision": replace(_QWEN_VISION, up="linear_fc1", down="linear_fc2"),
    "pixtral": Layout(norms=("attention_norm", "ffn_norm"), attention="attention", mlp="feed_forward"),
}

# peft 0.21.2 utils/constants.py TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING, the families above.
PEFT_DEFAULT_TARGETS: dict[str, tuple[str, ...]] = {
    "llama": ("q_proj", "v_proj"),
    "mistral": ("q_proj", "v_proj"),
    "mixtral": ("q_proj", "v_proj"),
    "stablelm": ("q_proj", "v_proj"),
    "gemma": ("q_proj", "v_proj"),
    "gemma2": ("q_proj", "v_proj"),
    "gemma3_text": ("q_proj", "v_proj"),
    "qwen2": ("q_proj", "v_proj"),
    "qwen3": ("q_proj", "v_proj"),
    "opt": ("q_proj", "v_proj"),
    "gptj": ("q_proj", "v_proj"),
    "gpt_neo": ("q_proj", "v_proj"),
    "phi": ("q_proj", "v_proj", "fc1", "fc2"),
    "gpt2": ("c_attn",),
    "gpt_bigcode": ("c_attn",),
    "bloom": ("query_key_value",),
    "gpt_neox": ("query_key_value",),
    "chatglm": ("query_key_value",),
    "mpt": ("Wqkv",),
    "falcon": ("query_key_value",),
}

# transformers 5.24.0 conversion_mapping.py _MODEL_TO_CONVERSION_PATTERN
_AS_QWEN2_MOE = [
    "qwen2_moe",
    "qwen3_moe",
    "olmoe",
    "glm4_moe",
    "dots1",
    "ernie4_5_moe",
    "deepseek_v2",
    "deepseek_v3",
    "deepseek_v32",
    "glm4_moe_lite",
    "glm_moe_dsa",
    "longcat_flash",
    "solar_open",
    "mellum",
    "qwen3_next",
    "hunyuan_v1_moe",
]
_V4_EXPERTS = frozenset({"gate", "gate_proj", "up_proj", "down_proj"})
# Targets that peft from 0.19 on turns into the router's and the experts' tensors, where transformers 5 stacks
# them (peft 0.21.2 utils/transformers_weight_conversion.py _MOE_TARGET_MODULE_MAPPING). A shared expert of the
# same names then gets no adapter.
EXPERT_TARGETS: dict[str, frozenset[str]] = {
    **dict.fromkeys(("mixtral", "minimax", "minimax_m2"), frozenset({"gate", "w1", "w2", "w3"})),
    **dict.fromkeys(_AS_QWEN2_MOE, _V4_EXPERTS),
}


def layout(family: str) -> Layout:
    """Module names of a family.

    Raises:
        NotModelled: no layout is known for that ``model_type``.
    """
    from finefit.workload.encoder import LAYOUTS as ENCODERS  # they build on the class above
    from finefit.workload.seq2seq import LAYOUTS as SEQ2SEQ

    others = ENCODERS | SEQ2SEQ
    try:
        return others[family] if family in others else LAYOUTS[family]
    except KeyError:
        raise NotModelled(
            f"the structure of model type {family!r} is not modelled",
            fix="use a decoder such as llama, mistral, qwen3, gemma2, phi3, gpt2, mixtral or qwen3_moe",
        ) from None
