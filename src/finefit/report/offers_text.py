"""Offers in words: price, terms, place, age and source on every row."""

from __future__ import annotations

from collections.abc import Sequence

from finefit.catalog.offers import DRIFT_LIST, DRIFT_MARKET, FRESH_DAYS
from finefit.catalog.regions import RegionClass
from finefit.planner.offer_list import OfferList, OfferRow
from finefit.report import text
from finefit.report.i18n import N_, Translator
from finefit.report.layout import Page

ROWS = 30  # shown unless asked for more

REGIONS = {
    "mainland": N_("mainland China"),
    "hong-kong": N_("Hong Kong"),
    "overseas": N_("overseas"),
    "unknown": N_("not named"),
}


def offers_page(found: OfferList, language: str, *, cells: int, limit: int = ROWS) -> Page:
    """The list as a page."""
    t, page = Translator(language), Page(cells)
    said = {"n": text.count(len(found.rows)), "currency": found.currency}
    page.heading(t("Offers: {n}, by the price of a GPU-hour in {currency}", **said))
    page.bullets(t.sentence(note) for note in found.notes)
    shown = found.rows[:limit]
    if not shown:
        page.line(t("No published price answers to this."), indent=2)
        return page
    sources = list(dict.fromkeys(_source(row, t) for row in shown))
    one = len({row.offer.gpu_id for row in shown}) == 1 and all(row.offer.min_gpus == 1 for row in shown)
    converted = any(row.offer.price.currency != found.currency for row in shown)
    keep = [not one, True, True, True, converted, True]
    rows = [_head(found, t), *(_row(row, found, sources, t) for row in shown)]
    page.table([_kept(row, keep) for row in rows], "".join(_kept("lllrrl", keep)), most=20)
    if len(found.rows) > len(shown):
        page.line(t("{n} more: --limit shows them, --json holds all.", n=len(found.rows) - len(shown)), indent=2)
    stale = sum(row.stale for row in found.rows)
    if stale:
        page.line(
            t(
                "! older than {days} days ({n} of {all}): list prices may have moved by {listed} a month of age, spot, "
                "community and marketplace prices by {market}.",
                days=FRESH_DAYS,
                n=stale,
                all=len(found.rows),
                listed=text.percent(float(DRIFT_LIST)),
                market=text.percent(float(DRIFT_MARKET)),
            ),
            indent=2,
        )
    if found.rate:
        page.line(text.converted(found.rate, t), indent=2)
    page.heading(t("Where, and what to check"))
    page.bullets(t.sentence(check) for check in found.checks.values())
    page.heading(t("Sources"))
    page.table([[f"[{number}]", source] for number, source in enumerate(sources, 1)], "rl")
    if found.skipped:
        lost = sum(each.rows for each in found.skipped)
        page.line(
            t("{rows} published rows name cards that the catalogue does not know; --json lists them.", rows=lost),
            indent=2,
        )
    page.heading(t("As of {date}, catalogue {revision}.", date=text.date(found.as_of), revision=found.catalog_revision))
    return page


def _kept(row: Sequence[str], keep: list[bool]) -> list[str]:
    return [cell for cell, kept in zip(row, keep, strict=True) if kept]


def _head(found: OfferList, t: Translator) -> list[str]:
    return ["GPU", t("provider"), t("terms, place"), found.currency, t("as quoted"), t("days old, source")]


def _row(row: OfferRow, found: OfferList, sources: list[str], t: Translator) -> list[str]:
    offer = row.offer
    gpu = offer.gpu_id if offer.min_gpus == 1 else f"{offer.min_gpus}x {offer.gpu_id}"
    place = text.name(REGIONS, row.region, t)
    if offer.region and row.region is RegionClass.OVERSEAS:
        place = t("{region} ({place})", region=offer.region, place=place)
    return [
        gpu,
        offer.provider,
        t("{terms}, {place}", terms=text.name(text.KINDS, offer.kind, t), place=place),
        text.amount(row.price.amount),
        "" if offer.price.currency == found.currency else text.money(offer.price, t),
        f"{row.age_days}{' !' if row.stale else ''} [{sources.index(_source(row, t)) + 1}]",
    ]


def _source(row: OfferRow, t: Translator) -> str:
    offer = row.offer
    return t(
        "{source} ({dataset}; {licence}; {confidence} confidence)",
        source=offer.source,
        dataset=offer.dataset,
        licence=offer.licence,
        confidence=text.confidence(offer.confidence, t),
    )
