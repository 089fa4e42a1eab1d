"""The answer on a terminal: the verdict, the four steps people should think in, and what stands behind them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from finefit.planner.answer import MemoryAnswer
from finefit.report import text
from finefit.report.i18n import Translator
from finefit.report.layout import Page

if TYPE_CHECKING:
    from finefit.planner.plan import LargestModels, MethodTable, Plan

    Answer = MemoryAnswer | Plan | MethodTable | LargestModels

_COLOURS = {"": "", "bold": "bold", "good": "bold green", "warn": "bold yellow", "bad": "bold red"}
_PLAIN_CELLS = 80
_WIDEST_CELLS = 120  # longer lines are hard to read


def render(answer: Answer, language: str = "en", *, cells: int = _PLAIN_CELLS) -> str:
    """The report as plain text."""
    return str(page(answer, language, cells=cells))


def draw(answer: Answer, language: str = "en", *, file: TextIO | None = None) -> None:
    """Print the report of an answer."""
    draw_page(lambda cells: page(answer, language, cells=cells), file=file)


def draw_page(make: Callable[[int], Page], *, file: TextIO | None = None) -> None:
    """Print a page made for so many cells: as wide as the terminal and in colour on one, else plain and 80 wide."""
    file = file or sys.stdout
    if not file.isatty():
        encoding = file.encoding or "utf-8"
        file.write(str(make(_PLAIN_CELLS)).encode(encoding, errors="replace").decode(encoding))
        return
    from rich.console import Console  # only for a person at a terminal: it takes a tenth of a second
    from rich.text import Text

    console = Console(file=file, highlight=False)
    for line, style in make(min(console.width, _WIDEST_CELLS)).lines:
        console.print(Text(line, style=_COLOURS[style]), soft_wrap=True)


def page(answer: Answer, language: str = "en", *, cells: int = _PLAIN_CELLS) -> Page:
    """The report as lines with styles."""
    t, drawn = Translator(language), Page(cells)
    if isinstance(answer, MemoryAnswer):
        from finefit.report.memory_text import memory

        memory(answer, drawn, t)
    else:
        from finefit.report.plan_text import answer_text

        answer_text(answer, drawn, t)
    for heading, sentences in ((t("Assumed"), answer.assumptions), (t("Please check"), answer.warnings)):
        if sentences:
            drawn.heading(heading)
            drawn.bullets(t.sentence(each) for each in sentences)
    drawn.heading(
        t("As of {date}, catalogue {revision}.", date=text.date(answer.as_of), revision=answer.catalog_revision)
    )
    return drawn
