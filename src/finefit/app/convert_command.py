"""``finefit convert``: a config of one tool as that of another."""

from __future__ import annotations

import sys
from argparse import Namespace

from finefit.app.options import Adder


def add(command: Adder) -> None:
    """Add the command."""
    made = command("convert", _run, "A config of one tool as that of another; what does not carry over on stderr.")
    made.add_argument("config", metavar="CONFIG", help="a config or launch script that finefit plans")
    made.add_argument("--to", required=True, metavar="TOOL", help="llamafactory, axolotl, trl, ms-swift, torchtune")
    made.add_argument("-o", "--output", metavar="FILE", help="write to a new file")
    made.add_argument("--format", dest="config_format", metavar="TOOL", help="whose config it is, if it is not told")
    made.add_argument("--lang", metavar="LANG", help="en or zh; that of the environment if left out")


def _run(stated: Namespace) -> int:
    from finefit import api
    from finefit.report.i18n import Translator, pick_language

    found = api.convert(stated.config, stated.to, config_format=stated.config_format, output=stated.output)
    if stated.output is None:
        sys.stdout.write(found.text)
    say = Translator(pick_language(stated.lang))
    for note in found.notes:
        print(say.sentence(note), file=sys.stderr)
    return 0
