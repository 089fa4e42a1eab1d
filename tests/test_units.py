"""Durations as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from finefit.errors import InputError
from finefit.units import parse_duration


@pytest.mark.parametrize(
    ("text", "hours"),
    [
        ("24h", 24),
        ("90min", 1.5),
        ("1d12h", 36),
        ("2 hours 30 minutes", 2.5),
        ("1.5 days", 36),
        ("24小时", 24),
        ("1天12小时", 36),
        ("3 个小时", 3),
        ("1周", 168),
        ("36hrs", 36),
    ],
)
def test_durations(text: str, hours: float) -> None:
    assert parse_duration(text) == hours * 3600


@pytest.mark.parametrize("text", ["", "24", "h", "12h1d", "1h2h", "-3h", "1d12", "三天"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(InputError):
        parse_duration(text)


@given(st.integers(0, 99), st.integers(0, 999), st.integers(1, 999))
def test_units_add_up(days: int, hours: int, minutes: int) -> None:
    assert parse_duration(f"{days}d{hours}h{minutes}m") == days * 86400 + hours * 3600 + minutes * 60
