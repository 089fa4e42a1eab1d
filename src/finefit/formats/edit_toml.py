"""Changes to TOML texts by the spans of their values (TOML 1.0.0)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from finefit.errors import InputError
from finefit.formats.edits import Edit, How, Replacement, by_hand

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_HEADER = re.compile(r"(\[\[?)\s*((?:[^\]\"'\n]|\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*')*?)\s*\]\]?")
_PART = r"(?:[\w-]+|\"[^\"\n]*\"|'[^'\n]*')"
_KEY = re.compile(rf"({_PART}(?:\s*\.\s*{_PART})*)\s*=[ \t]*")
_STRING = re.compile(r"\"\"\"(?:[^\\]|\\.)*?\"{3,5}|'''.*?'{3,5}|\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*'", re.S)
_BARE = re.compile(r"[^\s#,\]}\[{\"']+(?: \d\d:[\d:.Z+-]+)?")


@dataclass(frozen=True, slots=True)
class _Row:
    """A key with its value's span, or a table's header (then the span is the header's)."""

    key: str
    start: int
    end: int
    table: str
    header: bool = False


def changes(text: str, name: str, edits: Sequence[Edit]) -> list[Replacement]:
    """The spans to replace.

    Raises:
        InputError: a key that cannot be reached, or that must go.
    """
    rows = list(_rows(text, name))
    out = []
    for edit in edits:
        found = next((row for row in rows if row.key == edit.key and not row.header), None)
        if edit.how is not How.SET:
            raise by_hand(f"{edit.key} is not changed in a TOML file", name, edit.value)
        out.append(Replacement(found.start, found.end, _value(edit.value)) if found else _insert(text, rows, edit))
    return out


def _insert(text: str, rows: Sequence[_Row], edit: Edit) -> Replacement:
    """A new key at the end of its table; a table that is not there comes with it."""
    table, _, key = edit.key.rpartition(".")
    mine = [row for row in rows if row.table == table and (not row.header or row.key == table)]
    beside = next((row for row in mine if row.key == edit.near), mine[-1] if mine else None)
    newline = "\r\n" if "\r\n" in text else "\n"
    row = f"{key} = {_value(edit.value)}{newline}"
    if beside is None and table:
        gap = "" if text.endswith("\n") or not text else newline
        return Replacement(len(text), len(text), f"{gap}{newline}[{table}]{newline}{row}")
    end = text.find("\n", beside.end) + 1 if beside else 0
    if beside and not end:
        return Replacement(len(text), len(text), newline + row)
    return Replacement(end, end, row)


def _rows(text: str, name: str) -> Iterator[_Row]:
    at, table = 0, ""
    while True:
        blank = _BLANK.match(text, at)
        at = blank.end() if blank else at
        if at >= len(text):
            return
        if header := _HEADER.match(text, at):
            table = ".".join(_parts(header[2]))
            yield _Row(table, at, header.end(), table, header=True)
            at = header.end()
        elif key := _KEY.match(text, at):
            at = _skip(text, key.end(), name)
            inner = ".".join(_parts(key[1]))
            yield _Row(f"{table}.{inner}" if table else inner, key.end(), at, table)
        else:
            line = text.count("\n", 0, at) + 1
            raise InputError("this is not TOML", where=f"{name}:{line}", fix="correct the TOML")


def _skip(text: str, at: int, name: str) -> int:
    """Where the value that begins here ends."""
    depth = 0
    while at < len(text):
        found = _STRING.match(text, at) or _BARE.match(text, at)
        if found:
            at = found.end()
        elif text[at] in "[{":
            depth, at = depth + 1, at + 1
        elif text[at] in "]}":
            depth, at = depth - 1, at + 1
        elif depth and (blank := _BLANK.match(text, at)) and blank.end() > at:
            at = blank.end()
            continue
        elif depth:
            at += 1
            continue
        else:
            break
        if depth <= 0:
            return at
    line = text.count("\n", 0, at) + 1
    raise InputError("this is not TOML", where=f"{name}:{line}", fix="correct the TOML")


def _parts(dotted: str) -> list[str]:
    return [part.strip("\"'") for part in re.findall(_PART, dotted)]


def _value(value: object) -> str:
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
