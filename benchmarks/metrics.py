"""How good a set of predictions is: errors, groups, the worst rows. Fractions, never percents."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

UNDER = 0.05  # under-estimated by more than this counts as under
WORST = 20


@dataclass(frozen=True, slots=True)
class Score:
    """One row, predicted by one estimator. Bytes; ``fields`` are what rows are grouped by."""

    id: str
    fields: dict[str, str]
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """Signed relative error; negative is an under-estimate."""
        return self.predicted / self.measured - 1


def summary(scores: Sequence[Score]) -> dict[str, Any]:
    """Rows, median and 90th percentile of |error|, bias, and the share under-estimated by more than 5 %."""
    if not scores:
        return {"scored": 0, "median_abs_error": None, "p90_abs_error": None, "bias": None, "under_share": None}
    errors = np.array([score.error for score in scores])
    return {
        "scored": len(scores),
        "median_abs_error": float(np.median(np.abs(errors))),
        "p90_abs_error": float(np.quantile(np.abs(errors), 0.9)),
        "bias": float(np.median(errors)),
        "under_share": float(np.mean(errors < -UNDER)),
    }


def groups(scores: Iterable[Score], fields: Sequence[str]) -> dict[str, dict[str, Any]]:
    """``summary`` by each field, largest group first."""
    tables = {}
    rows = list(scores)
    for field in fields:
        by: dict[str, list[Score]] = defaultdict(list)
        for score in rows:
            by[score.fields[field]].append(score)
        tables[field] = {name: summary(by[name]) for name in sorted(by, key=lambda n: (-len(by[n]), n))}
    return tables


def macro(tables: dict[str, dict[str, Any]]) -> dict[str, float | None]:
    """Plain mean over the groups, so that a large source does not speak for all."""
    names = ("median_abs_error", "p90_abs_error", "under_share")
    return {name: fmean(t[name] for t in tables.values()) if tables else None for name in names}


def worst(scores: Iterable[Score], shown: Callable[[Score], dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with the largest |error|."""
    ranked = sorted(scores, key=lambda score: (-abs(score.error), score.id))
    return [shown(score) | {"error": score.error} for score in ranked[:WORST]]


def counted(words: Iterable[str]) -> dict[str, int]:
    """How often each occurs, most frequent first."""
    return dict(sorted(Counter(words).items(), key=lambda item: (-item[1], item[0])))
