"""Units of the program: bytes inside, GiB at the edge, Decimal money with a currency and a date."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from decimal import Decimal

from finefit.errors import InputError

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
GB = 10**9

# One unit each, largest first: "1d12h", "2 hours 30 min", "1天12小时".
_DURATION = re.compile(
    r"\s*(?:(\d+(?:\.\d+)?)\s*(?:weeks?|w|周|个?星期)\s*)?"
    r"(?:(\d+(?:\.\d+)?)\s*(?:days?|d|天|日)\s*)?"
    r"(?:(\d+(?:\.\d+)?)\s*(?:hours?|hrs?|h|个?小时|个?钟头|时)\s*)?"
    r"(?:(\d+(?:\.\d+)?)\s*(?:minutes?|mins?|m|分钟?)\s*)?"
    r"(?:(\d+(?:\.\d+)?)\s*(?:seconds?|secs?|s|秒钟?)\s*)?",
    re.I,
)
_SECONDS = (604800, 86400, 3600, 60, 1)  # of the groups above
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
    """Seconds of "24h", "90min", "1d12h", "24小时". A bare number is refused: its unit would be a guess.

    Raises:
        InputError: the text is not a duration with a unit.
    """
    match = _DURATION.fullmatch(text)
    if not match or not any(match.groups()):
        raise InputError(
            f"{text[:40]!r} is not a duration", where=where, fix="write numbers with units: 24h, 90min, 1d12h"
        )
    parts = zip(match.groups(), _SECONDS, strict=True)
    return sum(float(number) * seconds for number, seconds in parts if number)


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
