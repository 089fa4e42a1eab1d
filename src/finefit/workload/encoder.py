"""Encoders in the line of BERT: what lies outside their layers, and the module names of their layers.

transformers 5.24.0 ``models/<family>/modeling_<family>.py``. Layers are listed by ``parameters.layer_parameters``.
"""

from __future__ import annotations

from dataclasses import replace

from finefit.workload.families import Layout
from finefit.workload.model import Model
from finefit.workload.parameter import Parameter

_BERT = Layout(
    embedding="embeddings.word_embeddings",
    position="embeddings.position_embeddings",
    embedding_norm="embeddings.LayerNorm",
    final_norm="",
    head="cls.predictions.decoder",
    norms=("attention.output.LayerNorm", "output.LayerNorm"),
    attention="attention",
    q="self.query",
    k="self.key",
    v="self.value",
    out="output.dense",
    mlp="",
    up="intermediate.dense",
    down="output.dense",
)
_ROTARY = Layout(
    embedding="embeddings.word_embeddings",
    embedding_norm="embeddings.LayerNorm",
    final_norm="",
    head="lm_head.decoder",
    norms=("post_attention_layernorm", "post_mlp_layernorm"),
)
LAYOUTS: dict[str, Layout] = {
    "bert": _BERT,
    "roberta": replace(_BERT, head="lm_head.decoder"),
    "distilbert": replace(
        _BERT,
        head="vocab_projector",
        norms=("sa_layer_norm", "output_layer_norm"),
        q="q_lin",
        k="k_lin",
        v="v_lin",
        out="out_lin",
        mlp="ffn",
        up="lin1",
        down="lin2",
    ),
    "deberta-v2": replace(_BERT, q="self.query_proj", k="self.key_proj", v="self.value_proj"),
    "nomic_bert": _ROTARY,
    "jina_embeddings_v3": replace(_ROTARY, up="fc1", down="fc2"),
    "modernbert": Layout(
        embedding="embeddings.tok_embeddings",
        embedding_norm="embeddings.norm",
        final_norm="final_norm",
        head="decoder",
        norms=("attn_norm", "mlp_norm"),
        attention="attn",
        qkv="Wqkv",
        out="Wo",
        gate_up="Wi",
        down="Wo",
    ),
}


def _affine(model: Model, path: str) -> list[Parameter]:
    out = [Parameter(f"{path}.weight", (model.hidden,), "norm")]
    return [*out, Parameter(f"{path}.bias", (model.hidden,), "norm")] if model.norm_bias else out


def _linear(path: str, n_in: int, n_out: int, kind: str = "linear", *, bias: bool = True) -> list[Parameter]:
    out = [Parameter(f"{path}.weight", (n_out, n_in), kind)]
    return [*out, Parameter(f"{path}.bias", (n_out,), "bias")] if bias else out


def embedding_parameters(model: Model) -> tuple[Parameter, ...]:
    """Words (V, H), learned positions (P, H), kinds of tokens (T, H), a norm."""
    names = LAYOUTS[model.family]
    out = [Parameter(f"{names.embedding}.weight", (model.vocab, model.hidden), "embedding")]
    if model.position == "learned":
        out.append(Parameter(f"{names.position}.weight", (model.max_position, model.hidden), "position"))
    if model.token_types:
        out.append(Parameter("embeddings.token_type_embeddings.weight", (model.token_types, model.hidden), "position"))
    return (*out, *_affine(model, names.embedding_norm))


def final_parameters(model: Model) -> tuple[Parameter, ...]:
    """What stands between the layers and the head, and DeBERTa's table of relative positions."""
    if model.family == "modernbert":
        return tuple(_affine(model, "final_norm"))
    if model.family == "deberta-v2" and model.relative_positions:
        table = Parameter("encoder.rel_embeddings.weight", (model.relative_positions, model.hidden), "position")
        return (table, *_affine(model, "encoder.LayerNorm"))
    return ()


def head_parameters(model: Model) -> tuple[Parameter, ...]:
    """The head that ``Model.head`` names: "mlm", "sequence", "token", "pooler" or "none"."""
    hidden = model.hidden
    if model.head == "mlm":
        return _masked_lm(model)
    out: list[Parameter] = []
    family = model.family
    if model.head in ("pooler", "sequence") and family in ("bert", "nomic_bert"):
        out += _linear("pooler.dense", hidden, hidden, "linear")
    if family in ("roberta", "jina_embeddings_v3"):
        if model.head == "pooler":
            return tuple(_linear("pooler.dense", hidden, hidden, "linear"))
        if model.head == "sequence":
            out += _linear("classifier.dense", hidden, hidden, "linear")
            return (*out, *_linear("classifier.out_proj", hidden, model.labels, "dense"))
    if model.head == "sequence":
        before = {"distilbert": "pre_classifier", "deberta-v2": "pooler.dense"}.get(family)
        if before:
            out += _linear(before, hidden, hidden, "linear")
        if family == "modernbert":
            out += [*_linear("head.dense", hidden, hidden, "linear", bias=False), *_affine(model, "head.norm")]
    if model.head == "token" and family == "modernbert":
        out += [*_linear("head.dense", hidden, hidden, "linear", bias=False), *_affine(model, "head.norm")]
    if model.head in ("sequence", "token"):
        out += _linear("classifier", hidden, model.labels, "dense")
    return tuple(out)


def _masked_lm(model: Model) -> tuple[Parameter, ...]:
    """A dense module, a norm, and the embedding used again with a bias of its own."""
    dense, norm = {
        "bert": ("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm"),
        "deberta-v2": ("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm"),
        "distilbert": ("vocab_transform", "vocab_layer_norm"),
        "modernbert": ("head.dense", "head.norm"),
        "nomic_bert": ("cls.predictions.transform.dense", "cls.predictions.transform.layer_norm"),
    }.get(model.family, ("lm_head.dense", "lm_head.layer_norm"))
    out = _linear(dense, model.hidden, model.hidden, "linear", bias=model.family != "modernbert")
    out += _affine(model, norm)
    head = LAYOUTS[model.family].head
    if not model.tied:
        out.append(Parameter(f"{head}.weight", (model.vocab, model.hidden), "head"))
    return (*out, Parameter(f"{head}.bias", (model.vocab,), "bias"))
