"""Languages: which one to speak, and everything a person reads in it (gettext; msgids are English)."""

from __future__ import annotations

import gettext
import os
import re
import struct
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from finefit.errors import FinefitError, InputError
from finefit.report.templates import HEAD, Templates, fill

if TYPE_CHECKING:
    from finefit.planner.message import Message

LANGUAGES = ("en", "zh")
LOCALE = Path(__file__).with_name("locale")
DOMAIN = "finefit"
_ENGLISH = re.compile(r"[a-z]+(?: [a-z]+){3}")  # four words that no file, module or value is named by
_DEPTH = 3  # a hole may hold a sentence whose hole holds one


def N_(msgid: str) -> str:  # noqa: N802 (gettext's name for "collect it, translate it later")
    """Mark a text for translation."""
    return msgid


_PLACE = N_(": ")  # between a place and what is said of it


def pick_language(stated: str | None, environ: Mapping[str, str] | None = None) -> str:
    """The language to answer in: as stated, else that of the environment (LC_ALL, LC_MESSAGES, LANG), else English.

    Raises:
        InputError: a stated language that is not spoken.
    """
    if stated is not None:
        found = stated.lower().replace("-", "_").partition("_")[0]
        if found not in LANGUAGES:
            raise InputError(f"language {stated[:20]!r} is not spoken", where="--lang", fix="write en or zh")
        return found
    env = os.environ if environ is None else environ
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        if env.get(name):
            return "zh" if env[name].lower().startswith("zh") else "en"
    return "en"


class Translator:
    """Speaks one language.

    Call it with a msgid and its values for text that the report writes itself; ``sentence`` is for English
    that other parts of finefit have already written.
    """

    def __init__(self, language: str = "en") -> None:
        self.language = language
        self._catalogue = _catalogue(language) if language != "en" else None

    def __call__(self, msgid: str, **values: object) -> str:
        """A text of the report: ``t("fits on {gpu}", gpu=name)``."""
        return fill(self._text(msgid), values) if values else self._text(msgid)

    def sentence(self, english: str) -> str:
        """A finished English sentence in this language; the sentence itself where nobody translated it."""
        return english if self._catalogue is None else self._sentence(english, _DEPTH)

    def message(self, message: Message) -> str:
        """A sentence kept apart from its values, which are translated where they are sentences themselves."""
        values = {name: self.sentence(str(value)) for name, value in message.values.items()}
        return fill(self._text(message.text), values)

    def error(self, error: FinefitError) -> str:
        """An error in one line: what, where, fix."""
        place = f"{error.where}: " if error.where else ""
        cure = f" — {self.sentence(error.fix)}" if error.fix else ""
        return f"{place}{self.sentence(error.what)}{cure}"

    def _text(self, msgid: str) -> str:
        return self._catalogue.gettext(msgid) if self._catalogue and msgid else msgid  # "" is the header's msgid

    def _sentence(self, english: str, depth: int) -> str:
        whole = self._text(english)
        if whole != english or depth == 0:
            return whole
        for msgid, values in _templates(self.language).matches(english):
            said = {name: self._sentence(value, depth - 1) for name, value in values.items()}
            if not any(_ENGLISH.search(value) for value in said.values()):  # else it is another sentence's template
                return said.get(HEAD, "") + fill(self._text(msgid), said)
        place, _, rest = english.partition(": ")  # a place before the sentence, as warnings have it
        said_there = self._sentence(rest, depth - 1)
        return english if said_there == rest else f"{place}{self._text(_PLACE)}{said_there}"


@cache
def _catalogue(language: str) -> gettext.NullTranslations:
    return gettext.translation(DOMAIN, LOCALE, [language])


@cache
def _templates(language: str) -> Templates:
    return Templates(msgids(LOCALE / language / "LC_MESSAGES" / f"{DOMAIN}.mo"))


def msgids(path: Path) -> tuple[str, ...]:
    """All msgids of a compiled catalogue, without its header.

    Layout: GNU gettext manual, "The Format of GNU MO Files".
    """
    data = path.read_bytes()
    order = "<" if data[:4] == b"\xde\x12\x04\x95" else ">"
    count, table = struct.unpack_from(f"{order}2I", data, 8)
    found = []
    for row in range(count):
        length, start = struct.unpack_from(f"{order}2I", data, table + 8 * row)
        found.append(data[start : start + length].decode())
    return tuple(text for text in found if text)
