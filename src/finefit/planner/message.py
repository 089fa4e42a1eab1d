"""Sentences of an answer, kept apart from their numbers so that a report can translate them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

_NO_VALUES: Mapping[str, object] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Message:
    """An English sentence with named holes; ``str()`` fills them.

    A report in another language translates ``text`` and fills the same holes:
    ``gettext(message.text).format(**message.values)``.

    Attributes:
        text: the template, without a final full stop.
        values: what stands in the holes, already in the form a reader sees.
    """

    text: str
    values: Mapping[str, object] = field(default_factory=lambda: _NO_VALUES, hash=False)

    def __str__(self) -> str:
        return self.text.format(**self.values)


def message(text: str, **values: object) -> Message:
    """A message from its template and the values of its holes."""
    return Message(text, MappingProxyType(values))
