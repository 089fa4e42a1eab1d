"""Bytes that an optimizer keeps for one parameter, and holds while it updates it (``workload.optimizers``)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from finefit.step.ops import Param
from finefit.step.size import Size
from finefit.workload.dtypes import DType
from finefit.workload.optimizers import SMALLEST_QUANTISED, Kind, State
from finefit.workload.recipe import Optimizer


@dataclass(frozen=True, slots=True)
class Piece:
    """One state tensor; ``quantised`` ones and their constants stay on the GPU's own memory when small."""

    name: str
    size: Size
    pageable: bool = False


class Keeper:
    """States and temporaries of one optimizer.

    Args:
        wide: the optimizer works on fp32 copies of the parameters (DeepSpeed, Megatron).
        sharded: states are divided among ranks, each holding a flat part of every tensor.
    """

    def __init__(self, optimizer: Optimizer, *, wide: bool, sharded: bool) -> None:
        self.optimizer, self.wide, self.sharded = optimizer, wide, sharded
        self.kind: Kind = optimizer.kind

    # -- states --------------------------------------------------------------------------------------

    def states(self, param: Param) -> Iterator[Piece]:
        """Each state tensor of a parameter."""
        if self._projected(param):
            yield Piece("projector", self._projector(param))
            param = self._low_rank(param)
        for state in self.kind.states:
            if self._has(state, param):
                yield from self._state(state, param)

    def _has(self, state: State, param: Param) -> bool:
        matrix, hidden = self._matrix(param), self._hidden(param)
        return {"any": True, "matrix": matrix, "vector": not matrix, "hidden": hidden, "other": not hidden}[state.of]

    def _matrix(self, param: Param) -> bool:
        return len(param.shape) >= 2 and not self.sharded  # a rank's part is flat

    def _hidden(self, param: Param) -> bool:
        return self._matrix(param) and param.name.startswith("layers.")

    def _state(self, state: State, param: Param) -> Iterator[Piece]:
        itemsize = self._itemsize(param, state.dtype or self.optimizer.state_dtype)
        if state.block and not param.symbols and param.numel < SMALLEST_QUANTISED:
            yield Piece(state.name, self._full(param, itemsize if self.kind.table else 4))
            return
        if state.extent != "full":
            *stacked, rows, cols = param.shape  # experts are stacked matrices
            yield Piece(state.name, _size(itemsize, (*stacked, rows if state.extent == "rows" else cols)))
            return
        if not state.block:
            yield Piece(state.name, self._full(param, itemsize), pageable=True)
            return
        codes = self._full(param, 1)
        yield Piece(state.name, replace(codes, numel=-(-codes.numel // state.packed)), pageable=True)
        yield Piece(f"{state.name}.absmax", replace(codes, itemsize=4, numel=-(-codes.numel // state.block)))
        if self.kind.table:
            yield Piece(f"{state.name}.qmap", Size(4, self.kind.table))

    def _full(self, param: Param, itemsize: int) -> Size:
        return param.shard(itemsize, self.sharded)

    def _itemsize(self, param: Param, dtype: DType | None) -> int:
        """Quantised states are one byte; smaller ones are what the optimizer would keep without quantisation."""
        if dtype is None or dtype is DType.UINT8:
            return 4 if self.wide else param.at_rest.bytes
        return dtype.bytes

    # -- temporaries -----------------------------------------------------------------------------------

    def together(self, param: Param) -> list[Size]:
        """Temporaries held while all parameters are updated."""
        count = self.kind.together if self.optimizer.impl == "foreach" else 0
        return [self._full(param, self._itemsize(param, self.optimizer.state_dtype))] * count

    def each(self, param: Param) -> list[list[Size]]:
        """Temporaries of one parameter: sets, one after another."""
        if self.optimizer.impl != "loop":
            return []
        own = self._itemsize(param, self.optimizer.state_dtype)
        if not self._projected(param):
            widened = self.kind.widened if own < 4 else int(self.kind.lags)  # LOMO holds an fp32 gradient itself
            copies = [self._full(param, 4)] * widened
            each = self.kind.each if self.kind.other is None or self._hidden(param) else self.kind.other
            sizes = copies + [self._full(param, own if dtype is None else dtype.bytes) for dtype in each]
            if self.kind.squares and self._hidden(param):
                sizes += [_size(2, _shorter(param) * 2)] * self.kind.squares
            return [sizes]
        wide = 4 if self.kind.widened else own
        low, full = self._low_rank(param), self._full(param, wide)
        part = _size(wide, low.shape)
        held = [full] * self.kind.widened if own < 4 else []
        if self.optimizer.state_dtype is DType.UINT8:  # the parameter itself, set aside (galore_torch adamw8bit.py)
            held = [full]
        # projection, sqrt, quotient; the update in full, and scaled (galore_torch adamw.py, apollo_torch apollo.py)
        sets = [[*held, part, part, part, full, full]]
        if self.kind.low_rank == "galore":
            sets.append(self._decomposition(param))
        return sets

    # -- low-rank projections ----------------------------------------------------------------------

    def _projected(self, param: Param) -> bool:
        """``optim_target_modules`` and ``galore_target`` name linear modules; a projection needs a matrix."""
        module = param.name.rpartition(".")[0]
        return bool(self.kind.low_rank) and len(param.shape) == 2 and module.endswith(self.optimizer.targets)

    def _low_rank(self, param: Param) -> Param:
        """The gradient as the states see it: the longer side stays (``proj_type`` "std")."""
        rows, cols = _fixed(param)
        shape = (rows, self.optimizer.rank) if rows >= cols else (self.optimizer.rank, cols)
        return replace(param, shape=shape, numel=prod(shape))

    def _projector(self, param: Param) -> Size:
        """Of GaLore on fp32 gradients it is a view, which keeps the whole orthogonal matrix (galore_projector.py)."""
        rows, cols = _fixed(param)
        itemsize, short = 4 if self.kind.widened else self._itemsize(param, None), min(rows, cols)
        view = self.kind.low_rank == "galore" and itemsize == 4
        return Size(itemsize, short * (short if view else self.optimizer.rank))

    def _decomposition(self, param: Param) -> list[Size]:
        """``torch.linalg.svd`` every ``update_proj_gap`` steps: the fp32 gradient and both orthogonal matrices."""
        rows, cols = _fixed(param)
        short = min(rows, cols)
        gradient = [Size(4, rows * cols)] if self._itemsize(param, None) < 4 else []
        return [*gradient, Size(4, rows * short), Size(4, short * cols)]


def _fixed(param: Param) -> tuple[int, int]:
    rows, cols = param.shape
    assert isinstance(rows, int) and isinstance(cols, int)  # a matrix of the model, not of an adapter
    return rows, cols


def _shorter(param: Param) -> tuple[int | str]:
    """The side of a matrix that is not longer than the other; an adapter's is its rank."""
    sides = param.shape[-2:]
    return (
        next((side for side in sides if isinstance(side, str)), None) or min(s for s in sides if isinstance(s, int)),
    )


def _size(itemsize: int, shape: tuple[int | str, ...]) -> Size:
    numbers = prod(side for side in shape if isinstance(side, int))
    return Size(itemsize, numbers, tuple(sorted(side for side in shape if isinstance(side, str))))
