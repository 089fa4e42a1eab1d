"""What data-parallel sharding adds to a step: gathers around a block, reduced gradients, buckets.

Sizes of the sharded states themselves are in ``memory.states``. Follows torch 2.13.0
``distributed/fsdp`` (one flat unit per decoder layer, root unit kept, backward prefetch of the next
unit), torch DDP's reducer (buckets beside the gradients) and DeepSpeed 0.19.8 ``runtime/zero``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from finefit.memory import updates
from finefit.step.size import Size

if TYPE_CHECKING:
    from finefit.memory.model import Player


class Sharding:
    """Hooks around the blocks of a step; each does nothing where the scheme needs nothing."""

    def __init__(self, player: Player) -> None:
        self.player = player
        self.spec = player.recipe.sharding
        self.kind = self.spec.kind
        self.gathered: dict[int, list[int]] = {}
        self.bucket: list[int] = []

    @property
    def _gathers(self) -> bool:
        return self.kind in ("zero3", "fsdp")

    def _root(self, number: int) -> bool:
        return self.kind == "fsdp" and self.player.step.blocks[number].layer is None

    # -- resident buffers --------------------------------------------------------------------------

    def load(self) -> None:
        """DDP: a bucket the size of each gradient (gradient_as_bucket_view=False, accelerate's default).

        ZeRO-3 keeps one bucket of ``reduce_bucket`` elements for the whole run.
        """
        player = self.player
        if self.kind == "ddp":
            for _, block in player.each_block(enumerate(player.step.blocks)):
                for name in block.params:
                    param = player.step.params[name]
                    if param.trainable:
                        player.alloc(param.size, "buffers", "ddp_bucket", name)
        if self.kind == "zero3":
            player.alloc(Size(2, self.spec.reduce_bucket), "buffers", "reduce_bucket")
        if self.kind == "megatron":
            for _, block in player.each_block(enumerate(player.step.blocks)):
                for name in block.params:
                    size = player.states.main_gradient(player.step.params[name])
                    if size is not None:
                        player.alloc(size, "gradients", "main_grad", name)

    # -- parameters --------------------------------------------------------------------------------

    def gather(self, number: int) -> None:
        """All-gather a block's parameters, each whole in the compute dtype."""
        if number in self.gathered:
            return
        player, block = self.player, self.player.step.blocks[number]
        names = [player.step.params[name] for name in block.params]
        self.gathered[number] = [player.alloc(p.size, "buffers", "all_gather", p.name) for p in names]

    def reshard(self, number: int) -> None:
        self.player.release_all(self.gathered.pop(number, []))

    def reshard_all(self) -> None:
        """What is still gathered when a pass ends: the root unit of FSDP."""
        for number in list(self.gathered):
            self.reshard(number)

    def before_forward(self, number: int) -> None:
        if not self._gathers:
            return
        if self.kind == "fsdp" and number == 0:
            for other in range(len(self.player.step.blocks)):
                if self._root(other):
                    self.gather(other)
        self.gather(number)

    def after_forward(self, number: int) -> None:
        if self._gathers and not self._root(number):
            self.reshard(number)

    def before_backward(self, number: int) -> None:
        """FSDP's BACKWARD_PRE issues the next unit's gather before this unit's gradients are made."""
        if not self._gathers:
            return
        self.gather(number)
        if self.kind == "fsdp" and number > 0 and not self._root(number - 1) and not self._root(number):
            self.gather(number - 1)

    def after_backward(self, number: int) -> None:
        if self._gathers and not self._root(number):
            self.reshard(number)
        if self.kind in ("zero2", "zero3", "fsdp"):
            self._reduce(number)
        if self.kind == "megatron":  # added into main_grad and given back
            for name in self.player.step.blocks[number].params:
                if name in self.player.param_grads:
                    self.player.release(self.player.param_grads.pop(name))

    # -- gradients ---------------------------------------------------------------------------------

    def before_backward_pass(self) -> None:
        """ZeRO-1/2 allocate their contiguous bucket for each backward, two of them when overlapping."""
        if self.kind in ("zero1", "zero2") and not self.bucket:
            copies = 2 if self.spec.overlap_comm else 1
            size = Size(2, self.spec.reduce_bucket)
            self.bucket = [self.player.alloc(size, "buffers", "reduce_bucket") for _ in range(copies)]

    def after_backward_pass(self) -> None:
        """The root unit of FSDP is the last to be reduced and given back."""
        self.reshard_all()

    def _reduce(self, number: int) -> None:
        """Gradients of a block become this rank's shard."""
        player = self.player
        done = [name for name in player.step.blocks[number].params if name in player.param_grads]
        flat = []
        if self.kind == "fsdp":  # copied into one contiguous input of the reduce-scatter
            flat = [player.alloc(player.step.params[n].size, "buffers", "reduce_scatter", n) for n in done]
        for name in done:
            size = player.states.gradient_shard(player.step.params[name])
            shard = player.alloc(size, "gradients", "reduce_scatter", name, pool=player.states.states_pool)
            player.release(player.param_grads.pop(name))
            if player.recipe.optimizer.in_backward:
                updates.update(player, player.step.params[name])
                player.release(shard)
            elif name in player.grad_shards:
                player.release(shard)  # a later micro-batch: added to the shard that is there
            else:
                player.grad_shards[name] = shard
        player.release_all(flat)

    def release_bucket(self) -> None:
        self.player.release_all(self.bucket)
        self.bucket = []
