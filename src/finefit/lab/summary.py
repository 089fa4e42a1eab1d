"""What a traced Timeline says to a reader: peaks, parts, the largest tensors at the peak, and what was assumed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from finefit.lab import kernels, resharded
from finefit.lab.diff import live_at, phase_peaks, plain
from finefit.memory.allocator import replay, required
from finefit.memory.timeline import CATEGORIES, PHASES, Tensor, Timeline


@dataclass(frozen=True, slots=True)
class Held:
    """Tensors of one module, operation and size that are alive at the peak, those of all layers together."""

    nbytes: int
    count: int
    category: str
    op: str
    module: str


@dataclass(frozen=True, slots=True)
class Assumed:
    """Memory that no trace sees, of a kernel or of modelled sharding: its largest block, what lives at the peak."""

    op: str
    largest: int
    at_peak: int
    source: str


@dataclass(frozen=True, slots=True)
class Summary:
    """A traced run in bytes.

    Attributes:
        allocated: peak of the last step and what follows it; phase, op and module: where it is reached.
        without_assumed: the same peak without temporaries that were taken from kernels' source.
        reserved: what the replayed allocator holds when nothing presses it.
        required: smallest capacity at which it survives, without what lies outside the allocator.
        phases, parts: peak of each phase, bytes at the peak of each category; in the usual order.
        held: the largest first.
    """

    allocated: int
    without_assumed: int
    reserved: int
    required: int
    phase: str
    op: str
    module: str
    phases: dict[str, int]
    parts: dict[str, int]
    held: tuple[Held, ...]
    assumed: tuple[Assumed, ...]
    events: int


def assumed_terms(timeline: Timeline, alive: Iterable[Tensor] = ()) -> tuple[Assumed, ...]:
    """What was assumed of kernels, by operation; ``alive``: the tensors at the peak."""
    dims = timeline.dims
    assert dims is not None  # every traced timeline has the point it was traced at
    largest: dict[str, int] = {}
    for tensor in timeline.tensors:
        if tensor.assumed:
            largest[tensor.op] = max(largest.get(tensor.op, 0), tensor.size.block(dims))
    now: Counter[str] = Counter()
    for tensor in alive:
        if tensor.assumed:
            now[tensor.op] += tensor.size.block(dims)
    sources = sources_of(timeline)
    return tuple(Assumed(op, size, now[op], sources[op]) for op, size in sorted(largest.items()))


def sources_of(timeline: Timeline) -> dict[str, str]:
    """Where the size of what was assumed was read, by operation."""
    known = {**kernels.SOURCES, **resharded.SOURCES}
    return {
        t.op: resharded.STATES if t.category == "optimizer" and t.op not in known else known[t.op]
        for t in timeline.tensors
        if t.assumed
    }


def summarise(timeline: Timeline) -> Summary:
    """Peak, parts and assumptions of a traced timeline."""
    dims = timeline.dims
    assert dims is not None  # every traced timeline has the point it was traced at
    peaks = phase_peaks(timeline, dims)
    phase = max(peaks, key=lambda name: peaks[name].bytes)
    alive = list(live_at(timeline, peaks[phase].event))
    maker = timeline.tensors[timeline.events[peaks[phase].event]]
    parts: Counter[str] = Counter()
    held: Counter[tuple[int, str, str, str]] = Counter()
    for tensor in alive:
        nbytes = tensor.size.block(dims)
        parts[tensor.category] += nbytes
        held[nbytes, tensor.category, tensor.op, plain(tensor.module)] += 1
    bare = phase_peaks(timeline, dims, assumed=False)
    lines = [Held(size, count, category, op, module) for (size, category, op, module), count in held.items()]
    return Summary(
        allocated=peaks[phase].bytes,
        without_assumed=max(peak.bytes for peak in bare.values()),
        reserved=replay(timeline, dims).reserved,
        required=required(timeline, dims),
        phase=phase,
        op=maker.op,
        module=maker.module,
        phases={name: peaks[name].bytes for name in PHASES if name in peaks},
        parts={name: parts[name] for name in CATEGORIES if parts[name]},
        held=tuple(sorted(lines, key=lambda line: (-line.nbytes * line.count, line.module, line.op))),
        assumed=assumed_terms(timeline, alive),
        events=len(timeline.events),
    )
