"""What two Timelines hold at their peaks, side by side: the tool that shows why they disagree."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from finefit.memory.timeline import Tensor, Timeline
from finefit.step.size import Dims

_LAYER = re.compile(r"(?:^|.*\.)(?:layers|h)\.(?:\d+|\*)(?:\.|$)")
_WRAPPERS = re.compile(r"\.(?:weight|bias|base_layer|default|modules_to_save|original_module)(?=\.|$)")


@dataclass(frozen=True, slots=True)
class PhasePeak:
    """Highest allocated bytes of one phase, and the event that reached them."""

    bytes: int
    event: int


@dataclass(frozen=True, slots=True)
class Line:
    """Tensors of one module and size at the two peaks: how many each side holds, made by which operations."""

    module: str
    nbytes: int
    left: int
    right: int
    left_ops: tuple[str, ...]
    right_ops: tuple[str, ...]

    @property
    def excess(self) -> int:
        """Bytes the left side holds more than the right one."""
        return (self.left - self.right) * self.nbytes


def phase_peaks(
    timeline: Timeline, dims: Dims, *, step: int | None = None, assumed: bool = True
) -> dict[str, PhasePeak]:
    """Peak of each phase of one optimizer step (the last one by default).

    Args:
        assumed: count the temporaries that no trace can see.
    """
    step = max(mark.step for mark in timeline.marks) if step is None else step
    sizes = _sizes(timeline, dims, assumed)
    best: dict[str, PhasePeak] = {}
    live, at = 0, 0
    for index, event in enumerate(timeline.events):
        live += sizes[event] if event >= 0 else -sizes[~event]
        while at + 1 < len(timeline.marks) and timeline.marks[at + 1].start <= index:
            at += 1
        mark = timeline.marks[at]
        if mark.step == step and event >= 0 and live > best.get(mark.phase, PhasePeak(-1, 0)).bytes:
            best[mark.phase] = PhasePeak(live, index)
    return best


def live_at(timeline: Timeline, event: int) -> Iterator[Tensor]:
    """Tensors alive on the device right after an event."""
    alive: dict[int, None] = {}
    for code in timeline.events[: event + 1]:
        if code >= 0:
            alive[code] = None
        else:
            alive.pop(~code, None)
    return (timeline.tensors[i] for i in alive if timeline.tensors[i].pool == "device")


def plain(module: str) -> str:
    """A module path without the layer's index, the path to the body, parameter names and PEFT's wrappers.

    The output layer and the loss function are one place: where their tensors are named differs by producer.
    """
    path = _WRAPPERS.sub("", module)
    inner, layers = _LAYER.subn("layer.", path)
    if layers:
        return inner.rstrip(".")
    leaf = path.rpartition(".")[2]
    return "head" if leaf in ("lm_head", "embed_out", "loss") else leaf


def compare(left: Timeline, right: Timeline, dims: Dims, *, phase: str | None = None) -> list[Line]:
    """Where the two differ at their peaks (or at those of one phase), largest difference first.

    Layers are not told apart: a line counts the tensors of all layers.
    """
    sides = []
    for timeline in (left, right):
        peaks = phase_peaks(timeline, dims)
        peak = peaks[phase] if phase else max(peaks.values(), key=lambda p: p.bytes)
        counts: Counter[tuple[str, int]] = Counter()
        ops: dict[tuple[str, int], Counter[str]] = {}
        for tensor in live_at(timeline, peak.event):
            key = (plain(tensor.module), tensor.size.block(dims))
            counts[key] += 1
            ops.setdefault(key, Counter())[f"{tensor.category}:{tensor.op}"] += 1
        sides.append((counts, ops))
    (counts, ops), (other, other_ops) = sides
    lines = [
        Line(key[0], key[1], counts[key], other[key], _names(ops.get(key)), _names(other_ops.get(key)))
        for key in counts.keys() | other.keys()
        if counts[key] != other[key]
    ]
    return sorted(lines, key=lambda line: (-abs(line.excess), line.module))


def by_size(lines: list[Line]) -> list[tuple[int, int]]:
    """(bytes, left minus right count) over all modules: what is left when only the module names differ."""
    net: Counter[int] = Counter()
    for line in lines:
        net[line.nbytes] += line.left - line.right
    return sorted(((size, n) for size, n in net.items() if n), key=lambda item: -abs(item[0] * item[1]))


def _sizes(timeline: Timeline, dims: Dims, assumed: bool) -> list[int]:
    return [t.size.block(dims) if t.pool == "device" and (assumed or not t.assumed) else 0 for t in timeline.tensors]


def _names(counter: Counter[str] | None) -> tuple[str, ...]:
    return tuple(f"{n}×{op}" for op, n in counter.most_common()) if counter else ()
