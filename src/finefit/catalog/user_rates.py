"""Exchange rates that ``finefit rates refresh`` has taken: a CSV file in the user's data folder."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from finefit.errors import InputError

FIELDS = ("date", "base", "quote", "rate", "source", "licence")
FILE = "rates.csv"


def rates_path() -> Path:
    """Where they are kept."""
    import platformdirs

    return Path(platformdirs.user_data_dir("finefit", appauthor=False)) / FILE


def user_rows() -> list[dict[str, str]]:
    """The rows, oldest first; none where nothing was refreshed.

    Raises:
        InputError: the file cannot be read or lacks a column.
    """
    path = rates_path()
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as problem:
        raise _damaged(path, f"the exchange rates cannot be read: {problem}") from None
    rows = list(csv.DictReader(io.StringIO(text)))
    if any(None in row or None in row.values() for row in rows) or (rows and set(rows[0]) != set(FIELDS)):
        raise _damaged(path, "a row of exchange rates has too many or too few fields")
    return rows


def keep(rows: Iterable[dict[str, str]]) -> int:
    """Add rows; of the same day and currencies the newer one stays. The number of rows then.

    The file is replaced as a whole, so that a kill leaves the old one or the new one; two writers wait for each other.

    Raises:
        InputError: the old file is damaged, or the folder cannot be written.
    """
    path = rates_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _alone(path.with_suffix(".lock")):
            known = {(row["date"], row["base"], row["quote"]): row for row in (*user_rows(), *rows)}
            new = path.with_suffix(f".{os.getpid()}.new")
            with new.open("w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
                writer.writeheader()
                writer.writerows(known[key] for key in sorted(known))
            new.replace(path)
    except OSError as problem:
        raise InputError(f"the exchange rates cannot be kept: {problem}", where=str(path), fix="free it") from None
    return len(known)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        try:
            import fcntl
        except ImportError:  # Windows: the last of two writers at once wins
            yield
            return
        fcntl.flock(lock, fcntl.LOCK_EX)  # given back when the file is closed, or the process dies
        yield


def _damaged(path: Path, what: str) -> InputError:
    return InputError(what, where=str(path), fix="remove the file and run finefit rates refresh")
