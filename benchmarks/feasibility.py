"""Does the verdict agree with runs that fitted or failed? ``python -m benchmarks.feasibility [FILE] [--json]``.

FILE is a CSV with the columns of ``benchmarks/data/measured.csv``; its ``fits`` and ``oom`` rows are judged against
the card's capacity as PyTorch reports it. A verdict is decided where the card lies outside the bracket of the need:
below it the run fits, above it it does not; inside it is tight.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.memory import DATA, architecture
from benchmarks.metrics import counted
from benchmarks.recipes import Question, question
from benchmarks.rows import Skip, inputs, read
from benchmarks.tables import percent, table
from finefit.errors import FinefitError, InputError
from finefit.memory.allocator import replay
from finefit.memory.context import cublas_workspace, cuda_context, nccl_buffers
from finefit.memory.estimate import dims_of, estimate, timeline
from finefit.units import GIB

FITS, OOM, TIGHT = "fits", "oom", "tight"
# Set apart from the recalls: what the source does not say outright.
INFERRED, NO_OPTIMIZER = "inferred out of memory", "optimizer not stated"


@dataclass(frozen=True, slots=True)
class Judged:
    """One row: what happened, and the bracket of the need against the card. Bytes."""

    id: str
    source: str
    apart: str
    outcome: str
    low: float
    high: float
    capacity: float

    @property
    def said(self) -> str:
        """The verdict."""
        if self.low > self.capacity:
            return OOM
        return FITS if self.high <= self.capacity else TIGHT


def judge(row: Mapping[str, str]) -> Judged:
    """Predict the need of a row from its inputs alone and compare it with its card.

    Raises:
        Skip: it is no such row, or its run is not modelled.
    """
    outcome = row.get("outcome", "")
    if outcome not in (FITS, OOM):
        raise Skip("measured, not a verdict")
    if row.get("core", "1") != "1":
        raise Skip("not core")
    try:
        capacity = float(row.get("gpu_capacity_gib_approx", "")) * GIB
    except ValueError:
        raise Skip("capacity of the card not stated") from None
    asked = question(inputs(row))
    try:
        low, high = bracket(asked, architecture(row))
    except FinefitError as error:
        raise Skip(f"not modelled yet: {error.what}") from error
    apart = INFERRED if "oom_inferred" in row.get("flags", "") else ""
    if not row.get("optimizer") or "not stated" in row["optimizer"].lower():
        apart = apart or NO_OPTIMIZER
    return Judged(row.get("id", ""), row["source"].partition("@")[0], apart, outcome, low, high, capacity)


def bracket(asked: Question, arch: str | None) -> tuple[float, float]:
    """Tensors alone, and what the allocator takes when nothing presses it; both with what lies outside of it."""
    outside = cuda_context(arch).nbytes + nccl_buffers(min(8, asked.recipe.sharding.ranks))
    low = estimate(asked.model, asked.recipe, arch=arch).allocated + outside
    events = timeline(asked.model, asked.recipe, workspace=cublas_workspace(arch))
    high = replay(events, dims_of(asked.recipe), lengths=asked.lengths).total + outside
    return low, max(low, high)


def run(rows: list[dict[str, str]]) -> dict[str, Any]:
    """Judge a table; the object that ``--json`` prints."""
    judged: list[Judged] = []
    skipped: list[str] = []
    for row in rows:
        try:
            judged.append(judge(row))
        except Skip as reason:
            skipped.append(str(reason))
    plain = [one for one in judged if not one.apart]
    groups: dict[str, dict[str, Any]] = {}
    for name in sorted({one.source for one in judged}):
        groups[name] = recalls(one for one in judged if one.source == name)
    return {
        "scored": len(judged),
        "skipped": counted(skipped),
        **recalls(plain),
        "apart": {name: recalls(one for one in judged if one.apart == name) for name in (INFERRED, NO_OPTIMIZER)},
        "groups": {"source": groups},
        "worst": [shown(one) for one in judged if one.said not in (one.outcome, TIGHT)],
    }


def recalls(judged: Iterable[Judged]) -> dict[str, Any]:
    """Share decided, recall of both outcomes among the decided, and failures whose whole bracket is below the card."""
    rows = list(judged)
    found: dict[str, Any] = {"rows": len(rows)}
    decided = [one for one in rows if one.said != TIGHT]
    found["decided"] = len(decided) / len(rows) if rows else None
    for outcome in (OOM, FITS):
        own = [one for one in decided if one.outcome == outcome]
        found[f"{outcome}_rows"] = sum(one.outcome == outcome for one in rows)
        found[f"{outcome}_recall"] = sum(one.said == outcome for one in own) / len(own) if own else None
    found["oom_below_card"] = sum(one.outcome == OOM and one.said == FITS for one in rows)
    return found


def shown(one: Judged) -> dict[str, Any]:
    sizes = {name: round(getattr(one, name) / GIB, 2) for name in ("low", "high", "capacity")}
    return {"id": one.id, "source": one.source, "outcome": one.outcome, "said": one.said, **sizes, "apart": one.apart}


def page(result: dict[str, Any]) -> str:
    """The result as Markdown tables."""
    named = {"stated outcomes": result, **result["apart"], **result["groups"]["source"]}
    lines = [
        [
            name,
            str(found["rows"]),
            *(percent(found[key]) for key in ("decided", "oom_recall", "fits_recall")),
            str(found["oom_below_card"]),
        ]
        for name, found in named.items()
    ]
    head = ["rows of", "rows", "decided", "OOM recall", "fits recall", "OOM said to fit"]
    wrong = [[str(value) for value in row.values()] for row in result["worst"]]
    parts = [table(head, lines)]
    if wrong:
        parts += ["Decided wrongly (GiB):", table(list(result["worst"][0]), wrong)]
    parts += ["Rows left out:", table(["reason", "rows"], [[why, str(n)] for why, n in result["skipped"].items()])]
    return "\n\n".join(parts)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.feasibility", description=__doc__)
    parser.add_argument("file", nargs="?", type=Path, default=DATA)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(argv)
    try:
        result = run(read(options.file))
    except InputError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(json.dumps(result, indent=1, ensure_ascii=False) if options.json else page(result))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
