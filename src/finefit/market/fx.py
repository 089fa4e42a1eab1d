"""Where exchange rates come from: the European Central Bank, or a file or URL of the user's own."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import re
from decimal import Decimal, InvalidOperation
from typing import Any, Protocol

from finefit.catalog.currency import Rate
from finefit.errors import InputError
from finefit.market.attempts import PAUSE, RETRIES, TIMEOUT, read_place, tried
from finefit.market.prices import CURRENCIES

# Reference rates of each working day of the last 90 days, units of a currency for one euro. Free to use with the source
# named: https://www.ecb.europa.eu/services/using-our-site/disclaimer/html/index.en.html
ECB = "https://www.ecb.europa.eu/stats/eurofxref/eurofxref-hist-90d.xml"
_LICENCE = "European Central Bank: free with the source named"
_DAY = re.compile(r"<Cube\s+time=[\"'](\d{4}-\d\d-\d\d)[\"']\s*>(.*?)</Cube>", re.S)
_CURRENCY = re.compile(r"<Cube\s+currency=[\"']([A-Z]{3})[\"']\s+rate=[\"']([\d.]+)[\"']\s*/>")
_DIGITS = Decimal("0.0001")  # as banks quote USD/CNY
# The official rate has stayed between 6.04 and 8.73 since 1994: what lies far outside is another pair, or turned round.
_PLAUSIBLE = (Decimal(4), Decimal(12))


class RateSource(Protocol):
    """One source of rates. ``fetch`` raises SourceUnreachable where nobody answers within ``timeout`` seconds."""

    name: str

    def fetch(self, timeout: float, today: dt.date) -> list[Rate]: ...


class RateFile:
    """A file or URL: the ECB's XML; CSV with date, base, quote, rate; JSON of such rows, or ``{"base", "date",
    "rates": {"CNY": 6.74}}`` as most services answer."""

    def __init__(self, place: str = ECB) -> None:
        self.name = self.place = place

    def fetch(self, timeout: float, today: dt.date) -> list[Rate]:
        """Rates between USD and CNY, each with its day.

        Raises:
            SourceUnreachable: the URL does not answer.
            InputError: no such file, or no rate in it.
        """
        text = read_place(self.place, timeout)
        start = text.lstrip()[:1]
        found = self._ecb(text) if start == "<" else self._json(text, today) if start in ("{", "[") else self._csv(text)
        rates = [rate for rate in found if rate.date <= today]
        if not rates:
            raise InputError("no rate between USD and CNY is in it", where=self.place, fix="name another source")
        return rates

    def _ecb(self, text: str) -> list[Rate]:
        found = []
        for day, inner in _DAY.findall(text):
            euro = {code: Decimal(rate) for code, rate in _CURRENCY.findall(inner)}
            if euro.get("USD") and euro.get("CNY"):
                rate = (euro["CNY"] / euro["USD"]).quantize(_DIGITS)
                source = f"European Central Bank, {euro['CNY']} CNY over {euro['USD']} USD a euro"
                found.append(self._rate(day, "USD", "CNY", str(rate), source, _LICENCE))
        return found

    def _csv(self, text: str) -> list[Rate]:
        try:
            rows: list[dict[str, Any]] = list(csv.DictReader(io.StringIO(text, newline=""), strict=True))
        except csv.Error as problem:
            raise InputError(f"the file is not CSV: {problem}", where=self.place, fix="correct it") from None
        return self._listed(rows)

    def _json(self, text: str, today: dt.date) -> list[Rate]:
        try:
            found = json.loads(text, parse_float=str, parse_int=str)
        except (ValueError, RecursionError):
            raise InputError("the file is not JSON", where=self.place, fix="correct it") from None
        if isinstance(found, dict) and isinstance(found.get("rates"), dict):
            base, day = str(found.get("base", "")).upper(), str(found.get("date") or today)
            rows = [{"date": day, "base": base, "quote": code, "rate": rate} for code, rate in found["rates"].items()]
            return self._listed(rows)
        if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
            fix = "write a list of objects with date, base, quote and rate"
            raise InputError("the JSON is no list of rates", where=self.place, fix=fix)
        return self._listed(found)

    def _listed(self, rows: list[dict[str, Any]]) -> list[Rate]:
        """Rates among the currencies that prices are in; other currencies are none of ours."""
        found = []
        for row in rows:
            base, quote = (str(row.get(side) or "").strip().upper() for side in ("base", "quote"))
            if base != quote and base in CURRENCIES and quote in CURRENCIES:
                said = (str(row.get(key) or "") for key in ("date", "rate", "source", "licence"))
                day, rate, source, licence = said
                found.append(self._rate(day, base, quote, rate, source or self.place, licence))
        return found

    def _rate(self, day: str, base: str, quote: str, rate: str, source: str, licence: str) -> Rate:
        try:
            date, value = dt.date.fromisoformat(day), Decimal(rate)
        except (ValueError, InvalidOperation):
            raise InputError(
                f"{day[:20]!r} and {rate[:20]!r} are no day and rate", where=self.place, fix="write 2026-11-30 and 6.74"
            ) from None
        yuan = value if (base, quote) == ("USD", "CNY") else 1 / value if value.is_finite() and value else Decimal(0)
        if not yuan.is_finite() or not _PLAUSIBLE[0] < yuan < _PLAUSIBLE[1]:
            raise InputError(
                f"{rate[:20]} {quote} for one {base} is no rate of these currencies",
                where=self.place,
                fix="check which currency is the base",
            )
        return Rate(date, base, quote, value, source[:300], licence[:120])


def rates_from(
    source: RateSource, *, today: dt.date, timeout: float = TIMEOUT, retries: int = RETRIES, pause: float = PAUSE
) -> list[Rate]:
    """What a source gives within its time.

    Raises:
        SourceUnreachable: no answer.
        InputError: an answer that holds no rates.
    """
    return tried(source.name, lambda: source.fetch(timeout, today), timeout=timeout, retries=retries, pause=pause)
