"""Architecture of one language model: dimensions and switches, no weights and no I/O.

Letters used for sizes everywhere: T tokens (b·s), H hidden, F feed-forward width, V vocabulary,
L layers, A attention heads, K key/value heads, D head dimension, E experts, k of them for a token.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from finefit.workload.dtypes import DType

if TYPE_CHECKING:
    from finefit.workload.tower import Tower


@dataclass(frozen=True, slots=True)
class Experts:
    """The mixture-of-experts MLP of a decoder.

    Attributes:
        count: routed experts E; per_token: k of them a token visits; width: feed-forward width of one.
        shared: width of the experts every token visits, together one MLP; 0 where there are none.
        shared_gate: that MLP's output is scaled by the sigmoid of a linear module (Qwen2-MoE).
        normalised: the k weights are divided by their sum (``norm_topk_prob``).
        groups: groups of experts from which the router chooses first (GLM-4.5 ``n_group``).
        latent: width to which tokens are projected before the experts and back afterwards (Nemotron 3); 0: none.
        dense_layers: layers with an ordinary MLP of width ``Model.ffn`` in place of experts.
    """

    count: int
    per_token: int
    width: int
    shared: int = 0
    shared_gate: bool = False
    normalised: bool = True
    groups: int = 1
    dense_layers: tuple[int, ...] = ()
    latent: int = 0


@dataclass(frozen=True, slots=True)
class Latent:
    """Multi-head latent attention: keys and values come from one low-rank vector (DeepSeek-V2, arXiv 2405.04434).

    Attributes:
        query: rank of the queries' low-rank vector, None where they come from one matrix (V2-Lite).
        key_value: rank of the vector that keys and values come from.
        nope, rope: widths of a head's part without and with rotary position; value: width of a value head.
    """

    query: int | None
    key_value: int
    nope: int
    rope: int
    value: int


@dataclass(frozen=True, slots=True)
class LinearAttention:
    """A gated delta net (Yang et al. 2024, arXiv 2412.06464): heads and widths of keys and values, its convolution."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv: int = 4


@dataclass(frozen=True, slots=True)
class Mamba2:
    """A Mamba 2 mixer (Dao and Gu 2024, arXiv 2405.21060).

    Attributes:
        heads, head_dim: of the state-space; state: its width; groups: that share B and C.
        conv: width of the convolution; chunk: tokens that are scanned at once; conv_bias, bias: of the convolution
            and of the projections.
    """

    heads: int
    head_dim: int
    state: int
    groups: int
    conv: int = 4
    chunk: int = 256
    conv_bias: bool = True
    bias: bool = False

    @property
    def inner(self) -> int:
        """Width of all heads together."""
        return self.heads * self.head_dim


@dataclass(frozen=True, slots=True)
class Shape:
    """What one layer has in place of the model's own numbers; 0 keeps those.

    Attributes:
        heads, kv_heads, head_dim: of its attention; ffn: width of its MLP.
    """

    heads: int = 0
    kv_heads: int = 0
    head_dim: int = 0
    ffn: int = 0


@dataclass(frozen=True, slots=True)
class Model:
    """One decoder as its config.json describes it, dense or with a mixture of experts.

    ``family`` is the Hugging Face ``model_type`` whose modelling code the step follows
    (llama, mistral, qwen2, qwen3, gemma2, gpt2, gpt_neox, ...). Module names are those of that code.
    """

    name: str
    family: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    tied: bool
    activation: str = "silu"  # HF name: silu, gelu, gelu_new, gelu_pytorch_tanh, ...
    gated_mlp: bool = True  # gate/up/down (three matrices) against fc1/fc2 (two)
    norm: str = "rms"  # "rms" | "layer"
    norm_weight: bool = True  # OLMo 1: a layer norm without parameters
    norm_bias: bool = True  # layer norms only; Cohere and MPT have none
    post_norm: bool = False  # OLMo 2, EXAONE 4: norms after attention and MLP only
    embedding_norm: bool = False  # Bloom: a norm right after the embedding
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    head_bias: bool = False
    qk_norm: str = ""  # "" | "head" (one D, Qwen3/Gemma3) | "full" (all heads, OLMo2) | "each" (D a head, Cohere)
    sandwich_norms: bool = False  # Gemma 2/3: a norm before and after attention and MLP
    parallel_block: bool = False  # GPT-NeoX, Phi: attention and MLP read the same residual
    shared_norm: bool = False  # Phi, GPT-J: one norm a layer feeds both branches
    position: str = "rope"  # "rope" | "learned" | "alibi"
    max_position: int = 0  # rows of a learned position table; context length otherwise
    rotary_fraction: float = 1.0
    fused_qkv: bool = False  # one matrix for q, k and v (GPT-2 c_attn, NeoX, Phi-3, Baichuan W_pack)
    fused_gate_up: bool = False  # one matrix for gate and up (Phi-3)
    attention_dropout: float = 0.0
    residual_dropout: float = 0.0
    embedding_dropout: float = 0.0
    attention_softcap: bool = False  # Gemma 2: tanh cap on scores, which forces eager unless flash 2
    final_softcap: bool = False
    sliding_window: int | None = None
    layer_types: tuple[str, ...] = ()  # "full" | "sliding" a layer; empty: all full
    unrotated: tuple[int, ...] = ()  # layers without rotary position (Cohere 2, EXAONE 4, SmolLM 3, Llama 4)
    shapes: tuple[Shape, ...] = ()  # one a layer where layers differ in width
    latent: Latent | None = None
    linear: LinearAttention | None = None  # of the layers whose type is "linear"
    conv_width: int = 0  # of the layers whose type is "conv": tokens that LFM2's short convolution sees
    conv_bias: bool = False
    mamba2: Mamba2 | None = None  # of the layers whose type is "mamba2"
    output_gate: bool = False  # queries come with a gate for the output of attention (Qwen3-Next)
    experts: Experts | None = None  # None: every layer has the MLP of width ``ffn``
    tower: Tower | None = None  # what reads pictures, beside the language model
    # "embedding": a decoder without one;
    # "mlm" | "sequence" | "token" | "pooler" | "none" of an encoder; "seq2seq" of T5
    head: str = "lm"
    encoder_layers: int = 0  # of ``layers``, the first ones that read the source of an encoder-decoder
    labels: int = 2  # of a classification head
    token_types: int = 0  # rows of BERT's table of segments
    relative_positions: int = 0  # rows of the table of distances of DeBERTa and T5
    mel_bins: int = 0  # of Whisper's spectrogram
    source_positions: int = 0  # Whisper's encoder always reads so many
    checkpoint_dtype: DType = DType.BF16
    dtype_stated: bool = True  # False: config.json names no dtype, checkpoint_dtype is what the loader falls back to
    checkpoint_quant: str = ""  # "gptq", "awq", ... when the stored weights are quantised already
    checkpoint_bits: int | None = None  # of those weights, where the checkpoint says so
    checkpoint_group: int | None = None  # of its weights that share a scale; -1: all inputs of an output
    origin: str = ""  # "catalogue", a path, a Hub id@revision

    @property
    def q_width(self) -> int:
        """Width of all query heads together, A·D."""
        return self.heads * self.head_dim

    @property
    def out_width(self) -> int:
        """Width of what attention hands to its output projection."""
        return self.heads * (self.latent.value if self.latent else self.head_dim)

    @property
    def kv_width(self) -> int:
        """Width of all key (or value) heads together, K·D."""
        return self.kv_heads * self.head_dim

    def in_layer(self, layer: int) -> Model:
        """The model as that layer sees it: with the layer's own widths and position."""
        if not self.shapes and not self.unrotated:
            return self
        shape = self.shapes[layer] if self.shapes else Shape()
        return replace(
            self,
            heads=shape.heads or self.heads,
            kv_heads=shape.kv_heads or self.kv_heads,
            head_dim=shape.head_dim or self.head_dim,
            ffn=shape.ffn or self.ffn,
            position="none" if layer in self.unrotated else self.position,
        )

    def windowed(self, tokens: int) -> bool:
        """As long as the sliding window, so that the mask of its layers is no plain causal one.

        transformers 5.24.0 masking_utils.py ``_ignore_causal_mask_sdpa``.
        """
        return self.sliding_window is not None and tokens >= self.sliding_window

    def kind(self, layer: int, windowed: bool = False) -> tuple[object, ...]:
        """Equal for layers that hold the same tensors and run the same operations.

        Args:
            windowed: layers that slide have a mask that others lack.
        """
        shape = self.shapes[layer] if layer < len(self.shapes) else None
        mixer = self.layer_types[layer] if layer < len(self.layer_types) else "full"
        normed = self.family != "modernbert" or layer > 0  # its first layer has one norm less
        if mixer == "sliding" and not windowed and self.family != "modernbert":  # which has another kernel for it
            mixer = "full"
        first = self.encoder_layers > 0 and layer in (0, self.encoder_layers)  # it has the table of distances
        return (self.sparse(layer), mixer, shape, layer in self.unrotated, normed, layer < self.encoder_layers, first)

    def sparse(self, layer: int) -> bool:
        """Whether the MLP of that layer is a mixture of experts."""
        return self.experts is not None and layer not in self.experts.dense_layers
