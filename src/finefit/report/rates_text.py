"""Exchange rates in words."""

from __future__ import annotations

from finefit.catalog.offers import FRESH_DAYS
from finefit.planner.rate_list import RateList
from finefit.report import text
from finefit.report.i18n import Translator
from finefit.report.layout import Page

_ROWS = 10


def rates_page(found: RateList, language: str, *, cells: int) -> Page:
    """The newest rates; prices are converted at the first."""
    t, page = Translator(language), Page(cells)
    page.heading(t("Exchange rates"))
    if not found.rates:
        page.line(t("None is known on this day; prices are converted at the oldest one."), indent=2)
    shown = found.rates[:_ROWS]
    page.table(
        [
            [
                text.date(rate.date),
                t("1 {base} = {rate} {quote}", base=rate.base, rate=f"{rate.rate:f}", quote=rate.quote),
                t("{days} days old", days=found.age_days(rate)),
                rate.source,
            ]
            for rate in shown
        ],
        "lrrl",
    )
    if len(found.rates) > len(shown):
        page.line(t("{n} more, see --json", n=len(found.rates) - len(shown)), indent=2)
    if found.stale and found.rates:
        page.line(t("! older than {days} days: finefit rates refresh takes today's.", days=FRESH_DAYS), indent=2)
    page.heading(t("As of {date}, catalogue {revision}.", date=text.date(found.as_of), revision=found.catalog_revision))
    return page
