"""The 90 % interval of a memory figure, and how well it holds on sources it has not seen.

An interval is a range of measured over predicted: the 5th to the 95th percentile of published runs, in which every
source counts once, however many rows it has. Runs on one GPU and on several are told apart where each kind has
enough rows from enough sources; a kind that has not takes all rows of its metric.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from benchmarks.metrics import Score

LEVEL = 0.9
MIN_ROWS, MIN_SOURCES = 20, 3  # of a kind of run with an interval of its own
ALL = "all"


@dataclass(frozen=True, slots=True)
class Fitted:
    """Measured over predicted lies between ``low`` and ``high``."""

    low: float
    high: float
    rows: int
    sources: int


def fit(scores: Iterable[Score]) -> dict[tuple[str, str], Fitted]:
    """Intervals by metric and kind of run ("one GPU", "several GPUs"), and of all rows of a metric."""
    kinds: dict[tuple[str, str], list[Score]] = defaultdict(list)
    for score in scores:
        kinds[score.fields["metric"], ALL].append(score)
        kinds[score.fields["metric"], score.fields["gpus"]].append(score)
    found = {}
    for key, rows in kinds.items():
        sources = {row.fields["source"] for row in rows}
        if key[1] == ALL or (len(rows) >= MIN_ROWS and len(sources) >= MIN_SOURCES):
            found[key] = Fitted(*_quantiles(rows), len(rows), len(sources))
    return found


def _quantiles(rows: Sequence[Score]) -> tuple[float, float]:
    by: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        by[row.fields["source"]].append(row.measured / row.predicted)
    weighted = sorted((ratio, 1 / len(ratios)) for ratios in by.values() for ratio in ratios)
    tail = (1 - LEVEL) / 2
    return _quantile(weighted, tail * len(by)), _quantile(weighted, (1 - tail) * len(by))


def _quantile(weighted: Sequence[tuple[float, float]], mass: float) -> float:
    total = 0.0
    for value, weight in weighted:
        total += weight
        if total >= mass - 1e-9:
            return value
    return weighted[-1][0]


def lookup(found: dict[tuple[str, str], Fitted], metric: str, gpus: str) -> Fitted | None:
    """The interval of a kind of run, or that of all rows of the metric."""
    return found.get((metric, gpus)) or found.get((metric, ALL))


def left_out(scores: Sequence[Score]) -> dict[str, Any]:
    """Each source against the intervals of all others: coverage, width and interval score, by metric.

    ``interval_score`` is that of Gneiting and Raftery (JASA 2007, eq. 43) of measured over predicted: the width
    and 2/(1 - level) times what a row lies outside; smaller is better.
    """
    inside: dict[str, list[tuple[str, bool, bool, float, float]]] = defaultdict(list)
    for source in sorted({score.fields["source"] for score in scores}):
        others = fit(score for score in scores if score.fields["source"] != source)
        for score in scores:
            if score.fields["source"] != source:
                continue
            metric = score.fields["metric"]
            found = lookup(others, metric, score.fields["gpus"])
            if found is None:
                continue
            ratio, width = score.measured / score.predicted, found.high - found.low
            outside = max(found.low - ratio, ratio - found.high, 0.0)
            covered = found.low <= ratio <= found.high
            row = (source, covered, ratio <= found.high, width, width + 2 / (1 - LEVEL) * outside)
            inside[metric].append(row)
            inside[ALL].append(row)
    return {metric: _summary(rows) for metric, rows in inside.items()}


def _summary(rows: Sequence[tuple[str, bool, bool, float, float]]) -> dict[str, Any]:
    by: dict[str, list[bool]] = defaultdict(list)
    for source, covered, *_ in rows:
        by[source].append(covered)
    return {
        "rows": len(rows),
        "coverage": fmean(row[1] for row in rows),
        "macro_coverage": fmean(fmean(covered) for covered in by.values()),
        "upper_coverage": fmean(row[2] for row in rows),
        "median_width": median(row[3] for row in rows),
        "interval_score": fmean(row[4] for row in rows),
    }


def as_table(scores: Sequence[Score]) -> list[dict[str, Any]]:
    """The intervals of all rows, as the package's data file holds them."""
    rows = []
    for (metric, gpus), found in sorted(fit(scores).items()):
        assert math.isfinite(found.low) and math.isfinite(found.high)
        ends = {"low": round(found.low, 4), "high": round(found.high, 4)}
        rows.append({"metric": metric, "gpus": gpus, **ends, "rows": found.rows, "sources": found.sources})
    return rows
