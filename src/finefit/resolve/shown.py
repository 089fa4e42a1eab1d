"""Values as error messages show them."""

from __future__ import annotations

from collections.abc import Mapping


def shown(value: object) -> str:
    """A value short enough for one line; collections by their kind, since aliases can make them huge."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple | set):
        return "a list"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
