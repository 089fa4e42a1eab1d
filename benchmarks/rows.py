"""Rows of a table of measured training runs, and which of them can be scored.

The columns are those of ``benchmarks/data/measured.csv``. Only this module reads the value columns; the
mapping to a recipe (``benchmarks.recipes``) is given the row without them.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from finefit.errors import InputError
from finefit.units import GIB

# What a run printed, never an input of a prediction. Notes sometimes repeat a measured number.
VALUE_COLUMNS = frozenset(
    {"value", "unit", "unit_basis", "value_gib", "value2", "unit2", "value2_gib", "outcome", "notes", "golden"}
)
NEEDED = frozenset({"model", "method", "micro_batch", "seq_len", "metric_class", "value_gib"})

# What the source's figure is called -> which of our four numbers it is. "active" counts tensors that wait
# for another stream as well; a step on one stream has none, so it is the allocated figure.
METRICS = {
    "torch_allocated": "allocated",
    "torch_active": "allocated",
    "torch_reserved": "reserved",
    "nvml_device_used": "device",
}


class Skip(Exception):
    """A row that cannot be scored, with a reason that does not depend on the row's numbers."""


@dataclass(frozen=True, slots=True)
class Row:
    """One measured run: its inputs, and apart from them what was measured."""

    inputs: Mapping[str, str]
    measured: float | None  # bytes; None where the column is blank: predicted, not scored
    metric: str  # "allocated" | "reserved" | "device"

    @property
    def id(self) -> str:
        return self.inputs.get("id", "")

    @property
    def source(self) -> str:
        """Repository or site the row was taken from, without commit and path."""
        return self.inputs.get("source", "").partition("@")[0].partition(":")[0] or "unnamed"


def read(path: Path) -> list[dict[str, str]]:
    """All rows of a CSV with the columns of ``data/measured.csv``.

    Raises:
        InputError: the file is missing, is not such a table, or lacks a needed column.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            missing = NEEDED - set(reader.fieldnames or ())
            if missing:
                raise InputError(
                    f"no column {', '.join(sorted(missing))}", where=str(path), fix="use the columns of measured.csv"
                )
            return [{k: (v or "").strip() for k, v in row.items() if k is not None} for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"cannot read the table: {error}", where=str(path), fix="give a CSV file") from error


def inputs(row: Mapping[str, str]) -> dict[str, str]:
    """The row without what was measured."""
    return {k: v for k, v in row.items() if k not in VALUE_COLUMNS}


def scored(row: Mapping[str, str]) -> Row:
    """The row as something to be predicted.

    Raises:
        Skip: it is not core, not a measurement, at the card's capacity, or of an unknown metric.
    """
    if row.get("core", "1") != "1":
        raise Skip("not core")
    if row.get("outcome", "") not in ("", "measured"):
        raise Skip("not a measurement (fits or out of memory)")
    if "near_capacity" in row.get("flags", ""):
        raise Skip("near the card's capacity: the figure is the card's, not the run's")
    metric = METRICS.get(row["metric_class"])
    if metric is None:
        raise Skip("metric not stated")
    try:
        gib = float(row["value_gib"])
    except ValueError:
        gib = 0.0
    return Row(inputs(row), gib * GIB if 0 < gib < math.inf else None, metric)


def select(rows: list[dict[str, str]]) -> Iterator[Row | Skip]:
    """Each row as a ``Row``, or the reason it is left out."""
    for row in rows:
        try:
            yield scored(row)
        except Skip as skip:
            yield skip
