"""A Timeline of any depth: one of four layers, and where its layers repeat.

Layers of a decoder are alike but for the first and the last, so a pass over them is the first layer, a body
that repeats, and the last. A ``Program`` keeps four layers and marks the two copies of each body; ``unfold``
writes as many copies as the model has. Which tensor a copy frees follows from roles: the n-th tensor that a
layer makes in a segment (the events between two marks).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from finefit.memory.compiled import Compiled, compile_timeline
from finefit.memory.timeline import Mark, Tensor, Timeline
from finefit.step.size import Size

TEMPLATE = 4  # layers of a program: first, two alike, last
WORKSPACE = "cublas_workspace"  # op of the tensors whose size is the GPU's, not the model's

_LAYER = re.compile(r"((?:^|\.)(?:layers|h|blocks)\.)\d+(?=\.|$)")

# segment; layer; operation and module that made it, without the layer; number among those alike
Role = tuple[int, int | None, str, int]
Code = tuple[bool, Role]  # frees it?, the tensor


@dataclass(frozen=True, slots=True)
class Loop:
    """Events ``start`` to ``start + 2 * length`` are two copies of a body, the second one layer further.

    ``step`` is 1 where the pass goes up the layers and -1 where it goes down.
    """

    start: int
    length: int
    step: int


@dataclass(frozen=True, slots=True)
class Program:
    """A Timeline of ``TEMPLATE`` layers with symbolic sizes; without loops, of the depth it was taken at.

    Attributes:
        growth: elements by which a tensor (by number) grows with each layer: lists over all parameters.
    """

    timeline: Timeline
    loops: tuple[Loop, ...] = ()
    growth: Mapping[int, int] | None = None

    def unfold(self, layers: int, *, workspace: int | None = None, named: bool = True) -> Timeline:
        """The Timeline of a model with that many layers.

        Args:
            workspace: bytes of each cuBLAS workspace; None keeps those of the trace.
            named: give each tensor its own layer and module; without, those of its template, which is
                faster and enough for the allocator.

        Raises:
            ValueError: fewer layers than a first, a middle and a last one, or loops that do not cover them.
        """
        if not self.loops:
            return replace(self.timeline, tensors=tuple(self._tensors(TEMPLATE, workspace)))
        if layers < TEMPLATE - 1:
            raise ValueError(f"a folded program has at least {TEMPLATE - 1} layers, not {layers}")
        tensors = self._tensors(layers, workspace)
        return _Unfolding(self, tensors, layers, named).timeline()

    def compiled(self, layers: int) -> Compiled:
        """The compiled form of a model with that many layers, without cuBLAS workspaces: load and the last step."""
        steps = (0, self.timeline.marks[-1].step)
        if not self.loops:
            return compile_timeline(self.unfold(layers, workspace=0), steps=steps).undominated()
        tensors = self._tensors(layers, 0)
        unfolding = _Unfolding(self, tensors, layers, named=True)
        return compile_timeline(unfolding.timeline(), steps=steps, between=unfolding.between).undominated()

    def _tensors(self, layers: int, workspace: int | None) -> list[Tensor]:
        """Tensors of the template with the sizes that they have at a depth."""
        tensors = list(self.timeline.tensors)
        if workspace is not None:
            tensors = [replace(t, size=Size(1, workspace)) if t.op == WORKSPACE else t for t in tensors]
        for number, elements in (self.growth or {}).items():
            size = tensors[number].size
            numel = size.numel + (layers - TEMPLATE) * elements
            tensors[number] = replace(tensors[number], size=replace(size, numel=numel))
        return tensors


def roles(timeline: Timeline) -> list[Role]:
    """Role of each tensor, in order of allocation.

    A tensor made outside of any layer counts to the layer of the one before it in its segment.
    """
    segments = _segments(timeline)
    found: list[Role] = [(0, None, "", 0)] * len(timeline.tensors)
    counts: dict[tuple[int, int | None, str], int] = {}
    makers: dict[tuple[str, str], str] = {}
    for number, (start, end) in enumerate(segments):
        layer: int | None = None
        for event in timeline.events[start:end]:
            if event >= 0:
                tensor = timeline.tensors[event]
                layer = layer if tensor.layer is None else tensor.layer
                maker = makers.get((tensor.op, tensor.module))
                if maker is None:
                    module = _LAYER.sub(r"\1*", tensor.module, count=1)
                    maker = makers[tensor.op, tensor.module] = f"{tensor.op} {module}"
                ordinal = counts[number, layer, maker] = counts.get((number, layer, maker), -1) + 1
                found[event] = (number, layer, maker, ordinal)
    return found


def codes(timeline: Timeline, known: Sequence[Role]) -> list[Code]:
    """Each event as what it does to which role."""
    return [(event < 0, known[event if event >= 0 else ~event]) for event in timeline.events]


def shifted(code: Code, step: int) -> Code:
    """The same event one or more layers further."""
    frees, (segment, layer, maker, number) = code
    return frees, (segment, None if layer is None else layer + step, maker, number)


def _segments(timeline: Timeline) -> list[tuple[int, int]]:
    starts = [mark.start for mark in timeline.marks]
    return list(zip(starts, [*starts[1:], len(timeline.events)], strict=True))


class _Unfolding:
    """One unfolding: where the template's tensors go and which numbers they get.

    A slot is a role without its layer. Each has a row: the number of its tensor in each layer so far.
    """

    def __init__(self, program: Program, tensors: Sequence[Tensor], layers: int, named: bool) -> None:
        self.source, self.loops = program.timeline, program.loops
        self.layers, self.more, self.named = layers, layers - TEMPLATE, named
        known = roles(self.source)
        slots: dict[tuple[int, bool, str, int], int] = {}
        self.templates: list[dict[int, Tensor]] = []  # of each slot, by layer of the template
        self.places: list[tuple[int, int]] = []  # of each tensor of the template: slot and layer
        for (segment, layer, maker, number), tensor in zip(known, tensors, strict=True):
            slot = slots.setdefault((segment, layer is None, maker, number), len(slots))
            if slot == len(self.templates):
                self.templates.append({})
            self.templates[slot][layer or 0] = tensor
            self.places.append((slot, layer or 0))
        self.rows: list[dict[int, int]] = [{} for _ in self.templates]
        self.tensors: list[Tensor] = []
        self.events: list[int] = []
        self.modules: dict[tuple[str, int], str] = {}
        self.between: list[tuple[int, int]] = []  # copies of a body that touch layers in the middle alone

    def timeline(self) -> Timeline:
        starts: dict[int, int] = {}  # marks are never inside a loop
        at = 0
        for loop in self.loops:
            self._straight(at, loop.start, starts)
            starts[loop.start] = len(self.events)
            body = self._body(loop)
            middle = 0
            for copy in range(self.layers - 2):
                if copy == 2:
                    middle = len(self.events)
                if copy == self.layers - 4 and copy > 2:
                    self.between.append((middle, len(self.events)))
                self._run(body, loop.step * copy)
            at = loop.start + 2 * loop.length
        end = len(self.source.events)
        self._straight(at, end, starts)
        starts[end] = len(self.events)
        marks = tuple(Mark(starts[m.start], m.phase, m.step) for m in self.source.marks)
        expected = sum(self.more + 1 if layer == 2 else 1 for _, layer in self.places)
        if len(self.tensors) != expected:
            raise ValueError(f"unfolding made {len(self.tensors)} tensors of {expected}")
        return Timeline(tuple(self.tensors), tuple(self.events), marks, dims=self.source.dims)

    def _body(self, loop: Loop) -> list[tuple[bool, int, int]]:
        """Events of the first copy: frees it?, slot, layer."""
        base = self.more if loop.step < 0 else 0
        body = []
        for event in self.source.events[loop.start : loop.start + loop.length]:
            slot, layer = self.places[event if event >= 0 else ~event]
            body.append((event < 0, slot, layer + base))
        return body

    def _straight(self, start: int, end: int, starts: dict[int, int]) -> None:
        for index in range(start, end):
            starts[index] = len(self.events)
            event = self.source.events[index]
            slot, layer = self.places[event if event >= 0 else ~event]
            self._run([(event < 0, slot, layer + self.more if layer >= 2 else layer)], 0)

    def _run(self, body: Sequence[tuple[bool, int, int]], shift: int) -> None:
        rows, events, tensors = self.rows, self.events, self.tensors
        for frees, slot, first in body:
            layer = first + shift
            if frees:
                events.append(~rows[slot][layer])
            else:
                number = rows[slot][layer] = len(tensors)
                events.append(number)
                tensors.append(self._tensor(slot, layer))

    def _tensor(self, slot: int, layer: int) -> Tensor:
        found = self.templates[slot][TEMPLATE - 1 if layer == self.layers - 1 else min(layer, 2)]
        if not self.named or found.layer is None or found.layer == layer:
            return found
        key = (found.module, layer)
        if key not in self.modules:
            self.modules[key] = _LAYER.sub(rf"\g<1>{layer}", found.module, count=1)
        return replace(found, layer=layer, module=self.modules[key])
