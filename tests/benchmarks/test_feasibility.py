"""Verdicts against rows that fitted or ran out of memory."""

from __future__ import annotations

import pytest
from benchmarks.feasibility import FITS, OOM, TIGHT, Judged, judge, recalls, run
from benchmarks.memory import DATA
from benchmarks.rows import Skip, read

ROWS = {row["id"]: row for row in read(DATA)}


def one(outcome: str, low: float, high: float, apart: str = "") -> Judged:
    return Judged("x", "s", apart, outcome, low, high, 24.0)


def test_verdicts_and_recalls_are_counted() -> None:
    rows = [one(OOM, 25, 30), one(OOM, 20, 30), one(OOM, 10, 20), one(FITS, 10, 24), one(FITS, 25, 26)]
    assert [row.said for row in rows] == [OOM, TIGHT, FITS, FITS, OOM]
    found = recalls(rows)
    assert found["decided"] == 4 / 5
    assert (found["oom_recall"], found["fits_recall"], found["oom_below_card"]) == (1 / 2, 1 / 2, 1)


def test_recall_of_nothing_is_unknown() -> None:
    assert recalls([]) == {
        "rows": 0, "decided": None, "oom_rows": 0, "oom_recall": None, "fits_rows": 0, "fits_recall": None,
        "oom_below_card": 0,
    }  # fmt: skip


def test_rows_that_are_no_verdicts_are_left_out() -> None:
    with pytest.raises(Skip, match="not a verdict"):
        judge(ROWS["fms-009"])
    with pytest.raises(Skip, match="capacity"):
        judge({**ROWS["fms-009"], "outcome": "oom", "gpu_capacity_gib_approx": ""})


def test_a_run_that_cannot_fit_and_one_that_does() -> None:
    # Mistral-7B in full needs 67.5 GiB (measured); told to run on 40 and on 80 GB
    row = {**ROWS["fms-009"], "value_gib": "", "flags": ""}
    assert judge({**row, "outcome": "oom", "gpu_capacity_gib_approx": "39.4"}).said == OOM
    assert judge({**row, "outcome": "fits", "gpu_capacity_gib_approx": "139.7"}).said == FITS


def test_a_table_sets_inferred_failures_apart() -> None:
    row = {**ROWS["fms-009"], "outcome": "oom", "gpu_capacity_gib_approx": "39.4", "flags": "oom_inferred"}
    result = run([row, ROWS["fms-011"]])
    assert result["scored"] == 1 and result["rows"] == 0
    assert result["apart"]["inferred out of memory"]["oom_recall"] == 1.0
    assert result["skipped"] == {"measured, not a verdict": 1}
