"""What a row of training data says: turns of a chat, a plain text, or two answers of which one is preferred.

Keys are those of LLaMA-Factory's dataset_info columns with their default names (llamafactory 0.9.5 data/parser.py
DatasetAttr; data/converter.py) and of TRL's dataset formats (docs/source/dataset_formats.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from finefit.errors import InputError

USER, ASSISTANT, SYSTEM, TOOL = "user", "assistant", "system", "tool"
# Roles as they are written: data/parser.py (human, gpt, observation, function_call) and OpenAI's.
_ROLES = {
    "human": USER,
    "user": USER,
    "gpt": ASSISTANT,
    "assistant": ASSISTANT,
    "model": ASSISTANT,
    "function_call": ASSISTANT,
    "system": SYSTEM,
    "observation": TOOL,
    "tool": TOOL,
    "function": TOOL,
}
_TEXTS = ("text", "content")


class BadRow(ValueError):
    """A row that cannot be used; its text says why."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One message: its role (USER, ASSISTANT, SYSTEM, TOOL) and text."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class Sample:
    """What is trained on.

    Attributes:
        turns: the chat, without its last answer where there are two.
        answers: of a preference pair, the chosen and the rejected turns; empty otherwise.
        text: a plain text, which no template is applied to; None for a chat.
        pictured: it holds pictures, video or sound, whose tokens are not counted here.
    """

    turns: tuple[Turn, ...] = ()
    answers: tuple[tuple[Turn, ...], ...] = ()
    text: str | None = None
    pictured: bool = False


def shape_of(row: Mapping[str, Any], where: str) -> str:
    """Which shape a row has, by its keys.

    Raises:
        InputError: none of them.
    """
    keys = {key for key, value in row.items() if value is not None}
    if {"chosen", "rejected"} <= keys:
        return "preference"
    if "conversations" in keys or "conversation" in keys:
        return "sharegpt"
    if "messages" in keys:
        return "messages"
    if ("instruction" in keys or "prompt" in keys) and keys & {"output", "response", "completion"}:
        return "alpaca"
    if keys & set(_TEXTS):
        return "text"
    shown = ", ".join(sorted(str(key) for key in keys))[:80]
    raise InputError(
        f"the columns {shown} are none of those that are known",
        where=where,
        fix="state --format: sharegpt, alpaca, messages, text or preference",
    )


def sample_of(row: Mapping[str, Any], shape: str) -> Sample:
    """The sample of a row.

    Raises:
        BadRow: the row lacks what its shape needs.
    """
    sample = SHAPES[shape](row)
    if any(row.get(key) for key in ("images", "image", "videos", "audios")):
        return Sample(sample.turns, sample.answers, sample.text, True)
    return sample


def _chat(row: Mapping[str, Any]) -> Sample:
    value = next((row[key] for key in ("conversations", "messages", "conversation") if row.get(key) is not None), None)
    turns = _turns(value)
    stated = row.get("system")
    if isinstance(stated, str) and stated and turns[0].role != SYSTEM:
        turns = (Turn(SYSTEM, stated), *turns)
    return Sample(turns)


def _turns(value: object) -> tuple[Turn, ...]:
    if not isinstance(value, list) or not value:
        raise BadRow("no messages")
    turns = []
    for message in value:
        if not isinstance(message, dict):
            raise BadRow("a message is not an object")
        role = message.get("role", message.get("from"))
        role = _ROLES.get(role.lower()) if isinstance(role, str) else None
        if role is None:
            raise BadRow("a message has no known role")
        turns.append(Turn(role, _content(message.get("content", message.get("value")))))
    return tuple(turns)


def _content(value: object) -> str:
    """The text of a message; of OpenAI's list of parts, the parts of text."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(part["text"] for part in value if isinstance(part, dict) and isinstance(part.get("text"), str))
    if value is None:  # a call of a tool without words
        return ""
    raise BadRow("a message is not text")


def _question(row: Mapping[str, Any]) -> tuple[Turn, ...]:
    turns = [Turn(SYSTEM, row["system"])] if isinstance(row.get("system"), str) and row["system"] else []
    history = row.get("history")
    for pair in history if isinstance(history, list) else ():
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(text, str) for text in pair):
            raise BadRow("the history is not pairs of texts")
        turns += [Turn(USER, pair[0]), Turn(ASSISTANT, pair[1])]
    asked = row.get("instruction")
    asked = row.get("prompt") if asked is None else asked
    if isinstance(asked, list):
        return (*turns, *_turns(asked))
    if not isinstance(asked, str):
        raise BadRow("the instruction is not text")
    more = row.get("input") or ""
    if not isinstance(more, str):
        raise BadRow("the input is not text")
    return (
        *turns,
        Turn(USER, "\n".join(text for text in (asked, more) if text)),
    )  # AlpacaDatasetConverter: "prompt\nquery"


def _alpaca(row: Mapping[str, Any]) -> Sample:
    answer = next((row[key] for key in ("output", "response", "completion") if row.get(key) is not None), None)
    turns = _question(row)
    return Sample((*turns, *_answer(answer, turns)))


def _answer(value: object, before: tuple[Turn, ...] = ()) -> tuple[Turn, ...]:
    """The turns of an answer; TRL's chosen and rejected may repeat the question."""
    if isinstance(value, str):
        return (Turn(ASSISTANT, value),)
    if isinstance(value, dict):
        return _turns([value])
    if isinstance(value, list):
        turns = _turns(value)
        return turns[len(before) :] if before and turns[: len(before)] == before else turns
    raise BadRow("the answer is not text")


def _preference(row: Mapping[str, Any]) -> Sample:
    if any(row.get(key) is not None for key in ("conversations", "messages")):
        turns = _chat(row).turns
    elif row.get("instruction") is not None or row.get("prompt") is not None:
        turns = _question(row)
    else:  # the question is told by both answers (TRL: implicit prompt)
        turns = ()
    chosen, rejected = (_answer(row.get(key), turns) for key in ("chosen", "rejected"))
    return Sample(turns, (chosen, rejected))


def _text(row: Mapping[str, Any]) -> Sample:
    value = next((row[key] for key in _TEXTS if isinstance(row.get(key), str)), None)
    if value is None:
        raise BadRow("no text")
    return Sample(text=value)


SHAPES: dict[str, Callable[[Mapping[str, Any]], Sample]] = {
    "sharegpt": _chat,
    "alpaca": _alpaca,
    "messages": _chat,
    "text": _text,
    "preference": _preference,
}
