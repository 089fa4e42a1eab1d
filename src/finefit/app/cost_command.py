"""``finefit cost``: everything a job costs, on which terms, and what it would cost elsewhere."""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import Any

from finefit.app import history_commands, options
from finefit.app.options import Adder

# Destination → (flag, settings of argparse), as ``finefit.cost.settings.CostSettings`` names them; text, read later.
SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "runs": ("--runs", {"metavar": "N", "help": "runs that succeed, over the project"}),
    "runs_per_month": ("--runs-per-month", {"metavar": "X", "help": "once or often: decides between the terms"}),
    "failed_attempts": ("--failed-attempts", {"metavar": "X", "help": "runs that fail on top"}),
    "failed_share": ("--failed-share", {"metavar": "X", "help": "how far they get, 0.5 if left out"}),
    "queue_hours": ("--queue-hours", {"metavar": "X", "help": "hours waiting in a queue with the GPUs paid"}),
    "debug_hours": ("--debug-hours", {"metavar": "X", "help": "hours debugging with the GPUs paid"}),
    "idle_hours": ("--idle-hours", {"metavar": "X", "help": "hours the GPUs are forgotten to be released"}),
    "engineer_hours": ("--engineer-hours", {"metavar": "X", "help": "people's hours for debugging and upkeep"}),
    "engineer_rate": ("--engineer-rate", {"metavar": "MONEY", "help": "of such an hour: 60USD"}),
    "data_gb": ("--data-gb", {"metavar": "X", "help": "data kept on a disk"}),
    "image_gb": ("--image-gb", {"metavar": "X", "help": "images kept on a disk"}),
    "kept": ("--kept", {"metavar": "N", "help": "checkpoints kept, 1 if left out"}),
    "hot_months": ("--hot-months", {"metavar": "X", "help": "months on a disk, 1 if left out"}),
    "cold_months": ("--cold-months", {"metavar": "X", "help": "months in cool object storage after that"}),
    "provider": (
        "--provider",
        {"metavar": "NAME", "help": "whose storage and traffic is paid; the median if left out"},
    ),
    "upload_gb": ("--upload-gb", {"metavar": "X", "help": "data sent to the provider"}),
    "upload_price": ("--upload-price", {"metavar": "MONEY", "help": "of such a GB"}),
    "download_gb": ("--download-gb", {"metavar": "X", "help": "data taken out; the result if left out"}),
    "egress_tier": ("--egress-tier", {"metavar": "TIER", "help": "internet or inter-region"}),
    "egress_before_gb": ("--egress-before-gb", {"metavar": "X", "help": "taken out before in the same month"}),
    "stopped_days": ("--stopped-days", {"metavar": "X", "help": "days the disk is kept while the machine is stopped"}),
    "stopped_gb": ("--stopped-gb", {"metavar": "X", "help": "its size; weights and checkpoints if left out"}),
    "minimum_charge": ("--minimum-charge", {"metavar": "MONEY", "help": "of a rental"}),
    "gpu_price": (
        "--gpu-price",
        {"metavar": "MONEY", "help": "of a GPU-hour on the terms of the bill; the median if left out"},
    ),
    "setup_minutes": ("--setup-minutes", {"metavar": "X", "help": "from the order of a machine to the first step"}),
    "storage_price": ("--storage-price", {"metavar": "MONEY", "help": "of a GB kept on a disk for a month"}),
    "cold_price": ("--cold-price", {"metavar": "MONEY", "help": "of a GB kept in cool storage for a month"}),
    "stopped_price": ("--stopped-price", {"metavar": "MONEY", "help": "of a GB-month while the machine is stopped"}),
    "egress_price": ("--egress-price", {"metavar": "MONEY", "help": "of a GB taken out"}),
    "hours_between_interruptions": (
        "--hours-between-interruptions",
        {"metavar": "X", "help": "of the whole run, as measured"},
    ),
    "checkpoint_minutes": ("--checkpoint-minutes", {"metavar": "X", "help": "to write a checkpoint"}),
    "restart_minutes": ("--restart-minutes", {"metavar": "X", "help": "until a new machine trains"}),
    "spot_wait_hours": ("--spot-wait-hours", {"metavar": "X", "help": "until the next spot machine is free"}),
    "card_price": ("--card-price", {"metavar": "MONEY", "help": "to buy one GPU with its share of the server"}),
    "power_price": ("--power-price", {"metavar": "MONEY", "help": "of a kWh"}),
    "utilisation": ("--utilisation", {"metavar": "X", "help": "share of the hours in which owned GPUs train"}),
    "watts": ("--watts", {"metavar": "X", "help": "of one GPU and its share of the server"}),
    "life_years": ("--life-years", {"metavar": "X", "help": "until owned GPUs are written off"}),
    "residual": ("--residual", {"metavar": "X", "help": "share of the price left then"}),
    "upkeep": ("--upkeep", {"metavar": "X", "help": "share of the price a year"}),
    "pue": ("--pue", {"metavar": "X", "help": "kWh drawn for one computed"}),
}


def add(command: Adder) -> None:
    """Add the command."""
    cost = command("cost", _run, "Everything a job costs, on which terms, and what it would cost elsewhere.")
    cost.add_argument("source", metavar="CONFIG|MODEL", help="a training config, or a model")
    options.add_common(cost)
    cost.add_argument(
        "--terms",
        metavar="TERMS",
        default="on-demand",
        help="what the bill is made on: on-demand, spot, community, monthly, yearly or owned",
    )
    cost.add_argument("--settings", metavar="FILE", help="money settings; finefit.toml here if left out")
    cost.add_argument(
        "--set", action="append", dest="changes", metavar="KEY=VALUE", help="a key of the config with another value"
    )
    cost.add_argument("--explain", action="store_true", help="where the time of a step goes, and what that rests on")
    history_commands.add_refreshed(cost)
    options.add(cost, SETTINGS, "money settings, also keys of [cost] in finefit.toml")
    options.add(cost, options.RUN, "the run")
    options.add(cost, options.RECIPE, "the recipe, for a model without a config")


def _run(stated: Namespace) -> int:
    from finefit import pricing

    question = {name: getattr(stated, name) for name in (*options.RECIPE, *options.RUN)}
    answer = pricing.cost(
        stated.source,
        gpu=stated.gpu,
        terms=stated.terms,
        settings={name: getattr(stated, name) for name in SETTINGS},
        settings_file=stated.settings,
        overrides=options.overrides(stated.changes),
        as_of=stated.as_of,
        refreshed=history_commands.refreshed_if_asked(stated),
        explain=stated.explain,
        **question,
    )
    if stated.json:
        from finefit.report.json_output import dumps

        sys.stdout.write(dumps(answer))
    else:
        from finefit.report.cost_text import cost_page
        from finefit.report.i18n import pick_language
        from finefit.report.terminal import draw_page

        language = pick_language(stated.lang)
        draw_page(lambda cells: cost_page(answer, language, cells=cells))
    return int(answer.fits.value == "no" or (stated.strict and answer.fits.value == "tight"))
