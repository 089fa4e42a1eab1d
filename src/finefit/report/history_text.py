"""The price of a card over time, drawn with characters."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from statistics import median
from typing import TYPE_CHECKING

from finefit.report import text
from finefit.report.i18n import Translator
from finefit.report.layout import Page, pad

if TYPE_CHECKING:
    from finefit.market.refresh import Looked
    from finefit.market.series import Series
    from finefit.market.watch import Met, Watch

_ROWS = 10
_EIGHTHS = " ▁▂▃▄▅▆▇█"
_MONTH = 30
_SOURCES = 6


def history_page(found: Series, language: str, *, cells: int) -> Page:
    """The curve with its ends, and what it was a month ago."""
    t, page = Translator(language), Page(cells)
    said = {"gpu": found.name, "terms": text.name(text.KINDS, found.kind, t), "currency": found.currency}
    page.heading(t("{gpu}, {terms}: median price of a GPU-hour in {currency}", **said))
    page.bullets(t.sentence(note) for note in found.notes)
    if not found.points:
        page.line(t("No price of it was recorded."), indent=2)
        return page
    for line in chart([point.median for point in found.points], cells - 4):
        page.lines.append((f"  {line}", ""))
    first, last = found.points[0], found.points[-1]
    page.line(
        t("{first} to {last}, {days} days with prices.", first=first.day, last=last.day, days=len(found.points)),
        indent=2,
    )
    amounts = [Decimal(point.median) for point in found.points]
    page.line(
        t(
            "Last: {last} ({offers} offers, {low} to {high}). Lowest {lowest}, highest {highest}.",
            last=text.amount(last.median),
            offers=last.prices,
            low=text.amount(last.low),
            high=text.amount(last.high),
            lowest=text.amount(min(amounts)),
            highest=text.amount(max(amounts)),
        ),
        indent=2,
    )
    before = found.before(_MONTH)
    if before is not None and before is not last and before.median:
        change = float(last.median / before.median - 1)
        moved = {"then": text.amount(before.median), "day": before.day, "change": f"{change:+.1%}".replace("%", " %")}
        page.line(t("A month before ({day}): {then}; since then {change}.", **moved), indent=2)
    page.heading(t("Sources"))
    page.bullets(found.sources[:_SOURCES])
    if len(found.sources) > _SOURCES:
        page.line(t("{n} more, see --json", n=len(found.sources) - _SOURCES), indent=2)
    page.heading(t("As of {date}, catalogue {revision}.", date=text.date(found.as_of), revision=found.catalog_revision))
    return page


def chart(values: Sequence[Decimal], cells: int, rows: int = _ROWS) -> list[str]:
    """A column chart from zero to the highest value, as wide as there is room, with labels on its left.

    More values than columns share one, at their median.
    """
    top = max(values)
    labels = [text.amount(top * row / rows) for row in range(rows, 0, -1)]
    wide = max(len(label) for label in labels)
    columns = _columns([float(value) for value in values], max(1, cells - wide - 2))
    eighths = [round(value / float(top) * rows * 8) if top else 0 for value in columns]
    lines = []
    for row, label in zip(range(rows, 0, -1), labels, strict=True):
        bars = "".join(_EIGHTHS[min(max(height - (row - 1) * 8, 0), 8)] for height in eighths)
        lines.append(f"{pad(label if row % 3 == 1 else '', wide, right=True)} ┤{bars.rstrip()}")
    return lines


def _columns(values: list[float], most: int) -> list[float]:
    count = min(len(values), most)
    return [
        median(
            values[
                index * len(values) // count : max((index + 1) * len(values) // count, index * len(values) // count + 1)
            ]
        )
        for index in range(count)
    ]


def looked_text(looked: Looked, t: Translator) -> str:
    """What one look at a provider gave."""
    said = {"provider": looked.provider, "rows": text.count(looked.rows), "skipped": text.count(looked.skipped)}
    return t("{provider}: {rows} prices, {skipped} of unknown cards", **said)


def watch_text(watch: Watch, t: Translator) -> str:
    """A watch with its number."""
    return t("watch {number}: {condition}", number=watch.id, condition=watch.text)


def met_text(met: Met, t: Translator) -> str:
    """A watch whose price is there."""
    price = met.price
    return t(
        "{condition}: {price} at {provider} ({day}, {source})",
        condition=met.watch.text,
        price=text.money(price.price, t),
        provider=price.provider,
        day=text.date(price.day),
        source=price.source,
    )


def met_title(t: Translator) -> str:
    """The title of a message."""
    return t("finefit: a price has fallen")
