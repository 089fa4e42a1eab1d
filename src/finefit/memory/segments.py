"""PyTorch's CUDA caching allocator, as far as sizes go: segments, blocks, splits, merges, releases.

The rules are those of ``c10/cuda/CUDACachingAllocator.cpp`` and ``c10/core/AllocatorConfig.h`` (torch
2.13); each method names the function it follows. Left out: blocks that wait for another stream
(``record_stream``), ``roundup_power2_divisions`` and ``garbage_collection_threshold``.
All sizes here are in units of 512 bytes, the allocator's own, which keeps the keys of the free lists small.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from finefit.step.size import BLOCK
from finefit.units import MIB

# AllocatorConfig.h kSmallSize, kSmallBuffer, kLargeBuffer (large_segment_size_mb), kMinLargeAlloc, kRoundLarge
SMALL = MIB // BLOCK  # largest request of the small pool
SMALL_SEGMENT = 2 * MIB // BLOCK
LARGE_SEGMENT = 20 * MIB // BLOCK
MIN_LARGE = 10 * MIB // BLOCK  # from here on a segment is the request itself, rounded up
ROUND_LARGE = 2 * MIB // BLOCK

# Key of a free block: size, then address, as BlockComparatorSize orders them. Wide enough for the requests of any
# run that can be written down (rows and lengths below 2^31, scores of rows x heads x length x length).
_ADDRESS_BITS = 128
_ADDRESS = (1 << _ADDRESS_BITS) - 1
_RANGE = 1 << 112  # addresses of one expandable segment: more than any of those runs takes
NO_LIMIT = 1 << 128


class OutOfMemoryError(Exception):
    """A request failed within the capacity."""


class Block:
    """A piece of a segment; ``prev`` and ``next`` are its neighbours by address."""

    __slots__ = ("address", "mapped", "next", "pool", "prev", "size", "used")

    def __init__(self, pool: Pool, address: int, size: int, *, mapped: bool = True) -> None:
        self.pool, self.address, self.size, self.mapped = pool, address, size, mapped
        self.prev: Block | None = None
        self.next: Block | None = None
        self.used = False


class Pool:
    """Free blocks of one stream and size class, in the order best fit searches them."""

    __slots__ = ("blocks", "free", "holes", "origin", "page")

    def __init__(self, small: bool) -> None:
        self.free: list[int] = []  # keys, sorted
        self.blocks: dict[int, Block] = {}  # free blocks by address
        self.page = SMALL_SEGMENT if small else LARGE_SEGMENT  # of the expandable segment
        self.origin = 0  # address of the expandable segment
        self.holes: list[Block] = []  # its unmapped blocks by address

    def add(self, block: Block) -> None:
        key = block.size << _ADDRESS_BITS | block.address
        insort(self.free, key)
        self.blocks[block.address] = block

    def remove(self, block: Block) -> None:
        del self.free[bisect_left(self.free, block.size << _ADDRESS_BITS | block.address)]
        del self.blocks[block.address]


def _cut(block: Block, size: int) -> Block:
    """Shorten a block to ``size`` and return the new block behind it."""
    rest = Block(block.pool, block.address + size, block.size - size, mapped=block.mapped)
    rest.prev, rest.next = block, block.next
    if rest.next is not None:
        rest.next.prev = rest
    block.next, block.size = rest, size
    return rest


def _segment(size: int) -> int:
    """get_allocation_size: the segment asked of the driver for a request."""
    if size <= SMALL:
        return SMALL_SEGMENT
    if size < MIN_LARGE:
        return LARGE_SEGMENT
    return -(-size // ROUND_LARGE) * ROUND_LARGE


class Allocator:
    """The caching allocator of one device; sizes and capacity in blocks."""

    def __init__(self, capacity: int | None, expandable: bool, max_split: int | None) -> None:
        self.capacity = NO_LIMIT if capacity is None else capacity
        self.expandable = expandable
        self.max_split = NO_LIMIT if max_split is None else max_split
        self.pools: dict[tuple[int, bool], Pool] = {}
        self.address = 0  # segments get rising addresses, as a fresh device hands them out
        self.allocated = self.reserved = self.outside = 0
        self.peak_allocated = self.peak_reserved = self.peak_total = 0
        self.retries = 0

    def malloc(self, size: int, stream: int) -> Block:
        """DeviceCachingAllocator::malloc for a request of ``size`` blocks."""
        small = size <= SMALL
        pool = self.pools.get((stream, small))
        if pool is None:
            pool = self.pools[stream, small] = Pool(small)
        block = self._best_fit(pool, size) or self._from_driver(pool, size)
        if block is None:
            self.retries += 1
            if self._release_oversize(pool, size):
                block = self._from_driver(pool, size)
            if block is None:
                self._release_all()
                block = self._from_driver(pool, size)
            if block is None:
                raise OutOfMemoryError
        rest = block.size - size
        # should_split
        if rest and (small or self.expandable or (rest > SMALL and size < self.max_split)):
            pool.add(_cut(block, size))
        block.used = True
        self.allocated += block.size
        if self.allocated > self.peak_allocated:
            self.peak_allocated = self.allocated
        return block

    def free(self, block: Block) -> None:
        """free_block: coalesce with free neighbours and return to the pool."""
        self.allocated -= block.size
        block.used = False
        self._merge(block)
        block.pool.add(block)

    def take_outside(self, size: int) -> None:
        """Memory another library takes of the driver: nobody gives cached segments back for it."""
        if self.reserved + self.outside + size > self.capacity:
            raise OutOfMemoryError
        self.outside += size
        self.peak_total = max(self.peak_total, self.reserved + self.outside)

    def _merge(self, block: Block) -> None:
        """try_merge_blocks with both neighbours; the lower address survives as ``block``."""
        before, after = block.prev, block.next
        if before is not None and not before.used and before.mapped:
            before.pool.remove(before)
            block.address, block.prev = before.address, before.prev
            block.size += before.size
            if block.prev is not None:
                block.prev.next = block
        if after is not None and not after.used and after.mapped:
            after.pool.remove(after)
            block.next = after.next
            block.size += after.size
            if block.next is not None:
                block.next.prev = block

    def _best_fit(self, pool: Pool, size: int) -> Block | None:
        """get_free_block: the smallest sufficient block, the lowest address among equals."""
        free = pool.free
        at = bisect_left(free, size << _ADDRESS_BITS)
        if at == len(free):
            return None
        if self.expandable:
            at = self._fit_expandable(pool, at)
        block = pool.blocks[free[at] & _ADDRESS]
        # An oversize block is neither split for a smaller request nor given with more than 20 MiB to waste.
        if block.size >= self.max_split and (size < self.max_split or block.size >= size + LARGE_SEGMENT):
            return None
        del free[at]
        del pool.blocks[block.address]
        return block

    @staticmethod
    def _fit_expandable(pool: Pool, at: int) -> int:
        """A free block that ends in the unmapped rest counts with the size it can grow to."""

        def room(index: int) -> int:
            block = pool.blocks[pool.free[index] & _ADDRESS]
            after = block.next
            return block.size + (after.size if after is not None and not after.mapped else 0)

        while at + 1 < len(pool.free) and room(at + 1) < room(at):
            at += 1
        return at

    def _reserve(self, size: int) -> bool:
        if self.reserved + self.outside + size > self.capacity:
            return False
        self.reserved += size
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        self.peak_total = max(self.peak_total, self.reserved + self.outside)
        return True

    def _from_driver(self, pool: Pool, size: int) -> Block | None:
        """alloc_block: a new segment, or more pages of the expandable one."""
        if self.expandable:
            return self._grow(pool, size)
        segment = _segment(size)
        if not self._reserve(segment):
            return None
        block = Block(pool, self.address, segment)
        self.address += segment
        return block

    def _grow(self, pool: Pool, size: int) -> Block | None:
        """try_allocate_expandable_block: map pages at the lowest address range with room."""
        block = self._range_with_room(pool, size)
        if not block.mapped and not self._map(pool, block, size):
            return None
        while block.size < size:
            after = block.next  # unmapped: a free neighbour would have been merged
            if after is None or not self._map(pool, after, size - block.size):
                return None
            block = after  # mapping merged the free block before it into this one
        pool.remove(block)
        return block

    def _range_with_room(self, pool: Pool, size: int) -> Block:
        """find_expandable_block: the lowest run of free and unmapped blocks that holds ``size``.

        One segment of 1.125 times the device's memory serves a stream and pool; its address range is
        taken as endless here, so the last hole always has room.
        """
        if not pool.holes:
            pool.origin = self.address
            self.address += _RANGE
            pool.holes.append(Block(pool, pool.origin, _RANGE, mapped=False))
        start = pool.holes[-1]
        for hole in pool.holes:
            before = hole.prev
            start = before if before is not None and before.mapped and not before.used else hole
            room, at = 0, start
            while room < size and not at.used:
                room += at.size
                if at.next is None:
                    break
                at = at.next
            if room >= size:
                break
        return start

    def _map(self, pool: Pool, hole: Block, size: int) -> bool:
        """map_block: back the start of an unmapped block with pages and join it to its free neighbours."""
        pages = min(-(-size // pool.page) * pool.page, hole.size)
        if not self._reserve(pages):
            return False
        at = pool.holes.index(hole)
        if hole.size > pages:
            pool.holes[at] = _cut(hole, pages)
        else:
            del pool.holes[at]
        hole.mapped = True
        self._merge(hole)
        pool.add(hole)
        return True

    def _release_oversize(self, pool: Pool, size: int) -> bool:
        """release_available_cached_blocks: only with max_split_size, enough oversize blocks of this stream."""
        if self.max_split == NO_LIMIT or self.expandable:
            return False
        wanted = max(size, self.max_split)
        at = bisect_left(pool.free, wanted << _ADDRESS_BITS)
        if at < len(pool.free):
            self._release(pool.blocks[pool.free[at] & _ADDRESS])
            return True
        released = 0
        while released < wanted and pool.free:
            block = pool.blocks[pool.free[-1] & _ADDRESS]
            if block.size < self.max_split:
                break
            released += block.size
            self._release(block)
        return released >= wanted

    def _release_all(self) -> None:
        """release_cached_blocks: every segment that is one free block goes back to the driver."""
        for pool in self.pools.values():
            for block in list(pool.blocks.values()):
                if self.expandable:
                    self._unmap(block)
                elif block.prev is None and block.next is None:
                    self._release(block)

    def _release(self, block: Block) -> None:
        block.pool.remove(block)
        self.reserved -= block.size

    def _unmap(self, block: Block) -> None:
        """unmap_block: whole pages inside a free block go back, their addresses stay."""
        pool, page = block.pool, block.pool.page
        head = -(block.address - pool.origin) % page
        pages = (block.size - head) // page * page
        if pages <= 0:
            return
        pool.remove(block)
        if head:
            hole = _cut(block, head)
            pool.add(block)
        else:
            hole = block
        if hole.size > pages:
            pool.add(_cut(hole, pages))
        hole.mapped = False
        self.reserved -= pages
        at = sum(other.address < hole.address for other in pool.holes)
        pool.holes.insert(at, hole)
        for left, right in ((hole, hole.next), (hole.prev, hole)):
            if left is not None and right is not None and not left.mapped and not right.mapped:
                left.size, left.next = left.size + right.size, right.next
                if left.next is not None:
                    left.next.prev = left
                pool.holes.remove(right)
