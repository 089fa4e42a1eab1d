"""finefit: how big a GPU, for how long, and what will it cost to fine-tune a language model?

``plan`` answers the whole question, ``estimate`` the memory alone (``finefit.api``); errors are in
``finefit.errors``. Nothing is imported before it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from finefit.api import memory as estimate
    from finefit.api import plan
    from finefit.errors import FinefitError, InputError, NotModelled, SourceUnreachable, UnknownGpu, UnknownModel

__all__ = [
    "FinefitError",
    "InputError",
    "NotModelled",
    "SourceUnreachable",
    "UnknownGpu",
    "UnknownModel",
    "estimate",
    "plan",
]


_HOMES = {"estimate": ("finefit.api", "memory"), "plan": ("finefit.api", "plan")}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'finefit' has no attribute {name!r}")
    from importlib import import_module

    home, attribute = _HOMES.get(name, ("finefit.errors", name))
    return getattr(import_module(home), attribute)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
