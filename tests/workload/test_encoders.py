"""Counts of encoders and encoder-decoders against published ones; kinds of their layers."""

from __future__ import annotations

from typing import Any

import pytest

from finefit.formats.hf_config import model_from_config
from finefit.workload.parameters import layer_kinds, layer_parameters, parameter_count


def read(config: dict[str, Any]) -> Any:
    return model_from_config(config, "m", "config.json")


@pytest.mark.parametrize(
    ("config", "count"),
    [
        # bert-base-uncased: 109,482,240 with the pooler (BertModel)
        ({"model_type": "bert", "architectures": ["BertModel"]}, 109_482_240),
        # a classifier of two labels adds 2·768 + 2
        ({"model_type": "bert", "architectures": ["BertForSequenceClassification"]}, 109_483_778),
        # distilbert-base-uncased: 66,362,880
        (
            {"model_type": "distilbert", "architectures": ["DistilBertModel"], "n_layers": 6, "hidden_dim": 3072},
            66_362_880,
        ),
        # t5-base: 222,903,552, one embedding for source, target and head
        ({"model_type": "t5", "d_model": 768, "num_heads": 12, "d_ff": 3072, "num_layers": 12}, 222_903_552),
    ],
)
def test_published_counts(config: dict[str, Any], count: int) -> None:
    assert parameter_count(read(config)) == count


def test_a_head_of_its_own_is_one_embedding_more() -> None:
    config = {"model_type": "t5", "d_model": 512, "num_heads": 6, "d_ff": 1024, "num_layers": 8}
    config["feed_forward_proj"] = "gated-gelu"
    tied, untied = read(config), read({**config, "untied_head": True})
    assert parameter_count(untied) == 76_961_152  # google/flan-t5-small
    assert parameter_count(untied) - parameter_count(tied) == 32_128 * 512


def test_is_gated_act_wins_over_a_plain_projection() -> None:
    base = {"model_type": "t5", "feed_forward_proj": "gelu"}
    assert read({**base, "is_gated_act": True}).gated_mlp and not read(base).gated_mlp


def test_the_first_layer_of_each_stack_has_the_table_of_distances() -> None:
    model = read({"model_type": "t5", "num_layers": 3, "num_decoder_layers": 2})
    assert layer_kinds(model) == ((0, 1), (1, 2), (3, 1), (4, 1))
    tables = [any("relative" in p.name for p in layer_parameters(model, i)) for i in range(5)]
    assert tables == [True, False, False, True, False]


def test_modernberts_first_layer_has_one_norm_less() -> None:
    model = read({"model_type": "modernbert", "architectures": ["ModernBertForMaskedLM"], "num_hidden_layers": 4})
    norms = [sum(p.kind == "norm" for p in layer_parameters(model, index)) for index in range(4)]
    assert norms == [1, 2, 2, 2]


def test_whispers_depths_differ_and_its_table_of_sound_is_fixed() -> None:
    sizes = {"encoder_layers": 32, "encoder_attention_heads": 20, "d_model": 1280, "num_mel_bins": 128}
    turbo = read({"model_type": "whisper", **sizes, "decoder_layers": 4, "vocab_size": 51_866})
    assert parameter_count(turbo) == 808_878_080  # openai/whisper-large-v3-turbo
    assert [len(layer_parameters(turbo, index)) for index in (0, 31, 32)] == [15, 15, 24]
