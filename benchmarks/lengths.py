"""Batch lengths of a run whose rows are padded to the longest of their batch.

Such a run reserves more than a run of the longest batch alone: cached blocks of shorter batches do not
hold the tensors of longer ones. A row's figure of reserved memory is therefore the replay of a few
batches of different lengths, the longest last.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

# Batches before the longest one. Nothing fixes the number but the count of records (batches longer than all
# before) among a few hundred shuffled ones, which is what makes the reserve grow. It was chosen with the ms-swift
# rows in view, and is the only such number in this harness: the replay does not converge (docs/accuracy.md).
EARLIER = 7


def earlier_batches(row: Mapping[str, str], seq_len: int, assumed: list[str]) -> tuple[int, ...]:
    """Tokens of the longest row in earlier batches, evenly spread over the lengths in bit-reversed order.

    Lengths are spread uniformly up to the limit or, where the row states their mean before the cut,
    exponentially with that mean: of all spreads with a given mean the one that assumes least.
    Empty where every batch has one length, or the framework empties the cache between batches.
    """
    text = row.get("seq_handling", "").lower()
    varied = re.search(r"longest in batch|padded to (the )?longest|dynamic", text)
    if not varied or re.match(r"packed|fixed", text) or "empty_cache" in row.get("metric2", ""):
        return ()
    stated = re.search(r"mean (\d+)", text)
    if stated is None:
        assumed.append("batch lengths spread evenly up to the limit")
        return tuple(max(1, int(u * seq_len)) for u in _spread())
    mean = float(stated[1])
    assumed.append("batch lengths spread exponentially around their stated mean, up to the limit")
    covered = 1 - math.exp(-seq_len / mean)
    return tuple(max(1, int(-mean * math.log(1 - u * covered))) for u in _spread())


def _spread() -> list[float]:
    """The van der Corput sequence in base 2: 1/2, 1/4, 3/4, 1/8, ..."""
    points = []
    for number in range(1, EARLIER + 1):
        bits = f"{number:b}"[::-1]
        points.append(int(bits, 2) / 2 ** len(bits))
    return points
