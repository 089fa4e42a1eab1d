"""JSON configurations: the top-level mapping with the line of each key."""

from __future__ import annotations

import json
import re

from finefit.errors import InputError
from finefit.formats.yaml11 import Document


def load_mapping(text: str, name: str) -> Document:
    """The top-level object of a JSON text; lines are those on which its keys first stand as keys.

    Raises:
        InputError: not JSON, nested too deep, or not an object.
    """
    if not text.strip():
        raise InputError("the file is empty", where=name, fix="name a config")
    duplicates: list[tuple[str, int]] = []

    def pairs(found: list[tuple[str, object]]) -> dict[str, object]:
        out: dict[str, object] = {}
        for key, value in found:
            if key in out:
                duplicates.append((key, _line(text, key)))
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
    items = tuple((key, item, _line(text, key)) for key, item in value.items())
    return Document(items, tuple(duplicates))


def _line(text: str, key: str) -> int:
    match = re.search(re.escape(json.dumps(key, ensure_ascii=False)) + r"\s*:", text)
    return text.count("\n", 0, match.start()) + 1 if match else 1
