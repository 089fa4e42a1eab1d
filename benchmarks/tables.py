"""The result of a benchmark as tables of text (Markdown, which also reads well in a terminal)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from finefit.errors import InputError


def percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table with padded columns; all but the first are right-aligned."""
    body = [list(head), *[list(row) for row in rows]]
    widths = [max(len(row[i]) for row in body) for i in range(len(head))]

    def line(row: Sequence[str]) -> str:
        cells = [c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        return "| " + " | ".join(cells) + " |"

    rule = "|" + "|".join("-" * (w + 1) + ("-" if i == 0 else ":") for i, w in enumerate(widths)) + "|"
    return "\n".join([line(body[0]), rule, *map(line, body[1:])])


def summaries(title: str, groups: dict[str, dict[str, Any]]) -> str:
    """One line a group: rows, median, p90, bias, share under."""
    return table(
        [title, "rows", "median |error|", "p90 |error|", "bias", "under by > 5 %"],
        [
            [
                name,
                str(g["scored"]),
                percent(g["median_abs_error"]),
                percent(g["p90_abs_error"]),
                percent(g["bias"]),
                percent(g["under_share"]),
            ]
            for name, g in groups.items()
        ],
    )


def write_between(path: Path, name: str, text: str) -> None:
    """Replace what stands between ``<!-- begin NAME -->`` and ``<!-- end NAME -->``.

    Raises:
        InputError: the file cannot be read, or lacks the markers.
    """
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    try:
        page = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"cannot read the page: {error}", where=str(path), fix="create it with both markers"
        ) from error
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise InputError(f"no markers {begin} … {end}", where=str(path), fix="add both on lines of their own")
    path.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}", encoding="utf-8")
