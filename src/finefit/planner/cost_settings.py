"""Money settings from flags and from ``finefit.toml``, each with where it was said.

A file holds a table ``[cost]`` whose keys are the flags without dashes:

    [cost]
    runs = 3
    engineer_hours = 8
    engineer_rate = "60USD"

A flag wins over the file; what neither says is unknown, or assumed where it has a default.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from decimal import Decimal, InvalidOperation
from pathlib import Path
from types import MappingProxyType
from typing import Any

from finefit.cost.settings import CostSettings
from finefit.errors import InputError
from finefit.formats.toml_file import load_tree
from finefit.units import parse_money
from finefit.workload import Source
from finefit.workload.sourced import Origin

FILE = "finefit.toml"
_TABLE = "cost."
_MAX_BYTES = 100_000  # thirty settings take two kB
_LARGEST = Decimal(10**9)
EGRESS_TIERS = ("internet", "inter-region")


def _number(text: str, where: str, least: Decimal, most: Decimal) -> Decimal:
    try:
        number = Decimal(text)
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite():
        raise InputError(f"{text[:20]!r} is not a number", where=where, fix="write it in digits: 2.5")
    if not least <= number <= most:
        raise InputError(f"{text[:20]} is not between {least} and {most:f}", where=where, fix="write another number")
    return number


def _amount(text: str, where: str) -> Decimal:
    return _number(text, where, Decimal(0), _LARGEST)


def _share(text: str, where: str) -> Decimal:
    return _number(text, where, Decimal(0), Decimal(1))


def _positive(text: str, where: str) -> Decimal:
    return _number(text, where, Decimal("0.001"), _LARGEST)


def _whole(text: str, where: str) -> int:
    number = _number(text, where, Decimal(1), Decimal(10**6))
    if number != int(number):
        raise InputError(f"{text[:20]!r} is not a whole number", where=where, fix="write one: 3")
    return int(number)


def _money(text: str, where: str) -> object:
    return parse_money(text, where=where)


def _text(text: str, where: str) -> str:
    if not text.strip():
        raise InputError("the value is missing", where=where, fix="write one, or remove the line")
    return text.strip()


def _tier(text: str, where: str) -> str:
    if text not in EGRESS_TIERS:
        raise InputError(f"{text[:20]!r} is no kind of traffic", where=where, fix="write internet or inter-region")
    return text


_READ: Mapping[str, Callable[[str, str], object]] = {
    "runs": _whole,
    "kept": _whole,
    "failed_share": _share,
    "residual": _share,
    "upkeep": _share,
    "utilisation": _share,
    "hours_between_interruptions": _positive,
    "life_years": _positive,
    "pue": _positive,
    "engineer_rate": _money,
    "upload_price": _money,
    "minimum_charge": _money,
    "gpu_price": _money,
    "storage_price": _money,
    "cold_price": _money,
    "stopped_price": _money,
    "egress_price": _money,
    "card_price": _money,
    "power_price": _money,
    "provider": _text,
    "egress_tier": _tier,
}  # every other setting is an amount
NAMES = tuple(field.name for field in fields(CostSettings))


def read_settings(
    flags: Mapping[str, str | None], file: str | Path | None
) -> tuple[CostSettings, Mapping[str, Source]]:
    """Settings and where each was said.

    Args:
        flags: name → text of the flag, None where it was left out.
        file: of settings; ``finefit.toml`` in the working folder where None, if there is one.

    Raises:
        InputError: a file that cannot be read, a key that does not exist, a value that is none.
    """
    found: dict[str, Any] = {}
    sources: dict[str, Source] = {}
    for name, (text, place) in _in_file(file).items():
        found[name] = _value(name, text, f"{place}: {name}")
        sources[name] = Source(Origin.STATED, place)
    for name, flag in flags.items():
        if flag is not None:
            where = "--" + name.replace("_", "-")
            found[name] = _value(name, flag, where)
            sources[name] = Source(Origin.STATED, where)
    return replace(CostSettings(), **found), MappingProxyType(sources)


def _value(name: str, text: str, where: str) -> object:
    return _READ.get(name, _amount)(text, where)


def _in_file(stated: str | Path | None) -> dict[str, tuple[str, str]]:
    path = Path(FILE) if stated is None else Path(stated).expanduser()
    if stated is None and not path.is_file():
        return {}
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise InputError("the file is too large for settings", where=str(path), fix="name a finefit.toml")
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as problem:
        fix = "name a readable finefit.toml"
        raise InputError(f"the settings cannot be read: {problem}", where=str(stated or path), fix=fix) from None
    out = {}
    for key, value, line in load_tree(text, path.name).items:
        if isinstance(value, dict):  # a table itself; its keys follow
            continue
        name, place = key.removeprefix(_TABLE), f"{path.name}:{line}"
        if not key.startswith(_TABLE) or name not in NAMES:
            near = difflib.get_close_matches(name, NAMES, n=1)
            fix = f"did you mean {near[0]}?" if near else "settings stand in a table [cost], see docs/cli.md"
            raise InputError(f"{key[:60]!r} is no setting", where=place, fix=fix)
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise InputError(f"{str(value)[:20]!r} is not a value of {name}", where=place, fix="write a number or text")
        out[name] = (str(value), place)
    return out
