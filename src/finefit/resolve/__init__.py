"""From what was said to a whole workload: defaults by tool and version, each field with its source.

``resolve_config`` reads a training config, ``resolve_flags`` takes a model and flags; both give a
``Resolved``. ``on_gpus`` spreads a recipe over GPUs. The names are imported on first use, so that flags
alone never load the readers of configs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from finefit.resolve.config import resolve_config
    from finefit.resolve.data import file_lengths, stated_lengths
    from finefit.resolve.flags import resolve_flags
    from finefit.resolve.gpus import on_gpus
    from finefit.resolve.resolved import Resolved

__all__ = ["Resolved", "file_lengths", "on_gpus", "resolve_config", "resolve_flags", "stated_lengths"]

_HOMES = {
    "Resolved": "resolved",
    "file_lengths": "data",
    "on_gpus": "gpus",
    "resolve_config": "config",
    "resolve_flags": "flags",
    "stated_lengths": "data",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(name)
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
