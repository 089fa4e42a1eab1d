"""The trace benchmarks' own arithmetic: differences of two generations, scores of measured rows, tables."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from benchmarks.metrics import Score
from benchmarks.trace_environments import GENERATIONS, python_of
from benchmarks.trace_measured import page, result
from benchmarks.trace_versions import difference, matrix
from benchmarks.trace_versions import page as versions_page

from finefit.errors import InputError

MIB = 2**20
FIELDS = {"source": "a/b", "method": "LoRA", "framework": "f", "transformers": "4.48", "model": "m", "phase": "loss"}


def test_difference_is_by_size_and_names_the_operations() -> None:
    before = [[4 * MIB, 3, "clone", "layer"], [2 * MIB, 1, "mm", "head"], [512, 9, "mul", ""]]
    after = [[4 * MIB, 1, "clone", "layer"], [8 * MIB, 1, "cat", "head"], [2 * MIB, 1, "mm", "other"]]
    assert difference(before, after) == ["-2 x 4.0 MiB (clone in layer)", "+1 x 8.0 MiB (cat in head)"]
    assert difference(before, before) == []


def test_change_of_a_generation_is_newer_over_older() -> None:
    row = {
        "row": "r",
        "before": 2**30,
        "after": 2**29,
        "phases": {"loss": -0.5, "load": 0.0},
        "why": ["-1 x 8.0 MiB (mm)"],
    }
    text = versions_page({"generations": {"4.57": {"torch": "2"}, "5.24": {"torch": "2"}}, "rows": [row]})
    assert "-50.00 %" in text and "loss -50.00 %" in text and "load +" not in text and "- r: -1 x 8.0 MiB (mm)" in text


def test_matrix_of_versions_has_every_method() -> None:
    assert Counter(row.recipe.method_label for row in matrix()).keys() == {"full", "LoRA", "QLoRA"}


def test_unknown_generation_is_refused() -> None:
    with pytest.raises(InputError, match=r"3\.0"):
        python_of("3.0", Path("nowhere"))
    assert all(any(r.startswith(f"transformers=={name}.") for r in found) for name, found in GENERATIONS.items())


def test_measured_rows_are_scored_for_trace_and_model() -> None:
    scores = [Score("a", FIELDS, 100.0, 101.0), Score("b", {**FIELDS, "method": "full"}, 200.0, 190.0)]
    found = result(scores, {"a": 100.0, "b": 220.0}, {"sharded (fsdp)": 3})
    assert found["scored"] == 2
    assert found["median_abs_error"] == pytest.approx(0.03)
    assert found["peers"]["modelled"]["median_abs_error"] == pytest.approx(0.05)
    assert found["groups"]["method"]["LoRA"]["bias"] == pytest.approx(0.01)
    assert "sharded (fsdp)" in page(found)
