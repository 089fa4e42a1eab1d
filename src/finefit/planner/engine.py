"""What an inference engine on the same card leaves to training: reinforcement learning generates between steps.

vLLM and SGLang take a stated share of the whole card for weights, keys and values (vllm 0.11 config/cache.py
``gpu_memory_utilization``). An engine that sleeps gives it back for a step, so two phases have to fit: the step by
itself, and the engine beside the states that rest on the card while it generates.
"""

from __future__ import annotations

from finefit.planner.parts import parts_at
from finefit.workload.model import Model
from finefit.workload.recipe import Recipe

_RESTING = ("weights", "adapters", "optimizer")


def usable_bytes(model: Model, recipe: Recipe, memory: int, allocated: int) -> int:
    """Bytes of a card of ``memory`` that a step with a peak of ``allocated`` may take."""
    beside = recipe.beside
    left = int(memory * (1 - beside.engine_share))
    if not beside.engine_share or not beside.engine_sleeps:
        return left
    if beside.states_leave:
        return memory
    held = parts_at(model, recipe, ("optimizer",))
    resting = sum(held[name] for name in _RESTING)
    return min(memory, left + allocated - resting)
