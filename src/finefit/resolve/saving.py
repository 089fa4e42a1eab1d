"""Checkpoints a config asks for."""

from __future__ import annotations

from finefit.resolve.settings import Settings
from finefit.workload.saving import Saving


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
