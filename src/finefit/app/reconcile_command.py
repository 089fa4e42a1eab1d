"""``finefit reconcile``: which term does another figure leave out?"""

from __future__ import annotations

import sys
from argparse import Namespace

from finefit.app import options
from finefit.app.options import Adder, add_output


def add(command: Adder) -> None:
    """Add the command."""
    made = command("reconcile", _run, "Another figure for the same run: which term does it leave out?")
    made.add_argument("source", metavar="CONFIG|MODEL", help="a config or launch script, or a model with flags")
    made.add_argument("--other", required=True, metavar="SIZE", help="the other figure for one GPU: 60GB, 55.9GiB")
    made.add_argument("--gpu", metavar="GPU", help='"RTX 4090", "2x RTX 4090", "H100:8"')
    made.add_argument(
        "--set", action="append", dest="changes", metavar="KEY=VALUE", help="a key of the config with another value"
    )
    add_output(made)
    data = {name: options.RUN[name] for name in ("data", "samples", "mean_length", "tokens", "longest")}
    options.add(made, data, "the data")
    options.add(made, options.RECIPE, "the recipe, for a model without a config")


def _run(stated: Namespace) -> int:
    from finefit import api

    names = ("data", "samples", "mean_length", "tokens", "longest", *options.RECIPE)
    question = {name: value for name in names if (value := getattr(stated, name)) is not None}
    changes = options.overrides(stated.changes)
    found = api.reconcile(
        stated.source, stated.other, gpu=stated.gpu, overrides=changes, as_of=stated.as_of, **question
    )
    if stated.json:
        from finefit.report.json_output import dumps

        sys.stdout.write(dumps(found))
        return 0
    from finefit.report.i18n import pick_language
    from finefit.report.reconcile_text import reconcile_page
    from finefit.report.terminal import draw_page

    language = pick_language(stated.lang)
    draw_page(lambda cells: reconcile_page(found, language, cells=cells))
    return 0
