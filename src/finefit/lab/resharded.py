"""Sharding that cannot be traced, laid over a trace of one GPU: DDP's buckets, the states of ZeRO 1 and 2.

DDP's reducer reads data in C++ and DeepSpeed does not run on fake tensors, so their sizes are those of
``memory.states`` and ``memory.sharding`` (torch 2.13.0, DeepSpeed 0.19.8). Every tensor that is added or whose
size is changed is marked as assumed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from finefit.memory.timeline import Mark, Tensor, Timeline
from finefit.step.size import Size
from finefit.workload.recipe import Recipe

KINDS = ("ddp", "zero1", "zero2")
# Where each size was read, by the name of the operation in the Timeline.
SOURCES = {
    "ddp_bucket": "modelled sharding: torch 2.13.0 distributed/c10d/reducer.cpp",
    "reduce_bucket": "modelled sharding: DeepSpeed 0.19.8 runtime/zero/stage_1_and_2.py",
    "reduce_scatter": "modelled sharding: DeepSpeed 0.19.8 runtime/zero/stage_1_and_2.py",
    "fp32_master": "modelled sharding: DeepSpeed 0.19.8 runtime/zero/stage_1_and_2.py",
    "fp32_gradients": "modelled sharding: DeepSpeed 0.19.8 runtime/zero/stage_1_and_2.py step",
}
STATES = "modelled sharding: a rank's part of the state that was traced"


def base(recipe: Recipe) -> Recipe:
    """The recipe of one GPU that is traced before sharding is laid over it."""
    plain = replace(recipe.optimizer, state_dtype=None)
    return replace(recipe, sharding=type(recipe.sharding)(), master_weights=False, optimizer=plain)


def with_sharding(timeline: Timeline, recipe: Recipe) -> Timeline:
    """The Timeline of one rank of ``recipe``.

    Args:
        timeline: trace of ``base(recipe)``.
    """
    return _Overlay(timeline, recipe).timeline()


@dataclass(slots=True)
class _Overlay:
    """Copies events and adds those of the sharding scheme."""

    source: Timeline
    recipe: Recipe
    tensors: list[Tensor] = field(init=False)
    events: list[int] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    shards: dict[int, int] = field(default_factory=dict)  # whole gradient -> this rank's part
    pending: list[int] = field(default_factory=list)  # gradients of the layer whose backward runs

    def __post_init__(self) -> None:
        kind = self.recipe.sharding.kind
        self.tensors = [
            self._state(t) if t.category == "optimizer" and kind != "ddp" and t.size.numel > 8 else t
            for t in self.source.tensors
        ]

    def timeline(self) -> Timeline:
        kind, marks = self.recipe.sharding.kind, self.source.marks
        ends = [*(mark.start for mark in marks[1:]), len(self.source.events)]
        bucket: list[int] = []
        for mark, end in zip(marks, ends, strict=True):
            self.marks.append(Mark(len(self.events), mark.phase, mark.step))
            parts: list[int] = []
            if mark.phase == "backward" and kind != "ddp" and not bucket:
                copies = 2 if self.recipe.sharding.overlap_comm else 1
                size = Size(2, self.recipe.sharding.reduce_bucket)
                bucket = [self._new(size, "buffers", "reduce_bucket", mark.phase) for _ in range(copies)]
            if mark.phase == "optimizer" and kind != "ddp" and self.recipe.master_weights:
                parts = [
                    self._new(self._part(g, 4), "workspace", "fp32_gradients", mark.phase, g)
                    for g in self._trained(mark.step)
                ]
            for event in self.source.events[mark.start : end]:
                self._copy(event, mark.phase)
            self._reduce(mark.phase)
            self.events.extend(~part for part in parts)
            if mark.phase == "load":
                self._resident(mark.phase)
            if mark.phase == "optimizer":
                self.events.extend(~number for number in bucket)
                bucket = []
        dims = self.source.dims
        ranked = None if dims is None else replace(dims, n=self.recipe.sharding.ranks)
        return Timeline(tuple(self.tensors), tuple(self.events), tuple(self.marks), dims=ranked)

    def _copy(self, event: int, phase: str) -> None:
        if event < 0:
            self.events.append(~self.shards.pop(~event, ~event))
            return
        tensor = self.source.tensors[event]
        if self.pending and tensor.layer != self.source.tensors[self.pending[-1]].layer:
            self._reduce(phase)
        self.events.append(event)
        if self.recipe.sharding.kind == "zero2" and tensor.category == "gradients" and phase == "backward":
            self.pending.append(event)

    def _reduce(self, phase: str) -> None:
        """A layer's gradients become this rank's part."""
        for whole in self.pending:
            self.shards[whole] = self._new(
                self._part(self.source.tensors[whole], self._itemsize),
                "gradients",
                "reduce_scatter",
                phase,
                self.source.tensors[whole],
            )
            self.events.append(~whole)
        self.pending.clear()

    def _resident(self, phase: str) -> None:
        """What the scheme holds from the start: a bucket beside each gradient, or fp32 copies of this rank's part."""
        for gradient in self._trained(1):
            if self.recipe.sharding.kind == "ddp":
                self._new(gradient.size, "buffers", "ddp_bucket", phase, gradient)
            elif self.recipe.master_weights:
                self._new(self._part(gradient, 4), "optimizer", "fp32_master", phase, gradient)

    def _trained(self, step: int) -> Iterator[Tensor]:
        """A tensor for each trained parameter: its gradient."""
        start = min(mark.start for mark in self.source.marks if mark.step == step)
        stop = min((mark.start for mark in self.source.marks if mark.step > step), default=len(self.source.events))
        for event in self.source.events[start:stop]:
            if event >= 0 and self.source.tensors[event].category == "gradients":
                yield self.source.tensors[event]

    @property
    def _itemsize(self) -> int:
        lora = self.recipe.lora
        return (lora.dtype if lora is not None else self.recipe.weight_dtype).bytes

    def _part(self, tensor: Tensor, itemsize: int) -> Size:
        return Size(itemsize, tensor.size.numel // self._itemsize, sharded=True)

    def _state(self, tensor: Tensor) -> Tensor:
        """A state of the optimizer on this rank: in fp32 where the optimizer steps on an fp32 copy."""
        itemsize = 4 if self.recipe.master_weights else self._itemsize
        return replace(tensor, size=self._part(tensor, itemsize), assumed=True)

    def _new(self, size: Size, category: str, op: str, phase: str, like: Tensor | None = None) -> int:
        module, layer = ("", None) if like is None else (like.module, like.layer)
        self.tensors.append(Tensor(size, category, phase, op, module, layer, assumed=True))
        self.events.append(len(self.tensors) - 1)
        return len(self.tensors) - 1
