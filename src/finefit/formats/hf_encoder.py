"""config.json of encoders in the line of BERT → ``Model``.

Defaults are those of transformers 5.24.0 ``models/<family>/configuration_<family>.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from finefit.workload.dtypes import DType
from finefit.workload.model import Model

# model_type → family whose code is the same but for names at the top
FAMILIES = {
    **{name: name for name in ("bert", "roberta", "distilbert", "modernbert", "nomic_bert", "jina_embeddings_v3")},
    "xlm-roberta": "roberta",
    "camembert": "roberta",
    "deberta-v2": "deberta-v2",
}
_ROTARY = frozenset({"modernbert", "nomic_bert", "jina_embeddings_v3"})
_HEADS = {
    "ForMaskedLM": "mlm",
    "ForPreTraining": "mlm",
    "ForSequenceClassification": "sequence",
    "ForTokenClassification": "token",
    "ForQuestionAnswering": "token",  # two numbers a token
}


def is_encoder(config: Mapping[str, Any]) -> bool:
    """Whether the file describes an encoder that is read here."""
    return str(config.get("model_type")) in FAMILIES


class Keys(Protocol):
    """Typed access to a configuration (``hf_config``)."""

    config: Mapping[str, Any]
    where: str

    def get(self, *names: str) -> Any: ...
    def size(self, *names: str, default: int | None = None) -> int: ...
    def number(self, *names: str, default: float) -> float: ...
    def flag(self, flag: bool | tuple[str, bool]) -> bool: ...


def encoder_of(keys: Keys, dtype: DType, stated: bool, name: str) -> Model:
    """The encoder a config.json describes, with the head of the class it names.

    Raises:
        InputError: a needed key is missing or has an impossible value.
    """
    config = keys.config
    family = FAMILIES[str(config["model_type"])]
    modern, rotary = family == "modernbert", family in _ROTARY
    hidden = keys.size("hidden_size", "dim", default=768)
    heads = keys.size("num_attention_heads", "n_heads", default=12)
    layers = keys.size("num_hidden_layers", "n_layers", default=22 if modern else 12)
    head, labels = _head(config, family)
    dropout = 0.0 if modern or family == "nomic_bert" else 0.1
    positions = keys.size("max_position_embeddings", default=512)
    relative = 0
    learned = not rotary
    if family == "deberta-v2":
        learned = keys.flag(("position_biased_input", True))
        if keys.flag(("relative_attention", False)):
            relative = 2 * keys.size("position_buckets", "max_relative_positions", default=positions)
    types = {"bert": 2, "roberta": 2, "nomic_bert": 2, "jina_embeddings_v3": 1}.get(family, 0)
    stated_types = bool(keys.get("type_vocab_size")) and family == "deberta-v2"
    return Model(
        name=name,
        family=family,
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        ffn=keys.size("intermediate_size", "hidden_dim", default=1152 if modern else 4 * hidden),
        vocab=keys.size("vocab_size", default=30_522),
        tied=keys.flag(("tie_word_embeddings", True)),
        activation=str(keys.get("hidden_act", "hidden_activation", "activation") or "gelu"),
        gated_mlp=modern or family == "nomic_bert",
        norm="layer",
        norm_bias=not modern or keys.flag(("norm_bias", False)),
        embedding_norm=True,
        qkv_bias=not modern and family != "nomic_bert",
        o_bias=not modern and family != "nomic_bert",
        mlp_bias=not modern and family != "nomic_bert",
        head_bias=head == "mlm",
        position="learned" if learned else "rope" if rotary else "none",
        max_position=positions,
        fused_qkv=modern,
        fused_gate_up=modern,
        attention_dropout=keys.number("attention_probs_dropout_prob", "attention_dropout", default=dropout),
        residual_dropout=keys.number("hidden_dropout_prob", "dropout", default=dropout),
        embedding_dropout=keys.number("embedding_dropout", "hidden_dropout_prob", "dropout", default=dropout),
        sliding_window=keys.size("local_attention", default=128) if modern else None,
        layer_types=_local(keys, layers) if modern else (),
        head=head,
        labels=labels,
        token_types=keys.size("type_vocab_size", default=types) if types or stated_types else 0,
        relative_positions=relative,
        checkpoint_dtype=dtype,
        dtype_stated=stated,
        origin=keys.where,
    )


def _local(keys: Keys, layers: int) -> tuple[str, ...]:
    """ModernBERT: one layer in three attends to everything, from the first on."""
    every = keys.size("global_attn_every_n_layers", default=3)
    return tuple("sliding" if index % every else "full" for index in range(layers))


def _head(config: Mapping[str, Any], family: str) -> tuple[str, int]:
    """What the class named in ``architectures`` puts on top, and its labels (transformers' default is two)."""
    named = config.get("architectures")
    architecture = str(named[0]) if isinstance(named, list) and named else ""
    labels = config.get("id2label")
    count = len(labels) if isinstance(labels, Mapping) and labels else config.get("num_labels")
    count = count if isinstance(count, int) and count > 0 else 2
    for ending, head in _HEADS.items():
        if architecture.endswith(ending):
            return head, count
    pooled = family in ("bert", "roberta", "jina_embeddings_v3")  # NomicBertModel has none by default
    return ("pooler" if pooled else "none"), count


_SEQ2SEQ = frozenset({"t5", "mt5", "whisper"})


def is_seq2seq(config: Mapping[str, Any]) -> bool:
    """Whether the file describes an encoder-decoder that is read here."""
    return str(config.get("model_type")) in _SEQ2SEQ


def seq2seq_of(keys: Keys, dtype: DType, stated: bool, name: str) -> Model:
    """T5 and mT5 (configuration_t5.py): ``feed_forward_proj`` says "relu", "gelu" or "gated-gelu".

    A file is read as transformers 5 builds it, which ties every head whatever the file says. The checkpoints of
    T5 v1.1, Flan-T5 and mT5 hold a head of their own, which earlier versions load; rows of the catalogue count it
    (``untied_head``).

    Raises:
        InputError: a needed key is missing or has an impossible value.
    """
    if keys.get("model_type") == "whisper":
        return _whisper(keys, dtype, stated, name)
    hidden = keys.size("d_model", "hidden_size", default=512)
    heads = keys.size("num_heads", "num_attention_heads", default=8)
    encoder = keys.size("num_layers", "num_hidden_layers", default=6)
    decoder = keys.size("num_decoder_layers", default=encoder)
    projection = str(keys.get("feed_forward_proj") or ("gated-gelu" if keys.get("model_type") == "mt5" else "relu"))
    gated = projection.startswith("gated") or keys.flag(("is_gated_act", False))
    activation = projection.removeprefix("gated-")
    if projection == "gated-gelu":  # configuration_t5.py: for older files
        activation = "gelu_new"
    dropout = keys.number("dropout_rate", default=0.1)
    return Model(
        name=name,
        family="t5",
        hidden=hidden,
        layers=encoder + decoder,
        heads=heads,
        kv_heads=heads,
        head_dim=keys.size("d_kv", "head_dim", default=64),
        ffn=keys.size("d_ff", "intermediate_size", default=2048),
        vocab=keys.size("vocab_size", default=32_128),
        tied=not keys.flag(("untied_head", False)),
        activation=activation,
        gated_mlp=gated,
        position="none",
        attention_dropout=dropout,
        residual_dropout=dropout,
        embedding_dropout=dropout,
        head="seq2seq",
        encoder_layers=encoder,
        relative_positions=keys.size("relative_attention_num_buckets", default=32),
        checkpoint_dtype=dtype,
        dtype_stated=stated,
        origin=keys.where,
    )


def _whisper(keys: Keys, dtype: DType, stated: bool, name: str) -> Model:
    """configuration_whisper.py: both stacks are alike but in depth; 30 seconds of sound are 1,500 places."""
    hidden, heads = keys.size("d_model", "hidden_size", default=384), keys.size("encoder_attention_heads", default=6)
    encoder, decoder = keys.size("encoder_layers", default=4), keys.size("decoder_layers", default=4)
    dropout = keys.number("dropout", default=0.0)
    return Model(
        name=name,
        family="whisper",
        hidden=hidden,
        layers=encoder + decoder,
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        ffn=keys.size("encoder_ffn_dim", default=4 * hidden),
        vocab=keys.size("vocab_size", default=51_865),
        tied=True,
        activation=str(keys.get("activation_function") or "gelu"),
        gated_mlp=False,
        norm="layer",
        qkv_bias=True,
        o_bias=True,
        mlp_bias=True,
        position="learned",
        max_position=keys.size("max_target_positions", default=448),
        attention_dropout=keys.number("attention_dropout", default=0.0),
        residual_dropout=dropout,
        embedding_dropout=dropout,
        head="seq2seq",
        encoder_layers=encoder,
        mel_bins=keys.size("num_mel_bins", default=80),
        source_positions=keys.size("max_source_positions", default=1500),
        checkpoint_dtype=dtype,
        dtype_stated=stated,
        origin=keys.where,
    )
