"""Towers, projectors, and the rules from pixels to tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from finefit.errors import InputError
from finefit.formats.hf_config import model_from_config
from finefit.workload.parameters import parameter_count
from finefit.workload.pixels import grid, smart_resize
from finefit.workload.tower import Images, Tower
from finefit.workload.vision import tower_numel, tower_parameters

_TEXT = {
    "hidden_size": 3584,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "intermediate_size": 18944,
    "vocab_size": 152064,
}


def tower(kind: str, vision: dict[str, Any], text: dict[str, Any] | None = None, **outer: Any) -> Tower:
    config = {"model_type": kind, "text_config": {**_TEXT, **(text or {})}, "vision_config": vision, **outer}
    found = model_from_config(config, kind, "config.json").tower
    assert found is not None
    return found


def test_whole_counts_are_those_of_the_published_weights() -> None:
    # Qwen2.5-VL-7B: 8,292,166,656; Qwen2-VL-7B: 8,291,375,616 (safetensors totals of the repositories)
    for kind, vision, count in (
        ("qwen2_5_vl", {"hidden_size": 1280}, 8_292_166_656),
        ("qwen2_vl", {}, 8_291_375_616),
    ):
        config = {"model_type": kind, **_TEXT, "vision_config": vision}
        assert parameter_count(model_from_config(config, kind, "config.json")) == count


def test_flat_dimensions_and_a_nested_text_config_are_the_same_model() -> None:
    vision = {"hidden_size": 1280}
    flat = model_from_config({"model_type": "qwen2_5_vl", **_TEXT, "vision_config": vision}, "m", "x")
    nested = model_from_config({"model_type": "qwen2_5_vl", "text_config": _TEXT, "vision_config": vision}, "m", "x")
    assert flat == nested


def test_the_whole_models_own_key_ties_the_head() -> None:
    config = {"model_type": "qwen2_5_vl", "text_config": _TEXT, "vision_config": {}, "tie_word_embeddings": True}
    assert model_from_config(config, "m", "x").tied


def test_an_empty_text_config_gets_the_defaults_of_its_class() -> None:
    # LlavaConfig.text_config defaults to LlamaConfig: llava-1.5-7b says its vocabulary alone
    config = {"model_type": "llava", "text_config": {"vocab_size": 32064}, "vision_config": {}}
    assert parameter_count(model_from_config(config, "llava", "x")) == 7_063_427_072


def test_deepstack_adds_a_merger_a_tap() -> None:
    # Qwen3-VL-8B's vision tower: 576,388,336 parameters beside the language model, three mergers in it
    eight = tower("qwen3_vl", {}, {"hidden_size": 4096})
    assert tower_numel(eight) == 576_388_336
    one = replace(eight, taps=eight.taps[:1])
    wide = 1152 * 4
    merger = 2 * wide + wide * wide + wide + wide * 4096 + 4096
    assert tower_numel(eight) - tower_numel(one) == 2 * merger


def test_a_convolution_is_no_linear_module() -> None:
    kinds = {p.name: p.kind for p, _ in tower_parameters(tower("llava", {}, {"hidden_size": 4096}))}
    assert kinds["vision_tower.embeddings.patch_embedding.weight"] == "conv"
    assert kinds["multi_modal_projector.linear_1.weight"] == "linear"


def test_a_tower_whose_heads_do_not_divide_it_is_refused() -> None:
    with pytest.raises(InputError, match="do not divide"):
        tower("qwen3_vl", {"hidden_size": 1150})


# -- pixels ------------------------------------------------------------------------------------------


def test_smart_resize_as_the_processor_gives_it() -> None:
    # transformers 5.24.0 image_processing_qwen2_vl.smart_resize, run by hand: rounded to 28, scaled into the bounds
    assert smart_resize(1080, 1920, 28, 3136, 12_845_056) == (1092, 1932)
    assert smart_resize(100, 100, 28, 3136, 12_845_056) == (112, 112)
    assert smart_resize(20, 20, 28, 3136, 12_845_056) == (56, 56)
    assert smart_resize(2000, 2000, 28, 3136, 28 * 28 * 1280) == (980, 980)


@given(
    st.integers(8, 4000),
    st.integers(8, 4000),
    st.sampled_from([28, 32]),
    st.integers(256, 16_384),
)
def test_resized_pictures_are_whole_merged_patches_within_the_bound(
    high: int, wide: int, factor: int, most: int
) -> None:
    if max(high, wide) > 20 * min(high, wide):
        return  # a side never falls below one patch, so a long strip may exceed the bound
    rows, columns = smart_resize(high, wide, factor, 4 * factor**2, most * factor**2)
    assert rows % factor == 0 and columns % factor == 0
    assert rows * columns <= most * factor**2


def test_tokens_of_each_family() -> None:
    qwen = grid(tower("qwen2_5_vl", {"hidden_size": 1280}), Images(2, 448, 896))
    assert (qwen.sequences, qwen.patches, qwen.tokens) == (2, 32 * 64, 2 * 16 * 32)
    gemma = grid(tower("gemma3", {}, {"hidden_size": 2560, "head_dim": 256}), Images(1, 1000, 30))
    assert (gemma.patches, gemma.tokens) == (64 * 64, 256)  # any picture is 896 x 896
    llava = grid(tower("llava", {}, {"hidden_size": 4096}), Images(3, 10, 10))
    assert llava.tokens == 3 * 576
    pixtral = tower("mistral3", {"image_size": 1540, "patch_size": 14}, {"model_type": "mistral", "hidden_size": 5120})
    # 1540 x 1540 is 55 x 55 merged patches, and a token ends each row (processing_mistral3.py)
    assert grid(pixtral, Images(1, 1540, 1540)).tokens == 55 * 56


def test_llava_next_cuts_as_its_processor_does() -> None:
    # 672 x 672: the whole picture and four tiles of 336, 576 patches each; the four make 48 x 48 and 48 ends of rows
    found = grid(tower("llava_next", {}, {"hidden_size": 4096}), Images(1, 672, 672))
    assert (found.sequences, found.tokens) == (5, 576 + 48 * 48 + 48)


def test_a_tools_bound_scales_before_the_processor() -> None:
    kind = tower("qwen2_5_vl", {"hidden_size": 1280})
    assert grid(kind, Images(1, 2000, 2000, 589_824)) == grid(kind, Images(1, 768, 768))


def test_a_strip_is_refused() -> None:
    with pytest.raises(InputError, match="200 times"):
        grid(tower("qwen2_5_vl", {}), Images(1, 10, 4000))
