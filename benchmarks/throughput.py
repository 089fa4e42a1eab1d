"""Step times against published ones: ``python -m benchmarks.throughput FILE [--json] [--no-refit] [--write]``.

FILE is any CSV with the columns of ``throughput.csv``. The core is every row of grade A or B in bf16 or fp16, of a
dense model, without offload, on at most 256 GPUs; 8- and 4-bit runs, mixtures of experts and runs with offload are
scored apart. Scored are the installed constants, and refits of all constants that saw no row of the same source and
model, or of the same source. The peer is the rule of thumb 6·N·D / (0.45·peak). ``--write`` fits the constants to FILE
and writes them into the package, with the interval of each kind of run as its sources left out measure it.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.metrics import Score, counted, groups, macro, summary, worst
from benchmarks.tables import percent, summaries, table
from benchmarks.throughput_core import Skip, funnel
from benchmarks.throughput_fit import STAGES, Array, Measured, fitted_table, left_out
from benchmarks.throughput_rows import VALUE_COLUMNS, Question, measured_seconds, question
from finefit.errors import FinefitError, InputError, NotModelled
from finefit.speed import StepTime, step_time
from finefit.speed.constants import table as constants
from finefit.speed.steptime import ask
from finefit.workload.parameters import active_count

NEEDED = frozenset({"model", "method", "dtype", "micro_batch", "tokens_per_microbatch", "gpu", "tok_s_gpu"})
OPTIONAL = (
    *(
        "params_total_b",
        "params_active_b",
        "arch_key",
        "rank",
        "lora_targets",
        "quant",
        "grad_accum",
        "packing",
        "grad_ckpt",
    ),
    *("attn_impl", "kernels", "framework", "n_gpus", "n_nodes", "tp", "pp", "vpp", "cp", "ep", "zero", "offload"),
    "interconnect",
)
GROUPS = ("source", "method", "gpu", "gpus", "tokens", "interval")
CORE = STAGES[0]
FILE = Path(__file__).parents[1] / "src" / "finefit" / "speed" / "speed_constants.json"


@dataclass(frozen=True, slots=True)
class Row:
    """A scored row."""

    asked: Question
    time: StepTime
    measured: Measured
    fields: dict[str, str]

    def score(self, predicted: float) -> Score:
        """It against a prediction in seconds."""
        return Score(self.measured.id, self.fields, self.measured.seconds, predicted)


def predict(asked: Question) -> StepTime:
    """finefit's step time.

    Raises:
        Skip: the recipe is understood but not modelled.
    """
    try:
        return step_time(asked.model, asked.recipe, asked.cluster, asked.habits)
    except (NotModelled, InputError) as error:
        raise Skip(f"not modelled: {error.what}") from error


def scored(rows: Sequence[dict[str, str]]) -> tuple[list[Row], list[str]]:
    """Every row that can be scored, and why the others cannot."""
    found, skipped = [], []
    for at, row in enumerate(rows):
        try:
            asked = question({k: v for k, v in row.items() if k not in VALUE_COLUMNS})
            time, seconds = predict(asked), measured_seconds(row, asked)
        except Skip as reason:
            skipped.append(str(reason))
            continue
        except FinefitError as error:  # a family or module that finefit does not know
            skipped.append(f"not modelled: {error.what}")
            continue
        source = row.get("source", "") or "unnamed"
        load = ask(asked.model, asked.recipe, asked.cluster, asked.habits)
        measured = Measured(row.get("id", "") or str(at), source, row["model"], asked.kind, load, seconds)
        found.append(Row(asked, time, measured, _fields(row, source, asked, time)))
    return found, skipped


def run(rows: Sequence[dict[str, str]], *, refit: bool = True) -> dict[str, Any]:
    """Score a table; the object that ``--json`` prints."""
    found, skipped = scored(rows)
    core = [row for row in found if row.asked.kind == CORE]
    mine = [row.score(row.time.seconds) for row in core]
    by = groups(mine, GROUPS)
    result = {
        **summary(mine),
        "coverage": _coverage(core),
        "agreement": None,
        "macro": macro(by["source"]),
        "fine_tuning": summary([row.score(row.time.seconds) for row in core if _fine_tuning(row)]),
        "consumer": summary([row.score(row.time.seconds) for row in core if _consumer(row)]),
        "funnel": funnel(rows),
        "skipped": counted(skipped),
        "groups": by,
        "peers": {"6ND/(0.45 peak)": _peer(core)},
        "apart": {kind: _apart([row for row in found if row.asked.kind == kind]) for kind in STAGES[1:]},
        "worst": worst(mine, lambda s: {"id": s.id, **s.fields, "measured": s.measured, "predicted": s.predicted}),
        "assumed": counted(what for row in core for what in row.asked.assumed),
    }
    if refit and core:
        measured = [row.measured for row in found]
        result["cross_validation"] = _refitted(found, left_out(measured, lambda row: (row.source, row.model)))
        result["source_left_out"] = _refitted(found, left_out(measured, lambda row: row.source))
    return result


def _coverage(rows: Sequence[Row], seconds: Array | None = None) -> float | None:
    """Share of rows inside the 90 % interval around the installed prediction or another."""
    inside = []
    for at, row in enumerate(rows):
        predicted = row.time.seconds if seconds is None else float(seconds[at])
        inside.append(_apart_by(row.measured.seconds, predicted) <= row.time.spread)
    return float(np.mean(inside)) if inside else None


def _apart_by(measured: float, predicted: float) -> float:
    return max(measured / predicted, predicted / measured) - 1


def _peer(rows: Sequence[Row]) -> dict[str, Any]:
    scores = [row.score(_rule_of_thumb(row)) for row in rows]
    return {
        **summary(scores),
        "macro": macro(groups(scores, ["source"])["source"]),
        "fine_tuning": summary([s for s, row in zip(scores, rows, strict=True) if _fine_tuning(row)]),
        "consumer": summary([s for s, row in zip(scores, rows, strict=True) if _consumer(row)]),
    }


def _apart(rows: Sequence[Row]) -> dict[str, Any]:
    scores = [row.score(row.time.seconds) for row in rows]
    by = groups(scores, ["source"])["source"]
    return {**summary(scores), "coverage": _coverage(rows), "macro": macro(by), "peer": _peer(rows), "groups": by}


def _refitted(rows: Sequence[Row], seconds: Array) -> dict[str, Any]:
    """Errors of predictions whose constants never saw the row's group."""
    core = [at for at, row in enumerate(rows) if row.asked.kind == CORE]
    scores = [rows[at].score(float(seconds[at])) for at in core]
    by = groups(scores, GROUPS)
    apart = {}
    for kind in STAGES[1:]:
        apart[kind] = summary(
            [row.score(float(s)) for row, s in zip(rows, seconds, strict=True) if row.asked.kind == kind]
        )
    return {
        **summary(scores),
        "coverage": _coverage([rows[at] for at in core], seconds[core]),
        "macro": macro(by["source"]),
        "fine_tuning": summary([s for s, at in zip(scores, core, strict=True) if _fine_tuning(rows[at])]),
        "consumer": summary([s for s, at in zip(scores, core, strict=True) if _consumer(rows[at])]),
        "groups": by,
        "apart": apart,
    }


def _fine_tuning(row: Row) -> bool:
    return row.fields["purpose"] == "fine-tuning"


def _consumer(row: Row) -> bool:
    """GeForce cards, by the catalogue's names ("rtx-4090")."""
    return re.match(r"(rtx|gtx)-\d{4}", row.asked.cluster.gpu.id) is not None


def _rule_of_thumb(row: Row) -> float:
    gpu = row.asked.cluster.gpu
    peak = gpu.bf16_flops or gpu.fp16_flops or 1.0
    return 6 * active_count(row.asked.model) * row.time.tokens / (0.45 * peak)


def _fields(row: dict[str, str], source: str, asked: Question, time: StepTime) -> dict[str, str]:
    tokens = asked.recipe.micro_batch * asked.recipe.seq_len
    limits = ((1024, "< 1k"), (4096, "1-4k"), (16384, "4-16k"), (float("inf"), "16k +"))
    return {
        "source": source,
        "model": row["model"],
        "method": asked.recipe.method_label,
        "gpu": row["gpu"],
        "gpus": str(asked.cluster.count),
        "tokens": next(name for limit, name in limits if tokens < limit),
        "interval": time.interval.kind,
        "purpose": "pre-training" if "pretrain" in row["method"] else "fine-tuning",
    }


def written(rows: Sequence[dict[str, str]]) -> dict[str, Any]:
    """The constants file fitted to a table, with measured intervals and the rows behind it."""
    found, _ = scored(rows)
    measured = [row.measured for row in found]
    seconds = left_out(measured, lambda row: row.source)
    out = fitted_table(measured)
    out["interval"] = _intervals(found, seconds)
    core = [row.score(float(s)) for row, s in zip(found, seconds, strict=True) if row.asked.kind == CORE]
    out["fit"] = {
        "rows": {kind: _spans([row.id for row in measured if row.kind == kind]) for kind in STAGES},
        "source_left_out": {name: summary(core)[name] for name in ("scored", "median_abs_error", "p90_abs_error")},
    }
    return out


def _intervals(rows: Sequence[Row], seconds: Array) -> dict[str, Any]:
    """Ninth decile of the distance between measured and predicted for each kind of run, sources left out.

    A row whose card no other source measured was predicted from priors, as for a card that nobody has measured.
    """
    sources = defaultdict(set)
    for row in rows:
        sources[row.measured.asked.rates["gemm"].key].add(row.measured.source)
    apart = defaultdict(list)
    for row, predicted in zip(rows, seconds, strict=True):
        distance, kind = _apart_by(row.measured.seconds, float(predicted)), row.time.interval.kind
        alone = sources[row.measured.asked.rates["gemm"].key] == {row.measured.source}
        apart["new_card" if alone and kind in ("steady", "usual", "short") else kind].append(distance)
    out = dict(constants()["interval"])
    for kind, distances in apart.items():
        value = float(np.ceil(np.quantile(distances, 0.9, method="higher") * 100) / 100)
        inside = float(np.mean(np.array(distances) <= value))
        out[kind] = {"value": value, "coverage": round(inside, 3), "runs": len(distances)}
    return out


def _laid_out(constants_file: dict[str, Any]) -> str:
    """As JSON, with lists and the innermost objects on one line."""
    text = json.dumps(constants_file, indent=1, ensure_ascii=False)
    text = re.sub(r"\[[^\[\]{}]*\]", lambda found: " ".join(found[0].split()), text)
    return re.sub(r"\{[^{}]*\}", lambda found: " ".join(found[0].split()), text) + "\n"


def _spans(ids: Sequence[str]) -> str:
    """Ids in order, neighbours drawn together: "T0001-T0004, T0007"."""
    out: list[list[str]] = []
    for each in sorted(ids):
        last = out[-1][-1] if out else ""
        follows = each[1:].isdigit() and last[1:].isdigit() and int(each[1:]) == int(last[1:]) + 1
        out[-1].append(each) if follows else out.append([each])
    return ", ".join(span[0] if len(span) == 1 else f"{span[0]}-{span[-1]}" for span in out)


def read(path: Path) -> list[dict[str, str]]:
    """Rows of the table.

    Raises:
        InputError: the file cannot be read or lacks a needed column.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            missing = NEEDED - set(reader.fieldnames or ())
            if missing:
                raise InputError(f"no column {', '.join(sorted(missing))}", where=str(path))
            names = [*(reader.fieldnames or ()), *OPTIONAL]
            return [{name: (row.get(name) or "").strip() for name in names} for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"cannot read the table: {error}", where=str(path), fix="give a CSV file") from error


def page(result: dict[str, Any]) -> str:
    """The result as Markdown tables."""
    peer = result["peers"]["6ND/(0.45 peak)"]
    refits = {
        name: result[key]
        for key, name in (("cross_validation", "source x model left out"), ("source_left_out", "source left out"))
        if key in result
    }
    lines = {"installed constants": result} | refits | {"6ND/(0.45 peak)": peer}
    blocks = [summaries("estimator", {name: _core(each) for name, each in lines.items()}), _funnel(result["funnel"])]
    blocks.append(
        "\n".join(
            f"{name}: {_inside(each)}every source counted once: median {percent(each['macro']['median_abs_error'])}, "
            f"p90 {percent(each['macro']['p90_abs_error'])}."
            for name, each in lines.items()
        )
    )
    for subset, title in (("fine_tuning", "fine-tuning rows"), ("consumer", "consumer cards")):
        blocks.append(summaries(title, {name: each[subset] for name, each in lines.items()}))
    for kind, each in result["apart"].items():
        apart = {"installed constants": _core(each)}
        apart |= {name: refit["apart"][kind] for name, refit in refits.items()}
        blocks += [
            summaries(kind, apart | {"6ND/(0.45 peak)": _core(each["peer"])}),
            f"{kind}: {_inside(each).strip()}",
        ]
    blocks += [summaries(field, result["groups"][field]) for field in GROUPS]
    for name, each in refits.items():
        blocks.append(summaries(name, each["groups"]["source"]))
    blocks += ["Rows with the largest error:", _worst(result["worst"])]
    blocks += ["Rows left out:", table(["reason", "rows"], [[what, str(n)] for what, n in result["skipped"].items()])]
    blocks.append("What the core rows leave open and was assumed:")
    blocks.append(table(["assumption", "rows"], [[what, str(n)] for what, n in result["assumed"].items()]))
    return "\n\n".join(blocks)


def _funnel(steps: list[dict[str, Any]]) -> str:
    names = ("fail", "fail_alone", "left")
    return table(
        ["condition of the core", "rows that fail it", "that fail it alone", "rows left after it"],
        [[step["condition"], *(str(step[name]) for name in names)] for step in steps],
    )


def _core(each: dict[str, Any]) -> dict[str, Any]:
    return {name: each[name] for name in ("scored", "median_abs_error", "p90_abs_error", "bias", "under_share")}


def _inside(each: dict[str, Any]) -> str:
    return f"inside the 90 % interval {percent(each['coverage'])}; " if "coverage" in each else ""


def _worst(rows: list[dict[str, Any]]) -> str:
    names = ("id", "source", "model", "method")
    return table(
        [*names, "measured s", "predicted s", "error"],
        [
            [*(row[n] for n in names), f"{row['measured']:.3f}", f"{row['predicted']:.3f}", percent(row["error"])]
            for row in rows
        ],
    )


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.throughput", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--no-refit", action="store_true", help="score the installed constants alone")
    parser.add_argument("--write", action="store_true", help="fit the constants to FILE and write them")
    options = parser.parse_args(argv)
    try:
        rows = read(options.file)
        if options.write:
            FILE.write_text(_laid_out(written(rows)), encoding="utf-8")
            print(f"wrote {FILE}", file=sys.stderr)
            return 0
        result = run(rows, refit=not options.no_refit)
    except FinefitError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(json.dumps(result, indent=1, ensure_ascii=False) if options.json else page(result))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
