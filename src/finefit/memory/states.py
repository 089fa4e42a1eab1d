"""Bytes of weights, gradients and optimizer states on one rank, by optimizer and sharding."""

from __future__ import annotations

from collections.abc import Iterator

from finefit.memory.optimizers import Keeper
from finefit.step.ops import Param, Step
from finefit.step.size import Size
from finefit.workload.recipe import Recipe

_MIN_PAGED = 100_000  # smaller states are not paged (bitsandbytes 0.50.2 optim/optimizer.py get_state_buffer)


class States:
    """Sizes of what belongs to each parameter besides the parameter itself."""

    def __init__(self, step: Step, recipe: Recipe) -> None:
        self.step, self.recipe = step, recipe
        kind = recipe.sharding.kind
        self.shard_weights = kind in ("zero3", "fsdp")
        self.shard_grads = kind in ("zero2", "zero3", "fsdp")
        # ZeRO-Offload keeps the partition's states and gradients, and with offload_param the weights, in host RAM
        self.states_pool = "host" if recipe.sharding.offload_optimizer else "device"
        self.weights_pool = "host" if recipe.sharding.offload_params else "device"
        self.shard_optimizer = recipe.sharding.divides_states
        self.keeper = Keeper(recipe.optimizer, wide=recipe.master_weights, sharded=self.shard_optimizer)

    def weight(self, param: Param) -> Size:
        """The parameter as it lies between steps."""
        return param.shard(param.at_rest.bytes, self.shard_weights)

    def gradient_shard(self, param: Param) -> Size:
        """FSDP upcasts the reduced shard to the parameter's own dtype; ZeRO keeps the gradient's."""
        return param.shard(param.at_rest.bytes, self.shard_grads)

    def optimizer(self, param: Param) -> Iterator[tuple[str, Size, str]]:
        """(name, size, pool) of each state tensor of a parameter."""
        if not param.trainable:
            return
        opt = self.recipe.optimizer
        if self.recipe.master_weights:
            yield "fp32_master", self._state(param, 4), self.states_pool
        for piece in self.keeper.states(param):
            paged = opt.paged and piece.pageable and param.numel >= _MIN_PAGED
            yield piece.name, piece.size, "managed" if paged else "host" if opt.kind.host else self.states_pool

    def _state(self, param: Param, itemsize: int) -> Size:
        return param.shard(itemsize, self.shard_optimizer)

    def main_gradient(self, param: Param) -> Size | None:
        """Megatron-Core's persistent buffer that gradients are summed into, in fp32 unless told otherwise.

        megatron-core 0.14 ``distributed/param_and_grad_buffer.py``, ``grad_reduce_in_fp32`` (bf16_mixed of
        Megatron-Bridge 0.3.1, ``accumulate_allreduce_grads_in_fp32`` of Megatron's arguments).
        """
        if self.recipe.sharding.kind != "megatron" or not param.trainable:
            return None
        return Size(self.recipe.sharding.main_gradient, param.numel, param.symbols)

    def step_temporaries(self, param: Param) -> list[Size]:
        """Memory held for a parameter while the optimizer steps.

        DeepSpeed: the partition's gradients in fp32 (stage_1_and_2.py step; stage 3 see ``sub_group``).
        torch's foreach: temporaries of all parameters at once.
        """
        if not param.trainable:
            return []
        if self.recipe.master_weights and self.shard_optimizer:
            whole = self.states_pool == "device" and self.recipe.sharding.kind not in ("zero3", "megatron")
            return [self._state(param, 4)] if whole else []
        return self.keeper.together(param)

    def loop_temporaries(self, param: Param) -> list[list[Size]]:
        """What the update of one parameter holds, set after set, where parameters are updated one by one."""
        return self.keeper.each(param) if param.trainable else []

    def sub_group(self) -> Size | None:
        """ZeRO-3 makes the fp32 gradients of one sub-group at a time (DeepSpeed 0.19.8 stage3.py step)."""
        if self.recipe.sharding.kind != "zero3" or self.states_pool == "host":
            return None
        owned = [(block.repeat, self.step.params[name]) for block in self.step.blocks for name in block.params]
        trained = [(repeat, param) for repeat, param in owned if param.trainable]
        fixed = sum(repeat * param.numel for repeat, param in trained if not param.symbols)
        per_rank = sum(repeat * param.numel for repeat, param in trained if param.symbols)
        return Size(4, 1, (f"subgroup/{fixed}/{per_rank}",))
