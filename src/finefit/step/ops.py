"""The training step as a list of operations: one list that memory and time both read.

A ``Step`` is the forward pass in program order. What each operation keeps for its backward, and the
gradients it makes there, are stated beside it, so the backward pass is this list read in reverse.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from finefit.step.size import Dims, Size
from finefit.workload.dtypes import DType

COMPARE = "compare"  # block that ends what the loss was made from; a reference model runs before it


@dataclass(frozen=True, slots=True)
class Flops:
    """Forward floating-point operations: ``count`` × the symbols of the free dimensions.

    ``kind`` is "linear", "head", "attention" (causal half, not the full square) or "lora".
    """

    kind: str
    count: int
    symbols: tuple[str, ...] = ("b", "s")


@dataclass(slots=True)
class Op:
    """One operation of the library's forward pass.

    Attributes:
        name: the operation ("mm", "pow"); module: path of the module that runs it.
        outs: values it makes; new: those of ``outs`` that are new allocations (others are views).
        grads: (input value, how) for each differentiable input: "new" allocates a gradient of the
            value's size, "pass" hands the incoming gradient on.
        saves: values kept alive until this operation's backward has run.
        keeps: values that the node of the graph holds itself, until the graph goes; recomputation does not spare them.
        params: trainable parameters (keys of ``Step.params``) whose gradient it makes.
        temps, back: memory held only while the operation or its backward runs.
        saves_weight: a parameter is kept for the backward: no memory, but recomputation runs as far as here.
        once: a recomputation leaves it out.
        temps_assumed, back_assumed: the same inside a kernel, taken from its source because no trace shows them.
    """

    name: str
    module: str
    outs: tuple[int, ...]
    new: tuple[int, ...]
    grads: tuple[tuple[int, str], ...] = ()
    saves: tuple[int, ...] = ()
    params: tuple[str, ...] = ()
    temps: tuple[Size, ...] = ()
    back: tuple[Size, ...] = ()
    back_assumed: tuple[Size, ...] = ()
    flops: Flops | None = None
    category: str = "activations"
    saves_weight: bool = False
    once: bool = False
    keeps: tuple[int, ...] = ()
    temps_assumed: tuple[Size, ...] = ()


@dataclass(frozen=True, slots=True)
class Drop:
    """The library's last Python reference to a value goes away here.

    ``owner``: index of the block the value was made in, where a repeated block's values outlive it.
    """

    value: int
    owner: int | None = None


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor of the step: its own bytes, the storage it lives in, whether gradients flow to it."""

    size: Size
    storage: int
    needs_grad: bool


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter tensor on the GPU; its gradient has its dtype and shape.

    ``dtype`` is the one operations see; ``stored`` the one it has between steps, where FSDP's mixed
    precision makes them differ. ``numel`` are the elements that one rank works with; experts that ``copies``
    ranks share are sharded over the other ranks only.
    """

    name: str
    dtype: DType
    numel: int
    trainable: bool
    category: str  # "weights" | "adapters"
    symbols: tuple[str, ...] = ()  # ("r",) for LoRA matrices
    stored: DType | None = None
    copies: int = 1  # expert-parallel ranks that hold other experts in its place
    shape: tuple[int | str, ...] = ()  # sides of a matrix, "r" for LoRA's rank; () where it has no two sides

    @property
    def at_rest(self) -> DType:
        return self.stored or self.dtype

    @property
    def size(self) -> Size:
        return Size(self.dtype.bytes, self.numel, self.symbols)

    def shard(self, itemsize: int, sharded: bool) -> Size:
        """This rank's part of a state of the parameter; all of it where nothing is sharded."""
        return Size(itemsize, self.numel * self.copies if sharded else self.numel, self.symbols, sharded)


@dataclass(slots=True)
class Block:
    """Consecutive operations that belong together: embedding, one decoder layer, head and loss.

    Attributes:
        layer: decoder layer index or None; repeat: how many identical layers this one stands for.
        checkpointed: forward keeps only ``entries``; backward runs the operations again.
        entries: the arguments (hidden states, rotary tables, mask); exit: the value handed on.
        params: names of the parameters that live in this block.
        unit: the block is a sharding unit (FSDP wrap, ZeRO-3 gather).
        phase: "forward" or "loss".
    """

    name: str
    layer: int | None
    repeat: int = 1
    checkpointed: bool = False
    entries: tuple[int, ...] = ()
    exit: int | None = None
    params: list[str] = field(default_factory=list)
    program: list[Op | Drop] = field(default_factory=list)
    phase: str = "forward"


@dataclass(slots=True)
class Step:
    """One forward pass: blocks in order, the values and parameters they name."""

    blocks: list[Block]
    values: list[Value]
    params: dict[str, Param]
    buffers: list[tuple[str, Size]]  # resident beside the weights: rotary tables, causal masks
    loss: int  # the value backward starts from

    def flops(self, kind: str, dims: Dims) -> int:
        """Forward FLOPs of one micro-batch of one kind, recomputation not counted."""
        total = 0
        for block in self.blocks:
            for op in block.program:
                if isinstance(op, Op) and op.flops is not None and op.flops.kind == kind:
                    total += block.repeat * Size(1, op.flops.count, op.flops.symbols).elements(dims)
        return total
