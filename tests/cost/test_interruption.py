"""Best checkpoint interval and waste against the papers' formulas and worked figures."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from finefit.cost.bill import Span
from finefit.cost.interruption import best_interval, hours_between, interruption, waste, write_hours

WRITE, RESTART = 5 / 60, 0.5  # hours


@pytest.mark.parametrize(
    ("mean", "interval", "share"), [(3270, 23, 0.007), (100, 4.1, 0.047), (24, 2.0, 0.107), (6, 1.0, 0.264)]
)
def test_worked_figures(mean: float, interval: float, share: float) -> None:
    """Writes of 5 minutes, restarts of 30, at Young's interval √(2δM), to the figures' own digits."""
    young = math.sqrt(2 * WRITE * mean)
    assert young == pytest.approx(interval, rel=0.02)
    assert waste(WRITE, young, RESTART, mean) == pytest.approx(share, abs=0.0007)


def test_daly_is_youngs_interval_to_first_order() -> None:
    assert best_interval(0.001, 1000) == pytest.approx(math.sqrt(2 * 0.001 * 1000), rel=0.002)
    assert best_interval(3, 1) == 1  # no optimum: a write takes longer than the machine lasts


@given(st.floats(0.001, 0.5), st.floats(2, 10_000), st.floats(0.2, 5))
def test_the_interval_wastes_least(write: float, mean: float, factor: float) -> None:
    best = best_interval(write, mean)
    exact = waste(write, math.sqrt(2 * write * mean), 0.1, mean)
    assert waste(write, best * factor, 0.1, mean) >= exact - 1e-12
    assert waste(write, best, 0.1, mean) == pytest.approx(exact, rel=0.05)


@given(st.floats(0.01, 1), st.floats(5, 500))
def test_rarer_interruptions_waste_less(write: float, mean: float) -> None:
    def share(each: float) -> Decimal:
        return interruption(Span.of(each, each, each), Span.of(write, write, write), Span.of(0, 0, 0), "").waste.likely

    assert share(2 * mean) < share(mean)


def test_failures_of_hardware_and_of_spot() -> None:
    """Llama 3: 419 unexpected stops in 54 days of 16,384 GPUs are one every three hours."""
    mean, _ = hours_between("on-demand", 16_384) or (None, "")
    assert mean is not None and float(mean.likely) == pytest.approx(54 * 24 / 419, rel=1e-6)
    spot, why = hours_between("spot", 8) or (None, "")
    assert spot is not None and (spot.low, spot.high) == (6, 24) and "assumed" in why
    assert hours_between("community", 1) is None


def test_a_checkpoint_of_30_gb_takes_half_a_minute_at_a_gigabyte_a_second() -> None:
    assert float(write_hours(30 * 10**9).likely) * 3600 == pytest.approx(30)
