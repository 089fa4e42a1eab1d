"""Defaults of a tool at a version, from catalog/data/tool_defaults.csv (made by scripts/extract_tool_defaults.py)."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from finefit.errors import DataError

_TABLE = Path(__file__).parents[1] / "catalog" / "data" / "tool_defaults.csv"


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


@lru_cache(maxsize=4)
def defaults(tool: str, version: str) -> Mapping[str, Default]:
    """Every key of a tool's configuration at one version.

    Raises:
        DataError: the table has no such tool and version, or is damaged.
    """
    out: dict[str, Default] = {}
    try:
        with _TABLE.open(encoding="utf-8", newline="") as handle:
            for row_tool, row_version, key, kind, default, library, _ in csv.reader(handle):
                if row_tool == tool and row_version == version:
                    out[key] = Default(kind, json.loads(default) if default else None, library)
    except (OSError, ValueError) as error:
        raise DataError(f"the table of tool defaults is damaged: {error}", where=str(_TABLE)) from error
    if not out:
        raise DataError(f"no defaults of {tool} {version}", where=str(_TABLE))
    return MappingProxyType(out)
