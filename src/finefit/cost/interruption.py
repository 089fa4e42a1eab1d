"""What interruptions waste, and how often to save.

    waste = δ/τ + (τ/2 + δ + R)/M        writing, and for each interruption half an interval, a write and a restart

with δ the time a checkpoint takes to write, τ the time between two, R the time to start again and M the mean time
between interruptions (Young 1974, CACM 17(9); Daly 2006, FGCS 22(3), whose higher-order optimum is used).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal

from finefit.cost.bill import Span
from finefit.units import GB

# 419 unexpected interruptions in 54 days on 16,384 H100 (Llama 3, Dubey 2024, arXiv 2407.21783, section 3.3.4).
FAILURE_GPU_HOURS = 16_384 * 54 * 24 / 419
# Assumed of spot machines, and shown as assumed: hours until one is taken away where bids decide, short, likely and
# long. No provider publishes them for a GPU; a measured figure replaces them (--hours-between-interruptions).
SPOT_HOURS = (6.0, 12.0, 24.0)
# Bytes a second at which a node writes a checkpoint: network volumes and object stores 0.2 to 1 GB/s, local NVMe up to
# 3 GB/s (providers' documentation collected in 2026-11).
WRITE_RATES = (0.2 * GB, 1.0 * GB, 3.0 * GB)


@dataclass(frozen=True, slots=True)
class Interruption:
    """What is known of a run's interruptions.

    Attributes:
        mean_hours: hours between two on all its GPUs together.
        interval: hours between two checkpoints that waste least.
        waste: share of the run's time that is spent again, with the ends of its interval.
        source: where ``mean_hours`` comes from.
    """

    mean_hours: Span
    write_hours: Span
    restart_hours: Span
    interval: float
    waste: Span
    source: str


def best_interval(write: float, mean: float) -> float:
    """Time between two checkpoints that wastes least, in the unit of its arguments (Daly 2006, equation 37).

    Where writing takes longer than twice the mean time between interruptions there is no optimum: the mean itself.
    """
    if write >= 2 * mean:
        return mean
    root = math.sqrt(2 * write * mean)
    return root * (1 + math.sqrt(write / (2 * mean)) / 3 + write / (18 * mean)) - write


def waste(write: float, interval: float, restart: float, mean: float) -> float:
    """Share of useful time that interruptions add, to first order; all arguments in one unit of time."""
    return write / interval + (interval / 2 + write + restart) / mean


def interruption(mean: Span, write: Span, restart: Span, source: str) -> Interruption:
    """Waste at the interval that is best for the likely figures; its low end with everything at its best."""
    interval = best_interval(float(write.likely), float(mean.likely))

    def share(each_write: Decimal, each_restart: Decimal, each_mean: Decimal) -> float:
        return waste(float(each_write), interval, float(each_restart), float(each_mean))

    ends = Span.of(
        share(write.low, restart.low, mean.high),
        share(write.likely, restart.likely, mean.likely),
        share(write.high, restart.high, mean.low),
    )
    return Interruption(mean, write, restart, interval, ends, source)


def write_hours(checkpoint: int) -> Span:
    """Hours to write so many bytes, from the fastest to the slowest storage."""
    slow, likely, fast = WRITE_RATES
    return Span.of(*(checkpoint / rate / 3600 for rate in (fast, likely, slow)))


def hours_between(kind: str, gpus: int, machines: int = 1) -> tuple[Span, str] | None:
    """Mean hours between interruptions of a run; None where nobody knows (community hosts).

    Args:
        kind: terms of the offer; gpus: of the whole run; machines: any one taken away stops it.
    """
    if kind == "spot":
        low, likely, high = (hours / machines for hours in SPOT_HOURS)
        return Span.of(low, likely, high), "assumed of spot machines: one is taken away every 6 to 24 hours"
    if kind == "community":
        return None
    mean = FAILURE_GPU_HOURS / gpus
    return Span.exact(Decimal(f"{mean:.9g}")), "hardware failures as in the Llama 3 run: one in 50,676 GPU-hours"
