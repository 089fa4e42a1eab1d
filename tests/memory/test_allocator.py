"""The allocator replay against scenarios worked by hand from the rules of CUDACachingAllocator.cpp (torch 2.13)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from finefit.errors import InputError
from finefit.memory.allocator import replay, required
from finefit.memory.timeline import Mark, Tensor, Timeline
from finefit.step.size import Dims, Size, fixed
from finefit.units import KIB, MIB

HERE = Dims(b=1, s=1)
few = settings(max_examples=100, deadline=None)


def timeline(*script: tuple[str, float | int], pool: dict[str, str] | None = None) -> Timeline:
    """("a", 3 * MIB) allocates 3 MiB as "a"; ("-a", 0) frees it; a name "a@1" lives on stream 1."""
    tensors: list[Tensor] = []
    events: list[int] = []
    index: dict[str, int] = {}
    for name, size in script:
        if name.startswith("-"):
            events.append(~index[name[1:]])
            continue
        index[name] = len(tensors)
        events.append(len(tensors))
        stream = int(name.partition("@")[2] or 0)
        where = (pool or {}).get(name, "device")
        tensors.append(Tensor(fixed(int(size)), "buffers", "forward", name, stream=stream, pool=where))
    return Timeline(tuple(tensors), tuple(events), (Mark(0, "forward", 2),))


@pytest.mark.parametrize(
    ("nbytes", "allocated", "reserved"),
    [
        (1, 512, 2 * MIB),  # kMinBlockSize; small pool
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),  # kSmallSize itself is still small
        (MIB + 1, MIB + 512, 20 * MIB),  # kLargeBuffer
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),  # kMinLargeAlloc: the request itself
        (11 * MIB + 1, 12 * MIB, 12 * MIB),  # kRoundLarge; the tail of at most 1 MiB is not split off
        (11 * MIB - 512, 12 * MIB - MIB - 512, 12 * MIB),  # a tail of 1 MiB + 512 B is
        (8_519_680, 8_519_680, 20 * MIB),  # a cuBLAS workspace costs a 20 MiB segment
    ],
)
def test_one_request(nbytes: int, allocated: int, reserved: int) -> None:
    result = replay(timeline(("a", nbytes)), HERE)
    assert (result.allocated, result.reserved, result.total) == (allocated, reserved, reserved)
    assert result.ok
    assert result.retries == 0


def test_empty_tensors_and_other_pools_take_nothing() -> None:
    script = timeline(("a", 0), ("b", 5 * MIB), ("c", 5 * MIB), pool={"b": "managed", "c": "host"})
    assert replay(script, HERE).reserved == 0
    assert required(script, HERE) == 0


def test_small_and_large_requests_do_not_share_segments() -> None:
    # 20 MiB - 2 MiB of the large segment lie free, yet 1 MiB goes to its own small segment.
    assert replay(timeline(("a", 2 * MIB), ("b", MIB)), HERE).reserved == 22 * MIB
    assert replay(timeline(("a", MIB), ("b", MIB)), HERE).reserved == 2 * MIB
    assert replay(timeline(("a", MIB), ("b", MIB), ("c", 1)), HERE).reserved == 4 * MIB


def test_unsplit_tail_counts_as_allocated() -> None:
    # 9.5 + 9.5 of 20 MiB leave exactly 1 MiB, which is not more than kSmallSize: the second block keeps it.
    result = replay(timeline(("a", 9.5 * MIB), ("b", 9.5 * MIB)), HERE)
    assert (result.allocated, result.reserved) == (20 * MIB, 20 * MIB)


def test_neighbours_coalesce() -> None:
    three = [("a", 6 * MIB), ("b", 6 * MIB), ("c", 6 * MIB)]
    # a and b are neighbours: 12 MiB in one piece hold 9 MiB.
    assert replay(timeline(*three, ("-a", 0), ("-b", 0), ("d", 9 * MIB)), HERE).reserved == 20 * MIB
    # a alone is 6 MiB, c with the 2 MiB tail is 8 MiB: 9 MiB need another segment.
    assert replay(timeline(*three, ("-a", 0), ("-c", 0), ("d", 9 * MIB)), HERE).reserved == 40 * MIB
    assert replay(timeline(*three, ("-a", 0), ("-c", 0), ("d", 8 * MIB)), HERE).reserved == 20 * MIB


def test_best_fit_takes_the_smallest_block_that_holds() -> None:
    # Free: 40 and 30 MiB. 30 MiB goes to the 30 MiB block, so 40 MiB still fits: 70 MiB in all.
    script = [("a", 40 * MIB), ("b", 30 * MIB), ("-a", 0), ("-b", 0), ("c", 30 * MIB), ("d", 40 * MIB)]
    assert replay(timeline(*script), HERE).reserved == 70 * MIB
    # 25 MiB splits the 30 MiB block; 32 MiB then needs the 40 MiB one.
    script = [("a", 40 * MIB), ("b", 30 * MIB), ("-a", 0), ("-b", 0), ("c", 25 * MIB), ("d", 32 * MIB)]
    assert replay(timeline(*script), HERE).reserved == 70 * MIB


def test_streams_have_their_own_pools() -> None:
    assert replay(timeline(("a", 12 * MIB), ("-a", 0), ("b", 12 * MIB)), HERE).reserved == 12 * MIB
    assert replay(timeline(("a", 12 * MIB), ("-a", 0), ("b@1", 12 * MIB)), HERE).reserved == 24 * MIB


def test_pressure_gives_cached_segments_back() -> None:
    script = timeline(("a", 60 * MIB), ("-a", 0), ("b", 90 * MIB))
    free = replay(script, HERE)
    assert (free.reserved, free.retries) == (150 * MIB, 0)
    pressed = replay(script, HERE, capacity=100 * MIB)
    assert (pressed.ok, pressed.reserved, pressed.retries) == (True, 90 * MIB, 1)
    assert required(script, HERE) == 90 * MIB
    assert not replay(script, HERE, capacity=90 * MIB - 512).ok


def test_a_split_segment_cannot_be_given_back() -> None:
    # 2 MiB live in the middle of the only segment: its 58 free MiB stay reserved.
    script = timeline(("a", 30 * MIB), ("-a", 0), ("b", 2 * MIB), ("c", 40 * MIB))
    assert replay(script, HERE).reserved == 70 * MIB
    assert required(script, HERE) == 70 * MIB


def test_memory_outside_the_allocator_counts_against_the_capacity() -> None:
    script = timeline(("a", 30 * MIB), ("-a", 0), ("nccl", 16 * MIB), pool={"nccl": "outside"})
    result = replay(script, HERE)
    assert (result.reserved, result.total) == (30 * MIB, 46 * MIB)
    assert not replay(script, HERE, capacity=40 * MIB).ok  # nobody releases the cached 30 MiB for it
    assert required(script, HERE) == 46 * MIB


def test_expandable_segments_map_whole_pages() -> None:
    assert replay(timeline(("a", 25 * MIB)), HERE, expandable_segments=True).reserved == 40 * MIB
    assert replay(timeline(("a", 3 * KIB)), HERE, expandable_segments=True).reserved == 2 * MIB
    # 30 MiB map 40; the next 30 start in the 10 left over and map 20 more; 60 MiB reuse the range in one piece.
    script = timeline(("a", 30 * MIB), ("b", 30 * MIB), ("-a", 0), ("-b", 0), ("c", 60 * MIB))
    assert replay(script, HERE, expandable_segments=True).reserved == 60 * MIB
    assert replay(script, HERE).reserved == 120 * MIB


def test_expandable_segments_unmap_pages_under_pressure() -> None:
    # a holds pages 1-2, keep sits in page 3, both in one range; on pressure pages 1-2 go back.
    script = timeline(("a", 40 * MIB), ("keep", 10 * MIB), ("-a", 0), ("b", 60 * MIB))
    assert replay(script, HERE, expandable_segments=True).reserved == 120 * MIB  # 60 for a and keep; b maps 50 behind
    pressed = replay(script, HERE, capacity=80 * MIB, expandable_segments=True)
    assert (pressed.ok, pressed.retries) == (True, 1)
    assert pressed.reserved <= 80 * MIB


def test_max_split_size_keeps_large_blocks_whole() -> None:
    script = timeline(("a", 60 * MIB), ("-a", 0), ("b", 12 * MIB))
    assert replay(script, HERE).reserved == 60 * MIB
    assert replay(script, HERE, max_split_size=32 * MIB).reserved == 72 * MIB
    # An oversize block is given whole, but with at most 20 MiB to waste.
    near = timeline(("a", 60 * MIB), ("-a", 0), ("b", 41 * MIB))
    far = timeline(("a", 60 * MIB), ("-a", 0), ("b", 40 * MIB))
    assert replay(near, HERE, max_split_size=32 * MIB).reserved == 60 * MIB
    assert replay(far, HERE, max_split_size=32 * MIB).reserved == 100 * MIB
    # On pressure one oversize block of the stream is enough, and the other stays cached.
    two = timeline(("a", 60 * MIB), ("b", 34 * MIB), ("-a", 0), ("-b", 0), ("c", 12 * MIB), ("d", 36 * MIB))
    assert replay(two, HERE, max_split_size=32 * MIB, capacity=110 * MIB).reserved == 106 * MIB
    with pytest.raises(InputError, match="more than 20 MiB"):
        replay(script, HERE, max_split_size=20 * MIB)


def test_sizes_follow_the_point() -> None:
    tensor = Tensor(Size(2, 4096, ("b", "s")), "activations", "forward", "x")
    line = Timeline((tensor,), (0,), (Mark(0, "forward", 2),))
    assert replay(line, Dims(b=4, s=4096)).reserved == 128 * MIB
    assert replay(line, Dims(b=1, s=64)).reserved == 2 * MIB


def step_of(*tensors: Tensor) -> Timeline:
    """16 MiB of weights, then one step that makes the tensors in order and frees them all."""
    weight = Tensor(fixed(16 * MIB), "weights", "load", "parameter")
    n = len(tensors)
    events = (0, *range(1, n + 1), *(~i for i in range(1, n + 1)))
    return Timeline((weight, *tensors), events, (Mark(0, "load", 0), Mark(1, "forward", 2)))


def test_batches_of_many_lengths_leave_blocks_behind() -> None:
    # 1 MiB a token: batches of 10, 20 and 30 tokens each need a segment of their own, 40 at the end another.
    line = step_of(Tensor(Size(MIB, 1, ("s",)), "logits", "loss", "x"))
    assert replay(line, Dims(b=1, s=40)).reserved == 56 * MIB
    grown = replay(line, Dims(b=1, s=40), lengths=(10, 20, 30))
    assert grown.reserved == (16 + 10 + 20 + 30 + 40) * MIB
    assert grown.allocated == 56 * MIB
    # Falling lengths find the longest batch's block.
    assert replay(line, Dims(b=1, s=40), lengths=(40, 30, 20)).reserved == 56 * MIB
    # Pressure gives the shorter blocks back: what is needed does not change.
    assert required(line, Dims(b=1, s=40), lengths=(10, 20, 30)) == 56 * MIB


def test_lengths_need_a_step_that_can_be_repeated() -> None:
    line = timeline(("a", 4 * MIB), ("b", 4 * MIB), ("-a", 0))
    with pytest.raises(InputError, match="cannot be repeated"):
        replay(line, HERE, lengths=(8,))


@st.composite
def timelines(draw: st.DrawFn) -> Timeline:
    """Programs of allocations and frees, sizes around the allocator's thresholds."""
    size = st.one_of(
        st.integers(1, 4 * KIB),
        st.integers(MIB - 2 * KIB, MIB + 2 * KIB),
        st.integers(MIB, 24 * MIB),
        st.integers(24 * MIB, 300 * MIB),
    )
    sizes = draw(st.lists(size, min_size=1, max_size=40))
    events: list[int] = []
    live: list[int] = []
    for i in range(len(sizes)):
        events.append(i)
        live.append(i)
        for _ in range(draw(st.integers(0, 2))):
            if live:
                events.append(~live.pop(draw(st.integers(0, len(live) - 1))))
    if draw(st.booleans()):
        events += [~i for i in live]
    streams = draw(st.lists(st.sampled_from([0, 0, 0, 1]), min_size=len(sizes), max_size=len(sizes)))
    tensors = [Tensor(fixed(n), "buffers", "forward", "x", stream=k) for n, k in zip(sizes, streams, strict=True)]
    return Timeline(tuple(tensors), tuple(events), (Mark(0, "forward", 2),))


@few
@given(timelines(), st.booleans())
def test_tensors_required_reserved_are_ordered(line: Timeline, expandable: bool) -> None:
    peak = max(line.live_bytes(HERE))
    free = replay(line, HERE, expandable_segments=expandable)
    need = required(line, HERE, expandable_segments=expandable)
    assert free.ok
    assert peak <= free.allocated <= free.reserved == free.total
    assert peak <= need <= free.reserved
    assert replay(line, HERE, expandable_segments=expandable, capacity=need).ok
    assert not replay(line, HERE, expandable_segments=expandable, capacity=need - 2 * MIB).ok
    assert replay(line, HERE, expandable_segments=expandable, capacity=free.reserved) == free


@few
@given(timelines(), st.booleans())
def test_a_pressed_replay_stays_within_its_capacity(line: Timeline, expandable: bool) -> None:
    need = required(line, HERE, expandable_segments=expandable)
    pressed = replay(line, HERE, expandable_segments=expandable, capacity=need)
    assert pressed.reserved <= need
    assert max(line.live_bytes(HERE)) <= pressed.allocated <= pressed.reserved


@few
@given(timelines(), st.booleans())
def test_frees_return_everything(line: Timeline, expandable: bool) -> None:
    """After the last free, the whole device can be had in one piece."""
    freed = {~event for event in line.events if event < 0}
    close = tuple(~i for i in range(len(line.tensors)) if i not in freed)
    reserved = replay(line, HERE, expandable_segments=expandable).reserved
    device = max(1, -(-reserved // (20 * MIB))) * 20 * MIB
    whole = Tensor(fixed(device), "buffers", "forward", "whole")
    after = Timeline((*line.tensors, whole), (*line.events, *close, len(line.tensors)), line.marks)
    result = replay(after, HERE, capacity=device, expandable_segments=expandable)
    assert result.ok
    assert result.allocated == device
