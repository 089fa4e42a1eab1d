"""Intervals of the package come from the table of runs and hold the prediction's scale."""

from __future__ import annotations

import json
from importlib.resources import files

import pytest

from finefit import api
from finefit.memory.interval import intervals
from finefit.memory.peak import Peak


def peak(**numbers: int) -> Peak:
    return Peak(**{"allocated": 1000, "phase": "loss", "op": "", "module": "", "parts": {}, "phases": {}, **numbers})  # type: ignore[arg-type]


def test_unknown_numbers_have_no_interval() -> None:
    assert set(intervals(peak(), 1)) == {"allocated"}
    assert set(intervals(peak(reserved=2000, device=3000), 1)) == {"allocated", "reserved", "device"}


@pytest.mark.parametrize("gpus", [1, 8])
def test_ends_grow_with_the_number(gpus: int) -> None:
    small, large = intervals(peak(), gpus)["allocated"], intervals(peak(allocated=3000), gpus)["allocated"]
    assert small.low <= 1000 <= small.high  # the model is not biased beyond its own interval
    assert large.low == pytest.approx(3 * small.low, abs=2) and large.high == pytest.approx(3 * small.high, abs=2)


def test_table_of_the_package_has_every_metric_and_surrounds_the_prediction() -> None:
    shipped = json.loads(files("finefit.memory").joinpath("memory_intervals.json").read_text("utf-8"))
    assert shipped["level"] == 0.9
    assert {row["metric"] for row in shipped["intervals"] if row["gpus"] == "all"} == {
        "allocated",
        "reserved",
        "device",
    }
    for row in shipped["intervals"]:
        assert 0 < row["low"] <= 1 <= row["high"] and row["sources"] <= row["rows"]


def test_answer_and_contract_carry_it() -> None:
    answer = api.memory("llama-3-8b", method="qlora", seq=512, as_of="2026-11-30")
    found = answer.to_dict()["interval"]
    assert found["level"] == 0.9
    assert found["low_bytes"] <= answer.to_dict()["peak"]["allocated_bytes"] <= found["high_bytes"]
    assert found["reserved"]["rows"] > 0
