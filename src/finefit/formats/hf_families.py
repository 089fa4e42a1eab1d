"""What each family's configuration class and modelling code fix or default, by ``model_type``.

Read in transformers 5.24.0 ``models/<family>/configuration_<family>.py`` and ``modeling_<family>.py``;
``qwen``, ``baichuan``, ``internlm``, ``internlm2``, ``chatglm``, ``exaone``, ``xverse``, ``orion``,
``minicpm``, ``mimo`` and ``deepseek``, which transformers does not hold, in the ``configuration_*.py`` and
``modeling_*.py`` published beside their weights.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

Flag = bool | tuple[str, bool]  # fixed by the code, or (config key, its default)


@dataclass(frozen=True, slots=True)
class Traits:
    """Switches of one family.

    Attributes:
        tied: default of ``tie_word_embeddings``.
        kv_heads: default of ``num_key_value_heads``; None: as many as heads.
        head_dim: default of ``head_dim``; None: hidden / heads.
        sliding: which layers slide when a window is set: "" (the key is ignored), "all", "alternate"
            (every second is full), "third" / "fifth" (full after 3 / 5 sliding ones), "late"
            (Qwen: from ``max_window_layers`` on, if ``use_sliding_window``), "switched" (all, if that key
            is set), "odd" (GPT-Neo local layers).
        window: default of ``sliding_window``.
        dropouts: defaults of attention, residual and embedding dropout.
        dtype: what the code loads when config.json names no dtype ("" : not fixed by it).
    """

    tied: bool = False
    kv_heads: int | None = None
    head_dim: int | None = None
    activation: str = "silu"
    gated: bool = True
    norm: str = "rms"
    norm_weight: bool = True
    norm_bias: bool = True
    post_norm: bool = False
    sandwich: bool = False
    embedding_norm: bool = False
    qk_norm: str = ""
    qkv_bias: Flag = False
    o_bias: Flag = False
    mlp_bias: Flag = False
    head_bias: Flag = False
    parallel: Flag = False
    shared_norm: bool = False
    position: str = "rope"
    rotary_fraction: float = 1.0
    fused_qkv: bool = False
    fused_gate_up: bool = False
    sliding: str = ""
    window: int | None = None
    dropouts: tuple[float, float, float] = (0.0, 0.0, 0.0)
    attention_softcap: float | None = None
    final_softcap: float | None = None
    max_position: int = 2048
    dtype: str = ""


_ATTENTION: Flag = ("attention_bias", False)
_LLAMA = Traits(qkv_bias=_ATTENTION, o_bias=_ATTENTION, mlp_bias=("mlp_bias", False))
_ALL_BIASES = Traits(activation="gelu_new", gated=False, norm="layer", qkv_bias=True, o_bias=True, mlp_bias=True)
_GPT2 = replace(_ALL_BIASES, tied=True, position="learned", fused_qkv=True, dropouts=(0.1, 0.1, 0.1), max_position=1024)
_GEMMA = Traits(
    tied=True,
    activation="gelu_pytorch_tanh",
    kv_heads=4,
    head_dim=256,
    qkv_bias=_ATTENTION,
    o_bias=_ATTENTION,
    max_position=8192,
)
_GLM = Traits(
    kv_heads=2,
    head_dim=128,
    qkv_bias=("attention_bias", True),
    fused_gate_up=True,
    rotary_fraction=0.5,
    max_position=131072,
)
_OLMO2 = Traits(qkv_bias=_ATTENTION, o_bias=_ATTENTION, post_norm=True, qk_norm="full")
_COHERE = Traits(
    tied=True,
    norm="layer",
    norm_bias=False,
    qkv_bias=_ATTENTION,
    o_bias=_ATTENTION,
    parallel=True,
    shared_norm=True,
    max_position=8192,
)

_ERNIE: Flag = ("use_bias", False)

_QWEN3_NEXT = Traits(
    kv_heads=4,
    head_dim=256,
    qk_norm="head",
    qkv_bias=_ATTENTION,
    o_bias=_ATTENTION,
    rotary_fraction=0.25,
    max_position=32768,
)

TRAITS: dict[str, Traits] = {
    "llama": _LLAMA,
    "mistral": Traits(kv_heads=8, sliding="all", window=4096, max_position=131072),
    "ministral": Traits(kv_heads=8, sliding="all", window=4096, max_position=131072),
    "ministral3": Traits(kv_heads=8, head_dim=128, sliding="all", max_position=262144),
    "qwen": Traits(qkv_bias=True, fused_qkv=True, dtype="bfloat16"),
    "qwen2": Traits(kv_heads=32, qkv_bias=True, sliding="late", window=4096, max_position=32768),
    "qwen3": Traits(
        kv_heads=32,
        head_dim=128,
        qk_norm="head",
        qkv_bias=_ATTENTION,
        o_bias=_ATTENTION,
        sliding="late",
        window=4096,
        max_position=32768,
    ),
    "mimo": Traits(kv_heads=32, qkv_bias=True, max_position=32768),
    "gemma": replace(_GEMMA, kv_heads=16),
    "gemma2": replace(
        _GEMMA, sandwich=True, sliding="alternate", window=4096, attention_softcap=50.0, final_softcap=30.0
    ),
    "gemma3_text": replace(_GEMMA, sandwich=True, qk_norm="head", sliding="fifth", window=4096, max_position=131072),
    "vaultgemma": replace(_GEMMA, sliding="alternate", window=4096, attention_softcap=50.0, final_softcap=30.0),
    "phi": replace(_ALL_BIASES, head_bias=True, parallel=True, shared_norm=True, rotary_fraction=0.5),
    "phi3": Traits(fused_qkv=True, fused_gate_up=True, sliding="all", max_position=4096),
    "gpt2": _GPT2,
    "gpt_bigcode": replace(_GPT2, activation="gelu_pytorch_tanh"),
    "gpt_neo": replace(
        _GPT2, qkv_bias=False, fused_qkv=False, dropouts=(0.0, 0.0, 0.0), sliding="odd", window=256, max_position=2048
    ),
    "gptj": replace(_ALL_BIASES, qkv_bias=False, o_bias=False, head_bias=True, parallel=True, shared_norm=True),
    "gpt_neox": replace(
        _ALL_BIASES,
        activation="gelu",
        qkv_bias=("attention_bias", True),
        o_bias=("attention_bias", True),
        parallel=("use_parallel_residual", True),
        rotary_fraction=0.25,
        fused_qkv=True,
    ),
    "bloom": replace(
        _ALL_BIASES, tied=True, activation="gelu_bloom", position="alibi", fused_qkv=True, embedding_norm=True
    ),
    "mpt": Traits(
        tied=True, activation="gelu", gated=False, norm="layer", norm_bias=False, position="alibi", fused_qkv=True
    ),
    "falcon": Traits(
        tied=True,
        activation="gelu",
        gated=False,
        norm="layer",
        qkv_bias=("bias", False),
        o_bias=("bias", False),
        mlp_bias=("bias", False),
        parallel=("parallel_attn", True),
        fused_qkv=True,
    ),
    "opt": replace(_ALL_BIASES, tied=True, activation="relu", position="learned", dropouts=(0.0, 0.1, 0.0)),
    "granite": _LLAMA,
    "smollm3": replace(_LLAMA, tied=True, kv_heads=4, max_position=32768),
    "seed_oss": Traits(
        kv_heads=8,
        head_dim=128,
        qkv_bias=("attention_bias", True),
        o_bias=("attention_out_bias", False),
        mlp_bias=("mlp_bias", False),
        dropouts=(0.1, 0.1, 0.0),
        max_position=524288,
    ),
    "arcee": replace(_LLAMA, activation="relu2", gated=False, max_position=4096),
    "nemotron": replace(_LLAMA, activation="relu2", gated=False, norm="layer", rotary_fraction=0.5, max_position=4096),
    "ernie4_5": Traits(
        tied=True,
        kv_heads=2,
        head_dim=128,
        qkv_bias=("use_bias", False),
        o_bias=("use_bias", False),
        mlp_bias=("use_bias", False),
        max_position=131072,
    ),
    "minicpm": replace(_LLAMA, tied=True, mlp_bias=False),
    "internlm": Traits(qkv_bias=("bias", True), o_bias=("bias", True)),
    "internlm2": Traits(qkv_bias=("bias", True), o_bias=("bias", True), fused_qkv=True),
    "internlm3": Traits(
        kv_heads=2,
        head_dim=128,
        qkv_bias=("qkv_bias", False),
        o_bias=("bias", False),
        mlp_bias=("bias", False),
        max_position=32768,
    ),
    "xverse": Traits(),
    "orion": Traits(norm="layer"),
    "baichuan": Traits(fused_qkv=True),
    "olmo": Traits(norm="layer", norm_weight=False, norm_bias=False, qkv_bias=_ATTENTION, o_bias=_ATTENTION),
    "olmo2": _OLMO2,
    "olmo3": replace(_OLMO2, sliding="third", window=4096),
    "exaone": Traits(),
    "exaone4": Traits(post_norm=True, qk_norm="head", sliding="third", window=4096),
    "stablelm": Traits(
        norm="layer",
        qkv_bias=("use_qkv_bias", False),
        parallel=("use_parallel_residual", False),
        rotary_fraction=0.25,
        max_position=4096,
    ),
    "mixtral": Traits(kv_heads=8, sliding="all", max_position=131072),
    "qwen2_moe": Traits(kv_heads=16, qkv_bias=("qkv_bias", True), sliding="late", window=4096, max_position=32768),
    "qwen3_moe": Traits(
        kv_heads=4,
        qk_norm="head",
        qkv_bias=_ATTENTION,
        o_bias=_ATTENTION,
        sliding="switched",
        window=4096,
        max_position=32768,
    ),
    "olmoe": Traits(qk_norm="full", qkv_bias=_ATTENTION, o_bias=_ATTENTION, max_position=4096),
    "granitemoe": Traits(qkv_bias=_ATTENTION, o_bias=_ATTENTION),
    "phimoe": Traits(
        kv_heads=8,
        norm="layer",
        qkv_bias=_ATTENTION,
        o_bias=_ATTENTION,
        head_bias=("lm_head_bias", False),
        sliding="all",
        max_position=131072,
    ),
    "glm4_moe": Traits(kv_heads=8, qkv_bias=_ATTENTION, rotary_fraction=0.5, max_position=131072),
    "dots1": Traits(kv_heads=32, qk_norm="head", qkv_bias=_ATTENTION, o_bias=_ATTENTION, sliding="late", window=4096),
    "ernie4_5_moe": Traits(
        tied=True,
        kv_heads=4,
        qkv_bias=_ERNIE,
        o_bias=_ERNIE,
        mlp_bias=_ERNIE,
        head_bias=_ERNIE,
        max_position=131072,
    ),
    "deepseek": Traits(qkv_bias=_ATTENTION, o_bias=_ATTENTION),
    "minimax_m2": Traits(kv_heads=8, head_dim=128, qk_norm="full", max_position=196608),
    "hunyuan_v1_moe": Traits(qk_norm="head", qkv_bias=_ATTENTION, o_bias=_ATTENTION),
    "hy_v3": Traits(kv_heads=8, head_dim=128, qk_norm="head", qkv_bias=_ATTENTION, o_bias=_ATTENTION),
    "solar_open": Traits(kv_heads=8, head_dim=128, qkv_bias=_ATTENTION, o_bias=_ATTENTION, max_position=131072),
    "mellum": Traits(
        kv_heads=4, head_dim=128, qk_norm="head", qkv_bias=_ATTENTION, o_bias=_ATTENTION, sliding="named", window=1024
    ),
    "gpt_oss": Traits(
        kv_heads=8,
        head_dim=64,
        qkv_bias=("attention_bias", True),
        o_bias=("attention_bias", True),
        sliding="alternate",
        window=128,
        max_position=131072,
    ),
    "granitemoehybrid": Traits(qkv_bias=_ATTENTION, o_bias=_ATTENTION, fused_gate_up=True),
    "lfm2": Traits(tied=True, kv_heads=8, qk_norm="head", max_position=128000),
    "lfm2_moe": Traits(tied=True, kv_heads=8, qk_norm="head", max_position=128000),
    "nemotron_h": Traits(
        kv_heads=8,
        head_dim=128,
        activation="relu2",
        gated=False,
        qkv_bias=_ATTENTION,
        o_bias=_ATTENTION,
        mlp_bias=("mlp_bias", False),
        position="none",
        max_position=4096,
    ),
    "qwen3_next": replace(_QWEN3_NEXT, kv_heads=2),
    "qwen3_5_text": _QWEN3_NEXT,
    "qwen3_5_moe_text": replace(_QWEN3_NEXT, kv_heads=2),
    "deepseek_v2": Traits(qkv_bias=_ATTENTION, o_bias=_ATTENTION, mlp_bias=("mlp_bias", False)),
    "deepseek_v3": Traits(qkv_bias=_ATTENTION, o_bias=_ATTENTION, max_position=4096),
    "glm4_moe_lite": Traits(qkv_bias=_ATTENTION, o_bias=_ATTENTION, max_position=202752),
    "minicpm3": Traits(
        tied=True, qkv_bias=_ATTENTION, o_bias=_ATTENTION, mlp_bias=("mlp_bias", False), max_position=32768
    ),
    "cohere": _COHERE,
    "cohere2": replace(_COHERE, sliding="third", window=4096),
    "starcoder2": replace(
        _ALL_BIASES,
        tied=True,
        activation="gelu_pytorch_tanh",
        kv_heads=2,
        qkv_bias=("use_bias", True),
        o_bias=("use_bias", True),
        mlp_bias=("use_bias", True),
        sliding="all",
        max_position=4096,
    ),
    "glm": _GLM,
    "glm4": replace(_GLM, sandwich=True),
    "chatglm": Traits(fused_qkv=True, fused_gate_up=True, rotary_fraction=0.5, qkv_bias=("add_qkv_bias", False)),
    "hunyuan_v1_dense": Traits(qk_norm="head", qkv_bias=_ATTENTION, o_bias=_ATTENTION),
    "apertus": Traits(
        activation="xielu", gated=False, qk_norm="head", qkv_bias=_ATTENTION, o_bias=_ATTENTION, max_position=65536
    ),
}

# Other spellings of the same structure: (model_type or architecture) -> family.
SAME_AS: dict[str, str] = {
    "RefinedWebModel": "falcon",  # tiiuae's remote code before transformers held Falcon
    "RefinedWeb": "falcon",
    "kimi_k2": "deepseek_v3",  # Moonshot's remote code is DeepSeek's
    "phi-msft": "phi",  # the remote-code name of phi-1.5 and phi-2 before transformers held them
    "Yi": "llama",  # 01-ai's remote code before it moved to LlamaForCausalLM
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "GemmaForCausalLM": "gemma",
    "Gemma2ForCausalLM": "gemma2",
    "Gemma3ForCausalLM": "gemma3_text",
    "PhiForCausalLM": "phi",
    "Phi3ForCausalLM": "phi3",
    "GPT2LMHeadModel": "gpt2",
    "GPTNeoXForCausalLM": "gpt_neox",
    "QWenLMHeadModel": "qwen",
    "MixtralForCausalLM": "mixtral",
    "Qwen2MoeForCausalLM": "qwen2_moe",
    "Qwen3MoeForCausalLM": "qwen3_moe",
}
