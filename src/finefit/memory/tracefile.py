"""The file of a trace: two zlib streams of JSON, one after the other.

The first holds the compiled form, enough for the allocated peak; the second the program, which only the
allocator's replay needs.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from finefit.memory.compiled import Compiled, Point
from finefit.memory.program import Loop, Program
from finefit.memory.timeline import Mark, Tensor, Timeline
from finefit.step.size import Dims, Size

LAYOUT = 1  # of the files; part of every key


@dataclass(frozen=True, eq=False)
class Trace:
    """One stored trace: the compiled form now, the program when the replay asks for it.

    Attributes:
        layers: depth of the model it belongs to.
        versions: libraries that ran.
        shipped: it came with the package.
    """

    compiled: Compiled
    layers: int
    versions: Mapping[str, str]
    shipped: bool
    _program: bytes

    @cached_property
    def program(self) -> Program:
        """Events of four layers and where they repeat."""
        return _program(json.loads(zlib.decompress(self._program)))

    def timeline(self, workspace: int) -> Timeline:
        """Every event of load, the first step and a steady one, for the allocator.

        Args:
            workspace: bytes of each cuBLAS workspace, which are the GPU's.
        """
        return self.program.unfold(self.layers, workspace=workspace, named=False)


def read(data: bytes, *, shipped: bool = False) -> Trace:
    """A trace from the bytes of its file."""
    stream = zlib.decompressobj()
    head = json.loads(stream.decompress(data))
    return Trace(_compiled(head), head["layers"], head["versions"], shipped, stream.unused_data)


def write(compiled: Compiled, program: Program, layers: int, versions: Mapping[str, str]) -> bytes:
    """The bytes of a trace's file."""
    head = {"layers": layers, "versions": dict(versions), **_compiled_object(compiled)}
    return b"".join(zlib.compress(_dumps(part), 9) for part in (head, _program_object(program)))


def _dumps(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


class _Table:
    """Values by number, each once."""

    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}

    def add(self, value: Any) -> int:
        return self.numbers.setdefault(value, len(self.numbers))

    def values(self) -> list[Any]:
        return list(self.numbers)


def _size(size: Size) -> tuple[Any, ...]:
    return (size.itemsize, size.numel, " ".join(size.symbols), int(size.sharded))


def _size_back(itemsize: int, numel: int, symbols: str, sharded: int) -> Size:
    return Size(itemsize, numel, tuple(symbols.split()), bool(sharded))


def _compiled_object(compiled: Compiled) -> dict[str, Any]:
    rows = []
    before: dict[int, int] = {}
    for row in compiled.rows:
        flat = []
        for column in dict.fromkeys((*before, *row)):
            change = row.get(column, 0) - before.get(column, 0)
            if change:
                flat += [column, change]
        rows.append(flat)
        before = row
    words = _Table()
    points = [[words.add(p.phase), words.add(p.op), words.add(p.module)] for p in compiled.points]
    return {
        "columns": [[*_size(size), category] for size, category in compiled.columns],
        "rows": rows,
        "points": points,
        "words": words.values(),
        "host": [[*_size(size), count] for size, count in compiled.host.items()],
    }


def _compiled(head: Mapping[str, Any]) -> Compiled:
    rows: list[dict[int, int]] = []
    row: dict[int, int] = {}
    for flat in head["rows"]:
        row = dict(row)
        for column, change in zip(flat[::2], flat[1::2], strict=True):
            count = row.get(column, 0) + change
            if count:
                row[column] = count
            else:
                del row[column]
        rows.append(row)
    words = head["words"]
    return Compiled(
        [(_size_back(*size), category) for *size, category in head["columns"]],
        rows,
        [Point(words[phase], words[op], words[module]) for phase, op, module in head["points"]],
        {_size_back(*size): count for *size, count in head["host"]},
    )


def _program_object(program: Program) -> dict[str, Any]:
    words, sizes = _Table(), _Table()
    timeline = program.timeline
    columns: list[list[Any]] = [
        [
            sizes.add(_size(t.size)),
            words.add(t.category),
            words.add(t.phase),
            words.add(t.op),
            words.add(t.module),
            -1 if t.layer is None else t.layer,
            t.stream,
            words.add(t.pool),
            int(t.assumed),
        ]
        for t in timeline.tensors
    ]
    return {
        "words": words.values(),
        "sizes": sizes.values(),
        "tensors": [list(column) for column in zip(*columns, strict=True)],
        "frees": _frees(timeline.events),
        "marks": [[m.start, m.phase, m.step] for m in timeline.marks],
        "loops": [[x.start, x.length, x.step] for x in program.loops],
        "growth": sorted((program.growth or {}).items()),
        "dims": None if timeline.dims is None else asdict(timeline.dims),
    }


def _program(found: Mapping[str, Any]) -> Program:
    words = found["words"]
    sizes = [_size_back(*size) for size in found["sizes"]]
    tensors = tuple(
        Tensor(
            sizes[size],
            words[category],
            words[phase],
            words[op],
            words[module],
            None if layer < 0 else layer,
            stream,
            words[pool],
            bool(assumed),
        )
        for size, category, phase, op, module, layer, stream, pool, assumed in zip(*found["tensors"], strict=True)
    )
    timeline = Timeline(
        tensors,
        tuple(_events(found["frees"])),
        tuple(Mark(*mark) for mark in found["marks"]),
        dims=None if found["dims"] is None else Dims(**found["dims"]),
    )
    growth = dict(found["growth"])
    return Program(timeline, tuple(Loop(*loop) for loop in found["loops"]), growth or None)


def _frees(events: tuple[int, ...]) -> list[int]:
    """Events with tensors by age: 0 allocates the next one, -k frees the k-th youngest alive.

    Layers then read alike, which compresses four times better than numbers of tensors.
    """
    alive: list[int] = []
    coded = []
    for event in events:
        if event >= 0:
            alive.append(event)
            coded.append(0)
        else:
            at = len(alive) - 1
            while alive[at] != ~event:
                at -= 1
            coded.append(at - len(alive))
            del alive[at]
    return coded


def _events(coded: list[int]) -> list[int]:
    alive: list[int] = []
    events, made = [], 0
    for code in coded:
        if code:
            events.append(~alive.pop(code))
        else:
            events.append(made)
            alive.append(made)
            made += 1
    return events
