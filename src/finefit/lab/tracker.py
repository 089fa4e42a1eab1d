"""Records every allocation and free of fake tensors while real code runs, as a Timeline.

A dispatch mode above ``FakeTensorMode`` sees each operator's outputs; a weak reference to their storage tells
when it dies. Modules are known from forward hooks, and in the backward pass from the sequence number that
autograd gave the node while the module ran.
"""

from __future__ import annotations

import bisect
import re
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from finefit.lab import kernels
from finefit.lab.shim import Recompute
from finefit.memory.timeline import Mark, Tensor, Timeline
from finefit.step.size import Dims, fixed

Label = tuple[str, str]  # category, module

_aten = torch.ops.aten
_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d+)(?:\.|$)")
_PEFT_PREFIX = "base_model.model."

# With a dispatch mode on, C++ takes out-of-place paths where eager runs in place: gradient accumulation
# (torch/csrc/autograd/input_buffer.cpp), index and scatter backward. ``_fold`` undoes it.
_IN_PLACE_IN_EAGER = frozenset(
    (
        _aten.add.Tensor,
        _aten.index_put.default,
        _aten.scatter_add.default,
        _aten.scatter.src,
        _aten.index_add.default,
    )
)


@dataclass(slots=True)
class _Block:
    """One storage: its bytes and who made it."""

    nbytes: int
    op: str
    module: str
    phase: str
    assumed: bool = False
    source: int | None = None  # while loading: the block it was copied from


def canonical(name: str) -> str:
    """Module path as the model's own code names it, without PEFT's wrapper around the model."""
    return name.removeprefix(_PEFT_PREFIX)


def layer_of(module: str) -> int | None:
    """Index of the decoder layer in a module path."""
    match = _LAYER.search(module)
    return int(match[1]) if match else None


class Tracker(TorchDispatchMode):
    """Dispatch mode that logs storages.

    Args:
        recompute: state of the reentrant checkpoint from ``shim.fake_cuda``.
        arch: GPU architecture whose kernels' temporaries are added.
        padded: what data-dependent questions about masks are answered: are there padding tokens?
    """

    def __init__(self, recompute: Recompute, arch: str, padded: bool) -> None:
        super().__init__()
        self._recompute, self._arch, self._padded = recompute, arch, padded
        self._blocks: list[_Block] = []
        self._events: list[int] = []
        self._live: dict[int, int] = {}  # storage address -> block
        self._refs: dict[int, weakref.ref[Any]] = {}
        self._marks: list[Mark] = [Mark(0, "load", 0)]
        self._modules: list[str] = []
        self._candidates: list[tuple[int, int]] = []  # (event of the output, block of the first operand)
        self._forward: tuple[list[int], list[str]] = ([], [])  # autograd sequence number -> module
        self._again: tuple[list[int], list[str]] = ([], [])  # the same inside reentrant recomputation
        self._workspaces: set[bool] = set()
        self._parameters: dict[int, str] = {}
        self._hooks: list[Any] = []
        self._any: set[int] = set()  # blocks that answer "is any of them ...?"

    # -- what the run tells ------------------------------------------------------------------------

    @property
    def phase(self) -> str:
        return self._marks[-1].phase

    def __len__(self) -> int:
        """Blocks seen so far; the next one gets this number."""
        return len(self._blocks)

    def mark(self, phase: str, step: int) -> None:
        """From here on the run is in that phase."""
        self._marks.append(Mark(len(self._events), phase, step))

    @contextmanager
    def module(self, name: str) -> Iterator[None]:
        """Work of something that is no module (the loss function)."""
        self._push(name)
        try:
            yield
        finally:
            self._pop()

    def attach(self, model: nn.Module) -> None:
        """Learn which module runs when. Hooks must survive the early stop of checkpoints."""
        for name, module in model.named_modules():
            path = canonical(name)

            def before(module: nn.Module, args: Any, path: str = path) -> None:
                self._push(path)

            def after(module: nn.Module, args: Any, out: Any) -> None:
                self._pop()

            self._hooks.append(module.register_forward_pre_hook(before))
            self._hooks.append(module.register_forward_hook(after, always_call=True))
        for name, parameter in model.named_parameters():
            self._parameters[id(parameter)] = canonical(name).rpartition(".")[0]

    def detach(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def adopt(self, tensor: torch.Tensor, owner: str) -> None:
        """Count a tensor that was made before the tracker ran: a weight as loading leaves it."""
        with self.module(owner):
            self._see(tensor, "load")

    def block_of(self, tensor: torch.Tensor) -> int | None:
        """Block a tensor lives in, None where it is not on the device."""
        return self._live.get(tensor.untyped_storage()._cdata)

    # -- modules -----------------------------------------------------------------------------------

    def _note(self, name: str) -> None:
        if self._recompute.depth:
            table = self._again
        elif self.phase in ("forward", "loss"):
            table = self._forward
        else:
            return
        number = torch._C._autograd._get_sequence_nr()
        # A new backward thread, or a new step's graph, starts lower than what was noted before.
        while table[0] and table[0][-1] > number:
            table[0].pop()
            table[1].pop()
        table[0].append(number)
        table[1].append(name)

    def _push(self, name: str) -> None:
        self._modules.append(name)
        self._note(name)

    def _pop(self) -> None:
        if self._modules:
            self._modules.pop()
        self._note(self._modules[-1] if self._modules else "")

    def _where(self) -> str:
        if self._modules:
            return self._modules[-1]
        if self.phase != "backward":
            return ""
        node = torch._C._current_autograd_node()
        if node is None:
            return ""
        variable = getattr(node, "variable", None)
        if variable is not None:  # AccumulateGrad
            return self._parameters.get(id(variable), "")
        # Between nodes the engine names the one that called it: the checkpoint, a node of the outer forward pass.
        inner = self._recompute.depth and node.name() != "CheckpointFunctionBackward"
        numbers, names = self._again if inner else self._forward
        at = bisect.bisect_right(numbers, node._sequence_nr()) - 1
        return names[at] if at >= 0 else ""

    # -- storages ----------------------------------------------------------------------------------

    def _dead(self, block: int, address: int, _: Any) -> None:
        if self._blocks[block].nbytes:
            self._events.append(~block)
        self._live.pop(address, None)
        self._refs.pop(block, None)

    def _allocate(self, nbytes: int, op: str, assumed: bool = False, module: str | None = None) -> int:
        self._blocks.append(_Block(nbytes, op, self._where() if module is None else module, self.phase, assumed))
        if nbytes:
            self._events.append(len(self._blocks) - 1)
        return len(self._blocks) - 1

    def _owner(self, operand: Any) -> str | None:
        """No module runs while the optimizer steps: what it makes belongs to the tensor it is made from."""
        if self.phase != "optimizer" or not isinstance(operand, torch.Tensor):
            return None
        block = self.block_of(operand)
        return None if block is None else self._blocks[block].module

    def _see(self, tensor: torch.Tensor, op: str, source: Any = None) -> int | None:
        if tensor.device.type != "cuda":
            return None
        storage = tensor.untyped_storage()
        address = storage._cdata
        if address in self._live:
            return self._live[address]
        block = self._allocate(storage.nbytes(), op, module=self._owner(source))
        if self.phase == "load" and isinstance(source, torch.Tensor):
            self._blocks[block].source = self.block_of(source)
        self._live[address] = block
        self._refs[block] = weakref.ref(storage, partial(self._dead, block, address))
        return block

    # -- dispatch ----------------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        answer = self._answer(func, args)
        if answer is not None:
            return answer
        name = func._schema.name
        self._before(name)
        out = func(*args, **kwargs)
        op = func._opname
        first = args[0] if args else None
        if func is _aten.any.default:
            answer_block = self._see(out, op, first)
            if answer_block is not None:
                self._any.add(answer_block)
        if isinstance(out, torch.Tensor):
            before = len(self._events)
            block = self._see(out, op, first)
            if func in _IN_PLACE_IN_EAGER and block is not None and len(self._events) == before + 1:
                self._maybe_in_place(before, args[0], out)
        elif isinstance(out, (tuple, list)):
            sources = first if isinstance(first, (tuple, list)) and len(first) == len(out) else [None] * len(out)
            for item, source in zip(out, sources, strict=True):
                if isinstance(item, torch.Tensor):
                    self._see(item, op, source)
        temps = kernels.TEMPS.get(name)
        if temps is not None:
            made = [self._allocate(n, op, assumed=True) for n in temps(args, kwargs)]
            self._events.extend(~block for block in made)
        return out

    def _answer(self, func: Any, args: Any) -> Any:
        """Results of operators whose shape or value depends on data that fake tensors lack."""
        if func is _aten._local_scalar_dense.default and isinstance(args[0], FakeTensor) and args[0].constant is None:
            dtype = args[0].dtype
            if dtype == torch.bool:
                # transformers asks "are all kept?" (masking_utils.py) or "is any masked?" (until 4.52)
                return self._padded if self.block_of(args[0]) in self._any else not self._padded
            return 1.0 if dtype.is_floating_point else 1
        if func is _aten._fused_rms_norm.default:  # no meta function in torch 2.13.0
            x, shape = args[0], args[1]
            outer = tuple(x.shape[: x.dim() - len(shape)]) + (1,) * len(shape)
            out = (torch.empty_like(x), x.new_empty(outer, dtype=torch.float32))
            for item in out:
                self._see(item, func._opname)
            return out
        if func is _aten.index.Tensor and any(i is not None and i.dtype == torch.bool for i in args[1]):
            x, mask = args[0], args[1][0]  # every element counts as chosen: the largest it can be
            indices = self._allocate(8 * mask.numel() * mask.dim(), "nonzero", assumed=True)
            self._events.append(~indices)
            chosen = x.new_empty((mask.numel(), *x.shape[mask.dim() :]))
            self._see(chosen, func._opname)
            return chosen
        return None

    def _before(self, name: str) -> None:
        if name in kernels.CUBLAS and self.phase != "load":
            thread = self.phase == "backward"  # the engine's device thread has a handle of its own
            if thread not in self._workspaces:
                self._workspaces.add(thread)
                self._modules.append("autograd" if thread else "forward")  # it belongs to the thread, not to a module
                self._allocate(kernels.cublas_workspace(self._arch), "cublas_workspace", assumed=True)
                self._modules.pop()

    def _maybe_in_place(self, event: int, operand: Any, out: torch.Tensor) -> None:
        if torch.is_grad_enabled() or not isinstance(operand, torch.Tensor) or operand._is_view():
            return  # a view keeps its base alive, so eager too makes a new tensor
        if operand.shape == out.shape and operand.dtype == out.dtype:
            block = self.block_of(operand)
            if block is not None and self._blocks[block].nbytes == self._blocks[self._events[event]].nbytes:
                self._candidates.append((event, block))

    # -- result ------------------------------------------------------------------------------------

    def _fold(self) -> tuple[list[int], list[int]]:
        """Events with the observer's effect undone, and the original index of each.

        Where the first operand of a candidate dies right after the output was made, eager reuses it.
        """
        events = self._events
        dropped: set[int] = set()
        alias: dict[int, int] = {}
        for event, operand in self._candidates:
            for later in range(event + 1, min(event + 4, len(events))):
                if events[later] >= 0:
                    break
                if ~events[later] == operand:
                    dropped.update((event, later))
                    alias[events[event]] = operand
                    break

        def root(block: int) -> int:
            while block in alias:
                block = alias[block]
            return block

        kept = [i for i in range(len(events)) if i not in dropped]
        return [root(events[i]) if events[i] >= 0 else ~root(~events[i]) for i in kept], kept

    def _name_sources(self, known: Mapping[int, Label]) -> None:
        """What a named tensor was copied from while loading belongs to the same module."""
        for block, (_, module) in known.items():
            source = self._blocks[block].source
            while source is not None and not self._blocks[source].module:
                self._blocks[source].module = module
                source = self._blocks[source].source

    def timeline(self, known: Mapping[int, Label], dims: Dims) -> Timeline:
        """The run as a Timeline.

        Args:
            known: what the blocks hold that the caller knows by name (weights, gradients, ...); the rest
                follows from phase and module.
        """
        self._name_sources(known)
        events, kept = self._fold()
        numbers: dict[int, int] = {}
        tensors: list[Tensor] = []
        for event in events:
            if event >= 0 and event not in numbers:
                numbers[event] = len(tensors)
                tensors.append(_tensor(self._blocks[event], known.get(event)))
        marks = [Mark(bisect.bisect_left(kept, m.start), m.phase, m.step) for m in self._marks]
        renumbered = [numbers[e] if e >= 0 else ~numbers[~e] for e in events if (e if e >= 0 else ~e) in numbers]
        return Timeline(tuple(tensors), tuple(renumbered), tuple(_compact(marks)), dims=dims)


def _tensor(block: _Block, label: Label | None) -> Tensor:
    category, module = label if label is not None else (_category(block), block.module)
    return Tensor(
        size=fixed(block.nbytes),
        category=category,
        phase=block.phase,
        op=block.op,
        module=module,
        layer=layer_of(module),
        assumed=block.assumed,
    )


def _category(block: _Block) -> str:
    if block.assumed:
        return "workspace"
    if block.phase == "load":
        return "weights"
    if block.phase == "optimizer":
        return "workspace"
    if block.phase == "loss" or block.module == "loss":
        return "logits"
    return "activations"


def _compact(marks: Iterable[Mark]) -> Iterator[Mark]:
    """Marks without those whose phase holds no event."""
    pending: Mark | None = None
    for mark in marks:
        if pending is not None and mark.start > pending.start:
            yield pending
        pending = mark
    if pending is not None:
        yield pending
