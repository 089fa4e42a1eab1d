"""From a model and a recipe to the modelled Timeline: the trained model's step, and the models beside it."""

from __future__ import annotations

from dataclasses import replace

from finefit.memory.model import Player
from finefit.memory.timeline import Timeline
from finefit.step.build import build_step
from finefit.step.preference import LOGPROBS
from finefit.step.size import Size
from finefit.workload.model import Model
from finefit.workload.on_rank import model_on_rank
from finefit.workload.recipe import Recipe

_TOKENS = ("b", "s")


def played(
    model: Model, recipe: Recipe, *, folded: bool = False, first_step: bool = False, workspace: int = 0
) -> Timeline:
    """The Timeline of the fullest rank.

    Args:
        folded: equal layers are played once (``compile_timeline`` alone reads such a list).
        first_step: the first step too, before the optimizer has states.
        workspace: bytes of each of two cuBLAS handles.
    """
    return _player(model, recipe, folded).play(first_step=first_step, workspace=workspace)


def evaluated(model: Model, recipe: Recipe, *, folded: bool = False, workspace: int = 0) -> Timeline:
    """One batch of the evaluation loop, beside the weights and states that training leaves on the GPU.

    Args:
        recipe: how the batch runs (``evaluation.evaluation_recipe``).
        folded, workspace: as for ``played``.
    """
    player = _player(model, recipe, folded, records=False)
    player.load()
    player.take_handles(workspace)
    player.allocate_states()
    player.infer("evaluation", 2)
    return player.timeline()


def _player(model: Model, recipe: Recipe, folded: bool, records: bool = True) -> Player:
    """The player of the trained model, with those of the models beside it."""
    part = model_on_rank(model, recipe.parallel)
    player = Player(build_step(part, recipe, folded=folded, records=records), recipe)
    beside, other = player.beside, recipe.beside
    if other.reference != "none":
        frozen = reference_recipe(recipe)
        beside.reference = Player(build_step(part, frozen, folded=folded, frozen=True), frozen, player)
        if recipe.loss in ("full", "native") and recipe.task in LOGPROBS:
            beside.logits = Size(4, part.vocab, _TOKENS)
    if other.critic:
        critic = replace(recipe, task="rm", loss="score")
        beside.resident.append(Player(build_step(part, critic, folded=folded), critic, player))
    if other.reward:
        judge = replace(reference_recipe(recipe), task="rm", loss="score")
        beside.resident.append(Player(build_step(part, judge, folded=folded, frozen=True), judge, player))
    if other.generated:
        beside.cache = Size(2, 2 * part.kv_width * other.generated, _TOKENS)
    return player


def reference_recipe(recipe: Recipe) -> Recipe:
    """How a frozen model runs: no adapters, nothing recomputed, its weights where and in what the stack keeps them."""
    beside = recipe.beside
    offload = beside.reference_offload if beside.reference == "copy" else recipe.sharding.offload_params
    return replace(
        recipe,
        method="full",
        lora=None,
        weight_dtype=beside.reference_dtype or recipe.weight_dtype,
        checkpointing="none",
        sharding=replace(recipe.sharding, offload_params=offload),
    )
