"""Checkpoints and evaluations a config asks for."""

from __future__ import annotations

from finefit.resolve.settings import Settings
from finefit.workload.saving import Evaluation, Saving


def saving_of(settings: Settings) -> Saving | None:
    """Saving as the Trainer reads it; None for a tool without these keys."""
    if not {"save_strategy", "save_steps", "save_only_model", "save_total_limit"} <= set(settings.known):
        return None
    strategy = str(settings.raw("save_strategy")).lower()
    if strategy == "false":  # YAML 1.1 reads a bare "no" as false
        strategy = "no"
    only_model = settings.flag("save_only_model")
    key = "save_only_model" if only_model else "save_steps" if strategy == "steps" else "save_strategy"
    return Saving(
        strategy=strategy,
        steps=settings.number("save_steps") or 0.0,
        only_model=only_model,
        limit=settings.optional_integer("save_total_limit", minimum=1),
        decided_by=settings.source(key),
        key=key,
    )


def evaluation_of(settings: Settings, samples: int | None) -> Evaluation | None:
    """Evaluations as the Trainer has them; None where the run never evaluates.

    ``eval_steps`` is ``logging_steps`` where it is left out (transformers 5.6.0 training_args.py ``__post_init__``).
    The samples are what ``val_size`` takes off the data: a share below 1, else a number.

    Args:
        samples: left for training.
    """
    strategy = settings.raw("eval_strategy")
    named = strategy if strategy in ("steps", "epoch") else "no"
    if named == "no" and not settings.flag("do_eval"):
        return None
    every = settings.number("eval_steps") or settings.number("logging_steps") or 500.0
    size = settings.number("val_size") or 0.0
    taken: int | None = None
    if size > 1:
        taken = int(size)
    elif 0 < size < 1 and samples is not None:
        taken = round(samples * size / (1 - size))
    return Evaluation(str(named), every, taken)
