"""``finefit rates``: the exchange rates behind converted prices; ``finefit rates refresh`` takes new ones."""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from finefit.app.options import Adder, add_output
from finefit.errors import InputError

if TYPE_CHECKING:
    from finefit.planner.rate_list import RateList

_TIMEOUT = 60.0


def add(command: Adder) -> None:
    """Add the command."""
    rates = command("rates", _list, "The exchange rates behind converted prices, each with its date and source.")
    add_output(rates)
    actions = rates.add_subparsers(metavar="refresh")
    refresh = actions.add_parser(
        "refresh", help="take new rates, from the European Central Bank if nothing else is stated", allow_abbrev=False
    )
    refresh.add_argument("--file", metavar="FILE|URL", help="rates of your own, CSV or JSON, instead")
    refresh.add_argument("--timeout", metavar="S", type=float, default=_TIMEOUT, help="seconds for one try")
    add_output(refresh)
    refresh.set_defaults(run=_refresh)


def _list(stated: Namespace) -> int:
    from finefit.api import day_of
    from finefit.planner.rate_list import list_rates

    return _show(stated, list_rates(on=day_of(stated.as_of)))


def _refresh(stated: Namespace) -> int:
    from finefit.api import day_of
    from finefit.catalog.currency import keep_rates
    from finefit.market.fx import ECB, RateFile, rates_from
    from finefit.planner.rate_list import list_rates

    if not 0 < stated.timeout <= 3600:
        raise InputError(f"a time of {stated.timeout:g} s", where="--timeout", fix="write seconds up to 3600")
    on = day_of(stated.as_of)
    keep_rates(rates_from(RateFile(stated.file or ECB), today=on, timeout=stated.timeout))
    return _show(stated, list_rates(on=on))


def _show(stated: Namespace, found: RateList) -> int:
    from finefit.report.i18n import pick_language
    from finefit.report.json_output import dumps
    from finefit.report.rates_text import rates_page
    from finefit.report.terminal import draw_page

    if stated.json:
        sys.stdout.write(dumps(found))
        return 0
    language = pick_language(stated.lang)
    draw_page(lambda cells: rates_page(found, language, cells=cells))
    return 0
