"""Intervals from rows, and sources held against the intervals of all others."""

from __future__ import annotations

import pytest
from benchmarks.intervals import ALL, fit, left_out, lookup
from benchmarks.metrics import Score
from hypothesis import given
from hypothesis import strategies as st


def rows(source: str, ratios: list[float], metric: str = "allocated", gpus: str = "one GPU") -> list[Score]:
    fields = {"source": source, "metric": metric, "gpus": gpus}
    return [Score(f"{source}-{n}", fields, ratio, 1.0) for n, ratio in enumerate(ratios)]


def test_every_source_counts_once() -> None:
    # ninety exact rows of one source and two of another: half the weight lies on each
    found = fit([*rows("a", [1.0] * 90), *rows("b", [1.2, 1.3])])[("allocated", ALL)]
    assert (found.low, found.high) == (1.0, 1.3)
    assert (found.rows, found.sources) == (92, 2)


def test_a_kind_needs_rows_and_sources_of_its_own() -> None:
    few = fit([*rows("a", [1.0] * 30), *rows("b", [1.1] * 30)])
    assert ("allocated", "one GPU") not in few and lookup(few, "allocated", "one GPU") == few["allocated", ALL]
    three = fit([*rows("a", [1.0] * 10), *rows("b", [1.1] * 10), *rows("c", [0.9] * 10)])
    assert ("allocated", "one GPU") in three
    assert lookup(three, "device", "one GPU") is None


def test_left_out_sources_do_not_see_their_own_rows() -> None:
    found = left_out([*rows("a", [1.0, 1.1]), *rows("b", [2.0, 2.1])])["allocated"]
    assert found["coverage"] == 0.0 and found["macro_coverage"] == 0.0
    assert found["upper_coverage"] == 0.5  # "a" lies below the interval of "b"
    assert found["median_width"] == pytest.approx(0.1)
    # width, and 2 / (1 - 0.9) = 20 times the distance to the nearer end, by hand
    assert found["interval_score"] == pytest.approx(0.1 + 20 * (1.0 + 0.9 + 0.9 + 1.0) / 4)


@given(st.lists(st.lists(st.floats(0.5, 2), min_size=1, max_size=9), min_size=2, max_size=6))
def test_interval_lies_within_the_rows_and_covers_at_least_its_level(sources: list[list[float]]) -> None:
    scores = [score for n, ratios in enumerate(sources) for score in rows(str(n), ratios)]
    found = fit(scores)[("allocated", ALL)]
    ratios = [score.measured for score in scores]
    assert min(ratios) <= found.low <= found.high <= max(ratios)
    mass = sum(sum(found.low <= r <= found.high for r in own) / len(own) for own in sources) / len(sources)
    assert mass >= 0.9 - 1e-9
