"""The diff of two Timelines, on ones small enough to write down."""

from __future__ import annotations

import pytest

from finefit.lab.diff import Line, by_size, compare, phase_peaks, plain
from finefit.memory.timeline import Mark, Tensor, Timeline
from finefit.step.size import Dims, fixed

DIMS = Dims(1, 1)


def _tensor(nbytes: int, module: str, op: str = "mm", *, assumed: bool = False) -> Tensor:
    return Tensor(fixed(nbytes), "activations", "forward", op, module, assumed=assumed)


def _timeline(tensors: list[Tensor], events: list[int], backward: int) -> Timeline:
    return Timeline(tuple(tensors), tuple(events), (Mark(0, "forward", 1), Mark(backward, "backward", 1)))


LEFT = _timeline([_tensor(1024, "layers.0.q"), _tensor(1000, "layers.1.q"), _tensor(512, "head")], [0, 1, 2, ~2], 3)
RIGHT = _timeline(
    [_tensor(1024, "layers.0.q"), _tensor(2048, "head"), _tensor(4096, "", assumed=True)], [0, 1, ~1, 2, ~2], 2
)


def test_peak_of_each_phase_in_blocks() -> None:
    assert {k: v.bytes for k, v in phase_peaks(LEFT, DIMS).items()} == {"forward": 1024 + 1024 + 512}
    assert {k: v.bytes for k, v in phase_peaks(RIGHT, DIMS).items()} == {"forward": 3072, "backward": 5120}


def test_assumed_tensors_can_be_left_out() -> None:
    assert phase_peaks(RIGHT, DIMS, assumed=False)["backward"].bytes == 1024


def test_lines_count_tensors_over_layers() -> None:
    lines = compare(LEFT, RIGHT, DIMS, phase="forward")
    assert lines == [
        Line("head", 2048, 0, 1, (), ("1×activations:mm",)),
        Line("layer.q", 1024, 2, 1, ("2×activations:mm",), ("1×activations:mm",)),
        Line("head", 512, 1, 0, ("1×activations:mm",), ()),
    ]
    assert sum(line.excess for line in lines) == 2560 - 3072


def test_net_by_size_ignores_names() -> None:
    renamed = _timeline([_tensor(1024, "a"), _tensor(1024, "b"), _tensor(512, "c")], [0, 1, 2], 3)
    assert by_size(compare(LEFT, renamed, DIMS, phase="forward")) == []


def test_a_timeline_does_not_differ_from_itself() -> None:
    assert compare(LEFT, LEFT, DIMS) == []


@pytest.mark.parametrize(
    ("modelled", "traced", "expected"),
    [
        ("layers.3.mlp.up_proj.weight", "model.layers.3.mlp.up_proj.base_layer", "layer.mlp.up_proj"),
        (
            "layers.3.attn.c_attn.lora_A.weight",
            "transformer.h.3.attn.c_attn.lora_A.default",
            "layer.attn.c_attn.lora_A",
        ),
        ("embed_tokens.weight", "model.embed_tokens", "embed_tokens"),
        ("lm_head", "loss", "head"),
        ("layers.1", "model.layers.1", "layer"),
    ],
)
def test_both_producers_name_a_module_alike(modelled: str, traced: str, expected: str) -> None:
    assert plain(modelled) == plain(traced) == expected
