"""Replay of a Timeline through the caching allocator: what it reserves, and the least it needs.

The allocator itself is ``memory.segments``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from finefit.errors import InputError
from finefit.memory.segments import LARGE_SEGMENT, ROUND_LARGE, Allocator, Block, OutOfMemoryError
from finefit.memory.timeline import Timeline
from finefit.step.size import BLOCK, Dims


@dataclass(frozen=True, slots=True)
class Replay:
    """What the allocator did with one Timeline.

    Attributes:
        allocated: peak bytes in used blocks, the unsplit tail of a block included
            (torch.cuda.max_memory_allocated counts it too).
        reserved: peak bytes of segments (torch.cuda.max_memory_reserved).
        total: peak of reserved plus what lies outside the allocator (pool "outside").
        ok: no request failed; when False the three figures stop at the request that failed.
        retries: requests that succeeded only after cached segments were given back (num_alloc_retries).
    """

    allocated: int
    reserved: int
    total: int
    ok: bool
    retries: int


def replay(
    timeline: Timeline,
    dims: Dims,
    *,
    capacity: int | None = None,
    expandable_segments: bool = False,
    max_split_size: int | None = None,
    lengths: Sequence[int] = (),
) -> Replay:
    """Play a Timeline's allocations and frees through the allocator.

    Args:
        timeline: events of one rank; tensors of pool "managed" and "host" take no device memory.
        dims: the point at which the sizes are taken.
        lengths: tokens of the longest row of earlier batches: the last step is played once for each,
            in order, before it is played at ``dims``. Batches of many lengths leave cached blocks behind
            that longer ones cannot use, so they reserve more than a run of the longest batch alone.
        capacity: bytes of the device left to the process; None: no limit.
        expandable_segments: PYTORCH_ALLOC_CONF=expandable_segments:True.
        max_split_size: bytes of max_split_size_mb; None: the default, unlimited.

    Raises:
        InputError: max_split_size is not above 20 MiB, or ``lengths`` are given for a Timeline whose last
            step does not end with what it began with.
    """
    blocks = None if capacity is None else capacity // BLOCK
    requests = _requests(timeline, dims, lengths)
    return _run(requests, blocks, expandable_segments, _max_split(max_split_size))


def required(
    timeline: Timeline,
    dims: Dims,
    *,
    expandable_segments: bool = False,
    max_split_size: int | None = None,
    lengths: Sequence[int] = (),
) -> int:
    """Smallest capacity in bytes at which the replay survives, found by bisection in steps of 2 MiB.

    Survival is not strictly monotone in the capacity (best fit is no optimal packing), so this is a
    capacity that survives while 2 MiB less does not; it lies between the tensors' peak and ``reserved``.
    """
    requests = _requests(timeline, dims, lengths)
    max_split = _max_split(max_split_size)
    free = _run(requests, None, expandable_segments, max_split)
    high = -(-free.total // (ROUND_LARGE * BLOCK))  # survives; both ends in steps of 2 MiB
    low = (_peak(requests) - 1) // ROUND_LARGE  # below the tensors' peak: cannot survive
    while high - low > 1:
        middle = (low + high) // 2
        if _run(requests, middle * ROUND_LARGE, expandable_segments, max_split).ok:
            high = middle
        else:
            low = middle
    return high * ROUND_LARGE * BLOCK


def _max_split(nbytes: int | None) -> int | None:
    """AllocatorConfig.h parseMaxSplitSize refuses sizes up to one large segment."""
    if nbytes is None:
        return None
    if nbytes <= LARGE_SEGMENT * BLOCK:
        raise InputError(f"max_split_size of {nbytes} bytes is too small", fix="give more than 20 MiB, or none")
    return nbytes // BLOCK


# tensor (>= 0 allocates, ~tensor frees), blocks, stream, outside
_Request = tuple[int, int, int, bool]


def _requests(timeline: Timeline, dims: Dims, lengths: Sequence[int]) -> list[_Request]:
    """The events that touch device memory, sizes in blocks; empty tensors take none."""
    start = _last_step(timeline) if lengths else 0
    points = [replace(dims, s=s) for s in lengths] + [dims]
    requests: list[_Request] = []
    for number, point in enumerate(points):
        known: dict[tuple[int, int, tuple[str, ...], bool], int] = {}  # plain tuples hash faster than sizes
        taken: list[tuple[int, int, bool]] = []
        for tensor in timeline.tensors:
            size = tensor.size
            key = (size.itemsize, size.numel, size.symbols, size.sharded)
            blocks = known.get(key)
            if blocks is None:
                blocks = known[key] = size.block(point) // BLOCK
            held = tensor.pool in ("device", "outside")
            taken.append((blocks if held else 0, tensor.stream, tensor.pool == "outside"))
        for event in timeline.events[start if number else 0 :]:
            count, stream, outside = taken[event if event >= 0 else ~event]
            if count:
                requests.append((event, count, stream, outside))
    return requests


def _last_step(timeline: Timeline) -> int:
    """Event at which the last optimizer step begins; it must free all that it allocates."""
    step = max(mark.step for mark in timeline.marks)
    start = min(mark.start for mark in timeline.marks if mark.step == step)
    live: set[int] = set()
    for event in timeline.events[start:]:
        if event >= 0:
            live.add(event)
        elif ~event in live:
            live.remove(~event)
        else:
            live.add(event)  # frees a tensor older than the step
    if live:
        raise InputError(
            "the timeline's last step cannot be repeated: it leaves tensors behind or frees older ones",
            fix="give a timeline of steady steps, or no lengths",
        )
    return start


def _peak(requests: list[_Request]) -> int:
    """Peak of the requested blocks: no capacity below it can survive."""
    return max(accumulate((size if event >= 0 else -size for event, size, _, _ in requests), initial=0))


def _run(requests: list[_Request], capacity: int | None, expandable: bool, max_split: int | None) -> Replay:
    device = Allocator(capacity, expandable, max_split)
    held: dict[int, Block] = {}
    ok = True
    try:
        for event, size, stream, outside in requests:
            if event >= 0:
                if outside:
                    device.take_outside(size)
                else:
                    held[event] = device.malloc(size, stream)
            elif outside:
                device.outside -= size
            else:
                device.free(held.pop(~event))
    except OutOfMemoryError:
        ok = False
    return Replay(
        allocated=device.peak_allocated * BLOCK,
        reserved=device.peak_reserved * BLOCK,
        total=device.peak_total * BLOCK,
        ok=ok,
        retries=device.retries,
    )
