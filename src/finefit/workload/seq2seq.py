"""T5 and mT5, and through ``whisper`` that family: an encoder and a decoder that attends to it.

transformers 5.24.0 ``models/t5/modeling_t5.py``. Layers 0 to ``Model.encoder_layers`` - 1 are the encoder's.
"""

from __future__ import annotations

from finefit.workload import whisper
from finefit.workload.families import Layout
from finefit.workload.model import Model
from finefit.workload.parameter import Parameter

LAYOUTS = {
    "t5": Layout(embedding="shared", final_norm="decoder.final_layer_norm", head="lm_head"),
    "whisper": Layout(embedding="decoder.embed_tokens", final_norm="decoder.layer_norm", head="proj_out"),
}


def _linear(path: str, n_in: int, n_out: int) -> Parameter:
    return Parameter(f"{path}.weight", (n_out, n_in), "linear")


def embedding_parameters(model: Model) -> tuple[Parameter, ...]:
    """The one embedding (V, H) of source and target."""
    if model.family == "whisper":
        return whisper.embedding_parameters(model)
    return (Parameter("shared.weight", (model.vocab, model.hidden), "embedding"),)


def _attention(model: Model, path: str) -> list[Parameter]:
    out = [_linear(f"{path}.{name}", model.hidden, model.q_width) for name in ("q", "k", "v")]
    return [*out, _linear(f"{path}.o", model.q_width, model.hidden)]


def layer_parameters(model: Model, index: int) -> tuple[Parameter, ...]:
    """Tensors of one block; the first of each stack has the table of distances (buckets, A)."""
    if model.family == "whisper":
        return whisper.layer_parameters(model, index)
    decodes = index >= model.encoder_layers
    out = _attention(model, "layer.0.SelfAttention")
    if index in (0, model.encoder_layers):
        shape = (model.relative_positions, model.heads)
        out.append(Parameter("layer.0.SelfAttention.relative_attention_bias.weight", shape, "position"))
    out.append(_norm(model, "layer.0.layer_norm"))
    if decodes:
        out += [*_attention(model, "layer.1.EncDecAttention"), _norm(model, "layer.1.layer_norm")]
    last = f"layer.{2 if decodes else 1}"
    for name in ("wi_0", "wi_1") if model.gated_mlp else ("wi",):
        out.append(_linear(f"{last}.DenseReluDense.{name}", model.hidden, model.ffn))
    out.append(_linear(f"{last}.DenseReluDense.wo", model.ffn, model.hidden))
    return (*out, _norm(model, f"{last}.layer_norm"))


def _norm(model: Model, path: str) -> Parameter:
    return Parameter(f"{path}.weight", (model.hidden,), "norm")


def final_parameters(model: Model) -> tuple[Parameter, ...]:
    """The norms that end the two stacks."""
    if model.family == "whisper":
        return whisper.final_parameters(model)
    return (_norm(model, "encoder.final_layer_norm"), _norm(model, "decoder.final_layer_norm"))


def head_parameters(model: Model) -> tuple[Parameter, ...]:
    """The language-model head (V, H), () where it is the embedding itself."""
    return () if model.tied else (Parameter("lm_head.weight", (model.vocab, model.hidden), "head"),)
