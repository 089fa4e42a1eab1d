"""Which rows of ``throughput.csv`` are the core, are scored apart, or are left out; what each condition takes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from finefit.catalog.models import find
from finefit.errors import FinefitError

LOW_PRECISION = ("nvfp4", "mxfp8", "fp8-mx", "fp8")
LARGEST = 256  # GPUs
Row = Mapping[str, str]


class Skip(Exception):
    """A row that is not scored; the message says why, without the row's numbers."""


def kind_of(row: Row) -> str:
    """Which rows it is scored with; the core is 16-bit, dense, without offload and on at most 256 GPUs.

    Raises:
        Skip: grade C, a precision that is not stated or not known, more than 256 GPUs.
    """
    if not _graded(row):
        raise Skip(f"grade {row['grade']}")
    if not _few_gpus(row):
        raise Skip(f"more than {LARGEST} GPUs")
    if row["offload"]:
        return "offload"
    if mixture(row):
        return "moe"
    if low_precision(row["dtype"]):
        return "fp8"
    if not _sixteen_bits(row):
        raise Skip(f"precision {row['dtype'] or 'not stated'}")
    return "dense 16-bit"


def funnel(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """What each condition of the core takes: rows that fail it at all, that fail it alone, and those left after it."""
    out, left = [], list(rows)
    for name, holds in CONDITIONS.items():
        others = [each for other, each in CONDITIONS.items() if other != name]
        failing = [row for row in rows if not holds(row)]
        alone = sum(all(other(row) for other in others) for row in failing)
        left = [row for row in left if holds(row)]
        out.append({"condition": name, "fail": len(failing), "fail_alone": alone, "left": len(left)})
    return out


def mixture(row: Row) -> bool:
    """Whether the row's model is a mixture of experts."""
    total, active = row.get("params_total_b", ""), row.get("params_active_b", "")
    if total and active:
        return total != active
    try:
        return find(row["model"]).experts is not None
    except FinefitError as error:
        return "expert" in str(error) or "moe" in row["model"].lower() or "granite-4.0" in row["model"].lower()


def low_precision(dtype: str) -> str | None:
    """The 8- or 4-bit format of the products; None: 16 bits and more."""
    found = next((name for name in LOW_PRECISION if name in dtype.split(" ")[0]), None)
    return "mxfp8" if found == "fp8-mx" else found


def whole(row: Row, column: str) -> int:
    """The count that a column starts with, 1 where it has none."""
    found = re.match(r"\d+", row.get(column, ""))
    return max(1, int(found[0])) if found else 1


def _graded(row: Row) -> bool:
    return row.get("grade", "A") in ("A", "B")


def _sixteen_bits(row: Row) -> bool:
    """The type that is computed in: a base stored in 8 or 4 bits (QLoRA) is unpacked to it and belongs here."""
    return not low_precision(row["dtype"]) and bool(re.search(r"bf16|bfloat16|fp16|float16", row["dtype"]))


def _few_gpus(row: Row) -> bool:
    return whole(row, "n_gpus") <= LARGEST


CONDITIONS: dict[str, Callable[[Row], bool]] = {
    "grade A or B": _graded,
    "computed in bf16 or fp16": _sixteen_bits,
    "dense": lambda row: not mixture(row),
    f"at most {LARGEST} GPUs": _few_gpus,
    "no offload": lambda row: not row["offload"],
}
