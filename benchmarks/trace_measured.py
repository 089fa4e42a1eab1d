"""Traced memory against measured GPUs: ``benchmarks.trace --measured FILE``.

FILE has the columns of ``benchmarks/data/measured.csv``. Scored are rows of allocated bytes on one GPU that
ran the transformers release that is installed here; ``--environments`` runs the others where theirs is.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.metrics import Score, counted, groups, summary, worst
from benchmarks.recipes import Question, question
from benchmarks.rows import Row, Skip, read, select
from benchmarks.tables import percent, summaries, table
from benchmarks.trace_environments import GENERATIONS, run_in
from finefit.errors import FinefitError
from finefit.lab.diff import phase_peaks
from finefit.memory.estimate import estimate
from finefit.units import GIB

GROUPS = ("source", "method", "framework", "transformers")


def run(path: Path, *, installed: str, any_version: bool = False) -> dict[str, Any]:
    """Trace every row that can be; the object of the benchmark contract.

    Args:
        installed: transformers release of this environment, "4.48".
        any_version: trace rows of other releases too, which then say what changed since.
    """
    scores: list[Score] = []
    modelled: dict[str, float] = {}
    skipped: list[str] = []
    for row in select(read(path)):
        try:
            asked = _question(row)
            release = asked.recipe.stack["transformers"]
            if release != installed and not any_version:
                raise Skip(f"ran transformers {release}")
            assert isinstance(row, Row)
            traced, phase = _traced(asked)
        except Skip as reason:
            skipped.append(str(reason))
            continue
        if row.measured is None:
            skipped.append("no value")
            continue
        fields = {
            "source": row.source,
            "method": asked.recipe.method_label,
            "framework": row.inputs.get("framework", "") or "not stated",
            "transformers": release,
            "model": row.inputs["model"],
            "phase": phase,
        }
        scores.append(Score(row.id, fields, row.measured, traced))
        modelled[row.id] = estimate(asked.model, asked.recipe).allocated
    return result(scores, modelled, counted(skipped))


def _question(row: Row | Skip) -> Question:
    if isinstance(row, Skip):
        raise row
    if row.metric != "allocated":
        raise Skip("reports another number than allocated bytes")
    asked = question(row.inputs)
    if asked.recipe.sharding.kind != "none":
        raise Skip(f"sharded ({asked.recipe.sharding.kind})")
    return asked


def _traced(asked: Question) -> tuple[int, str]:
    from finefit.lab.trace import trace

    try:
        timeline = trace(asked.model, asked.recipe)
    except FinefitError as error:
        raise Skip(f"not traced: {error.what}") from error
    assert timeline.dims is not None
    peaks = phase_peaks(timeline, timeline.dims)
    phase = max(peaks, key=lambda name: peaks[name].bytes)
    return peaks[phase].bytes, phase


def result(scores: Sequence[Score], modelled: dict[str, float], skipped: dict[str, int]) -> dict[str, Any]:
    """The object that ``--json`` prints; ``peers`` holds the model of memory on the same rows."""
    model = [Score(s.id, s.fields, s.measured, modelled[s.id]) for s in scores]
    return {
        **summary(scores),
        "coverage": None,  # a trace is no interval
        "skipped": skipped,
        "groups": groups(scores, GROUPS),
        "peers": {"modelled": summary(model)},
        "worst": worst(scores, _shown),
        "rows": [_shown(s) | {"error": s.error, "modelled_bytes": modelled[s.id]} for s in scores],
    }


def _shown(score: Score) -> dict[str, Any]:
    return {"id": score.id, **score.fields, "measured_bytes": score.measured, "predicted_bytes": score.predicted}


def run_everywhere(path: Path, folder: Path) -> dict[str, Any]:
    """``run`` under every generation that is known, each on the rows of its own release."""
    scores: list[Score] = []
    modelled: dict[str, float] = {}
    reasons: dict[str, int] = {}
    for generation in GENERATIONS:
        found = run_in(generation, folder, ["--measured", str(path.resolve())])
        for row in found["rows"]:
            fields = {k: row[k] for k in (*GROUPS, "model", "phase")}
            scores.append(Score(row["id"], fields, row["measured_bytes"], row["predicted_bytes"]))
            modelled[row["id"]] = row["modelled_bytes"]
        reasons = {k: v for k, v in found["skipped"].items() if k.removeprefix("ran transformers ") not in GENERATIONS}
    return result(scores, modelled, reasons)


def page(found: dict[str, Any]) -> str:
    """The result as Markdown tables."""
    names = ("scored", "median_abs_error", "p90_abs_error", "bias", "under_share")
    mine = {name: found[name] for name in names}
    shown = [
        [
            row["id"],
            row["model"][:34],
            row["method"],
            row["transformers"],
            f"{row['measured_bytes'] / GIB:.3f}",
            f"{row['predicted_bytes'] / GIB:.3f}",
            f"{100 * row['error']:+.2f} %",
            f"{100 * (row['modelled_bytes'] / row['measured_bytes'] - 1):+.2f} %",
            row["phase"],
        ]
        for row in found["rows"]
    ]
    head = ["row", "model", "method", "transformers", "measured GiB", "traced GiB", "traced", "modelled", "phase"]
    return "\n\n".join(
        [
            summaries("estimator", {"traced": mine, **found["peers"]}),
            *(summaries(field, found["groups"][field]) for field in GROUPS),
            table(head, shown),
            "Rows left out:",
            table(["reason", "rows"], [[reason, str(n)] for reason, n in found["skipped"].items()]),
            f"Median {percent(found['median_abs_error'])}.",
        ]
    )
