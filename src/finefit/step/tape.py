"""Records a forward pass the way the library runs it.

Layer functions are written line by line after the library's ``forward``. They hold ``Ref``s where the
library holds tensors; when the last ``Ref`` of a value goes out of scope, the tape notes a ``Drop``,
because that is when the library's reference counter lets the tensor go. So a local variable that
the library forgets to delete costs the same memory here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from finefit.step.ops import Block, Drop, Flops, Op, Param, Step, Value
from finefit.step.size import Size
from finefit.workload.dtypes import DType

TOKENS = ("b", "s")


class Ref:
    """A Python reference to a value; as long as one lives, so does the tensor."""

    __slots__ = ("_tape", "dtype", "numel", "symbols", "value")

    def __init__(self, tape: Tape, value: int, numel: int, symbols: tuple[str, ...], dtype: DType) -> None:
        self._tape, self.value, self.numel, self.symbols, self.dtype = tape, value, numel, symbols, dtype
        tape.counts[value] += 1

    def __del__(self) -> None:
        self._tape.release(self.value)

    @property
    def needs_grad(self) -> bool:
        return self._tape.values[self.value].needs_grad

    @property
    def size(self) -> Size:
        return self._tape.values[self.value].size


class Tape:
    """Collects blocks of operations; see ``Step`` for the result.

    ``records``: autograd does, as in training; without it (``torch.no_grad``) nothing is kept for a backward.
    """

    def __init__(self, records: bool = True) -> None:
        self.records = records
        self.blocks: list[Block] = []
        self.values: list[Value] = []
        self.counts: list[int] = []
        self.params: dict[str, Param] = {}
        self.buffers: list[tuple[str, Size]] = []
        self._modules: list[str] = []
        self._storages = 0
        self._open = True
        self._held: list[Ref] = []
        self.outliving: dict[int, int] = {}  # value -> block, for values that a cache keeps beyond their block

    # -- structure ---------------------------------------------------------------------------------

    @contextmanager
    def block(self, name: str, layer: int | None = None, *, phase: str = "forward", repeat: int = 1) -> Iterator[Block]:
        block = Block(name, layer, repeat=repeat, phase=phase)
        self.blocks.append(block)
        yield block

    @contextmanager
    def module(self, name: str) -> Iterator[None]:
        self._modules.append(name)
        yield
        self._modules.pop()

    @property
    def path(self) -> str:
        return ".".join(self._modules)

    def param(self, param: Param) -> None:
        """Register a parameter of the current block."""
        self.params[param.name] = param
        self.blocks[-1].params.append(param.name)

    # -- values ------------------------------------------------------------------------------------

    def _value(self, numel: int, symbols: tuple[str, ...], dtype: DType, storage: int | None, grad: bool) -> Ref:
        if storage is None:
            storage = self._storages
            self._storages += 1
        self.values.append(Value(Size(dtype.bytes, numel, symbols), storage, grad))
        self.counts.append(0)
        return Ref(self, len(self.values) - 1, numel, symbols, dtype)

    def release(self, value: int) -> None:
        self.counts[value] -= 1
        if self.counts[value] == 0 and self._open:
            self.blocks[-1].program.append(Drop(value, self.outliving.get(value)))

    def op(
        self,
        name: str,
        inputs: Sequence[Ref],
        numel: int,
        dtype: DType,
        *,
        symbols: tuple[str, ...] = TOKENS,
        saves: Iterable[Ref] = (),
        save_out: bool = False,
        keeps: Iterable[Ref] = (),
        keep_out: bool = False,
        passes: bool | tuple[bool, ...] = False,
        params: tuple[str, ...] = (),
        temps: tuple[Size, ...] = (),
        temps_assumed: tuple[Size, ...] = (),
        back: tuple[Size, ...] = (),
        back_assumed: tuple[Size, ...] = (),
        flops: Flops | None = None,
        category: str = "activations",
        needs_grad: bool | None = None,
        saves_weight: bool = False,
        once: bool = False,
    ) -> Ref:
        """Run one operation with one new output of ``numel`` × symbols elements.

        ``passes``: the backward hands the incoming gradient on instead of making new ones; of each input, or of all.
        """
        handed = passes if isinstance(passes, tuple) else (passes,) * len(inputs)
        sources = [(r, on) for r, on in zip(inputs, handed, strict=True) if self.values[r.value].needs_grad]
        grad = self.records and (bool(sources or params) if needs_grad is None else needs_grad)
        out = self._value(numel, symbols, dtype, None, grad)
        kept: tuple[int, ...] = ()
        if grad:
            kept = tuple(r.value for r in saves) + ((out.value,) if save_out else ())
        self.blocks[-1].program.append(
            Op(
                name,
                self.path,
                (out.value,),
                (out.value,),
                tuple((r.value, "pass" if on else "new") for r, on in sources) if grad else (),
                kept,
                params if grad else (),
                temps,
                back if grad else (),
                back_assumed if grad else (),
                flops,
                category,
                grad and saves_weight,
                once,
                tuple(r.value for r in keeps) + ((out.value,) if keep_out else ()) if grad else (),
                temps_assumed,
            )
        )
        return out

    def add_into(self, target: Ref, addend: Ref) -> Ref:
        """``target += addend``: the same storage; the addend's gradient has its own dtype."""
        into, other = self.values[target.value], self.values[addend.value]
        out = self._value(target.numel, target.symbols, target.dtype, into.storage, into.needs_grad or other.needs_grad)
        grads = [(target.value, "pass")] if into.needs_grad else []
        if other.needs_grad:
            grads.append((addend.value, "pass" if target.dtype == addend.dtype else "new"))
        self.blocks[-1].program.append(Op("add_", self.path, (out.value,), (), tuple(grads)))
        return out

    def split(self, source: Ref, numels: Sequence[int], name: str = "split") -> list[Ref]:
        """Views of parts of one tensor; the backward joins their gradients into a new one."""
        origin = self.values[source.value]
        outs = [self._value(n, source.symbols, source.dtype, origin.storage, origin.needs_grad) for n in numels]
        grads = ((source.value, "new"),) if origin.needs_grad else ()
        self.blocks[-1].program.append(Op(name, self.path, tuple(o.value for o in outs), (), grads))
        return outs

    def detach(self, source: Ref) -> Ref:
        """The same tensor without history: what runs on it keeps nothing."""
        origin = self.values[source.value]
        out = self._value(source.numel, source.symbols, source.dtype, origin.storage, False)
        self.blocks[-1].program.append(Op("detach", self.path, (out.value,), ()))
        return out

    def widened(self, source: Ref, dtype: DType) -> Ref:
        """The same tensor as an operation promotes it inside its kernel: its gradient has that dtype first."""
        origin = self.values[source.value]
        out = self._value(source.numel, source.symbols, dtype, origin.storage, origin.needs_grad)
        grads = ((source.value, "new"),) if origin.needs_grad else ()
        self.blocks[-1].program.append(Op("to", self.path, (out.value,), (), grads))
        return out

    def leaf(self, numel: int, dtype: DType, symbols: tuple[str, ...] = TOKENS, name: str = "input") -> Ref:
        """An input without history (token ids, labels, masks)."""
        return self.op(name, (), numel, dtype, symbols=symbols, needs_grad=False, category="buffers")

    def keep_beyond_block(self, x: Ref) -> None:
        """A cache holds this value; it is let go in another block than the one it was made in."""
        self.outliving[x.value] = len(self.blocks) - 1

    def require(self, x: Ref) -> None:
        """``x.requires_grad_()``: a leaf from here on, whatever made it."""
        self.values[x.value] = replace(self.values[x.value], needs_grad=self.records)

    def hold(self, x: Ref) -> None:
        """The training loop keeps this value until the backward has run."""
        self._held.append(x)

    def finish(self) -> Step:
        """Close the tape: references that go away from here on no longer count. The loss is held last."""
        self._open = False
        return Step(self.blocks, self.values, self.params, self.buffers, self._held[-1].value)
