"""Accuracy of peak memory against measured runs: ``python -m benchmarks.memory [FILE] [--json]``.

FILE is any CSV with the columns of ``benchmarks/data/measured.csv`` (the default). Each core, measured row
is compared with the number its source reports: allocated, reserved or device-used bytes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import finefit
from benchmarks.intervals import LEVEL, as_table, left_out
from benchmarks.metrics import Score, counted, groups, macro, summary, worst
from benchmarks.peers import Peer, available
from benchmarks.recipes import Question, question
from benchmarks.rows import Row, Skip, read, select
from benchmarks.tables import percent, summaries, table, write_between
from finefit.catalog.gpus import find_gpu
from finefit.errors import FinefitError, InputError, NotModelled
from finefit.memory.allocator import replay
from finefit.memory.context import cublas_workspace, cuda_context, nccl_buffers
from finefit.memory.estimate import dims_of, estimate, timeline
from finefit.memory.interval import ONE_GPU, SEVERAL_GPUS
from finefit.units import GIB

INTERVALS = Path(finefit.__file__).parent / "memory" / "memory_intervals.json"
DATA = Path(__file__).parent / "data" / "measured.csv"
GROUPS = ("source", "metric", "method", "framework")

Predict = Callable[[Question, Row], float]


def predict(asked: Question, row: Row) -> float:
    """finefit's bytes for the number the row reports.

    Raises:
        Skip: the recipe is understood but not modelled yet.
    """
    arch = architecture(row.inputs)
    try:
        if row.metric == "allocated":
            nbytes = estimate(asked.model, asked.recipe, arch=arch).allocated
        else:
            events = timeline(asked.model, asked.recipe, workspace=cublas_workspace(arch))
            nbytes = replay(events, dims_of(asked.recipe), lengths=asked.lengths).total
            if row.metric == "device":
                nbytes += _outside(asked, arch)
    except NotModelled as error:
        raise Skip(f"not modelled yet: {error.what}") from error
    except InputError as error:
        raise Skip(f"cannot be estimated: {error.what}") from error
    return float(nbytes * asked.summed_over)


def architecture(row: Mapping[str, str]) -> str | None:
    """GPU architecture: it sizes the cuBLAS workspaces and the CUDA context, and nothing else."""
    try:
        return find_gpu(row.get("gpu", "")).gpu.arch
    except FinefitError:
        return None


def _outside(asked: Question, arch: str | None) -> int:
    """CUDA context and communication buffers."""
    torch = tuple(int(part) for part in asked.recipe.stack["torch"].split("."))
    eager = torch < (1, 13)  # kernels load lazily from CUDA 11.7, which came with torch 1.13
    return cuda_context(arch, eager=eager).nbytes + nccl_buffers(min(8, asked.recipe.sharding.ranks))


def run(
    rows: list[dict[str, str]], predict: Predict = predict, peers: Mapping[str, Peer] | None = None
) -> dict[str, Any]:
    """Score a table of measured rows; the object that ``--json`` prints."""
    peers = available() if peers is None else peers
    ours: list[Score] = []
    theirs: dict[str, list[Score]] = {name: [] for name in peers}
    skipped: list[str] = []
    predictions: dict[str, int] = {}
    assumed: list[str] = []
    for row in select(rows):
        if isinstance(row, Skip):
            skipped.append(str(row))
            continue
        try:
            asked = question(row.inputs)
            nbytes = predict(asked, row)
        except Skip as reason:
            skipped.append(str(reason))
            continue
        assumed += asked.assumed
        predictions[row.id] = round(nbytes)
        if row.measured is None:
            skipped.append("no value")
            continue
        fields = {
            "source": row.source,
            "metric": row.metric,
            "method": asked.recipe.method_label,
            "framework": row.inputs.get("framework", "") or "not stated",
            "model": row.inputs["model"],
            "gpus": ONE_GPU if asked.recipe.sharding.ranks * asked.recipe.parallel.gpus == 1 else SEVERAL_GPUS,
        }
        ours.append(Score(row.id, fields, row.measured, nbytes))
        for name, peer in peers.items():
            other = peer(asked, row.metric)
            if other is not None:
                theirs[name].append(Score(row.id, fields, row.measured, other * asked.summed_over))
    tables = groups(ours, GROUPS)
    apart = left_out(ours)
    return {
        **summary(ours),
        "coverage": apart["all"]["coverage"] if apart else None,
        "left_out": apart,  # each source against the intervals of the others
        "macro": macro(tables["source"]),
        "skipped": counted(skipped),
        "groups": tables,
        "peers": {name: {**summary(s), "macro": macro(groups(s, ["source"])["source"])} for name, s in theirs.items()},
        "worst": worst(ours, _shown),
        "assumed": counted(assumed),
        "intervals": as_table(ours),
        "predictions": predictions,  # bytes by row; they do not change when the value columns are blanked
    }


def _shown(score: Score) -> dict[str, Any]:
    return {
        "id": score.id,
        **score.fields,
        "measured_gib": round(score.measured / GIB, 3),
        "predicted_gib": round(score.predicted / GIB, 3),
    }


def page(result: dict[str, Any]) -> str:
    """The result as Markdown tables."""
    mine = {name: result[name] for name in ("scored", "median_abs_error", "p90_abs_error", "bias", "under_share")}
    parts = [
        summaries("estimator", {"finefit": mine} | result["peers"]),
        "Mean over sources, every source counted once:",
        table(
            ["estimator", "median |error|", "p90 |error|", "under by > 5 %"],
            [
                [name, *(percent(m[key]) for key in ("median_abs_error", "p90_abs_error", "under_share"))]
                for name, m in [("finefit", result["macro"])] + [(n, p["macro"]) for n, p in result["peers"].items()]
            ],
        ),
        *(summaries(field, result["groups"][field]) for field in GROUPS),
        "The 90 % interval of each source from all others (shares; widths relative to the prediction):",
        table(
            ["metric", "rows", "coverage", "mean over sources", "upper end holds", "median width", "interval score"],
            [
                [
                    metric,
                    str(found["rows"]),
                    *(percent(found[k]) for k in ("coverage", "macro_coverage", "upper_coverage", "median_width")),
                    f"{found['interval_score']:.2f}",
                ]
                for metric, found in result["left_out"].items()
            ],
        ),
        "The intervals of all rows, measured over predicted:",
        table(
            ["metric", "kind of run", "low", "high", "rows", "sources"],
            [
                [r["metric"], r["gpus"], f"{r['low']:.3f}", f"{r['high']:.3f}", str(r["rows"]), str(r["sources"])]
                for r in result["intervals"]
            ],
        ),
        "Rows with the largest error:",
        table(
            ["row", "model", "method", "metric", "measured GiB", "predicted GiB", "error"],
            [
                [
                    w["id"],
                    w["model"][:40],
                    w["method"],
                    w["metric"],
                    f"{w['measured_gib']:.2f}",
                    f"{w['predicted_gib']:.2f}",
                    percent(w["error"]),
                ]
                for w in result["worst"]
            ],
        ),
        "Rows left out:",
        table(["reason", "rows"], [[reason, str(n)] for reason, n in result["skipped"].items()]),
        "What the table of runs leaves open and was assumed:",
        table(["assumption", "rows"], [[what, str(n)] for what, n in result["assumed"].items()]),
    ]
    return "\n\n".join(parts)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.memory", description=__doc__)
    parser.add_argument("file", nargs="?", type=Path, default=DATA)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="write the tables between the markers of a page")
    parser.add_argument(
        "--write-intervals", action="store_true", help="write the intervals that finefit shows from the rows of FILE"
    )
    options = parser.parse_args(argv)
    try:
        result = run(read(options.file))
        if options.write_intervals:
            INTERVALS.write_text(json.dumps({"level": LEVEL, "intervals": result["intervals"]}, indent=1) + "\n")
        if options.write:
            write_between(options.write, "memory", page(result))
        elif options.json:
            print(json.dumps(result, indent=1, ensure_ascii=False))
        else:
            print(page(result))
    except InputError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
