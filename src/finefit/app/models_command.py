"""``finefit models``: the catalogue, or everything known of one model."""

from __future__ import annotations

import sys
from argparse import Namespace

from finefit.app.options import Adder


def add(command: Adder) -> None:
    """Add the command."""
    made = command("models", _run, "The models finefit knows by name; with a name, what is known of that model.")
    made.add_argument(
        "model", nargs="*", metavar="MODEL", help="name, folder, config.json, .safetensors, .gguf, Hub id; or words"
    )
    made.add_argument("--online", action="store_true", help="read the headers of its files on the Hub")
    made.add_argument("--json", action="store_true", help="print one JSON object")
    made.add_argument("--lang", metavar="LANG", help="en or zh; that of the environment if left out")


def _run(stated: Namespace) -> int:
    from finefit import api

    if not stated.model:
        for name, parameters, modelled in api.known_models():
            size = f"{parameters / 1e9:8.2f} B" if parameters else "         ?"
            print(f"{size}  {name}{'' if modelled else '  (not modelled yet)'}")
        return 0
    from finefit.errors import UnknownModel
    from finefit.planner.model_facts import search

    text = " ".join(stated.model)
    try:
        facts = api.model_facts(text, online=stated.online)
    except UnknownModel as unknown:
        if "/" in text or unknown.exit_code != UnknownModel.exit_code:
            raise
        for name in search(text):
            print(name)
        return 0
    if stated.json:
        from finefit.report.json_output import dumps

        sys.stdout.write(dumps(facts))
        return 0
    from finefit.report.i18n import pick_language
    from finefit.report.models_text import model_page
    from finefit.report.terminal import draw_page

    language = pick_language(stated.lang)
    draw_page(lambda cells: model_page(facts, language, cells=cells))
    return 0
