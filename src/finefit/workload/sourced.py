"""Where an input came from. Every field of a recipe can be asked for its source."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Origin(StrEnum):
    """How finefit came to know a value."""

    STATED = "stated"  # the user wrote it: detail = "train.yaml:12" or "--rank"
    DEFAULT = "default"  # a tool's default: detail = "llamafactory@0.9.5"
    DERIVED = "derived"  # follows from other inputs by a rule: detail = the rule
    ASSUMED = "assumed"  # nobody said: detail = why this value was taken


@dataclass(frozen=True, slots=True)
class Source:
    """Origin of one value and the place, tool or rule behind it."""

    origin: Origin
    detail: str

    def __str__(self) -> str:
        return f"{self.origin.value} ({self.detail})" if self.detail else self.origin.value
