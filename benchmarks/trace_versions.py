"""What changed in bytes between two generations of the libraries: ``benchmarks.trace --versions``.

A small matrix is traced in a fresh environment of each, and the tensors at the peaks are compared by size: the
operations named are what the newer code makes more of, or no longer makes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks._trace_rows import MODELS, Row, core, variants
from benchmarks.tables import table
from benchmarks.trace_environments import run_in
from finefit.errors import FinefitError

_MODELS = ("llama-8b", "qwen2.5-0.5b", "gpt2", "phi-2")
_NAMES = ("full/none", "full/nonre", "full/eager", "full/padded", "full/amp", "lora/nonre", "qlora/re")
_SHOWN = 3
_LEAST = 0.0005  # a phase that changed by less is not shown


def matrix() -> list[Row]:
    """The rows that are traced: methods, attention, precision and masks on four kinds of architecture."""
    found = []
    for name in _MODELS:
        model = MODELS[name]
        by_name = {row.name.partition("/")[2]: row for row in (*core(model), *variants(model))}
        found += [by_name[each] for each in _NAMES if each in by_name]
    return [replace(row, recipe=replace(row.recipe, stack={})) for row in found]


def traces() -> dict[str, Any]:
    """Peak, phases and tensors of every row under the libraries installed here; the errors of those refused."""
    from finefit.lab.summary import summarise
    from finefit.lab.trace import trace
    from finefit.lab.versions import versions

    rows: dict[str, Any] = {}
    for row in matrix():
        try:
            found = summarise(trace(row.model, row.recipe))
        except FinefitError as error:
            rows[row.name] = {"error": str(error)}
            continue
        rows[row.name] = {
            "allocated": found.allocated,
            "phase": found.phase,
            "phases": found.phases,
            "tensors": [[line.nbytes, line.count, line.op, line.module] for line in found.held],
        }
    return {"libraries": versions(), "rows": rows}


def run(first: str, second: str, folder: Path) -> dict[str, Any]:
    """Both generations, and for each row the change of the peak with the tensors that make it.

    Raises:
        InputError: no such generation, or its benchmark failed.
        SourceUnreachable: its packages cannot be installed.
    """
    old, new = (run_in(name, folder, ["--traces"]) for name in (first, second))
    changes = []
    for name, before in old["rows"].items():
        after = new["rows"][name]
        if "error" in before or "error" in after:
            changes.append({"row": name, "error": before.get("error") or after.get("error")})
            continue
        changes.append(
            {
                "row": name,
                "before": before["allocated"],
                "after": after["allocated"],
                "phases": {
                    phase: after["phases"][phase] / nbytes - 1
                    for phase, nbytes in before["phases"].items()
                    if phase in after["phases"]
                },
                "why": difference(before["tensors"], after["tensors"]),
            }
        )
    return {"generations": {first: old["libraries"], second: new["libraries"]}, "rows": changes}


def difference(before: list[list[Any]], after: list[list[Any]]) -> list[str]:
    """Tensors that only one side holds at its peak, by size, largest first, with the operations that make them."""
    counts: Counter[int] = Counter()
    ops: dict[int, tuple[Counter[str], Counter[str]]] = {}
    for side, tensors in enumerate((before, after)):
        for nbytes, count, op, module in tensors:
            counts[nbytes] += count if side else -count
            maker = f"{op} in {module}" if module else op
            ops.setdefault(nbytes, (Counter(), Counter()))[side][maker] += count
    out = []
    for nbytes, count in sorted(counts.items(), key=lambda item: -abs(item[0] * item[1])):
        if abs(nbytes * count) < 2**20:
            continue
        more, less = ops[nbytes][count > 0], ops[nbytes][count < 0]
        names = ", ".join(sorted((more - less).keys()))
        out.append(f"{count:+d} x {nbytes / 2**20:,.1f} MiB ({names})")
    return out


def page(found: dict[str, Any]) -> str:
    """The result as a Markdown table."""
    first, second = found["generations"]
    lines, reasons = [], []
    for row in found["rows"]:
        if "error" in row:
            lines.append([row["row"], "–", "–", "–", row["error"]])
            continue
        lines.append(
            [
                row["row"],
                f"{row['before'] / 2**30:.4f}",
                f"{row['after'] / 2**30:.4f}",
                f"{100 * (row['after'] / row['before'] - 1):+.2f} %",
                ", ".join(f"{n} {100 * e:+.2f} %" for n, e in row["phases"].items() if abs(e) >= _LEAST) or "–",
            ]
        )
        if row["why"]:
            reasons.append(f"- {row['row']}: {'; '.join(row['why'][:_SHOWN])}")
    libraries = [
        f"{name}: " + ", ".join(f"{library} {version}" for library, version in versions.items())
        for name, versions in found["generations"].items()
    ]
    head = ["row", f"{first}, GiB", f"{second}, GiB", "change", "phases"]
    parts = [*libraries, table(head, lines)]
    if reasons:
        parts += ["Tensors at the peak, those of the newer generation less those of the older:", "\n".join(reasons)]
    return "\n\n".join(parts)
