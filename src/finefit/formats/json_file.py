"""JSON configurations: the top-level mapping with the line of each key."""

from __future__ import annotations

import json
import re

from finefit.errors import InputError
from finefit.formats.yaml11 import Document, flat

_KEY = re.compile(r'("(?:[^"\\\n]|\\.)*")\s*:')


def load_mapping(text: str, name: str) -> Document:
    """The top-level object of a JSON text; lines are those on which its keys first stand as keys.

    Raises:
        InputError: not JSON, nested too deep, or not an object.
    """
    if not text.strip():
        raise InputError("the file is empty", where=name, fix="name a config")
    lines = _lines(text)
    duplicates: list[tuple[str, int]] = []

    def pairs(found: list[tuple[str, object]]) -> dict[str, object]:
        out: dict[str, object] = {}
        for key, value in found:
            if key in out:
                duplicates.append((key, lines.get(key, 1)))
            out[key] = value
        return out

    try:
        value = json.loads(text, object_pairs_hook=pairs)
    except json.JSONDecodeError as error:
        raise InputError(
            f"this is not JSON: {error.msg}", where=f"{name}:{error.lineno}", fix="correct the JSON"
        ) from None
    except (RecursionError, ValueError) as error:
        reason = "nested too deep" if isinstance(error, RecursionError) else str(error)
        raise InputError(f"this is not JSON: {reason}", where=name, fix="name a config") from None
    if not isinstance(value, dict):
        raise InputError("the file is not an object with keys", where=name, fix="name a config")
    items = tuple((key, item, lines.get(key, 1)) for key, item in value.items())
    return Document(items, tuple(duplicates))


def load_tree(text: str, name: str) -> Document:
    """The same with the keys of nested objects too, as dotted names: "fsdp_config.fsdp_version".

    Raises:
        InputError: as ``load_mapping``, or more keys than any configuration has.
    """
    document = load_mapping(text, name)
    pairs = flat({key: value for key, value, _ in document.items}, name)
    lines = _lines(text)
    items = tuple((key, value, lines.get(key.rpartition(".")[2], 1)) for key, value in pairs)
    return Document(items, document.duplicates)


def _lines(text: str) -> dict[str, int]:
    """The line on which each key first stands, in one pass over the text."""
    out: dict[str, int] = {}
    line, at = 1, 0
    for match in _KEY.finditer(text):
        line, at = line + text.count("\n", at, match.start()), match.start()
        try:
            key = json.loads(match[1])
        except ValueError:
            continue
        out.setdefault(key, line)
    return out
