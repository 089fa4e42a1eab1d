"""The compiled form of a Timeline: integer live-counts per program point times a vector of sizes.

For one structure (model, recipe, stack) the order of events does not depend on the batch, the length,
the rank or the number of ranks; only the sizes do. So the allocated peak is the largest row of
``counts @ sizes(dims)``, exact in float64 below 2**53 bytes.

Rows kept: points after which something is freed. A point followed by another allocation is
dominated by the next one, so leaving it out is exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from finefit.memory.timeline import CATEGORIES, Timeline
from finefit.step.size import Dims, Size


@dataclass(frozen=True, slots=True)
class Point:
    """A program point: where the run is when the row's memory is held."""

    phase: str
    op: str
    module: str


@dataclass(frozen=True, slots=True)
class Evaluated:
    """Bytes at one set of dimensions: the peak, its point, its parts, the peak of each phase, host RAM."""

    allocated: int
    point: Point
    parts: Mapping[str, int]
    phases: Mapping[str, int]
    host: int


class Compiled:
    """Evaluates the allocated peak of one structure at any dimensions."""

    def __init__(
        self,
        columns: list[tuple[Size, str]],
        rows: list[dict[int, int]],
        points: list[Point],
        host: Mapping[Size, int],
    ) -> None:
        self.columns, self.points, self.host = columns, points, host
        self.counts: npt.NDArray[np.float64] = np.zeros((len(rows), len(columns)))
        for index, row in enumerate(rows):
            for column, count in row.items():
                self.counts[index, column] = count
        self._categories = np.array([CATEGORIES.index(category) for _, category in columns])
        names = sorted({p.phase for p in points})
        self._phases = {name: [i for i, p in enumerate(points) if p.phase == name] for name in names}

    def sizes(self, dims: Dims) -> npt.NDArray[np.float64]:
        """Bytes of each column in 512-byte blocks."""
        return np.array([size.block(dims) for size, _ in self.columns], dtype=np.float64)

    def evaluate(self, dims: Dims) -> Evaluated:
        """Peak and breakdown at ``dims``."""
        sizes = self.sizes(dims)
        totals = self.counts @ sizes
        best = int(totals.argmax())
        held = self.counts[best] * sizes
        sums = np.bincount(self._categories, weights=held, minlength=len(CATEGORIES))
        parts = {name: int(value) for name, value in zip(CATEGORIES, sums, strict=True)}
        phases = {name: int(totals[rows].max()) for name, rows in self._phases.items()}
        host = sum(count * size.raw(dims) for size, count in self.host.items())
        return Evaluated(int(totals[best]), self.points[best], parts, phases, host)


def compile_timeline(timeline: Timeline) -> Compiled:
    """Count live tensors of each size and category at every point that can be a peak."""
    columns: dict[tuple[Size, str], int] = {}
    column_of = [
        columns.setdefault((t.size, t.category), len(columns)) if t.pool == "device" else -1 for t in timeline.tensors
    ]
    starts = {fold.start: fold for fold in timeline.folds if fold.end > fold.start}
    live: dict[int, int] = {}
    host: dict[Size, int] = {}  # at its largest when a step ends: nothing there is temporary
    rows: list[dict[int, int]] = []
    points: list[Point] = []
    marks = list(timeline.marks)
    phase, event, last = marks.pop(0).phase, 0, -1
    events, tensors = timeline.events, timeline.tensors

    def record() -> None:
        if last >= 0:
            tensor = tensors[last]
            rows.append({c: n for c, n in live.items() if n})
            points.append(Point(phase, tensor.op, tensor.module))

    def apply(item: int, times: int) -> None:
        tensor = tensors[item if item >= 0 else ~item]
        if tensor.pool == "host" and item >= 0:
            host[tensor.size] = host.get(tensor.size, 0) + times
        column = column_of[item if item >= 0 else ~item]
        if column >= 0:
            live[column] = live.get(column, 0) + (times if item >= 0 else -times)

    grew = False
    while event < len(events):
        if marks and marks[0].start <= event:
            if grew:
                record()
            phase, grew = marks.pop(0).phase, True  # what is carried over counts in the new phase too
            continue
        if event in starts:
            fold = starts[event]
            if grew:
                record()
            for item in events[fold.start : fold.end]:
                apply(item, fold.times)
            event, grew = fold.end, True
            continue
        item = events[event]
        if item >= 0:
            apply(item, 1)
            last, grew = item, True
        else:
            if grew:
                record()
            apply(item, 1)
            grew = False
        event += 1
    if grew:
        record()
    return Compiled(list(columns), rows, points, host)
