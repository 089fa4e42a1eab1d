"""Parity of the modelled Timeline with the traced one: ``python -m benchmarks.trace [--quick] [--json]``.

Each row is one recipe on one model with few layers, traced through the real library code and modelled from
dimensions. ``--only TEXT`` picks rows, ``--diff ROW [--at PHASE]`` shows the tensors that make a difference,
``--list`` the names, ``--write PAGE`` writes the tables of a page. ``--measured FILE`` holds traces to measured
GPUs, ``--versions`` two generations of the libraries to each other; both know ``--environments DIR``.
Errors are fractions of the traced peak; "without assumed" leaves out what both sides take from the kernels'
source, where agreement proves nothing.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path

from benchmarks._config_rows import config_rows
from benchmarks._other_rows import other_rows
from benchmarks._trace_rows import Row, rows
from benchmarks.tables import write_between
from benchmarks.trace_page import LISTED, page
from finefit.errors import FinefitError
from finefit.lab.diff import Line, by_size, compare, phase_peaks
from finefit.lab.summary import Assumed, assumed_terms
from finefit.memory.timeline import Timeline
from finefit.step.size import Dims

MEDIAN_LIMIT, WORST_LIMIT = 0.005, 0.02


@dataclass(frozen=True, slots=True)
class Score:
    """One row: peaks in bytes, phases, relative errors (signed, modelled over traced minus one)."""

    row: Row
    modelled: int
    traced: int
    phase: str
    traced_phase: str
    error: float
    error_without_assumed: float
    by_phase: dict[str, float]
    assumed: tuple[Assumed, ...]
    differences: tuple[str, ...]

    def as_json(self) -> dict[str, object]:
        return {
            "row": self.row.name,
            "predicted": self.modelled,
            "measured": self.traced,
            "phase": self.phase,
            "traced_phase": self.traced_phase,
            "error": self.error,
            "error_without_assumed": self.error_without_assumed,
            "phases": self.by_phase,
            "differences": list(self.differences),
        }


def _dims(row: Row) -> Dims:
    return Dims(row.recipe.micro_batch, row.recipe.seq_len, row.recipe.lora.rank if row.recipe.lora else 0)


def _both(row: Row) -> tuple[Timeline, Timeline]:
    from finefit.lab.trace import trace
    from finefit.memory.estimate import timeline

    return timeline(row.model, row.recipe), trace(row.model, row.recipe, config=row.config)


def score(row: Row) -> Score:
    """Model and trace one row.

    Raises:
        FinefitError: one of the two refuses it.
    """
    modelled, traced = _both(row)
    dims = _dims(row)
    left, right = phase_peaks(modelled, dims), phase_peaks(traced, dims)
    phase, other = (max(p, key=lambda name: p[name].bytes) for p in (left, right))
    bare = [max(p.bytes for p in phase_peaks(t, dims, assumed=False).values()) for t in (modelled, traced)]
    return Score(
        row,
        left[phase].bytes,
        right[other].bytes,
        phase,
        other,
        left[phase].bytes / right[other].bytes - 1,
        bare[0] / bare[1] - 1,
        {name: left[name].bytes / right[name].bytes - 1 for name in right if name in left},
        assumed_terms(traced),
        _differences(modelled, traced, dims) if abs(left[phase].bytes / right[other].bytes - 1) > LISTED else (),
    )


def _differences(modelled: Timeline, traced: Timeline, dims: Dims) -> tuple[str, ...]:
    """What one side holds more of at its peak, by size, module names apart: +2 x 64.0 MiB (chunked_logprob)."""
    lines = compare(modelled, traced, dims)
    out = []
    for size, count in by_size(lines):
        if abs(size * count) < 2**20:
            continue
        ops: set[str] = set()
        for line in lines:
            if line.nbytes == size and (line.left - line.right) * count > 0:
                names = line.left_ops if count > 0 else line.right_ops
                ops.update(name.rpartition(":")[2] for name in names)
        out.append(f"{count:+d} x {size / 2**20:,.1f} MiB ({', '.join(sorted(ops))})")
    return tuple(out)


def _score_or_reason(row: Row) -> Score | str:
    """The score of a row, or why there is none."""
    try:
        return score(row)
    except FinefitError as error:
        return str(error)
    except (RuntimeError, AttributeError) as error:  # a run that the libraries refuse on a GPU too
        return f"the libraries fail: {str(error).splitlines()[0]}"


_ROWS: list[Row] = []  # of this run, which forked processes share: a recipe holds views that cannot be sent


def _numbered(index: int) -> Score | str:
    found = _score_or_reason(_ROWS[index])
    return found if isinstance(found, str) else replace(found, row=None)  # type: ignore[arg-type]


def _scored(chosen: list[Row], jobs: int) -> Iterator[tuple[Row, Score | str]]:
    """Each row with its score or the reason, in order; by several processes where asked."""
    if jobs <= 1:
        yield from ((row, _score_or_reason(row)) for row in chosen)
        return
    _ROWS[:] = chosen
    with get_context("fork").Pool(jobs) as pool:
        for row, found in zip(chosen, pool.imap(_numbered, range(len(chosen)), chunksize=4), strict=True):
            yield row, found if isinstance(found, str) else replace(found, row=row)


def summary(scores: list[Score], skipped: Counter[str]) -> dict[str, object]:
    """The object of the benchmark contract."""
    errors = sorted(abs(s.error) for s in scores)
    groups: dict[str, list[float]] = {}
    for s in scores:
        for key in (f"model={s.row.model.name}", f"method={s.row.recipe.method_label}"):
            groups.setdefault(key, []).append(abs(s.error))
    return {
        "scored": len(scores),
        "skipped": dict(skipped),
        "median_abs_error": statistics.median(errors) if errors else None,
        "p90_abs_error": errors[min(len(errors) - 1, int(0.9 * len(errors)))] if errors else None,
        "worst_abs_error": errors[-1] if errors else None,
        "median_abs_error_without_assumed": (
            statistics.median(abs(s.error_without_assumed) for s in scores) if scores else None
        ),
        "under_share": sum(s.error < -0.05 for s in scores) / len(scores) if scores else None,
        "coverage": None,  # neither side is an interval
        "agreement": sum(s.phase == s.traced_phase for s in scores) / len(scores) if scores else None,
        "groups": {k: {"rows": len(v), "median_abs_error": statistics.median(v)} for k, v in sorted(groups.items())},
        "peers": {},
        "worst": [s.as_json() for s in sorted(scores, key=lambda s: -abs(s.error))[:20]],
    }


def print_diff(lines: list[Line], limit: int) -> None:
    """Tensors held by one side only; "modelled" is left, "traced" right."""
    print(f"{'excess B':>15} {'size B':>13} {'model':>6} {'trace':>6}  module  [modelled ops] [traced ops]")
    for line in lines[:limit]:
        ops = f"[{', '.join(line.left_ops)}] [{', '.join(line.right_ops)}]"
        print(f"{line.excess:>15,} {line.nbytes:>13,} {line.left:>6} {line.right:>6}  {line.module}  {ops}")
    print("\nnet of module names, by size:")
    for size, count in by_size(lines)[:limit]:
        print(f"{size * count:>15,} {size:>13,} {count:>+6}")


def _diff(row: Row, phase: str | None, limit: int) -> None:
    modelled, traced = _both(row)
    dims = _dims(row)
    for label, timeline in (("modelled", modelled), ("traced", traced)):
        for name, peak in phase_peaks(timeline, dims).items():
            tensor = timeline.tensors[timeline.events[peak.event]]
            print(f"{label:9} {name:10} {peak.bytes:>16,}  by {tensor.op} @ {tensor.module}")
    print_diff(compare(modelled, traced, dims, phase=phase), limit)


def _elsewhere(options: argparse.Namespace) -> int:
    """The benchmarks beside parity: measured runs, generations of libraries."""
    from benchmarks import trace_measured, trace_versions
    from benchmarks.trace_environments import default_folder

    folder = options.environments or default_folder()
    try:
        if options.traces:
            print(json.dumps(trace_versions.traces()))
            return 0
        if options.versions:
            first, _, second = options.generations.partition(",")
            found = trace_versions.run(first, second, folder)
            print(json.dumps(found) if options.json else trace_versions.page(found))
            return 0
        if options.environments:
            found = trace_measured.run_everywhere(options.measured, folder)
        else:
            from finefit.lab.versions import TRANSFORMERS

            installed = ".".join(map(str, TRANSFORMERS))
            found = trace_measured.run(options.measured, installed=installed, any_version=options.any_version)
    except FinefitError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(json.dumps(found) if options.json else trace_measured.page(found))
    return 0 if found["scored"] else 1


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.trace", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one architecture whole, the others by three rows")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="every N-th row alone")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes that trace rows side by side")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="write the tables between the markers of a page")
    parser.add_argument("--measured", type=Path, metavar="FILE", help="trace the measured runs of a table instead")
    parser.add_argument("--any-version", action="store_true", help="with --measured: rows of other releases too")
    parser.add_argument("--versions", action="store_true", help="bytes under two generations of transformers")
    parser.add_argument("--generations", default="4.57,5.24", metavar="A,B", help="with --versions: which two")
    parser.add_argument(
        "--environments", type=Path, metavar="DIR", help="with the two above: where their environments are kept"
    )
    parser.add_argument("--list", action="store_true", help="names of the rows")
    parser.add_argument("--diff", metavar="ROW", help="the tensors in which the two differ at their peaks")
    parser.add_argument("--at", metavar="PHASE", help="with --diff: at the peak of this phase")
    parser.add_argument("--traces", action="store_true", help="traced tensors alone, as JSON, for --versions")
    parser.add_argument("--lines", type=int, default=25, help="with --diff: lines to print")
    options = parser.parse_args(arguments)
    if options.diff:
        every = (*rows(quick=False), *config_rows(quick=False), *other_rows(quick=False))
        found = [row for row in every if row.name == options.diff]
        if not found:
            print(f"no row is called {options.diff}; see --list", file=sys.stderr)
            return 2
        _diff(found[0], options.at, options.lines)
        return 0
    if options.measured or options.versions or options.traces:
        return _elsewhere(options)
    every = (*rows(options.quick), *config_rows(options.quick), *other_rows(options.quick))
    chosen = [row for row in every if options.only in row.name][:: max(1, options.every)]
    if options.list:
        print("\n".join(row.name for row in chosen))
        return 0
    scores: list[Score] = []
    skipped: Counter[str] = Counter()
    begin = time.monotonic()
    if not options.json:
        print(f"{'row':34} {'traced GiB':>10} {'error %':>8} {'bare %':>8}  phase (traced)   errors of phases, %")
    for row, result in _scored(chosen, options.jobs):
        if isinstance(result, str):
            skipped[result] += 1
            continue
        scores.append(result)
        if not options.json:
            phases = " ".join(f"{name[:4]} {100 * e:+.3f}" for name, e in result.by_phase.items())
            place = result.phase if result.phase == result.traced_phase else f"{result.phase}({result.traced_phase})"
            print(
                f"{row.name:34} {result.traced / 2**30:10.4f} {100 * result.error:+8.3f} "
                f"{100 * result.error_without_assumed:+8.3f}  {place:16} {phases}",
                flush=True,
            )
    report = summary(scores, skipped)
    if options.write and scores:
        from finefit.lab.versions import versions

        write_between(options.write, "trace", page(scores, skipped, versions()))
    if options.json:
        print(json.dumps(report))
    else:
        for key in ("scored", "median_abs_error", "p90_abs_error", "worst_abs_error", "agreement", "skipped"):
            print(f"{key}: {report[key]}")
        print(f"seconds: {time.monotonic() - begin:.0f}")
    if not scores:
        return 1
    worst, median = report["worst_abs_error"], report["median_abs_error"]
    assert isinstance(worst, float) and isinstance(median, float)
    return 0 if median <= MEDIAN_LIMIT and worst <= WORST_LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
