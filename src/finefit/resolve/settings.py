"""Typed access to what a configuration says, with the tool's default and the source of each value."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from finefit.errors import InputError
from finefit.formats.said import Said
from finefit.resolve.defaults import Default, defaults
from finefit.resolve.shown import shown
from finefit.workload.sourced import Origin, Source

_EXPECTED = {
    "int": ("a whole number", "write it without quotes, point or exponent: 2048"),
    "float": ("a number", "write it without quotes"),
    "bool": ("true or false", "write true or false, without quotes"),
    "str": ("text", "write one word or path"),
    "names": ("a name or a list of names", "write names separated by commas"),
}


_TOO_LARGE = 2**31  # sizes are products of several such numbers; a 32-bit integer holds any real setting


class Settings:
    """One configuration and its defaults. Every getter checks the type and raises InputError at its line."""

    def __init__(self, said: Said) -> None:
        self.said = said
        self.known: Mapping[str, Default] = defaults(said.tool, said.version)

    def stated(self, key: str) -> bool:
        """Whether the file sets the key to something other than null."""
        entry = self.said.entries.get(key)
        return entry is not None and entry.value is not None

    def source(self, key: str) -> Source:
        """Where the value of a key comes from."""
        entry = self.said.entries.get(key)
        if entry is not None and entry.value is not None:
            return Source(Origin.STATED, Path(entry.place).name)
        return Source(Origin.DEFAULT, self.known[key].library)

    def where(self, key: str) -> str:
        """The place of a key, for an error."""
        return self.said.where(key)

    def raw(self, key: str) -> object:
        """The value as written, else the default; null where the key needs a value is refused."""
        entry = self.said.entries.get(key)
        if entry is None:
            return self.known[key].value
        if entry.value is None and not self.known[key].kind.endswith("?") and self.known[key].kind != "any":
            raise InputError("the value is missing", where=self.where(key), fix="write one, or remove the line")
        if isinstance(entry.value, str) and "${" in entry.value:
            raise InputError(
                f"{shown(entry.value)} is a reference that the tool leaves as it stands",
                where=self.where(key),
                fix="write the value itself",
            )
        return entry.value

    def integer(self, key: str, *, minimum: int) -> int:
        """A whole number of at least ``minimum``."""
        value = self.optional_integer(key, minimum=minimum)
        if value is None:
            self._refuse(key, "int", None)
        return value

    def optional_integer(self, key: str, *, minimum: int) -> int | None:
        """A whole number of at least ``minimum``, or None where the key may be empty."""
        value = self.raw(key)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool):
            self._refuse(key, "int", value)
        if value < minimum:
            raise InputError(f"{value} is below {minimum}", where=self.where(key), fix=f"write {minimum} or more")
        if value >= _TOO_LARGE:
            raise InputError(f"{shown(value)} is beyond any run", where=self.where(key), fix="write a smaller number")
        return value

    def number(self, key: str) -> float | None:
        """A finite number, or None where the key may be empty."""
        value = self.raw(key)
        if value is None:
            return None
        if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < 1e18:
            self._refuse(key, "float", value)
        return float(value)

    def flag(self, key: str) -> bool:
        """True or false; 0 and 1 count as Python takes them."""
        value = self.raw(key)
        if value is None:
            return False
        if value not in (True, False) or not isinstance(value, int):
            self._refuse(key, "bool", value)
        return bool(value)

    def text(self, key: str) -> str | None:
        """Text, or None where the key may be empty."""
        value = self.raw(key)
        if value is None:
            return None
        if not isinstance(value, str) or not value.strip():
            self._refuse(key, "str", value)
        return value.strip()

    def names(self, key: str) -> tuple[str, ...]:
        """Names written with commas or as a list; () where there are none."""
        value = self.raw(key)
        if value is None:
            return ()
        parts = value.split(",") if isinstance(value, str) else value
        if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
            self._refuse(key, "names", value)
        return tuple(part.strip() for part in parts if part.strip())

    def unknown_keys(self) -> list[str]:
        """One sentence for each key the tool does not have, with the nearest it has."""
        out = []
        for key, entry in self.said.entries.items():
            if key in self.known:
                continue
            near = difflib.get_close_matches(key, self.known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            out.append(
                f"{entry.place}: {self.said.tool} {self.said.version} has no key {shown(key)} and refuses it{hint}"
            )
        return out

    def _refuse(self, key: str, kind: str, value: object) -> NoReturn:
        expected, fix = _EXPECTED[kind]
        raise InputError(f"{shown(value)} is not {expected}", where=self.where(key), fix=fix)
