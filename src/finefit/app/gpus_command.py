"""``finefit gpus``: what is known of every card, or of the one a name means."""

from __future__ import annotations

import sys
from argparse import Namespace

from finefit.app.options import Adder, add_output


def add(command: Adder) -> None:
    """Add the command."""
    gpus = command("gpus", _run, "The GPUs finefit knows: memory as torch reports it, rates, links, bf16 and fp8.")
    gpus.add_argument("name", nargs="?", metavar="NAME", help='one card, such as "RTX 4090"')
    add_output(gpus)


def _run(stated: Namespace) -> int:
    from finefit import pricing

    found = pricing.gpus(stated.name, as_of=stated.as_of)
    if stated.json:
        from finefit.report.json_output import dumps

        sys.stdout.write(dumps(found))
        return 0
    from finefit.report.gpus_text import gpus_page
    from finefit.report.i18n import pick_language
    from finefit.report.terminal import draw_page

    language = pick_language(stated.lang)
    draw_page(lambda cells: gpus_page(found, language, cells=cells))
    return 0
