"""TOML configurations: every key, dotted, with the line it stands on."""

from __future__ import annotations

import re
import tomllib

from finefit.errors import InputError
from finefit.formats.yaml11 import Document, flat

_TABLE = re.compile(r"^\s*\[([^\[\]]+)\]\s*(?:#.*)?$")
_KEY = re.compile(r"""^\s*([A-Za-z0-9_.\-"']+)\s*=""")
_LINE = re.compile(r"\(at line (\d+)")


def load_tree(text: str, name: str) -> Document:
    """All keys of a TOML text.

    Raises:
        InputError: not TOML, nested too deep, or more keys than any configuration has.
    """
    if not text.strip():
        raise InputError("the file is empty", where=name, fix="name a training config")
    try:
        value = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _LINE.search(str(error))
        place = f"{name}:{found[1]}" if found else name
        raise InputError(f"this is not TOML: {error}", where=place, fix="correct the TOML") from None
    except (RecursionError, ValueError) as error:
        reason = "nested too deep" if isinstance(error, RecursionError) else str(error)
        raise InputError(f"this is not TOML: {reason}", where=name, fix="name a training config") from None
    lines = _lines(text)
    return Document(tuple((key, item, lines.get(key, 1)) for key, item in flat(value, name)), ())


def _lines(text: str) -> dict[str, int]:
    out: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := _TABLE.match(line):
            table = header[1].strip().replace('"', "")
            out.setdefault(table, number)
        elif key := _KEY.match(line):
            name = key[1].replace('"', "").replace("'", "")
            out.setdefault(f"{table}.{name}" if table else name, number)
    return out
