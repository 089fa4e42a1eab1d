"""Another figure is explained by the mistake that made it."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from finefit import api
from finefit.errors import InputError
from finefit.units import GB, GIB, parse_bytes

LLAMA = "llama-3-8b"  # 8,030,261,248 parameters
FULL = {"method": "full", "seq": 2048, "batch": 1, "checkpointing": "full"}
QLORA = {"method": "qlora", "seq": 2048, "batch": 4, "checkpointing": "full"}


def first(other: str, **question: object) -> tuple[str, bool]:
    found = api.reconcile(LLAMA, other, as_of="2026-11-30", **question)  # type: ignore[arg-type]
    assert found.explained
    return str(found.guesses[0].cause), found.guesses[0].unit


# Figures of the rules themselves, worked out here: parameters times bytes.
@pytest.mark.parametrize(
    ("other", "question", "said"),
    [
        ("144.5GB", FULL, "18 bytes a parameter"),  # LLaMA-Factory README, full with AMP: 18 GB a billion parameters
        ("16.06GB", FULL, "inference is taken for training"),
        ("4.0GB", QLORA, "the weights in 4 bits alone"),
        ("128.5GB", FULL, "16 bytes a parameter"),
    ],
)
def test_rules_of_thumb(other: str, question: dict[str, object], said: str) -> None:
    assert said in first(other, **question)[0]


def test_gib_written_as_gb() -> None:
    ours = api.memory(LLAMA, as_of="2026-11-30", **FULL).peak.allocated  # type: ignore[union-attr, arg-type]
    cause, unit = first(f"{ours / GIB:.2f}GB", **FULL)
    assert unit and cause.startswith("nothing")


def test_mean_length_taken_for_the_longest() -> None:
    mean = {**QLORA, "seq": 512}
    figure = api.memory(LLAMA, as_of="2026-11-30", **mean).peak.allocated  # type: ignore[union-attr, arg-type]
    cause, _ = first(f"{figure / GIB:.3f}GiB", **QLORA, mean_length=512, samples=1000)
    assert "mean length, 512 tokens" in cause


def test_sum_over_gpus() -> None:
    ours = api.memory(LLAMA, gpu="4x A100 80GB", as_of="2026-11-30", **QLORA).peak.allocated  # type: ignore[union-attr, arg-type]
    cause, _ = first(f"{4 * ours / GIB:.2f}GiB", gpu="4x A100 80GB", **QLORA)
    assert "sum over all GPUs" in cause


def test_nothing_explains_a_wild_figure() -> None:
    found = api.reconcile(LLAMA, "900GB", as_of="2026-11-30", **FULL)
    assert not found.explained and found.guesses
    assert found.as_of == dt.date(2026, 11, 30)


@settings(max_examples=20, deadline=None)
@given(st.floats(0.5, 500))
def test_guesses_are_ranked_and_their_distance_is_true(size: float) -> None:
    found = api.reconcile(LLAMA, f"{size:.2f}GB", as_of="2026-11-30", **QLORA)
    figures = parse_bytes(f"{size:.2f}GB", where="here")
    for guess in found.guesses:
        assert guess.off == pytest.approx(guess.nbytes / figures[guess.unit] - 1)
        assert not found.explained or abs(guess.off) <= 0.05


@pytest.mark.parametrize(("text", "bytes_"), [("60GB", 60 * GB), ("1.5 GiB", 3 * GIB // 2), ("1,024MiB", GIB)])
def test_sizes(text: str, bytes_: int) -> None:
    assert parse_bytes(text, where="here")[0] == bytes_


@pytest.mark.parametrize("text", ["60", "60G", "-3GB", "0GB", "GB", "60 apples", ""])
def test_sizes_without_a_unit_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not a number of bytes"):
        parse_bytes(text, where="--other")
