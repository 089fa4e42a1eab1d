"""The formulas behind the peak, one line a term: ``32 × (b·s × 14,336) × 2 B``."""

from __future__ import annotations

from finefit.memory.explain import Term
from finefit.planner.explain import Explanation
from finefit.report import text
from finefit.report.i18n import Translator
from finefit.report.layout import Page

_SMALL = 0.002  # of the peak: terms below it are shown as one,
_FEW = 4  # where a part has more of them


def explanation(found: Explanation, page: Page, t: Translator) -> None:
    """Every part with its terms; sizes add up to the allocated peak."""
    total = sum(part.nbytes for part in found.parts)
    page.heading(t("How the peak comes about"))
    values = ", ".join(f"{name} = {text.count(value)}" for name, value in found.symbols.items())
    if values:
        page.line(t("{values}; B is a byte, and each tensor takes blocks of 512 B.", values=values), indent=2)
    for part in found.parts:
        page.lines.append(("", ""))
        page.line(f"{text.name(text.PARTS, part.name, t)}: {text.size(part.nbytes, t)}", indent=2)
        shown = [term for term in part.terms if term.nbytes >= _SMALL * total]
        if len(part.terms) <= _FEW:
            shown = list(part.terms)
        rows = [[_place(term), _formula(term), text.size(term.nbytes, t)] for term in shown]
        rest = part.nbytes - sum(term.nbytes for term in shown)
        if rest:
            count = len(part.terms) - len(shown)
            rows.append([t("smaller: {count}", count=count), "", text.size(rest, t)])
        page.table(rows, "llr", indent=4)
        page.line(t("source: {source}", source=t.message(part.source)), indent=4)


def _place(term: Term) -> str:
    return f"{term.module} {term.op}".strip()


def _formula(term: Term) -> str:
    """count × (symbols × elements / n) × bytes of an element."""
    size = term.size
    factors = [*(["·".join(size.symbols)] if size.symbols else []), text.count(size.numel)]
    if size.symbols and size.numel == 1:
        factors.pop()
    inner = " × ".join(factors) + (" / n" if size.sharded else "")
    if term.count == 1:
        return f"{inner} × {size.itemsize} B"
    return f"{text.count(term.count)} × ({inner}) × {size.itemsize} B"
