"""Changes to a configuration as replaced spans of its text: every character outside them stays as it is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from finefit.errors import InputError


class How(StrEnum):
    """What happens to a key."""

    SET = "set"
    APPEND = "append"  # one more item of a list
    REMOVE = "remove"


@dataclass(frozen=True, slots=True)
class Edit:
    """One key and what becomes of it.

    Attributes:
        key: dotted, as ``Said.entries`` names it ("train.micro_batch_size").
        value: text, number, true or false, None, a list or a mapping of them.
        near: a key beside which a new one is written; the last of the section where it is absent.
    """

    key: str
    value: object = None
    how: How = How.SET
    near: str = ""


@dataclass(frozen=True, slots=True)
class Replacement:
    """Characters ``start`` to ``end`` (offsets into the text) become ``new``."""

    start: int
    end: int
    new: str


def splice(text: str, replacements: Iterable[Replacement]) -> str:
    """The text with its spans replaced; those at one place in the order given.

    Raises:
        InputError: two spans overlap.
    """
    parts: list[str] = []
    at = 0
    for one in sorted(replacements, key=lambda r: (r.start, r.end)):
        if one.start < at:
            raise InputError("two changes meet in one place of the file", fix="make the change by hand")
        parts += [text[at : one.start], one.new]
        at = one.end
    return "".join([*parts, text[at:]])


def by_hand(what: str, where: str, value: object) -> InputError:
    """A value that no span of the file holds alone."""
    return InputError(what, where=where, fix=f"write {value} there yourself, then plan again")
