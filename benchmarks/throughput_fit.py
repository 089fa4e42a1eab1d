"""Fitting the constants of the time model to measured steps, whole or with rows left out.

One robust Gauss-Newton on logarithms: residual ln(predicted/measured), pseudo-Huber with its bend at 6 %, the rows of
a source weighed down to the weight of 40, and for each constant a normal prior on its logarithm, inside physical
bounds. A fit starts from the centres of the priors. Stages follow each other: dense 16-bit runs fix all that they
touch, then 8- and 4-bit runs, mixtures of experts and runs with offload fix the constants that only they touch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, fields
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finefit.speed.constants import entry, table
from finefit.speed.roofline import SLOTS, Load, parts
from finefit.speed.steptime import Asked

Array = NDArray[np.float64]
STAGES = ("dense 16-bit", "fp8", "moe", "offload")
_BEND = 0.06
_FULL_WEIGHT = 40  # rows of a source that count in full
_PASSES = 30
_FIXES = 0.02  # a row fixes a constant where a relative change of it moves the row's time by this much of it


@dataclass(frozen=True, slots=True)
class Measured:
    """A row ready for the fit; ``kind`` is the stage it belongs to."""

    id: str
    source: str
    model: str
    kind: str
    asked: Asked
    seconds: float


class Fit:
    """The formula over many rows at once, and its constants; those in ``known`` are held."""

    def __init__(self, rows: Sequence[Measured], known: Mapping[str, float]) -> None:
        self.rows = rows
        self.keys = sorted({rate.key for row in rows for rate in row.asked.rates.values()})
        index = {key: at for at, key in enumerate(self.keys)}
        columns = {f.name: np.array([getattr(row.asked.load, f.name) for row in rows], float) for f in fields(Load)}
        self._load: Any = SimpleNamespace(**columns)
        self._at = {slot: np.array([index[row.asked.rates[slot].key] for row in rows], int) for slot in SLOTS}
        self._scale = {slot: np.array([row.asked.rates[slot].scale for row in rows]) for slot in SLOTS}
        self.measured = np.array([row.seconds for row in rows])
        found = [entry(*key.split(".")) for key in self.keys]
        self._held = np.array([known.get(key, each["value"]) for key, each in zip(self.keys, found, strict=True)])
        free = [at for at, each in enumerate(found) if "prior" in each and self.keys[at] not in known]
        self.free = np.array(free, dtype=int)
        self.centre = np.log([found[at]["prior"][0] for at in free])
        self._sigma = np.array([found[at]["prior"][1] for at in free])
        self._low, self._high = (np.log([found[at]["bounds"][end] for at in free]) for end in (0, 1))

    def seconds(self, theta: Array) -> Array:
        """Predicted seconds of every row with the free constants at exp(theta)."""
        values = self._held.copy()
        values[self.free] = np.exp(theta)
        rate = SimpleNamespace(**{slot: values[self._at[slot]] * self._scale[slot] for slot in SLOTS})
        return np.asarray(sum(parts(self._load, rate).values()), dtype=np.float64)

    def solve(self, kept: NDArray[np.bool_] | None = None) -> Array:
        """Logarithms of the free constants that fit the kept rows."""
        kept = np.ones(len(self.rows), bool) if kept is None else kept
        weight = self._weights(kept)
        theta, damping = self.centre.copy(), 1e-3
        cost, residual = self._cost(theta, weight)
        for _ in range(_PASSES):
            slope = self.slopes(theta)
            robust = weight / np.sqrt(1 + (residual / _BEND) ** 2) / _BEND**2
            normal = slope.T @ (robust[:, None] * slope) + np.diag(self._sigma**-2)
            gradient = slope.T @ (robust * residual) + (theta - self.centre) / self._sigma**2
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), gradient)
            trial = np.clip(theta - step, self._low, self._high)
            lower, there = self._cost(trial, weight)
            if lower >= cost:
                damping *= 10
                continue
            small = cost - lower < 1e-7 * cost
            theta, cost, residual, damping = trial, lower, there, damping / 5
            if small:
                break
        return theta

    def slopes(self, theta: Array) -> Array:
        """d ln(seconds)/d theta, rows by free constants."""
        base, step = np.log(self.seconds(theta)), 1e-4
        if not len(theta):
            return np.zeros((len(self.rows), 0))
        return np.stack([(np.log(self.seconds(theta + each)) - base) / step for each in np.eye(len(theta)) * step], 1)

    def touched(self, theta: Array, kept: NDArray[np.bool_] | None = None) -> dict[str, float]:
        """Constants that any kept row depends on, at their fitted values."""
        slope = np.abs(self.slopes(theta))
        slope = slope if kept is None else slope[kept]
        moves = slope.max(axis=0, initial=0.0) > 1e-6
        return {self.keys[at]: float(np.exp(x)) for at, x, m in zip(self.free, theta, moves, strict=True) if m}

    def _weights(self, kept: NDArray[np.bool_]) -> Array:
        counts = Counter(row.source for row, keep in zip(self.rows, kept, strict=True) if keep)
        return np.array([min(1.0, _FULL_WEIGHT / max(1, counts[row.source])) ** 0.5 for row in self.rows]) * kept

    def _cost(self, theta: Array, weight: Array) -> tuple[float, Array]:
        residual = np.log(self.seconds(theta) / self.measured)
        robust = np.sum(weight * 2 * (np.sqrt(1 + (residual / _BEND) ** 2) - 1))
        return float(robust + np.sum(((theta - self.centre) / self._sigma) ** 2)), residual


def refit(rows: Sequence[Measured]) -> dict[str, float]:
    """Every fitted constant, stage after stage."""
    known: dict[str, float] = {}
    for stage in STAGES:
        mine = [row for row in rows if row.kind == stage]
        if mine:
            fit = Fit(mine, known)
            known |= fit.touched(fit.solve())
    return known


def left_out(rows: Sequence[Measured], group: Callable[[Measured], Hashable]) -> Array:
    """Seconds of each row predicted by a refit of all constants that saw no row of its group."""
    names = [group(row) for row in rows]
    out = np.zeros(len(rows))
    for name in dict.fromkeys(names):
        known = refit([row for row, each in zip(rows, names, strict=True) if each != name])
        mine = [at for at, each in enumerate(names) if each == name]
        fit = Fit([rows[at] for at in mine], known)
        out[mine] = fit.seconds(fit.centre)  # what no other row touches stays at its prior
    return out


def fitted_table(rows: Sequence[Measured]) -> dict[str, Any]:
    """The constants file with fitted values and, by source, the rows that fixed each."""
    out, known = deepcopy(table()), {}
    for stage in STAGES:
        mine = [row for row in rows if row.kind == stage]
        if not mine:
            continue
        fit = Fit(mine, known)
        theta = fit.solve()
        slope, touched = np.abs(fit.slopes(theta)), fit.touched(theta)
        known |= touched
        for column, at in enumerate(fit.free):
            if fit.keys[at] in touched:
                _put(out, fit.keys[at], touched[fit.keys[at]], mine, slope[:, column] >= _FIXES)
    return out


def _put(out: dict[str, Any], key: str, value: float, rows: Sequence[Measured], fixes: NDArray[np.bool_]) -> None:
    node: Any = out
    for name in key.split("."):
        node = node[name]
    node["value"] = float(f"{value:.4g}")
    counts = Counter(row.source for row, fixed in zip(rows, fixes, strict=True) if fixed)
    node["rows"] = dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
