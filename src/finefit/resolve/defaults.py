"""Defaults of a tool at a version, from two tables of catalog/data.

``tool_defaults.csv`` holds every key of two tools (made by scripts/extract_tool_defaults.py);
``format_defaults.csv`` the keys that the readings of other tools use, each with the file that declares it.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from finefit.errors import DataError

_FOLDER = Path(__file__).parents[1] / "catalog" / "data"
_TABLES = (_FOLDER / "tool_defaults.csv", _FOLDER / "format_defaults.csv")


@dataclass(frozen=True, slots=True)
class Default:
    """What a key takes and what it is when nobody writes it.

    Attributes:
        kind: "int", "float", "bool", "str" or "any", with "?" where null is allowed.
        value: the default; None also where the tool computes it.
        library: who declares it, "transformers@5.6.0".
    """

    kind: str
    value: object
    library: str


@lru_cache(maxsize=32)
def defaults(tool: str, version: str) -> Mapping[str, Default]:
    """Every key of a tool's configuration at one version that has a row.

    Raises:
        DataError: the tables have no such tool and version, or are damaged.
    """
    out: dict[str, Default] = {}
    for table in _TABLES:
        try:
            with table.open(encoding="utf-8", newline="") as handle:
                for row_tool, row_version, key, kind, default, library, _ in csv.reader(handle):
                    if row_tool == tool and row_version == version:
                        out[key] = Default(kind, json.loads(default) if default else None, library)
        except (OSError, ValueError) as error:
            raise DataError(f"the table of tool defaults is damaged: {error}", where=str(table)) from error
    if not out:
        raise DataError(f"no defaults of {tool} {version}", where=str(_FOLDER))
    return MappingProxyType(out)
