"""What the peak is made of, tensor by tensor: every byte of the allocated number as a product of named numbers.

The tensors alive at the peak are grouped where they have the same formula and the same place in a layer, so
that thirty layers make one line: ``32 × (b·s × 4,096) × 2 B``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from finefit.memory.timeline import CATEGORIES, Tensor, Timeline
from finefit.step.size import Dims, Size

_LAYER = re.compile(r"((?:^|\.)(?:layers|h|blocks)\.)\d+(?=\.|$)")

_OF_PARAMETERS = ("weights", "adapters", "gradients", "optimizer")


@dataclass(frozen=True, slots=True)
class Term:
    """Tensors of one formula at one place.

    Attributes:
        part: one of ``CATEGORIES``.
        op, module: operation that made them and module that ran it; layers are ``layers.*``. Parameters and
            optimizer states of one size are one term, whatever their modules, which then is "".
        count: how many are alive; size: formula of one.
        nbytes: bytes of all, in the allocator's blocks of 512.
        assumed: inside a kernel, known from its source alone.
    """

    part: str
    op: str
    module: str
    count: int
    size: Size
    nbytes: int
    assumed: bool


def terms_at_peak(timeline: Timeline, dims: Dims) -> tuple[Term, ...]:
    """The terms of the allocated peak, by part in the order people should think, the largest first.

    Their bytes add up to the peak.
    """
    alive = _alive(timeline, dims)
    counts: dict[tuple[str, str, str, Size, bool], int] = {}
    for tensor in alive:
        key = (tensor.category, _op(tensor), _place(tensor), tensor.size, tensor.assumed)
        counts[key] = counts.get(key, 0) + 1
    terms = (
        Term(part, op, module, count, size, count * size.block(dims), assumed)
        for (part, op, module, size, assumed), count in counts.items()
    )
    return tuple(sorted(terms, key=lambda t: (CATEGORIES.index(t.part), -t.nbytes, t.module, t.op)))


def _op(tensor: Tensor) -> str:
    """Constants of a quantised weight are told from the weight: ``parameter.absmax``."""
    if tensor.op != "parameter":
        return tensor.op
    constant = tensor.module.rpartition(".weight.")[2]
    return f"parameter.{constant}" if constant != tensor.module else tensor.op


def _place(tensor: Tensor) -> str:
    if tensor.category in _OF_PARAMETERS:
        return ""
    return _LAYER.sub(r"\1*", tensor.module)


def _alive(timeline: Timeline, dims: Dims) -> Iterator[Tensor]:
    """Tensors on the device right after the allocation that reached the peak."""
    best, peak = -1, -1
    for index, total in enumerate(timeline.live_bytes(dims)):
        if total > peak:
            best, peak = index, total
    alive: dict[int, None] = {}
    for event in timeline.events[: best + 1]:
        if event >= 0:
            alive[event] = None
        else:
            alive.pop(~event, None)
    return (timeline.tensors[i] for i in alive if timeline.tensors[i].pool == "device")


def merged(terms: Iterable[Term], dims: Dims) -> tuple[Term, ...]:
    """Terms of parameters with one item size as one: ``numel`` is then the sum, ``count`` 1.

    ``nbytes`` stays the sum of blocks, which differs from the product by the rounding of each tensor.
    """
    out: list[Term] = []
    at: dict[tuple[str, str, int], int] = {}
    for term in terms:
        if term.part not in _OF_PARAMETERS:
            out.append(term)
            continue
        key = (term.part, term.op, term.size.itemsize)
        elements = term.count * term.size.elements(dims)
        if key in at:
            before = out[at[key]]
            size = Size(before.size.itemsize, before.size.numel + elements)
            out[at[key]] = Term(*key[:2], "", 1, size, before.nbytes + term.nbytes, term.assumed)
        else:
            at[key] = len(out)
            size = Size(term.size.itemsize, elements)
            out.append(Term(*key[:2], "", 1, size, term.nbytes, term.assumed))
    return tuple(sorted(out, key=lambda t: (CATEGORIES.index(t.part), -t.nbytes, t.module, t.op)))
