"""The range in which a measured figure is expected: 90 % of published runs, every source counted once.

``memory_intervals.json`` holds measured over predicted by metric and kind of run; ``python -m benchmarks.memory
--write-intervals`` makes it from all scored rows. docs/accuracy.md says how it holds on sources left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from finefit.memory.peak import Peak

LEVEL = 0.9
METRICS = ("allocated", "reserved", "device")
ONE_GPU, SEVERAL_GPUS, ALL = "one GPU", "several GPUs", "all"


@dataclass(frozen=True, slots=True)
class Interval:
    """Bytes between which the figure of a real run is expected.

    Attributes:
        rows, sources: published runs behind it, and how many places they come from.
    """

    metric: str
    low: int
    high: int
    rows: int
    sources: int


def intervals(peak: Peak, gpus: int) -> Mapping[str, Interval]:
    """The interval of each number that is known; without one where no published run reports such a number."""
    kind = ONE_GPU if gpus == 1 else SEVERAL_GPUS
    table = _table()
    found = {}
    for metric in METRICS:
        value = getattr(peak, metric)
        row = table.get((metric, kind)) or table.get((metric, ALL))
        if value is not None and row is not None:
            low, high, rows, sources = row
            found[metric] = Interval(metric, round(value * low), round(value * high), rows, sources)
    return found


@cache
def _table() -> Mapping[tuple[str, str], tuple[float, float, int, int]]:
    text = files("finefit.memory").joinpath("memory_intervals.json").read_text("utf-8")
    return {
        (row["metric"], row["gpus"]): (row["low"], row["high"], row["rows"], row["sources"])
        for row in json.loads(text)["intervals"]
    }
