"""The history that comes with the package: daily prices from October 2025 on."""

from __future__ import annotations

import csv
import gzip
from decimal import Decimal
from functools import cache
from pathlib import Path

from finefit.catalog._tables import parse_day, parse_number, read_rows
from finefit.catalog.gpu_table import card_by_id
from finefit.errors import DataError
from finefit.market.prices import MICRO, Observed

_FILE = Path(__file__).parents[1] / "catalog" / "data" / "price_history.csv.gz"
# The same reading of kinds as for offers (catalog.offer_table); serverless is priced by the second of inference, and
# the lowest price of a market is nobody's median.
_KINDS = {
    "on-demand": "on-demand",
    "secure": "on-demand",
    "spot": "spot",
    "community": "community",
    "market-median": "market-median",
}


@cache
def bundled_history(gpu_id: str) -> tuple[Observed, ...]:
    """Prices of one card, oldest first. Read once for each.

    Raises:
        DataError: the file is missing or damaged.
    """
    aliases = {row["name"]: row["gpu_id"] for row in read_rows("gpu_aliases.csv")}
    devices = card_by_id(gpu_id).devices
    found = []
    try:
        with gzip.open(_FILE, "rt", encoding="utf-8", newline="") as file:
            for line, row in enumerate(csv.DictReader(file), start=2):
                if aliases.get(row["gpu"], row["gpu"]) == gpu_id and row["kind"] in _KINDS:
                    found.append(_observed(row, gpu_id, devices, f"{_FILE.name}:{line}"))
    except (OSError, EOFError) as problem:
        raise DataError(f"cannot be read: {problem}", where=_FILE.name, fix="reinstall finefit") from problem
    return tuple(sorted(found, key=lambda row: (row.day, row.provider, row.kind, row.micros)))


def _observed(row: dict[str, str], gpu_id: str, devices: int, where: str) -> Observed:
    price = parse_number(row["price_per_gpu_hour"], where=where) / devices
    return Observed(
        provider=row["provider"],
        gpu_id=gpu_id,
        kind=_KINDS[row["kind"]],
        region=row["region"],
        min_gpus=devices,
        micros=int((price * Decimal(MICRO)).to_integral_value()),
        currency=row["currency"],
        day=parse_day(row["date"], where=where),
        source=row["source"],
        licence=row["licence"],
    )
