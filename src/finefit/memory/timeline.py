"""The one currency of memory: the allocations and frees of a training step, in order.

Producers: ``memory.model`` (from a Step), ``lab.trace`` (real library code), ``memory.snapshot`` (a
measured CUDA snapshot). Consumers: the compiled form, the allocator replay, the breakdown, the diff.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from finefit.step.size import Dims, Size

FORMAT = 1  # version of this representation; part of every cache key

# Parts of the answer, in the order people should think.
CATEGORIES = (
    "weights",
    "adapters",
    "gradients",
    "optimizer",
    "activations",
    "logits",
    "buffers",
    "workspace",
)

# In the order a run meets them.
PHASES = ("load", "generation", "forward", "loss", "reference", "backward", "optimizer", "evaluation", "save")


@dataclass(frozen=True, slots=True)
class Tensor:
    """One allocation: its size and who made it.

    Attributes:
        size: formula of its bytes (a constant in traced and measured timelines).
        category: one of ``CATEGORIES``.
        phase: phase in which it was allocated, one of ``PHASES``.
        op: operation that allocated it; module: path of the module that ran it.
        layer: index of the decoder layer, None outside of them.
        stream: CUDA stream; pool: "device", "managed" (paged optimizer), "host" or "outside" the allocator.
        assumed: a kernel temporary no trace can see, taken from the kernel's source.
    """

    size: Size
    category: str
    phase: str
    op: str
    module: str = ""
    layer: int | None = None
    stream: int = 0
    pool: str = "device"
    assumed: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """From event ``start`` on, the run is in ``phase`` of optimizer step ``step`` (1, 2, ...)."""

    start: int
    phase: str
    step: int


@dataclass(frozen=True, slots=True)
class Fold:
    """Events ``start`` to ``end`` stand for ``times`` identical layers one after the other."""

    start: int
    end: int
    times: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """Events of one rank: ``i >= 0`` allocates tensor ``i``, ``~i`` (negative) frees it.

    A tensor never freed lives to the end. ``dims`` is the point a traced or measured timeline was
    taken at; a modelled one is valid at any. A folded one is for ``compiled`` only: the other consumers
    need every event.
    """

    tensors: tuple[Tensor, ...]
    events: tuple[int, ...]
    marks: tuple[Mark, ...]
    folds: tuple[Fold, ...] = ()
    dims: Dims | None = None

    def phase_at(self, event: int) -> Mark:
        """The mark in force at an event."""
        current = self.marks[0]
        for mark in self.marks:
            if mark.start > event:
                break
            current = mark
        return current

    def live_bytes(self, dims: Dims) -> Iterator[int]:
        """Allocated bytes on the device after each event, in 512-byte blocks."""
        sizes = [t.size.block(dims) if t.pool == "device" else 0 for t in self.tensors]
        live = 0
        for event in self.events:
            live += sizes[event] if event >= 0 else -sizes[~event]
            yield live
