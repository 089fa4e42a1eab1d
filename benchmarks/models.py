"""Model configurations against the counts of a manifest: ``python -m benchmarks.models DIR [--json]``.

DIR holds config.json files and a MANIFEST.csv with the columns ``file``, ``hf_id``, ``model_type`` and
``tf524_params`` (parameters that transformers 5.24.0 builds; empty where it cannot). A file either becomes a model
whose count is compared, or gets one sentence saying what is missing.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

from benchmarks.tables import percent, table
from finefit.errors import FinefitError, InputError
from finefit.formats.hf_config import model_from_config
from finefit.workload.parameters import parameter_count


@dataclass(frozen=True, slots=True)
class Read:
    """One file: what was counted, what the library counts (None: it cannot), or the sentence of a refusal."""

    file: str
    model_type: str
    ours: int | None
    theirs: int | None
    sentence: str = ""

    @property
    def scored(self) -> bool:
        return self.ours is not None and self.theirs is not None


def read(folder: Path) -> list[Read]:
    """Every file of the manifest.

    Raises:
        InputError: no manifest, or a file of it is absent or no JSON.
    """
    manifest = folder / "MANIFEST.csv"
    if not manifest.is_file():
        raise InputError("there is no MANIFEST.csv", where=str(folder), fix="name the folder that holds one")
    found = []
    for row in csv.DictReader(manifest.open(encoding="utf-8")):
        try:
            config = json.loads((folder / row["file"]).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(f"cannot be read: {error}", where=row["file"], fix="check the manifest") from error
        theirs = int(row["tf524_params"]) if row.get("tf524_params") else None
        kind = row.get("model_type") or "(none)"
        try:
            model = model_from_config(config, row.get("hf_id") or row["file"], row["file"])
            found.append(Read(row["file"], kind, parameter_count(model), theirs))
        except FinefitError as error:
            found.append(Read(row["file"], kind, None, theirs, str(error)))
    return found


def summary(found: list[Read]) -> dict[str, object]:
    """The object of the benchmark contract; agreement is the share of equal counts."""
    scored = [r for r in found if r.scored]
    groups: dict[str, list[Read]] = defaultdict(list)
    for r in scored:
        groups[r.model_type].append(r)
    why = ("refused in one sentence" if r.sentence else "the library has no count" for r in found if not r.scored)
    wrong = [r for r in scored if r.ours != r.theirs]
    errors = sorted(abs((r.ours or 0) / (r.theirs or 1) - 1) for r in scored)
    return {
        "scored": len(scored),
        "skipped": dict(Counter(why)),
        "median_abs_error": errors[len(errors) // 2] if errors else None,
        "p90_abs_error": errors[int(0.9 * len(errors))] if errors else None,
        "under_share": sum((r.ours or 0) < 0.95 * (r.theirs or 0) for r in scored) / len(scored) if scored else None,
        "coverage": None,
        "agreement": 1 - len(wrong) / len(scored) if scored else None,
        "groups": {
            name: {"rows": len(rows), "agreement": sum(r.ours == r.theirs for r in rows) / len(rows)}
            for name, rows in sorted(groups.items())
        },
        "peers": {},
        "worst": [{"file": r.file, "predicted": r.ours, "measured": r.theirs} for r in wrong[:20]],
        "refused": {r.file: r.sentence for r in found if r.sentence},
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.models", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    try:
        found = read(options.folder)
    except InputError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    report = summary(found)
    if options.json:
        print(json.dumps(report))
        return 0 if report["agreement"] == 1 else 1
    for r in found:
        if r.sentence:
            print(r.sentence)
    differ = [[r.file, f"{r.ours:,}", f"{r.theirs:,}"] for r in found if r.scored and r.ours != r.theirs]
    if differ:
        print(table(["file", "counted", "library"], differ))
    agreement = report["agreement"]
    shown = percent(agreement) if isinstance(agreement, float) else "-"
    print(f"scored {report['scored']}, equal {shown}; {report['skipped']}")
    return 0 if agreement == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
