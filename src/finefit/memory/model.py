"""The modelled Timeline: a Step played op by op, forward and backward, as PyTorch's autograd runs it.

A tensor lives while something refers to it: a local variable of the library, a backward function
that saved it, the gradient buffer of a value. Sharding comes in through the sizes of the states
(``states.States``) and the hooks around a block (``sharding.Sharding``).
"""

from __future__ import annotations

from collections.abc import Iterable

from finefit.memory import updates
from finefit.memory.beside import Beside
from finefit.memory.sharding import Sharding
from finefit.memory.states import States
from finefit.memory.timeline import Fold, Mark, Tensor, Timeline
from finefit.step.ops import COMPARE, Block, Drop, Op, Step
from finefit.step.size import Size
from finefit.workload.recipe import Recipe


class Player:
    """Plays a step; ``play`` returns the Timeline."""

    def __init__(self, step: Step, recipe: Recipe, trained: Player | None = None) -> None:
        """``trained``: the player of the model beside which this one lies, whose list it writes into."""
        self.step, self.recipe = step, recipe
        self.tensors: list[Tensor] = trained.tensors if trained else []
        self.events: list[int] = trained.events if trained else []
        self.marks: list[Mark] = trained.marks if trained else []
        self.folds: list[Fold] = trained.folds if trained else []
        self.refs: list[int] = trained.refs if trained else []
        self.beside = Beside(self)
        self.phase = "load"
        self.layer: int | None = None
        self.states = States(self.step, self.recipe)
        self.where: dict[int, int] = {}  # value -> tensor that holds it now
        self.storages: dict[int, int] = {}  # storage -> tensor
        self.kept: dict[tuple[int, int], list[int]] = {}  # (block, op) -> tensors saved for its backward
        self.noded: dict[int, list[int]] = {}  # block -> tensors that nodes of the graph hold themselves
        self.grads: dict[int, int] = {}  # value -> tensor of its gradient
        self.param_grads: dict[str, int] = {}
        self.grad_shards: dict[str, int] = {}  # this rank's part of reduced gradients
        self.pending: dict[str, tuple[int, str, int]] = {}  # gradient of a tied weight waiting for its other uses
        self.category: dict[int, str] = {}
        self.uses: dict[str, int] = {}
        self.lagging: str | None = None  # parameter whose gradient LOMO has not used yet
        copies: dict[int, int] = {}  # value -> blocks that its own stands for
        for block in self.step.blocks:
            for item in block.program:
                if isinstance(item, Op):
                    for value in item.outs:
                        self.category[value] = item.category
                        copies[value] = block.repeat
                    for name in item.params:
                        self.uses[name] = self.uses.get(name, 0) + 1
        dropped = {item.value for b in self.step.blocks for item in b.program if isinstance(item, Drop)}
        self.sharding = Sharding(self)
        self.undropped = [(value, copies[value]) for value in self.category if value not in dropped]

    # -- events ------------------------------------------------------------------------------------

    def alloc(
        self, size: Size, category: str, op: str, module: str = "", *, assumed: bool = False, pool: str = "device"
    ) -> int:
        index = len(self.tensors)
        self.tensors.append(Tensor(size, category, self.phase, op, module, self.layer, 0, pool, assumed))
        self.refs.append(1)
        self.events.append(index)
        return index

    def hold(self, tensor: int) -> int:
        self.refs[tensor] += 1
        return tensor

    def release(self, tensor: int) -> None:
        self.refs[tensor] -= 1
        if self.refs[tensor] == 0:
            self.events.append(~tensor)

    def release_all(self, tensors: Iterable[int]) -> None:
        for tensor in tensors:
            self.release(tensor)

    def enter(self, phase: str, step: int) -> None:
        self.phase = phase
        self.marks.append(Mark(len(self.events), phase, step))

    def temporary(self, sizes: Iterable[Size], op: Op, *, assumed: bool = False) -> list[int]:
        return [self.alloc(s, "workspace", op.name, op.module, assumed=assumed) for s in sizes]

    # -- forward -----------------------------------------------------------------------------------

    def forward(self, number: int, block: Block) -> None:
        """Run a block; a checkpointed one saves nothing but its arguments."""
        saving = not block.checkpointed
        recorded = saving or not self.recipe.reentrant  # the reentrant implementation runs it without a graph
        if block.checkpointed:
            self.kept[number, -1] = [self.hold(self.where[value]) for value in block.entries]
        for position, item in enumerate(block.program):
            if isinstance(item, Drop):
                self.drop_folded(item)
            else:
                self.run(item)
                if saving:
                    self.save(number, position, item)
                if recorded and item.keeps:
                    self.noded.setdefault(number, []).extend(self.hold(self.where[value]) for value in item.keeps)

    def run(self, op: Op) -> None:
        temps = self.temporary(op.temps, op) + self.temporary(op.temps_assumed, op, assumed=True)
        for value in op.outs:
            info = self.step.values[value]
            if value in op.new:
                self.storages[info.storage] = self.alloc(info.size, op.category, op.name, op.module)
            else:
                self.hold(self.storages[info.storage])
            self.where[value] = self.storages[info.storage]
        self.release_all(temps)

    def save(self, number: int, position: int, op: Op) -> None:
        if op.saves:
            self.kept[number, position] = [self.hold(self.where[value]) for value in op.saves]

    def drop(self, value: int) -> None:
        self.release(self.where[value])

    def drop_folded(self, item: Drop) -> None:
        """A drop of a value that each of the blocks that its own stands for has made."""
        self.drop_times(item.value, 1 if item.owner is None else self.step.blocks[item.owner].repeat)

    def drop_times(self, value: int, copies: int) -> None:
        self.release_times([self.where[value]], copies)

    def release_times(self, tensors: Iterable[int], copies: int) -> None:
        start = len(self.events)
        self.release_all(tensors)
        if copies > 1:
            self.folds.append(Fold(start, len(self.events), copies))

    def drop_rest(self) -> None:
        """What no operation lets go: a training loop's own references, and with the loss the nodes of the graph."""
        for value, copies in self.undropped:
            self.drop_times(value, copies)
        for number, tensors in self.noded.items():
            self.release_times(tensors, self.step.blocks[number].repeat)
        self.noded.clear()

    # -- backward ----------------------------------------------------------------------------------

    def backward(self, number: int, block: Block) -> None:
        end = len(block.program)
        if not block.checkpointed:
            self.reverse(number, block, 0, end)
            return
        last = -1
        if not self.recipe.reentrant:  # recomputed when the first saved tensor is asked for
            last = self.last_saving(block)
            self.reverse(number, block, last + 1, end)
            end = last + 1
        leftovers = self.recompute(number, block, last)
        self.reverse(number, block, 0, end)
        self.release_all(leftovers)
        self.release_all(self.kept.pop((number, -1)))

    @staticmethod
    def last_saving(block: Block) -> int:
        """Where the last tensor or parameter is saved."""
        saving = (isinstance(item, Op) and (item.saves or item.saves_weight) for item in block.program)
        return max((i for i, saves in enumerate(saving) if saves), default=-1)

    def recompute(self, number: int, block: Block, last: int) -> list[int]:
        """Run the block again, now saving. Returns what stays referenced until its backward is done.

        The reentrant implementation holds the block's output while it calls backward on it; the other
        one stops right where the last tensor is saved (torch 2.13.0 utils/checkpoint.py early stop).
        """
        self.where.update(zip(block.entries, self.kept[number, -1], strict=True))
        born: dict[int, None] = {}
        noded: list[int] = []
        for position, item in enumerate(block.program):
            if isinstance(item, Drop):
                if item.value in born:
                    del born[item.value]
                    self.drop(item.value)
                continue
            if item.once:
                continue
            if position == last and not set(item.saves) & set(item.outs):
                self.save(number, position, item)
                break
            self.run(item)
            born.update(dict.fromkeys(item.outs))
            self.save(number, position, item)
            noded += [self.hold(self.where[value]) for value in item.keeps]
            if position == last:
                break
        held = []
        for value in born:
            if self.recipe.reentrant and value == block.exit:
                held.append(self.where[value])
            else:
                self.drop(value)
        if self.recipe.reentrant:  # its backward runs through the new graph, the other one through the old
            return held + noded
        self.release_all(noded)
        return held

    def reverse(self, number: int, block: Block, start: int, end: int) -> None:
        for position in range(end - 1, start - 1, -1):
            item = block.program[position]
            if isinstance(item, Op):
                self.differentiate(item, self.kept.pop((number, position), []))

    def differentiate(self, op: Op, saved: list[int]) -> None:
        """One backward function: gradients of its inputs and parameters from those of its outputs."""
        incoming = [self.grads.pop(value) for value in op.outs if value in self.grads]
        if not incoming:
            self.release_all(saved)
            return
        temps = self.temporary(op.back, op) + self.temporary(op.back_assumed, op, assumed=True)
        made: list[tuple[int, int]] = []
        for value, how in op.grads:
            if how == "pass":
                made.append((value, self.hold(incoming[0])))
            else:
                size = self.step.values[value].size
                made.append((value, self.alloc(size, self.category[value], op.name, op.module)))
        fresh = [(name, self.parameter_gradient(name, op)) for name in op.params]
        self.release_all(temps)
        self.release_all(saved)
        for value, tensor in made:
            self.accumulate(value, tensor, op)
        self.release_all(incoming)
        for name, tensor in fresh:
            self.accumulate_parameter(name, tensor, op)

    def parameter_gradient(self, name: str, op: Op) -> int:
        return self.alloc(self.step.params[name].size, "gradients", op.name, op.module)

    def accumulate(self, value: int, tensor: int, op: Op) -> None:
        """Second gradient of a value: added in place where nothing else holds the first one."""
        if value not in self.grads:
            self.grads[value] = tensor
            return
        first = self.grads[value]
        if self.refs[first] > 1:
            self.grads[value] = self.alloc(self.step.values[value].size, self.category[value], op.name, op.module)
            self.release(first)
        self.release(tensor)

    def accumulate_parameter(self, name: str, tensor: int, op: Op) -> None:
        if self.uses[name] > 1:  # tied weight: both gradients meet in one buffer
            if name not in self.pending:
                self.pending[name] = (tensor, op.name, 1)
                return
            first, maker, met = self.pending.pop(name)
            if maker in ("mm", "addmm"):  # the head's is a transposed view, so the sum is out of place
                total = self.alloc(self.step.params[name].size, "gradients", "add", op.module)
                self.release(first)
                first = total
            self.release(tensor)
            tensor = first
            if met + 1 < self.uses[name]:  # an encoder-decoder's embedding is used three times
                self.pending[name] = (tensor, "add", met + 1)
                return
        if name in self.param_grads:
            self.release(tensor)  # added in place
        else:
            self.param_grads[name] = tensor
        if self.recipe.optimizer.in_backward and not self.states.shard_grads:
            self.update_in_backward(name)

    def update_in_backward(self, name: str) -> None:
        """The parameter is updated and its gradient given back; LOMO does so when the next gradient is there.

        lomo_optim 0.1.1 registers hooks on tensors, which run before ``.grad`` is set; others run after it
        (transformers 5.24.0 trainer_optimizer.py, torchtune 0.6.1 training/memory.py).
        """
        if not self.recipe.optimizer.kind.lags:
            updates.update(self, self.step.params[name])
            self.release(self.param_grads.pop(name))
            return
        self.catch_up()
        self.lagging = name

    def catch_up(self) -> None:
        """LOMO's update, which lets the gradient go as soon as it is copied to fp32."""
        if self.lagging is not None:
            self.release(self.param_grads.pop(self.lagging))
            updates.update(self, self.step.params[self.lagging])
            self.lagging = None

    # -- one run -----------------------------------------------------------------------------------

    def each_block(self, blocks: Iterable[tuple[int, Block]]) -> Iterable[tuple[int, Block]]:
        """Blocks in order; the events of a repeated one are marked as a fold."""
        for number, block in blocks:
            start = len(self.events)
            self.layer = block.layer
            yield number, block
            self.layer = None
            if block.repeat > 1:
                self.folds.append(Fold(start, len(self.events), block.repeat))

    def load(self) -> None:
        self.enter("load", 0)
        for name, size in self.step.buffers:
            self.alloc(size, "buffers", name)
        for _, block in self.each_block(enumerate(self.step.blocks)):
            for name in block.params:
                param = self.step.params[name]
                pool = self.states.weights_pool
                self.alloc(self.states.weight(param), param.category, "parameter", name, pool=pool)
        self.sharding.load()
        self.beside.load()

    def allocate_states(self) -> None:
        self.beside.allocate_states()
        for _, block in self.each_block(enumerate(self.step.blocks)):
            for name in block.params:
                for suffix, size, pool in self.states.optimizer(self.step.params[name]):
                    self.alloc(size, "optimizer", suffix, name, pool=pool)

    def micro_batch(self, step: int) -> None:
        blocks = list(enumerate(self.step.blocks))
        waiting = self.beside.waiting(step)
        phase = ""
        for number, block in self.each_block(blocks):
            if block.name == COMPARE:
                self.beside.compare("reference", step)
                phase = ""
            if block.phase != phase:
                phase = block.phase
                self.enter(phase, step)
            self.sharding.before_forward(number)
            self.forward(number, block)
            self.sharding.after_forward(number)
        self.enter("backward", step)
        self.sharding.before_backward_pass()
        root = self.step.loss
        self.grads[root] = self.alloc(self.step.values[root].size, "logits", "ones_like")
        for number, block in self.each_block(reversed(blocks)):
            self.sharding.before_backward(number)
            self.backward(number, block)
            self.sharding.after_backward(number)
        self.sharding.after_backward_pass()
        self.drop_rest()
        self.beside.give_back(waiting)
        self.catch_up()

    def infer(self, phase: str, step: int) -> None:
        """A forward pass of a step that keeps nothing for a backward."""
        self.enter(phase, step)
        for number, block in self.each_block(enumerate(self.step.blocks)):
            if block.name == COMPARE:
                self.beside.compare(phase, step)
            self.sharding.before_forward(number)
            self.forward(number, block)
            self.sharding.after_forward(number)
        self.sharding.reshard_all()
        self.drop_rest()

    def play(self, *, first_step: bool, workspace: int) -> Timeline:
        """Load, then a first step (no optimizer states yet) if asked for, then a steady one."""
        self.load()
        self.take_handles(workspace)
        micro_batches = 1 if self.recipe.grad_accum == 1 else 2
        for step in (1, 2) if first_step else (2,):
            if step == 2 and not first_step:
                self.allocate_states()
            self.beside.prepare(step)
            for _ in range(micro_batches):
                self.micro_batch(step)
            if step == 1:
                self.allocate_states()
            updates.optimizer_step(self, step)
            updates.zero_grad(self)
        return self.timeline()

    def take_handles(self, workspace: int) -> None:
        """cuBLAS's workspaces of the forward and the autograd thread, ``workspace`` bytes each."""
        for thread in ("forward", "autograd") if workspace else ():
            self.alloc(Size(1, workspace), "workspace", "cublas_workspace", thread, assumed=True)

    def timeline(self) -> Timeline:
        """What was played so far."""
        return Timeline(tuple(self.tensors), tuple(self.events), tuple(self.marks), tuple(self.folds))
