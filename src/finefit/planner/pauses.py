"""What a run stops for, with the seconds of one checkpoint."""

from __future__ import annotations

from finefit.cost.checkpoints import checkpoint_bytes, result_bytes
from finefit.cost.interruption import WRITE_RATES
from finefit.errors import NotModelled
from finefit.resolve.resolved import Resolved
from finefit.speed import Pauses, work
from finefit.workload import Model, Recipe


def pauses_of(resolved: Resolved, model: Model, recipe: Recipe) -> Pauses:
    """Evaluations and checkpoints of the config; one of these takes its bytes at the likely rate of a disk."""
    seconds = 0.0
    if resolved.saving is not None:
        load = work(model, recipe)
        try:
            size = (result_bytes if resolved.saving.only_model else checkpoint_bytes)(
                load.parameters, load.trained, recipe
            )
        except NotModelled:  # states of an optimizer that nobody knows: weights alone
            size = result_bytes(load.parameters, load.trained, recipe)
        seconds = size / float(WRITE_RATES[1])
    return Pauses(resolved.evaluation, resolved.saving, seconds)
