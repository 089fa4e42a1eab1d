"""``finefit offers refresh``, ``finefit offers history`` and ``finefit watch``: extra ``finefit[history]``."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from finefit.app.options import Adder, add_output
from finefit.errors import InputError

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable

    from finefit.catalog.offers import Offer
    from finefit.market.prices import Observed
    from finefit.market.providers import Provider

_DB = "SQLite or PostgreSQL of the history; one in the user's data folder if left out"
_TIMEOUT = 60.0


def add_to_offers(offers: ArgumentParser) -> None:
    """The actions below ``finefit offers``."""
    actions = offers.add_subparsers(metavar="refresh|history")
    refresh = actions.add_parser("refresh", help="take live prices into the history", allow_abbrev=False)
    refresh.add_argument(
        "--provider", metavar="NAME", action="append", help="of the installed plug-ins; all if left out"
    )
    refresh.add_argument("--file", metavar="FILE|URL", action="append", help="prices of your own, CSV or JSON, instead")
    refresh.add_argument("--timeout", metavar="S", type=float, default=_TIMEOUT, help="seconds for one provider")
    _common(refresh, _refresh)
    history = actions.add_parser("history", help="the price of a card over time", allow_abbrev=False)
    history.add_argument("card", metavar="GPU", help='"H100"')
    history.add_argument("--kinds", metavar="KIND", default="on-demand", help="on-demand, spot, community, ...")
    history.add_argument("--currency", metavar="CODE", help="USD or CNY")
    history.add_argument("--days", metavar="N", type=int, help="the last N days alone")
    _common(history, _history)


def add_refreshed(command: ArgumentParser) -> None:
    """What ``plan`` and ``cost`` price from."""
    command.add_argument(
        "--refreshed", action="store_true", help="with the prices that finefit offers refresh has kept"
    )
    command.add_argument("--db", metavar="URL", help=_DB)


def add_watch(command: Adder) -> None:
    """The command ``finefit watch``."""
    watch = command("watch", _no_action, "Tells when a price falls below a limit: add, list, remove, check (for cron).")
    actions = watch.add_subparsers(metavar="ACTION", required=True)
    add = actions.add_parser("add", help='keep a watch: "H100 < 2.5 USD"', allow_abbrev=False)
    add.add_argument("condition", metavar="CONDITION", help='"H100 < 2.5 USD", "RTX 4090 spot < 0.3 USD"')
    _common(add, _watch_add)
    listed = actions.add_parser("list", help="all watches with their numbers", allow_abbrev=False)
    _common(listed, _watch_list)
    remove = actions.add_parser("remove", help="forget a watch", allow_abbrev=False)
    remove.add_argument("number", metavar="NUMBER", type=int, help="as finefit watch list shows it")
    _common(remove, _watch_remove)
    check = actions.add_parser("check", help="tell of prices below a limit, once each", allow_abbrev=False)
    check.add_argument("--notify", metavar="URL", action="append", help="where to send it, as apprise writes it")
    _common(check, _watch_check)


def _common(parser: ArgumentParser, run: Callable[[Namespace], int]) -> None:
    parser.add_argument("--db", metavar="URL", help=_DB)
    add_output(parser)
    parser.set_defaults(run=run)


def _no_action(stated: Namespace) -> int:
    raise InputError("no action is stated", where="watch", fix="write add, list, remove or check")


def _refresh(stated: Namespace) -> int:
    from finefit.api import day_of
    from finefit.market.file_provider import PriceFile
    from finefit.market.providers import chosen
    from finefit.market.refresh import refresh
    from finefit.market.store import open_store

    if not 0 < stated.timeout <= 3600:
        raise InputError(f"a time of {stated.timeout:g} s", where="--timeout", fix="write seconds up to 3600")
    providers: dict[str, Callable[[], Provider]] = {}
    if stated.provider or not stated.file:
        providers.update(chosen(stated.provider))
    for place in stated.file or ():
        providers[place] = lambda place=place: PriceFile(place)  # type: ignore[misc]
    if not providers:
        raise InputError(
            "no provider is installed", where="--provider", fix='pip install "finefit[live]", or use --file'
        )
    with open_store(stated.db) as store:
        looked = refresh(store, providers, today=day_of(stated.as_of), timeout=stated.timeout)
    from finefit.report.history_text import looked_text

    t = _translator(stated)
    if stated.json:
        _print_json(
            {
                "schema": "finefit/refresh/1",
                "providers": [
                    {
                        "provider": each.provider,
                        "rows": each.rows,
                        "skipped": each.skipped,
                        "problem": None if each.problem is None else str(each.problem),
                    }
                    for each in looked
                ],
            }
        )
    for each in looked:
        if each.problem is not None:
            print(f"error: {' '.join(t.error(each.problem).split())}", file=sys.stderr)
        elif not stated.json:
            print(looked_text(each, t))
    problems = [each.problem for each in looked if each.problem is not None]
    return problems[0].exit_code if len(problems) == len(looked) else 0


def _history(stated: Namespace) -> int:
    from finefit.api import currency_of, day_of
    from finefit.catalog.gpu_names import find_gpu
    from finefit.market.bundled import bundled_history
    from finefit.market.series import series
    from finefit.planner.offer_list import check_kinds

    kinds = check_kinds(stated.kinds)
    if len(kinds) != 1:
        raise InputError("one kind of offer makes a curve", where="--kinds", fix="write one, such as spot")
    match, on = find_gpu(stated.card, where="GPU"), day_of(stated.as_of)
    rows = [*bundled_history(match.gpu.id), *_recorded(match.gpu.id, stated.db)]
    if stated.days is not None:
        if stated.days < 1:
            raise InputError(f"{stated.days} days", where="--days", fix="write a number from 1 on")
        rows = [row for row in rows if (on - row.day).days < stated.days]
    currency = currency_of(stated.currency) or "USD"
    found = series(match.gpu.id, match.gpu.name, rows, kind=kinds[0], currency=currency, on=on, notes=match.notes)
    if stated.json:
        from finefit.report.json_output import dumps

        sys.stdout.write(dumps(found))
        return 0
    from finefit.report.history_text import history_page
    from finefit.report.terminal import draw_page

    language = _translator(stated).language
    draw_page(lambda cells: history_page(found, language, cells=cells))
    return 0


def _recorded(gpu_id: str, url: str | None) -> list[Observed]:
    """Prices of the user's own history; none where the extra is not installed and no database is stated."""
    try:
        from finefit.market.store import open_store
    except InputError:
        if url is not None:
            raise
        return []
    with open_store(url) as store:
        return store.history(gpu_id)


def refreshed(url: str | None, on: dt.date) -> list[Offer]:
    """The newest price of each offer in the history on a day, as offers."""
    from finefit.market.store import open_store

    with open_store(url) as store:
        return [row.offer() for row in store.newest(on)]


def refreshed_if_asked(stated: Namespace) -> list[Offer] | None:
    """The refreshed prices of a plan or bill; None where it is to be made from the bundled ones."""
    if not stated.refreshed:
        if stated.db is not None:
            raise InputError("a history is named and not used", where="--db", fix="add --refreshed")
        return None
    from finefit.api import day_of

    found = refreshed(stated.db, day_of(stated.as_of))
    if not found:
        raise InputError(
            "the history holds no price of that day or before", where="--refreshed", fix="run finefit offers refresh"
        )
    return found


def _watch_add(stated: Namespace) -> int:
    from finefit.market import watch
    from finefit.market.store import open_store

    with open_store(stated.db) as store:
        kept = watch.add(store, stated.condition)
    from finefit.report.history_text import watch_text

    print(watch_text(kept, _translator(stated)))
    return 0


def _watch_list(stated: Namespace) -> int:
    from finefit.market import watch
    from finefit.market.store import open_store
    from finefit.report.history_text import watch_text

    t = _translator(stated)
    with open_store(stated.db) as store:
        for kept in watch.all_watches(store):
            print(watch_text(kept, t))
    return 0


def _watch_remove(stated: Namespace) -> int:
    from finefit.market import watch
    from finefit.market.store import open_store

    with open_store(stated.db) as store:
        watch.remove(store, stated.number)
    return 0


def _watch_check(stated: Namespace) -> int:
    from finefit.api import day_of
    from finefit.market import watch
    from finefit.market.store import open_store
    from finefit.report.history_text import met_text, met_title

    t = _translator(stated)
    with open_store(stated.db) as store:
        met = [each for each in watch.check(store, on=day_of(stated.as_of)) if each.new]
        lines = [met_text(each, t) for each in met]
        for line in lines:
            print(line)
        if met and stated.notify:
            watch.notify(stated.notify, met_title(t), "\n".join(lines))
        watch.told(store, met)
    return 0


def _translator(stated: Namespace) -> Any:
    from finefit.report.i18n import Translator, pick_language

    return Translator(pick_language(stated.lang))


def _print_json(found: dict[str, Any]) -> None:
    import json

    print(json.dumps(found, indent=2, ensure_ascii=False))
