"""Reading data files: what is damaged is named, and nothing is read before it is asked for."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from pathlib import Path

import pytest

from finefit.catalog._tables import parse_day, parse_number, read_rows
from finefit.errors import DataError


def test_a_damaged_file_is_our_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("finefit.catalog._tables._FOLDER", tmp_path)
    with pytest.raises(DataError, match=r"offers\.csv"):
        read_rows("offers.csv")
    (tmp_path / "offers.csv").write_text("a,b\n1,2\n3\n")
    with pytest.raises(DataError, match=r"offers\.csv:3"):
        read_rows("offers.csv")


@pytest.mark.parametrize("text", ["", "2026-13", "yesterday", "26-01-01", "2026-08-22T00:00"])
def test_what_is_no_date_is_our_error(text: str) -> None:
    with pytest.raises(DataError, match="not a date"):
        parse_day(text, where="fx.csv")


@pytest.mark.parametrize(
    ("text", "day"),
    [("2026", (2026, 1, 1)), ("2026-07", (2026, 7, 1)), ("2026-07-15", (2026, 7, 15))],
)
def test_a_month_is_its_first_day(text: str, day: tuple[int, int, int]) -> None:
    assert parse_day(text, where="fx.csv") == dt.date(*day)


@pytest.mark.parametrize("text", ["", "n/a", "1,5", "inf", "nan"])
def test_what_is_no_number_is_our_error(text: str) -> None:
    with pytest.raises(DataError, match="not a number"):
        parse_number(text, where="fx.csv")


def test_naming_a_gpu_reads_no_prices() -> None:
    code = (
        "import sys, finefit.catalog.gpus as g; g.parse_gpus('2x RTX 4090');"
        "print([m for m in sys.modules if m.startswith('finefit.catalog.') and m.split('.')[2] in"
        " ('offers', 'offer_table', 'currency', 'storage')] + [m for m in ('difflib', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
