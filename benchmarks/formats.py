"""How well configurations of other tools are read: every field against a manifest written by hand.

    python -m benchmarks.formats ../shared/configs [--json]

DIR holds the files and a MANIFEST.csv (columns: ``benchmarks.manifest``). A field counts where the manifest or the
reading says something; an empty cell of a launcher, engine or task row is not compared, since such files say nothing
of the run. Each disagreement is printed with the line it was read from. ``--plans`` also plans every training file,
and prints how many give a plan by tool and the one sentence that each of the others got.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import manifest
from benchmarks.tables import percent, table
from finefit import api
from finefit.errors import FinefitError
from finefit.resolve.readings import Reading, read_config
from finefit.resolve.readings.reading import Value


@dataclass(frozen=True, slots=True)
class Compared:
    """One field of one file."""

    file: str
    tool: str
    field: str
    ours: object
    theirs: object
    source: str
    line: str

    @property
    def agrees(self) -> bool:
        """Whether both say the same."""
        return manifest.agrees(self.field, self.ours, self.theirs)


def compare(folder: Path) -> tuple[list[Compared], dict[str, int], list[str]]:
    """Every field that counts; files not read, by reason; their names with the sentence each got."""
    found = manifest.rows(folder)
    compared: list[Compared] = []
    skipped: Counter[str] = Counter()
    refused: list[str] = []
    with manifest.staged(folder, found) as paths:
        for row in found:
            try:
                reading = read_config(paths[row["file"]], launcher=manifest.launcher(row))
            except FinefitError as error:
                skipped[type(error).__name__] += 1
                refused.append(f"{row['file']}: {error.what}")
                continue
            compared += _fields(row, reading)
    return compared, dict(skipped), refused


def plans(folder: Path) -> dict[str, Any]:
    """How many training files give a plan, by tool, and the sentence of each that does not."""
    found = manifest.rows(folder)
    planned: Counter[str] = Counter()
    files: Counter[str] = Counter()
    refused: list[str] = []
    with manifest.staged(folder, found) as paths:
        for row in found:
            if not row["kind"].startswith("train"):
                continue
            files[row["tool"]] += 1
            try:
                api.plan(paths[row["file"]])
                planned[row["tool"]] += 1
            except FinefitError as error:
                refused.append(f"{row['file']}: {error.what}; {error.fix}")
    return {
        "files": files.total(),
        "planned": planned.total(),
        "tools": {tool: {"files": count, "planned": planned[tool]} for tool, count in files.items()},
        "refused": refused,
    }


def _fields(row: dict[str, str], reading: Reading) -> list[Compared]:
    out = []
    for field, column in manifest.COLUMNS.items():
        ours, theirs = reading.get(field), manifest.meaning(field, row[column], row)
        silent = not row[column].strip() and not row["kind"].startswith("train")
        if silent or (ours is None and theirs is None):
            continue
        value = reading.values.get(field)
        source = str(value.source) if value else "not said"
        out.append(Compared(row["file"], row["tool"], field, ours, theirs, source, _quoted(value)))
    return out


def _quoted(value: Value | None) -> str:
    """The line a value was read from."""
    if value is None or not value.place:
        return ""
    name, _, rest = value.place.partition(": ")[0].rpartition(":")
    try:
        return Path(name).read_text(encoding="utf-8").splitlines()[int(rest) - 1].strip()
    except (OSError, ValueError, IndexError):
        return ""


def result(folder: Path) -> dict[str, Any]:
    """The JSON object of the benchmark contract."""
    compared, skipped, refused = compare(folder)
    errors = {(error.file, error.field): error for error in manifest.known_errors()}
    wrong = [item for item in compared if not item.agrees]
    ours = [item for item in wrong if (item.file, item.field) not in errors]
    theirs = [item for item in wrong if (item.file, item.field) in errors]

    def shown(item: Compared) -> dict[str, Any]:
        said = {"file": item.file, "field": item.field, "read": item.ours, "manifest": item.theirs}
        return said | {"source": item.source, "line": item.line}

    return {
        "scored": len(compared),
        "files": len({item.file for item in compared}),
        "skipped": skipped,
        "refused": refused,
        "agreement": _share(compared),
        "manifest_error_share": len(theirs) / len(compared) if compared else None,
        "groups": {"field": _by(compared, "field"), "tool": _by(compared, "tool")},
        "worst": [shown(item) for item in ours],
        "manifest_errors": [
            shown(item) | {"line": errors[item.file, item.field].line, "why": errors[item.file, item.field].why}
            for item in theirs
        ],
    }


def _share(items: Sequence[Compared]) -> float | None:
    return sum(item.agrees for item in items) / len(items) if items else None


def _by(items: Sequence[Compared], name: str) -> dict[str, dict[str, Any]]:
    groups: dict[str, list[Compared]] = defaultdict(list)
    for item in items:
        groups[getattr(item, name)].append(item)
    return {key: {"scored": len(part), "agreement": _share(part)} for key, part in groups.items()}


def text(found: dict[str, Any]) -> str:
    """The result as tables."""
    parts = [
        f"{found['scored']} fields of {found['files']} files: {percent(found['agreement'])} agree; "
        f"errors of the manifest: {percent(found['manifest_error_share'])}"
    ]
    for title, group in found["groups"].items():
        rows = [[name, str(part["scored"]), percent(part["agreement"])] for name, part in group.items()]
        parts.append(table([title, "fields", "agree"], rows))
    for title, key in (("Disagreements", "worst"), ("Errors of the manifest", "manifest_errors")):
        lines = [f"{title}: {len(found[key])}"]
        for item in found[key]:
            lines.append(f"  {item['file']}: {item['field']}: read {item['read']!r}, manifest {item['manifest']!r}")
            lines.append(f"    {item['source']}: {item['line']}" + (f" ({item['why']})" if "why" in item else ""))
        parts.append("\n".join(lines))
    if "plans" in found:
        made = found["plans"]
        rows = [[tool, str(part["files"]), str(part["planned"])] for tool, part in made["tools"].items()]
        parts.append(f"{made['planned']} of {made['files']} training files give a plan")
        parts.append(table(["tool", "files", "plans"], rows))
        parts.append("\n".join(["No plan:", *(f"  {line}" for line in made["refused"])]))
    if found["refused"]:
        parts.append("\n".join(["Not read:", *(f"  {line}" for line in found["refused"])]))
    return "\n\n".join(parts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the comparison; 2 where the folder cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.formats", description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, metavar="DIR", help="a folder of configs with a MANIFEST.csv")
    parser.add_argument("--plans", action="store_true", help="plan the training files too (a minute)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    stated = parser.parse_args(arguments)
    try:
        found = result(stated.folder)
        if stated.plans:
            found["plans"] = plans(stated.folder)
    except FinefitError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(json.dumps(found, ensure_ascii=False, indent=1) if stated.json else text(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
