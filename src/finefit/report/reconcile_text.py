"""``finefit reconcile`` on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from finefit.report import text
from finefit.report.i18n import Translator
from finefit.report.layout import Page

if TYPE_CHECKING:
    from finefit.planner.reconcile import Reconciled


def reconcile_page(found: Reconciled, language: str = "en", *, cells: int = 80) -> Page:
    """Our figures beside the other one, and what explains the difference."""
    t, page = Translator(language), Page(cells)
    page.heading(" · ".join([found.model.name, text.method(found.recipe.method_label, t)]))
    rows = [[t("the other figure"), text.size(found.other, t)], [t("allocated"), text.size(found.ours.allocated, t)]]
    if found.ours.device is not None:
        rows.append([t("device"), text.size(found.ours.device, t)])
    page.table(rows, "lr")
    if found.explained:
        page.heading(t("What explains it, the closest first"))
    else:
        page.heading(t("No single mistake that finefit knows explains it; the nearest"))
    for number, guess in enumerate(found.guesses, 1):
        cause = t.message(guess.cause)
        if guess.unit:
            cause = t("{cause}, and GB and GiB are mixed up", cause=cause)
        page.line(f"{number}. {cause}", indent=2)
        off = t(
            "{arithmetic} ({off} of the other figure)", arithmetic=t.message(guess.arithmetic), off=_signed(guess.off)
        )
        page.line(off, indent=5)
    for heading, sentences in ((t("Assumed"), found.assumptions), (t("Please check"), found.warnings)):
        if sentences:
            page.heading(heading)
            for sentence in sentences:
                page.line(f"- {t.sentence(sentence)}", indent=2)
    return page


def _signed(share: float) -> str:
    return f"{100 * share:+.1f} %"
