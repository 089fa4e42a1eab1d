"""Which facts an answer was made from: a short name of the package's data files and the user's own rates."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from functools import cache
from pathlib import Path

from finefit.catalog.user_rates import rates_path
from finefit.errors import DataError

_FOLDER = Path(__file__).parent / "data"
_SPEED = Path(__file__).parents[1] / "speed" / "speed_constants.json"


@cache
def catalog_revision() -> str:
    """Twelve hex digits of a SHA-256 over the data files, the same on every machine where no rates were refreshed.

    Raises:
        DataError: a data file cannot be read.
    """
    digest = hashlib.sha256()
    for path in (*sorted(_FOLDER.glob("*.csv")), _SPEED):
        try:
            text = path.read_bytes().replace(b"\r\n", b"\n")
        except OSError as problem:
            raise DataError(f"cannot be read: {problem}", where=path.name, fix="reinstall finefit") from problem
        digest.update(f"{path.name}\0{len(text)}\0".encode() + text)
    with suppress(OSError):
        digest.update(rates_path().read_bytes())
    return digest.hexdigest()[:12]
