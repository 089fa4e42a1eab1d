"""``finefit offers``: published prices of GPU-hours with age, source, terms and place."""

from __future__ import annotations

import sys
from argparse import Namespace

from finefit.app import history_commands
from finefit.app.options import Adder, add_output
from finefit.errors import InputError

_ROWS = 30


def add(command: Adder) -> None:
    """Add the command."""
    offers = command("offers", _list, "Published prices of GPU-hours, cheapest first, each with age, source and place.")
    offers.add_argument("--gpu", metavar="GPU", help='one kind of card: "RTX 4090"')
    offers.add_argument("--min-memory", metavar="SIZE", help="of each GPU: 40GB on the box, 39GiB as torch reports it")
    offers.add_argument("--spot", action="store_true", help="spot prices alone, as --kinds spot")
    offers.add_argument(
        "--kinds", metavar="KINDS", default="", help="some of on-demand, spot, community, monthly, yearly"
    )
    offers.add_argument("--region", metavar="REGION", help="mainland, hong-kong, overseas, unknown, or a region's name")
    offers.add_argument("--currency", metavar="CODE", help="USD or CNY")
    offers.add_argument("--limit", metavar="N", type=int, default=_ROWS, help=f"rows shown, {_ROWS} if left out")
    offers.add_argument(
        "--refreshed", metavar="URL", nargs="?", const="", help="with the prices that finefit offers refresh has kept"
    )
    add_output(offers)
    history_commands.add_to_offers(offers)


def _list(stated: Namespace) -> int:
    from finefit import pricing
    from finefit.api import day_of

    if stated.spot and stated.kinds:
        raise InputError("the terms are stated twice", where="--spot", fix="state --spot or --kinds")
    if stated.limit < 1:
        raise InputError(f"{stated.limit} rows", where="--limit", fix="write a number from 1 on")
    found = pricing.offers(
        gpu=stated.gpu,
        min_memory=stated.min_memory,
        kinds="spot" if stated.spot else stated.kinds,
        region=stated.region,
        currency=stated.currency,
        as_of=stated.as_of,
        refreshed=None
        if stated.refreshed is None
        else history_commands.refreshed(stated.refreshed or None, day_of(stated.as_of)),
    )
    if stated.json:
        from finefit.report.json_output import dumps

        sys.stdout.write(dumps(found))
        return 0
    from finefit.report.i18n import pick_language
    from finefit.report.offers_text import offers_page
    from finefit.report.terminal import draw_page

    language = pick_language(stated.lang)
    draw_page(lambda cells: offers_page(found, language, cells=cells, limit=stated.limit))
    return 0
