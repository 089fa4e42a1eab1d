"""Prices of the user's own: a CSV or JSON file, or a URL of one.

Columns, or keys of a list of JSON objects: ``gpu``, ``price_per_gpu_hour``; and where they differ from their defaults
``currency`` (USD), ``kind`` (on-demand), ``provider`` (the file's name), ``region``, ``min_gpus`` (1), ``date``
(today), ``source`` (the file), ``licence``.
"""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from pathlib import Path
from urllib.parse import urlsplit

from finefit.errors import InputError
from finefit.market.attempts import is_url, read_place
from finefit.market.prices import Observed, observed


class PriceFile:
    """One file or URL."""

    def __init__(self, place: str) -> None:
        self.place = place
        path = urlsplit(place).path if is_url(place) else place
        self.name = Path(path).stem or place

    def fetch(self, timeout: float, today: dt.date) -> Iterator[Observed | None]:
        """The rows.

        Raises:
            SourceUnreachable: the URL does not answer.
            InputError: no such file, or a row that is no price.
        """
        for number, row in enumerate(self._rows(read_place(self.place, timeout)), start=1):
            yield self._row(row, f"{self.place}, row {number}", today)

    def _rows(self, text: str) -> list[dict[str, str]]:
        if text.lstrip()[:1] in ("[", "{"):
            try:
                found = json.loads(text, parse_float=str, parse_int=str)
            except (ValueError, RecursionError):
                raise InputError("the file is not JSON", where=self.place, fix="correct it") from None
            rows = found.get("prices") if isinstance(found, dict) else found
            if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
                fix = "write a list of objects with gpu and price_per_gpu_hour"
                raise InputError("the JSON is no list of prices", where=self.place, fix=fix)
            return [{key: "" if value is None else str(value) for key, value in row.items()} for row in rows]
        try:
            return [
                {key: value or "" for key, value in row.items() if isinstance(key, str) and not isinstance(value, list)}
                for row in csv.DictReader(io.StringIO(text, newline=""), strict=True)
            ]
        except csv.Error as problem:
            raise InputError(f"the file is not CSV: {problem}", where=self.place, fix="correct it") from None

    def _row(self, row: dict[str, str], where: str, today: dt.date) -> Observed | None:
        if not row.get("gpu") or not row.get("price_per_gpu_hour"):
            raise InputError("gpu or price_per_gpu_hour is missing", where=where, fix="write both in every row")
        try:
            price, count = Decimal(row["price_per_gpu_hour"]), int(row.get("min_gpus") or 1)
            day = dt.date.fromisoformat(row["date"]) if row.get("date") else today
        except (InvalidOperation, ValueError):
            raise InputError(
                "a price, number or date is none", where=where, fix="write 1.99, 8 and 2026-11-30"
            ) from None
        return observed(
            provider=row.get("provider") or self.name,
            gpu=row["gpu"],
            price=price,
            kind=row.get("kind") or "on-demand",
            day=day,
            currency=(row.get("currency") or "USD").upper(),
            region=row.get("region") or "",
            min_gpus=count,
            source=row.get("source") or self.place,
            licence=row.get("licence") or "",
            where=where,
        )
