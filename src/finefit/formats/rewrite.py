"""A configuration with some of its keys changed and every other character as it was.

The new text is read again as the tool reads it: the changed keys must hold their new values and all others their old
ones, or nothing is handed out.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from finefit.errors import InputError
from finefit.formats import config, edit_python, edit_shell, edit_toml, edit_tree, yaml11
from finefit.formats.edits import Edit, How, Replacement, splice
from finefit.formats.said import Entry, Said


def original(path: Path) -> str:
    """The text of a configuration with its byte-order mark and line ends, which reading drops.

    Raises:
        InputError: as ``yaml11.read_text``.
    """
    yaml11.read_text(path)
    return path.read_bytes().decode("utf-8")


def rewritten(said: Said, text: str, edits: Sequence[Edit]) -> str:
    """The text with the edits made.

    Args:
        said: the configuration as read from this text.
        text: the whole file, as ``original`` gives it.
        edits: keys of the tool with their new values.

    Raises:
        InputError: a key that cannot be changed alone, with its line and what to do.
    """
    name = str(said.path)
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    body = text[len(mark) :]
    for edit in edits:
        entry = said.entries.get(edit.key)
        if entry is not None and not entry.place.startswith(f"{name}:"):
            raise InputError(
                f"{edit.key} stands in another file", where=entry.place, fix="apply the plan to that file instead"
            )
    wanted = [edit for edit in edits if not _holds(said, edit)]
    found, touched = _changes(body, said, wanted)
    new = splice(body, found)
    _check(said, config.read(said.path, said.tool, text=new), wanted, touched)
    return mark + new


def _holds(said: Said, edit: Edit) -> bool:
    entry = said.entries.get(edit.key)
    if edit.how is How.REMOVE:
        return entry is None
    if edit.how is How.APPEND:
        return entry is not None and isinstance(entry.value, list) and edit.value in entry.value
    return entry is not None and entry.value == edit.value and type(entry.value) is type(edit.value)


def _changes(text: str, said: Said, edits: Sequence[Edit]) -> tuple[list[Replacement], set[str]]:
    name, suffix = str(said.path), said.path.suffix.lower()
    if said.tool in ("skypilot", "dstack") or ":" in next(iter(edits), Edit("")).key:
        raise InputError(
            "the training command stands inside a task of a cloud launcher",
            where=name,
            fix="apply the plan to the config or script that it calls",
        )
    if config.is_script(said.path, text):
        return edit_shell.changes(text, name, edits, said.tool), set()
    if suffix == ".py":
        return edit_python.changes(text, name, edits)
    if suffix == ".toml":
        return edit_toml.changes(text, name, edits), set()
    return edit_tree.changes(text, name, edits, json_text=suffix == ".json"), set()


def _check(before: Said, after: Said, edits: Sequence[Edit], touched: Collection[str]) -> None:
    keys = {edit.key for edit in edits}
    for edit in edits:
        if not _holds(after, edit):
            raise InputError(
                f"{edit.key} would not be read back as {edit.value}",
                where=before.where(edit.key),
                fix="make the change by hand",
            )
    for key in before.entries.keys() | after.entries.keys():
        related = key in touched or any(_same_branch(key, changed) for changed in keys)
        if not related and _text(before.entries.get(key)) != _text(after.entries.get(key)):
            raise InputError(
                f"{key} would change too, because both come from one place",
                where=before.where(key),
                fix="write the value out at the key itself, then plan again",
            )


def _same_branch(key: str, changed: str) -> bool:
    return key == changed or key.startswith(f"{changed}.") or changed.startswith(f"{key}.")


def _text(entry: Entry | None) -> str | None:
    return None if entry is None else repr(entry.value)
