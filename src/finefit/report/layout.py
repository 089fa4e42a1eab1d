"""Lines of a fixed width for terminals: wrapping and columns that know wide (Chinese) characters."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

# A line never starts with the first, never ends with the second (W3C clreq, "Prohibition Rules").
_NO_START = "，。、；：！？）」』》〉”’】·%,.;:!?)]"
_NO_END = "（「『《〈“‘【(["
_GAP = 2  # cells between two columns
_NARROWEST = 16  # cells the last column is left with


def width(text: str) -> int:
    """Cells a text takes: two for wide and full-width characters, none for combining ones (UAX #11)."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def wrap(text: str, cells: int) -> list[str]:
    """Lines of at most ``cells`` cells, broken at spaces and between wide characters; longer words are cut."""
    lines, line = [], ""
    for token in _tokens(text):
        joined = line + token
        if not line or width(joined.rstrip()) <= cells:
            line = joined
        else:
            lines.append(line.rstrip())
            line = token.lstrip()
        while width(line.rstrip()) > cells:
            cut = _cut(line, cells)
            lines.append(line[:cut])
            line = line[cut:]
    return [*lines, line.rstrip()] if line.rstrip() or not lines else lines


def _tokens(text: str) -> Iterable[str]:
    """Pieces that stay whole: words with the space before them, wide characters with their punctuation."""
    token = ""
    for char in text:
        wide = unicodedata.east_asian_width(char) in "WF"
        if token and _breaks(token, char, wide):
            yield token
            token = char
        else:
            token += char
    if token:
        yield token


def _breaks(token: str, char: str, wide: bool) -> bool:
    last = token[-1]
    if char in _NO_START or last in _NO_END:
        return False
    if char == " ":
        return True
    if last == " ":
        return False
    return wide or unicodedata.east_asian_width(last) in "WF"


def _cut(text: str, cells: int) -> int:
    """Characters of the longest start that fits, at least one."""
    used = 0
    for index, char in enumerate(text):
        used += width(char)
        if used > cells:
            return max(index, 1)
    return len(text)


def pad(text: str, cells: int, *, right: bool = False) -> str:
    """The text filled with spaces up to a width; ``right`` aligns it right."""
    space = " " * max(0, cells - width(text))
    return space + text if right else text + space


def columns(rows: Sequence[Sequence[str]], align: str, cells: int, *, most: int = 28) -> list[str]:
    """Rows as aligned columns; the last one wraps into what is left of the line.

    Args:
        rows: cells of equal number a row.
        align: "l" or "r" for each column.
        cells: width of the whole; most: width at which other columns than the last wrap too.
    """
    widths = [min(most, max((width(row[i]) for row in rows), default=0)) for i in range(len(align) - 1)]
    last = max((width(row[-1]) for row in rows), default=0)
    while sum(widths) + _GAP * len(widths) + min(last, _NARROWEST) > cells and max(widths, default=0) > _NARROWEST:
        widths[widths.index(max(widths))] -= 1  # the widest column wraps until the rest has room
    widths.append(min(last, max(_NARROWEST, cells - sum(widths) - _GAP * len(widths))))
    lines = []
    for row in rows:
        wrapped = [wrap(cell, max(space, 1)) for cell, space in zip(row, widths, strict=True)]
        for index in range(max(map(len, wrapped))):
            parts = [
                pad(cell[index] if index < len(cell) else "", space, right=side == "r")
                for cell, space, side in zip(wrapped, widths, align, strict=True)
            ]
            lines.append((" " * _GAP).join(parts).rstrip())
    return lines


@dataclass(slots=True)
class Page:
    """Lines of a report, each with the name of its style ("" for plain text)."""

    cells: int = 80
    lines: list[tuple[str, str]] = field(default_factory=list)

    def heading(self, text: str) -> None:
        """A heading, an empty line before it."""
        if self.lines:
            self.lines.append(("", ""))
        self.line(text, style="bold")

    def line(self, text: str, *, style: str = "", indent: int = 0, hang: int | None = None) -> None:
        """A paragraph; ``hang`` indents its further lines differently."""
        first = " " * indent
        rest = first if hang is None else " " * hang
        for index, piece in enumerate(wrap(text, self.cells - max(len(first), len(rest)))):
            self.lines.append(((first if index == 0 else rest) + piece, style))

    def bullets(self, texts: Iterable[str], *, mark: str = "-", indent: int = 2) -> None:
        """A list."""
        for text in texts:
            self.line(f"{mark} {text}", indent=indent, hang=indent + len(mark) + 1)

    def table(self, rows: Sequence[Sequence[str]], align: str, *, indent: int = 2, most: int = 28) -> None:
        """Aligned columns."""
        for line in columns(rows, align, self.cells - indent, most=most) if rows else ():
            self.lines.append((" " * indent + line if line else "", ""))

    def __str__(self) -> str:
        return "\n".join(text for text, _ in self.lines) + "\n"
