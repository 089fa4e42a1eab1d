"""The compiled form of a Timeline: integer live-counts per program point times a vector of sizes.

For one structure (model, recipe, stack) the order of events does not depend on the batch, the length,
the rank or the number of ranks; only the sizes do. So the allocated peak is the largest row of
``counts @ sizes(dims)``, exact in float64 below 2**53 bytes.

One set of dimensions is evaluated in plain integers, row by row as changes from the row before: about as
fast as the matrix product and much faster than importing numpy for it. ``counts`` is for many sets at once.

Rows kept: points after which something is freed. A point followed by another allocation is
dominated by the next one, so leaving it out is exact.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from finefit.memory.timeline import CATEGORIES, Timeline
from finefit.step.size import Dims, Size

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


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
        self.columns, self.points, self.host, self._rows = columns, points, host, rows
        self._changes: list[list[tuple[int, int]]] = []
        before: dict[int, int] = {}
        for row in rows:
            touched = dict.fromkeys((*before, *row))
            pairs = ((column, row.get(column, 0) - before.get(column, 0)) for column in touched)
            self._changes.append([(column, change) for column, change in pairs if change])
            before = row

    @cached_property
    def counts(self) -> npt.NDArray[np.float64]:
        """Live tensors, a row a program point and a column a size: ``counts @ sizes`` are bytes."""
        import numpy as np

        counts = np.zeros((len(self._rows), len(self.columns)))
        for index, row in enumerate(self._rows):
            counts[index, list(row)] = list(row.values())
        return counts

    def sizes(self, dims: Dims) -> list[int]:
        """Bytes of each column in 512-byte blocks."""
        return [size.block(dims) for size, _ in self.columns]

    def evaluate(self, dims: Dims) -> Evaluated:
        """Peak and breakdown at ``dims``."""
        sizes = self.sizes(dims)
        best, highest, phases = 0, -1, dict.fromkeys(sorted({p.phase for p in self.points}), 0)
        for index, total in enumerate(self._totals(sizes)):
            if total > highest:
                best, highest = index, total
            phase = self.points[index].phase
            if total > phases[phase]:
                phases[phase] = total
        host = sum(count * size.raw(dims) for size, count in self.host.items())
        return Evaluated(highest, self.points[best], self._parts(best, sizes), phases, host)

    def parts_in(self, phases: Collection[str], dims: Dims) -> Mapping[str, int]:
        """Bytes by category where the given phases hold most."""
        sizes = self.sizes(dims)
        totals = list(self._totals(sizes))
        rows = [index for index, point in enumerate(self.points) if point.phase in phases]
        return self._parts(max(rows, key=totals.__getitem__), sizes)

    def undominated(self) -> Compiled:
        """The same peaks of all phases from fewer rows.

        A row goes where another of its phase holds at least as many tensors of each size: sizes are never
        negative, so it is never the larger one.
        """
        import numpy as np

        sizes = {size: index for index, size in enumerate(dict.fromkeys(size for size, _ in self.columns))}
        merged = np.zeros((len(self._rows), len(sizes)), dtype=np.int64)
        for column, (size, _) in enumerate(self.columns):
            merged[:, sizes[size]] += self.counts[:, column].astype(np.int64)
        kept: dict[str, list[int]] = {}
        for index in np.argsort(-merged.sum(axis=1), kind="stable").tolist():
            others = kept.setdefault(self.points[index].phase, [])
            if not (merged[others] >= merged[index]).all(axis=1).any():
                others.append(index)
        chosen = sorted(index for indices in kept.values() for index in indices)
        return Compiled(
            self.columns, [self._rows[i] for i in chosen], [self.points[i] for i in chosen], dict(self.host)
        )

    @property
    def rows(self) -> list[dict[int, int]]:
        """Live tensors of each column, a row a program point."""
        return self._rows

    def _totals(self, sizes: list[int]) -> Iterator[int]:
        total = 0
        for changes in self._changes:
            for column, change in changes:
                total += change * sizes[column]
            yield total

    def _parts(self, row: int, sizes: list[int]) -> Mapping[str, int]:
        parts = dict.fromkeys(CATEGORIES, 0)
        for column, count in self._rows[row].items():
            parts[self.columns[column][1]] += count * sizes[column]
        return parts


def compile_timeline(
    timeline: Timeline, *, steps: Collection[int] | None = None, between: Sequence[tuple[int, int]] = ()
) -> Compiled:
    """Count live tensors of each size and category at every point that can be a peak.

    Args:
        steps: optimizer steps whose points count; None: all. A trace's first step is not its steady one.
        between: ranges of events whose points lie between others that are kept: copies of a layer whose counts
            change by the same from one to the next, so that the first or the last holds most.
    """
    skipped = iter((*between, (len(timeline.events), len(timeline.events))))
    skip = next(skipped)
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
    phase, step, event, last = marks[0].phase, marks.pop(0).step, 0, -1
    events, tensors = timeline.events, timeline.tensors

    def record() -> None:
        nonlocal skip
        while event > skip[1]:
            skip = next(skipped)
        if last >= 0 and not skip[0] < event <= skip[1] and (steps is None or step in steps):
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
            phase, step = marks[0].phase, marks.pop(0).step
            grew = True  # what is carried over counts in the new phase too
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
    for mark in marks:  # phases that allocate nothing
        if grew:
            record()
        phase, step, grew = mark.phase, mark.step, True
    if grew:
        record()
    return Compiled(list(columns), rows, points, host)
