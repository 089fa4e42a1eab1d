"""The JSON form of an answer: one object, the same bytes for the same answer."""

from __future__ import annotations

import json
from typing import Any, Protocol


class Answered(Protocol):
    """Any answer: it knows its own contract object."""

    def to_dict(self) -> dict[str, Any]: ...


def dumps(answer: Answered) -> str:
    """The contract object as text, keys in the order of the contract, indented, with a final line end.

    Raises:
        ValueError: a number that JSON does not have (NaN, infinity): a bug in an estimate.
    """
    return json.dumps(answer.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
