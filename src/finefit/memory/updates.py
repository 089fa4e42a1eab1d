"""The optimizer's phase: what it holds while it changes the parameters, and the gradients it lets go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from finefit.step.ops import Param

if TYPE_CHECKING:
    from finefit.memory.model import Player


def optimizer_step(player: Player, step: int) -> None:
    player.enter("optimizer", step)
    sub_group = player.states.sub_group()
    if sub_group is not None:
        player.release(player.alloc(sub_group, "workspace", "fp32_gradients"))
    held: dict[int, list[int]] = {}  # by block, so that the frees of a repeated one fold like its allocations
    for number, block in player.each_block(enumerate(player.step.blocks)):
        held[number] = []
        for name in block.params:
            param = player.step.params[name]
            if not player.recipe.optimizer.in_backward:
                update(player, param)
            held[number] += [
                player.alloc(s, "workspace", "foreach", name) for s in player.states.step_temporaries(param)
            ]
    for number, _ in player.each_block(enumerate(player.step.blocks)):
        player.release_all(held[number])


def update(player: Player, param: Param) -> None:
    """Temporaries of an optimizer that goes through the parameters one by one."""
    for sizes in player.states.loop_temporaries(param):
        player.release_all([player.alloc(size, "workspace", "update", param.name) for size in sizes])


def zero_grad(player: Player) -> None:
    for _, block in player.each_block(enumerate(player.step.blocks)):
        for name in block.params:
            for grads in (player.param_grads, player.grad_shards):
                if name in grads:
                    player.release(grads.pop(name))
    player.sharding.release_bucket()
