"""Whisper: parameter tensors from dimensions (transformers 5.24.0 ``models/whisper/modeling_whisper.py``).

Layers 0 to ``Model.encoder_layers`` - 1 are the encoder's.
"""

from __future__ import annotations

from finefit.workload.model import Model
from finefit.workload.parameter import Parameter


def _linear(path: str, n_in: int, n_out: int, *, bias: bool = True) -> list[Parameter]:
    out = [Parameter(f"{path}.weight", (n_out, n_in), "linear")]
    return [*out, Parameter(f"{path}.bias", (n_out,), "bias")] if bias else out


def _norm(model: Model, path: str) -> list[Parameter]:
    return [Parameter(f"{path}.{name}", (model.hidden,), "norm") for name in ("weight", "bias")]


def embedding_parameters(model: Model) -> tuple[Parameter, ...]:
    """Two convolutions over the spectrogram, tables of places, words."""
    hidden = model.hidden
    return (
        Parameter("encoder.conv1.weight", (hidden, model.mel_bins, 3), "conv"),
        Parameter("encoder.conv1.bias", (hidden,), "conv"),
        Parameter("encoder.conv2.weight", (hidden, hidden, 3), "conv"),
        Parameter("encoder.conv2.bias", (hidden,), "conv"),
        Parameter("encoder.embed_positions.weight", (model.source_positions, hidden), "fixed"),
        Parameter("decoder.embed_tokens.weight", (model.vocab, hidden), "embedding"),
        Parameter("decoder.embed_positions.weight", (model.max_position, hidden), "position"),
    )


def layer_parameters(model: Model, index: int) -> tuple[Parameter, ...]:
    """Tensors of one layer: attention, in the decoder to the sound too, and the MLP."""
    hidden, out = model.hidden, []
    for path in ("self_attn", "encoder_attn") if index >= model.encoder_layers else ("self_attn",):
        for name in ("k_proj", "v_proj", "q_proj", "out_proj"):
            out += _linear(f"{path}.{name}", hidden, hidden, bias=name != "k_proj")
        out += _norm(model, f"{path}_layer_norm")
    out += _linear("fc1", hidden, model.ffn) + _linear("fc2", model.ffn, hidden)
    return (*out, *_norm(model, "final_layer_norm"))


def final_parameters(model: Model) -> tuple[Parameter, ...]:
    """The norms that end the two stacks; the head is the embedding itself."""
    return (*_norm(model, "encoder.layer_norm"), *_norm(model, "decoder.layer_norm"))
