"""Units of the program: bytes inside, GiB at the edge, Decimal money with a currency and a date."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from decimal import Decimal

from finefit.errors import InputError

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
GB = 10**9

_DURATION = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(s|sec|m|min|h|hr|hours?|d|days?|w|weeks?)\s*$", re.I)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_MONEY = re.compile(r"^\s*([A-Za-z¥$￥]*)\s*(\d[\d,]*(?:\.\d+)?)\s*([A-Za-z¥$￥元]*)\s*$")
_CURRENCY = {"USD": "USD", "$": "USD", "US$": "USD", "CNY": "CNY", "RMB": "CNY", "¥": "CNY", "￥": "CNY", "元": "CNY"}


_BYTES = re.compile(r"^\s*(\d[\d,]*(?:\.\d+)?)\s*([KMGT]i?B)\s*$", re.I)
_SCALE = {"K": 1, "M": 2, "G": 3, "T": 4}


def parse_bytes(text: str, *, where: str) -> tuple[int, int]:
    """Bytes of "60GB" or "55.9 GiB", and those of the other reading: powers of 1,000 for 1,024 or the reverse.

    Raises:
        InputError: no number with a unit; "60G" is refused, since its unit would be a guess.
    """
    match = _BYTES.match(text)
    if not match or float(match[1].replace(",", "")) <= 0:
        raise InputError(f"{text[:40]!r} is not a number of bytes", where=where, fix="write 60GB or 55.9GiB")
    power, value = _SCALE[match[2][0].upper()], Decimal(match[1].replace(",", ""))
    decimal, binary = int(value * 1000**power), int(value * 1024**power)
    return (binary, decimal) if len(match[2]) == 3 else (decimal, binary)


def gib(n: int | float) -> float:
    """Bytes as GiB (2**30 bytes)."""
    return n / GIB


def parse_duration(text: str, *, where: str = "--deadline") -> float:
    """Seconds of "24h", "90min", "3d". A bare number is refused: its unit would be a guess.

    Raises:
        InputError: the text is not a duration with a unit.
    """
    match = _DURATION.match(text)
    if not match:
        raise InputError(f"{text!r} is not a duration", where=where, fix="write a number and a unit: 24h, 90min, 3d")
    return float(match[1]) * _SECONDS[match[2][0].lower()]


@dataclass(frozen=True, slots=True)
class Money:
    """An amount in one currency, with the date its price was true (None: given by the user)."""

    amount: Decimal
    currency: str
    as_of: dt.date | None = None

    def __mul__(self, factor: Decimal | int) -> Money:
        return Money(self.amount * factor, self.currency, self.as_of)


def parse_money(text: str, *, where: str = "--budget") -> Money:
    """Money of "200USD", "$200", "1500 CNY", "¥1500". The currency is required.

    Raises:
        InputError: no amount, or a currency other than USD and CNY.
    """
    match = _MONEY.match(text)
    unit = (match[1] or match[3]).upper() if match else ""
    if not match or unit not in _CURRENCY or (match[1] and match[3]):
        raise InputError(f"{text!r} is not an amount of money", where=where, fix="write 200USD or 1500CNY")
    return Money(Decimal(match[2].replace(",", "")), _CURRENCY[unit])
