"""Bytes of weights, gradients and optimizer states on one rank, by optimizer and sharding."""

from __future__ import annotations

from collections.abc import Iterator

from finefit.step.ops import Param, Step
from finefit.step.size import Size
from finefit.workload.recipe import Recipe

# bitsandbytes 0.50.2 optim/optimizer.py: states of tensors below this size stay fp32
_MIN_8BIT = 4096
_BLOCK_8BIT = 256  # one fp32 constant per 256 elements
_MIN_PAGED = 100_000  # smaller states are not paged (optimizer.py get_state_buffer)


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
        self.shard_optimizer = kind in ("zero1", "zero2", "zero3", "fsdp")

    def weight(self, param: Param) -> Size:
        """The parameter as it lies between steps."""
        return Size(param.at_rest.bytes, param.numel, param.symbols, self.shard_weights)

    def gradient_shard(self, param: Param) -> Size:
        """FSDP upcasts the reduced shard to the parameter's own dtype; ZeRO keeps the gradient's."""
        return Size(param.at_rest.bytes, param.numel, param.symbols, self.shard_grads)

    def optimizer(self, param: Param) -> Iterator[tuple[str, Size, str]]:
        """(name, size, pool) of each state tensor of a parameter."""
        if not param.trainable:
            return
        opt = self.recipe.optimizer
        if self.recipe.master_weights:
            yield "fp32_master", self._state(param, 4), self.states_pool
        if opt.name == "sgd":
            if opt.momentum:
                yield "momentum_buffer", self._state(param, param.at_rest.bytes), self.states_pool
            return
        for name in ("exp_avg", "exp_avg_sq"):
            if opt.name == "adamw_8bit":
                yield from self._eight_bit(param, name)
            else:
                itemsize = 4 if self.recipe.master_weights else (opt.state_dtype or param.at_rest).bytes
                pool = "managed" if opt.paged and param.numel >= _MIN_PAGED else self.states_pool
                yield name, self._state(param, itemsize), pool

    def _state(self, param: Param, itemsize: int) -> Size:
        return Size(itemsize, param.numel, param.symbols, self.shard_optimizer)

    def _eight_bit(self, param: Param, name: str) -> Iterator[tuple[str, Size, str]]:
        if param.numel < _MIN_8BIT and not param.symbols:
            yield name, self._state(param, 4), "device"
            return
        pool = "managed" if self.recipe.optimizer.paged and param.numel >= _MIN_PAGED else "device"
        yield name, self._state(param, 1), pool
        yield f"{name}.absmax", Size(4, -(-param.numel // _BLOCK_8BIT), param.symbols, self.shard_optimizer), "device"

    def step_temporary(self, param: Param) -> Size | None:
        """Memory held for a parameter while the optimizer steps.

        DeepSpeed: the partition's gradients in fp32 (stage_1_and_2.py step; stage 3 see ``sub_group``).
        torch/optim/adamw.py foreach: sqrt(exp_avg_sq) of all parameters at once.
        """
        opt = self.recipe.optimizer
        if param.trainable and self.recipe.master_weights and self.shard_optimizer:
            whole = self.states_pool == "device" and self.recipe.sharding.kind != "zero3"
            return self._state(param, 4) if whole else None
        if not param.trainable or opt.impl != "foreach" or opt.name != "adamw":
            return None
        itemsize = 4 if self.recipe.master_weights else (opt.state_dtype or param.at_rest).bytes
        return self._state(param, itemsize)

    def loop_temporary(self, param: Param) -> Size | None:
        """torch/optim/adamw.py single-tensor loop: sqrt and its quotient, one parameter at a time."""
        opt = self.recipe.optimizer
        if not param.trainable or opt.impl != "loop" or opt.name != "adamw":
            return None
        return self._state(param, (opt.state_dtype or param.at_rest).bytes)

    def sub_group(self) -> Size | None:
        """ZeRO-3 makes the fp32 gradients of one sub-group at a time (DeepSpeed 0.19.8 stage3.py step)."""
        if self.recipe.sharding.kind != "zero3" or self.states_pool == "host":
            return None
        owned = [(block.repeat, self.step.params[name]) for block in self.step.blocks for name in block.params]
        trained = [(repeat, param) for repeat, param in owned if param.trainable]
        fixed = sum(repeat * param.numel for repeat, param in trained if not param.symbols)
        per_rank = sum(repeat * param.numel for repeat, param in trained if param.symbols)
        return Size(4, 1, (f"subgroup/{fixed}/{per_rank}",))
