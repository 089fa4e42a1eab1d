"""Batches of samples of different lengths, against every possible draw and against bounds."""

from __future__ import annotations

from itertools import combinations
from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from finefit.workload.batches import grouped, histogram, packed, padded, percentile

_LENGTHS = st.lists(st.integers(1, 200), min_size=1, max_size=60)


@pytest.mark.parametrize("batch", [1, 2, 3, 5])
def test_padding_is_the_mean_over_every_batch_that_can_be_drawn(batch):
    lengths = [3, 3, 7, 20, 41, 90]
    longest = [max(each) for each in combinations(lengths, batch)]
    found = padded(np.array(lengths), batch)
    assert found.epoch_tokens == round(len(lengths) * sum(longest) / len(longest))
    assert found.longest_batch == batch * 90


@given(_LENGTHS, st.integers(1, 9))
def test_no_way_of_batching_computes_less_than_the_tokens(lengths, batch):
    ordered = np.sort(np.array(lengths))
    total = sum(lengths)
    assert padded(ordered, batch).epoch_tokens >= total
    assert total <= grouped(np.array(lengths), batch).epoch_tokens <= len(lengths) * max(lengths)


@given(_LENGTHS, st.integers(0, 100))
def test_packed_rows_hold_every_token_and_need_no_more_rows_than_samples(lengths, more):
    row = max(lengths) + more
    batching, rows = packed(np.array(lengths), 2, row)
    assert ceil(sum(lengths) / row) <= rows <= len(lengths)
    assert batching.epoch_tokens == rows * row


@given(_LENGTHS, st.integers(0, 100))
def test_packing_many_equal_samples_at_once_is_packing_them_one_by_one(lengths, more):
    row = max(lengths) + more
    free: list[int] = []
    for length in sorted(lengths, reverse=True):
        best = min((space for space in free if space >= length), default=None)
        if best is None:
            free.append(row - length)
        else:
            free.remove(best)
            free.append(best - length)
    assert packed(np.array(lengths), 1, row)[1] == len(free)


@given(_LENGTHS)
def test_the_histogram_counts_every_sample(lengths):
    ordered = np.sort(np.array(lengths))
    bins = histogram(ordered)
    assert [n for _, _, n in bins] == [sum(a <= length <= b for length in lengths) for a, b, _ in bins]
    assert sum(n for _, _, n in bins) == len(lengths)


def test_percentiles_by_nearest_rank():
    ordered = np.array([15, 20, 35, 40, 50])  # Wikipedia, "Percentile", the nearest-rank method: 30th is 20, 40th 20
    assert [percentile(ordered, share) for share in (0.05, 0.3, 0.4, 0.5, 1.0)] == [15, 20, 20, 35, 50]
