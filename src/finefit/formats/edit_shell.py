"""Changes to launch scripts by the spans of the words of their training command."""

from __future__ import annotations

import re
import shlex
from bisect import bisect_left
from collections.abc import Sequence

from finefit.errors import InputError
from finefit.formats import shell
from finefit.formats.config import training
from finefit.formats.edits import Edit, How, Replacement, by_hand
from finefit.formats.launch import Occurrence, occurrences
from finefit.formats.shell import Script, Word

_VARIABLE = re.compile(r'"?\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})"?\Z')
_GAP = re.compile(r"(?:\s|\\\n)+\Z")


def changes(text: str, name: str, edits: Sequence[Edit], tool: str) -> list[Replacement]:
    """The spans to replace, as offsets into the text as it is.

    Raises:
        InputError: a value that an expansion makes, or that stands in another file, with its line.
    """
    source = text.replace("\r\n", "\n")
    script = shell.read(source, name)
    run = training(script, name, tool)[0]
    command = _Command(source, name, script, occurrences(run.arguments))
    found = [replacement for edit in edits for replacement in command.change(edit)]
    if source == text:
        return found
    places = [match.start() for match in re.finditer("\r\n", text)]  # each moves what follows it by one
    shifted = [at - number for number, at in enumerate(places)]

    def original(at: int) -> int:
        return at + bisect_left(shifted, at)

    return [Replacement(original(r.start), original(r.end), r.new.replace("\n", "\r\n")) for r in found]


class _Command:
    def __init__(self, source: str, name: str, script: Script, settings: Sequence[Occurrence]) -> None:
        self.source, self.name, self.script, self.settings = source, name, script, settings

    def change(self, edit: Edit) -> list[Replacement]:
        if edit.how is not How.SET:
            raise by_hand(f"{edit.key} is not changed on a command line", self.name, edit.value)
        found = next((one for one in reversed(self.settings) if one.key == edit.key), None)
        if found is None:
            return [self._insert(edit)]
        values = _values(edit.value)
        if found.equals:
            return [self._of_word(found, edit, values[0] if len(values) == 1 else ",".join(values))]
        if not found.values:
            if edit.value is True:
                return []
            span = self._span(found.word, edit)
            return [Replacement(span[1], span[1], " " + " ".join(map(shlex.quote, values)))]
        first, *rest = found.values
        if len(found.values) == 1 and (held := self._variable(first)):
            return [Replacement(*held, shlex.quote(values[0]))]
        out = [Replacement(*self._span(first, edit), " ".join(map(shlex.quote, values)))]
        for word in rest:
            start, end = self._span(word, edit)
            gap = _GAP.search(self.source, 0, start)
            out.append(Replacement(gap.start() if gap else start, end, ""))
        return out

    def _of_word(self, found: Occurrence, edit: Edit, value: str) -> Replacement:
        start, end = self._span(found.word, edit)
        raw = self.source[start:end]
        key, _, held = raw.partition("=")
        if set(key) & set("\"'$`\\"):  # the quotes are around the whole word
            return Replacement(start, end, shlex.quote(f"{found.word.text.partition('=')[0]}={value}"))
        quoted = shlex.quote(value)
        return Replacement(end - len(held), end, quoted)

    def _span(self, word: Word, edit: Edit) -> tuple[int, int]:
        """Where a word's own letters stand.

        Raises:
            InputError: an expansion makes it.
        """
        if word.span is None or set(word.raw) & set("$`"):
            made = f" ({word.raw})" if word.raw else ""
            what = f"{edit.key} is made by the shell{made}"
            raise by_hand(what, f"{self.name}:{word.line}", _values(edit.value)[0])
        return word.span

    def _variable(self, word: Word) -> tuple[int, int] | None:
        """Where the text of a variable stands that is set once, without an expansion, and used once."""
        match = _VARIABLE.match(word.raw)
        if match is None:
            return None
        name = match[1] or match[2]
        held = self.script.assignments.get(name, ())
        used = re.findall(rf"\$\{{?{name}\b", self.source)
        if len(held) != 1 or len(used) != 1 or set(held[0].raw) & set("$`"):
            return None
        return held[0].span

    def _insert(self, edit: Edit) -> Replacement:
        """Behind a setting that has letters of its own, in the way that one is written."""
        anchors = [one for one in self.settings if (one.values or (one.word,))[-1].span is not None]
        anchors = [one for one in anchors if one.word.span is not None]
        beside = next((one for one in reversed(anchors) if one.key == edit.near), anchors[-1] if anchors else None)
        if beside is None or beside.word.span is None:
            raise InputError(
                f"{edit.key} is not written here, and there is no flag to write it beside",
                where=self.name,
                fix="add it yourself, then plan again",
            )
        last = (beside.values or (beside.word,))[-1].span or beside.word.span
        before = _GAP.search(self.source, 0, beside.word.span[0])
        gap = before[0] if before else " "
        values = " ".join(map(shlex.quote, _values(edit.value)))
        dashes = "--" if beside.dashes else ""
        row = f"{dashes}{edit.key}={values}" if beside.equals else f"--{edit.key} {values}"
        return Replacement(last[1], last[1], gap + row)


def _values(value: object) -> list[str]:
    if isinstance(value, list | tuple):
        return [part for item in value for part in _values(item)]
    if value is None:
        return ["null"]
    return [str(value).lower() if isinstance(value, bool) else str(value)]
