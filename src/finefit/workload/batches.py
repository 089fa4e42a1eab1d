"""What batches of samples of different lengths hold: padded in random order, grouped by length, and packed."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from math import ceil

import numpy as np
import numpy.typing as npt

Lengths = npt.NDArray[np.int64]
_MEGABATCHES = 50  # transformers 5.24.0 trainer_pt_utils.py get_length_grouped_indices: min(n // (batch * 4), 50)


@dataclass(frozen=True, slots=True)
class Batching:
    """One way to make batches.

    Attributes:
        longest_batch: tokens of the largest micro-batch, with padding.
        epoch_tokens: tokens of one pass over the data, with padding: what is computed on.
    """

    longest_batch: int
    epoch_tokens: int


def percentile(ordered: Lengths, share: float) -> int:
    """The smallest length that this share of samples does not exceed (nearest rank); ``ordered`` ascending."""
    return int(ordered[max(1, ceil(share * len(ordered))) - 1])


def histogram(ordered: Lengths) -> list[tuple[int, int, int]]:
    """(from, to, samples) by powers of two, without the empty ones at the ends; bounds included."""
    top = int(ordered[-1]).bit_length()
    low = int(ordered[0]).bit_length()
    bounds = [2**i for i in range(low - 1, top + 1)]
    at = np.searchsorted(ordered, bounds)
    return [(a, b - 1, int(j - i)) for a, b, i, j in zip(bounds, bounds[1:], at, at[1:], strict=False)]


def padded(ordered: Lengths, batch: int) -> Batching:
    """Random batches, each padded to its longest sample: the expectation over all orders, exactly.

    Of ``batch`` samples drawn without repetition none is beyond rank i with the probability
    prod_j (i - j) / (n - j); the mean of the longest follows. A last smaller batch counts as a whole one does.
    """
    n = len(ordered)
    batch_ = min(batch, n)
    ranks = np.arange(1, n + 1, dtype=np.float64)
    below = np.ones(n)
    for j in range(batch_):
        below *= np.maximum(ranks - j, 0) / (n - j)
    chance = np.diff(below, prepend=0.0)
    return Batching(batch_ * int(ordered[-1]), round(n * float(chance @ ordered)))


def grouped(lengths: Lengths, batch: int) -> Batching:
    """``group_by_length``: groups of 50 batches in random order, each sorted, then cut into batches.

    One order is drawn, always the same; the longest sample is put into the first batch.
    """
    n = len(lengths)
    group = max(1, min(n // (batch * 4), _MEGABATCHES)) * batch
    order = lengths[np.random.default_rng(0).permutation(n)]
    total = 0
    for start in range(0, n, group):
        piece = np.sort(order[start : start + group])[::-1]
        longest = piece[::batch]
        total += int(longest.sum()) * batch - int(longest[-1]) * (-len(piece) % batch)
    return Batching(min(batch, n) * int(lengths.max()), total)


def packed(lengths: Lengths, batch: int, row: int) -> tuple[Batching, int]:
    """Rows of ``row`` tokens filled by best fit, longest sample first (TRL's ``bfd``, llamafactory's greedy knapsack).

    All samples are packed together; the libraries pack a thousand at a time, which takes slightly more rows.

    Args:
        lengths: none above ``row``.

    Returns:
        The batching and the number of rows.
    """
    values, counts = np.unique(lengths, return_counts=True)
    free: dict[int, int] = {}  # free tokens of a row → rows
    spaces: list[int] = []
    rows = 0
    for length, left in zip(values[::-1].tolist(), counts[::-1].tolist(), strict=True):
        while left:
            at = bisect_left(spaces, length)
            if at == len(spaces):
                space, there = row, left
            else:
                space = spaces[at]
                there = free[space]
            each = min(space // length, left)  # the fullest row that takes it stays the fullest until it is full
            used = min(there, left // each)
            left -= used * each
            if space == row and at == len(spaces):
                rows += used
            else:
                free[space] -= used
                if not free[space]:
                    del free[space]
                    spaces.pop(at)
            rest = space - each * length
            if rest:
                if rest not in free:
                    insort(spaces, rest)
                free[rest] = free.get(rest, 0) + used
    return Batching(min(batch, rows) * row, rows * row), rows
