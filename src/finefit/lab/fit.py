"""Formulas of traced sizes: each is a number of bytes times powers of the batch, the length and the rank.

Two traces whose batch, length and rank all differ determine the powers; a third one, not used for that, checks
them. Kernels that round rows up have symbols of their own, tried where the kernel's operator is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from finefit.memory.timeline import Tensor, Timeline
from finefit.step.size import Dims, Size, symbol

# Plain products in the order tried: what one tensor of a decoder is made of.
_PLAIN: tuple[tuple[str, ...], ...] = (
    (),
    ("b", "s"),
    ("s",),
    ("b",),
    ("r",),
    ("b", "r", "s"),
    ("b", "s", "s"),
    ("s", "s"),
    ("r", "s"),
    ("b", "r"),
)


class NoFormulaError(Exception):
    """A size is no product of the known symbols, or the traces differ in more than sizes."""


def _products(tensor: Tensor, vocab: int) -> Iterable[tuple[str, ...]]:
    """Products that a tensor's operator can make."""
    if tensor.assumed and tensor.op == "embedding_dense_backward":  # kernels.embedding_backward
        return (("sorted",), (f"segments/{vocab}",), (f"parts/{vocab}",))
    if tensor.assumed and tensor.op.startswith("_scaled_dot_product_flash"):  # kernels.flash_backward
        return (("b", "s128"), ("b", "s"))
    if tensor.op.startswith("_scaled_dot_product_efficient"):
        return (*_PLAIN, ("b", "s32"))
    if tensor.op == "constant_pad_nd":  # labels, or a mask whose rows are padded (sdpa._aligned)
        return (*_PLAIN, ("b", "s+1"), ("b", "s", "s16"), ("s", "s16"))
    return _PLAIN


def _value(symbols: tuple[str, ...], dims: Dims) -> int:
    product = 1
    for name in symbols:
        product *= symbol(name, dims)
    return product


def formula(tensor: Tensor, values: Sequence[int], points: Sequence[Dims], vocab: int) -> Size:
    """The size whose bytes at ``points`` are ``values``.

    Raises:
        NoFormulaError: no product of symbols gives them.
    """
    for symbols in _products(tensor, vocab):
        units = [_value(symbols, point) for point in points]
        if not all(units):
            continue
        each, rest = divmod(values[0], units[0])
        if rest == 0 and all(each * unit == value for unit, value in zip(units, values, strict=True)):
            return Size(1, each, symbols)
    raise NoFormulaError(f"{tensor.op} of {tensor.module or 'no module'} takes {list(values)} bytes at {list(points)}")


def same_order(first: Timeline, second: Timeline) -> bool:
    """Whether two traces differ in nothing but the sizes."""
    return (
        first.events == second.events
        and first.marks == second.marks
        and all(replace(a, size=b.size) == b for a, b in zip(first.tensors, second.tensors, strict=True))
    )


def symbolic(traces: Sequence[Timeline], vocab: int) -> Timeline:
    """One Timeline whose sizes are those of each trace at its own dimensions.

    Raises:
        NoFormulaError: the order of events differs, or a size has no formula.
    """
    first = traces[0]
    points = [t.dims for t in traces if t.dims is not None]
    for other in traces[1:]:
        if not same_order(first, other):
            raise NoFormulaError("the order of events depends on the batch, the length or the rank")
    known: dict[tuple[str, bool, tuple[int, ...]], Size] = {}
    tensors = []
    for alike in zip(*(t.tensors for t in traces), strict=True):
        tensor, values = alike[0], tuple(t.size.raw(p) for t, p in zip(alike, points, strict=True))
        key = (tensor.op, tensor.assumed, values)
        if key not in known:
            known[key] = formula(tensor, values, points, vocab)
        tensors.append(replace(tensor, size=known[key]))
    return Timeline(tuple(tensors), first.events, first.marks)


def at(timeline: Timeline, dims: Dims) -> Timeline:
    """The same with sizes as numbers of bytes, as a trace at ``dims`` has them."""
    known: dict[Size, Size] = {}
    tensors = []
    for tensor in timeline.tensors:
        if tensor.size not in known:
            known[tensor.size] = Size(1, tensor.size.raw(dims))
        tensors.append(replace(tensor, size=known[tensor.size]))
    return replace(timeline, tensors=tuple(tensors), dims=dims)
