"""``finefit apply``: a change that a plan proposes, written into the config."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator

from finefit.app.options import Adder


def add(command: Adder) -> None:
    """Add the command."""
    made = command("apply", _run, "Write a change that a plan proposes into its config; shows a diff and no more.")
    made.add_argument("plan", metavar="PLAN", help="what finefit plan CONFIG --json printed")
    made.add_argument("--to", required=True, metavar="CONFIG", help="the config or script that was planned")
    made.add_argument("--remedy", type=int, metavar="N", help="which of the plan's changes; the first that fits")
    made.add_argument("--format", dest="config_format", metavar="TOOL", help="whose config it is, if it is not told")
    where = made.add_mutually_exclusive_group()
    where.add_argument("--in-place", action="store_true", help="overwrite the config")
    where.add_argument("-o", "--output", metavar="FILE", help="write the changed config to a new file")
    made.add_argument("--lang", metavar="LANG", help="en or zh; that of the environment if left out")


def _diff(name: str, old: str, new: str) -> Iterator[str]:
    """Unified diff of two texts, as diff(1) prints it."""
    import difflib  # no other command needs it

    for row in difflib.unified_diff(old.splitlines(keepends=True), new.splitlines(keepends=True), name, name):
        yield row if row.endswith(("\n", "\r")) else f"{row}\n\\ No newline at end of file\n"


def _run(stated: Namespace) -> int:
    from finefit import api
    from finefit.report.i18n import Translator, pick_language

    applied = api.apply(stated.plan, stated.to, remedy=stated.remedy, config_format=stated.config_format)
    if stated.in_place:
        applied.write()
    elif stated.output is not None:
        applied.write(stated.output)
    sys.stdout.writelines(_diff(str(applied.path), applied.old, applied.new))
    say = Translator(pick_language(stated.lang))
    change = "; ".join(say.sentence(part) for part in applied.change.split("; "))
    for note in (f"{applied.remedy}: {change}", *map(say.sentence, applied.notes)):
        print(note, file=sys.stderr)
    return 0
