"""Sentences with named holes: find the template an English sentence was made from.

Planner, catalogue and resolver write plain English, ``f"{path} has no data set {name}"``, and know
nothing of languages. The msgid of such a sentence is its template, ``{path} has no data set {name}``,
collected from the source by ``scripts.messages``. To translate a finished sentence its template is found
again, its holes are read off, translated themselves where they are sentences, and put into the
translated template.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from string import Formatter

_FORMATTER = Formatter()
HEAD = "_head"
_LETTERS = 5  # templates with less fixed text, such as "{low} to {high}", would match sentences by accident


def holes(template: str) -> tuple[str, ...]:
    """Names of the holes of a template, in order of first use.

    Raises:
        ValueError: braces that do not match.
    """
    return tuple(dict.fromkeys(name for _, name, _, _ in _FORMATTER.parse(template) if name is not None))


def fill(template: str, values: Mapping[str, object]) -> str:
    """The template with its holes filled."""
    parts = []
    for literal, name, _, _ in _FORMATTER.parse(template):
        parts.append(literal)
        if name is not None:
            parts.append(str(values[name]))
    return "".join(parts)


class Templates:
    """Finds the templates of a sentence, the one with the most fixed text first.

    A template that starts with a space or a semicolon is a tail: what stands before it is the value ``HEAD``.
    """

    def __init__(self, msgids: Iterable[str]) -> None:
        known = [(msgid, *_pattern(msgid)) for msgid in msgids if holes(msgid) and _letters(msgid) >= _LETTERS]
        known.sort(key=lambda item: (-item[1], item[0]))
        self._known = [(msgid, anchor, pattern) for msgid, _, anchor, pattern in known]

    def matches(self, sentence: str) -> Iterator[tuple[str, dict[str, str]]]:
        """Templates that may have made a sentence, each with the text in its holes."""
        for msgid, anchor, pattern in self._known:
            if anchor in sentence:
                found = pattern.fullmatch(sentence)
                if found:
                    yield msgid, found.groupdict()


def _letters(msgid: str) -> int:
    return sum(char.isalpha() for literal, *_ in _FORMATTER.parse(msgid) for char in literal)


def _pattern(msgid: str) -> tuple[int, str, re.Pattern[str]]:
    """Characters of fixed text, the longest piece of it, and the expression of whole sentences."""
    literals, source, seen = [], f"(?P<{HEAD}>.*?)" if msgid[0] in " ;" else "", set()
    for literal, name, _, _ in _FORMATTER.parse(msgid):
        literals.append(literal)
        source += re.escape(literal)
        if name is not None:
            source += f"(?P={name})" if name in seen else f"(?P<{name}>.*?)"
            seen.add(name)
    return sum(map(len, literals)), max(literals, key=len), re.compile(source, re.DOTALL)
