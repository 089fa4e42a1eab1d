"""Reading the CSV files of ``catalog/data``."""

from __future__ import annotations

import csv
import datetime as dt
from decimal import Decimal, InvalidOperation
from pathlib import Path

from finefit.errors import DataError

_FOLDER = Path(__file__).parent / "data"


def read_rows(file: str) -> list[dict[str, str]]:
    """Rows of one CSV file of the package, each a column → text mapping.

    Raises:
        DataError: the file is missing, or a row has more or fewer fields than the header.
    """
    try:
        with (_FOLDER / file).open(encoding="utf-8", newline="") as handle:
            reader = csv.reader(handle)
            header = next(reader, [])
            rows = list(reader)
    except OSError as problem:
        raise DataError(f"cannot be read: {problem}", where=file, fix="reinstall finefit") from problem
    for line, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise DataError(f"{len(row)} fields where the header names {len(header)}", where=f"{file}:{line}")
    return [dict(zip(header, row, strict=True)) for row in rows]


def parse_day(text: str, *, where: str) -> dt.date:
    """Date of "2026", "2026-07" or "2026-07-15".

    A year or a month stands for its first day, so that the age of a price is never understated.

    Raises:
        DataError: not a date.
    """
    try:
        return dt.date.fromisoformat(text + "-01-01"[len(text) - 4 :] if len(text) in (4, 7) else text)
    except ValueError as problem:
        raise DataError(f"{text!r} is not a date", where=where) from problem


def parse_number(text: str, *, where: str) -> Decimal:
    """Exact decimal number of a field.

    Raises:
        DataError: not a finite number.
    """
    try:
        number = Decimal(text)
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite():
        raise DataError(f"{text!r} is not a number", where=where)
    return number
