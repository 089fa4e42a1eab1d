"""The speed benchmark: what it runs, what it skips, what it prints. How fast anything is, is not tested here."""

from __future__ import annotations

import sys

import pytest

from benchmarks import speed


def test_without_torch_the_floor_is_skipped_with_its_reason() -> None:
    lines, skipped = speed.commands(None)
    assert "import torch, transformers" in skipped and "import torch, transformers" not in lines
    assert lines["finefit memory"][2:4] == ["finefit.app.cli", "memory"]


def test_a_command_that_fails_is_no_measurement() -> None:
    lines = {
        "good": [sys.executable, "-c", "pass"],
        "says no": [sys.executable, "-c", "raise SystemExit(1)"],  # an answer: it does not fit
        "broken": [sys.executable, "-c", "raise SystemExit(2)"],
    }
    medians, failed = speed.processes(lines, runs=1)
    assert set(medians) == {"good", "says no"} and min(medians.values()) > 0
    assert failed == {"broken": "exit code 2: "}


def test_the_table_names_limits_and_reasons() -> None:
    text = speed.as_table(
        {
            "warm_estimate_seconds": 0.00025,
            "process_seconds": {"finefit memory": 0.3, "peer": 1.25},
            "limits": {"warm_estimate_seconds": 0.002, "finefit memory": 0.35},
            "skipped": {"floor": "not here"},
        }
    )
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    assert ["warm estimate", "0.25", "2"] in rows
    assert ["finefit memory, whole process", "300", "350"] in rows
    assert ["peer, whole process", "1.25e+03", ""] in rows
    assert text.endswith("skipped: floor: not here")


def test_an_interpreter_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        speed.main(["--torch-python", "/no/such/python"])
    assert "/no/such/python" in capsys.readouterr().err
