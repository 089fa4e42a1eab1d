"""A reading in the making: typed access to what a file says, the tool's defaults, and the source of each value."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

from finefit.errors import InputError
from finefit.formats.said import Entry, Said
from finefit.resolve.defaults import Default, defaults
from finefit.resolve.readings.reading import Reading, Refusal, Value
from finefit.resolve.shown import shown
from finefit.workload.sourced import Origin, Source

_LARGE = 2**31  # as in resolve.settings: beyond any setting of a run
_TRUE, _FALSE = {"true", "yes", "on", "1", "y", "t"}, {"false", "no", "off", "0", "n", "f"}


class Draft:
    """Collects the fields of one reading.

    Keys are tried in the order given; the first that is written with a value wins, else the table's default of
    the first key applies.
    """

    def __init__(self, said: Said, tool: str | None = None) -> None:
        self.said = said
        self.tool = tool or said.tool
        self.known: Mapping[str, Default] = defaults(self.tool, said.version)
        self.values: dict[str, Value] = {}
        self.refusals: list[Refusal] = []
        self.assumptions: list[str] = []
        self.warnings: list[str] = list(said.warnings)

    # what the file says -------------------------------------------------------------------------------------

    def entry(self, *keys: str) -> tuple[str, Entry] | None:
        """The first of the keys that is written with a value."""
        for key in keys:
            found = self.said.entries.get(key)
            if found is not None and found.value is not None:
                return key, found
        return None

    def stated(self, *keys: str) -> bool:
        """Whether one of the keys is written with a value."""
        return self.entry(*keys) is not None

    def raw(self, *keys: str) -> object:
        """The value as written, else the default of the first key; None without either."""
        found = self.entry(*keys)
        if found is not None:
            return found[1].value
        default = self.known.get(keys[0])
        return None if default is None else default.value

    def where(self, *keys: str) -> str:
        """The place of the key that counts, else the file."""
        found = self.entry(*keys)
        return f"{found[1].place}: {found[0]}" if found else str(self.said.path)

    def source(self, *keys: str) -> Source:
        """Where the value of a key comes from."""
        found = self.entry(*keys)
        if found is not None:
            return Source(Origin.STATED, Path(found[1].place).name)
        default = self.known.get(keys[0])
        return Source(Origin.DEFAULT, default.library if default else f"{self.tool}@{self.said.version}")

    # typed -------------------------------------------------------------------------------------------------

    def integer(self, *keys: str, minimum: int = 0) -> int | None:
        """A whole number, also where YAML made it text or a float that is whole ("8", 1e3).

        Raises:
            InputError: not a whole number, or out of range.
        """
        value = self.raw(*keys)
        if value is None:
            return None
        if isinstance(value, str):
            with suppress(ValueError):
                value = float(value) if not value.strip().lstrip("+-").isdigit() else int(value)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise InputError(f"{shown(value)} is not a whole number", where=self.where(*keys), fix="write one: 2048")
        if not minimum <= value < _LARGE:
            raise InputError(f"{shown(value)} is out of range", where=self.where(*keys), fix=f"write {minimum} or more")
        return value

    def number(self, *keys: str) -> float | None:
        """A finite number, also where YAML made it text ("2e-5").

        Raises:
            InputError: no number.
        """
        value = self.raw(*keys)
        if isinstance(value, str):
            with suppress(ValueError):
                value = float(value)
        if value is None:
            return None
        if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < 1e18:
            raise InputError(f"{shown(value)} is not a number", where=self.where(*keys), fix="write a number: 0.05")
        return float(value)

    def flag(self, *keys: str) -> bool:
        """True or false, also as text; any other text counts as on ("gradient_checkpointing: unsloth").

        Raises:
            InputError: neither, nor text.
        """
        value = self.raw(*keys)
        if value is None:
            return False
        if isinstance(value, str):
            return value.strip().lower() not in _FALSE and value.strip() != ""
        if isinstance(value, bool) or value in (0, 1):
            return bool(value)
        raise InputError(f"{shown(value)} is not true or false", where=self.where(*keys), fix="write true or false")

    def text(self, *keys: str) -> str | None:
        """Text; numbers are taken as they were written, an empty text is None.

        Raises:
            InputError: a list, a mapping, true or false.
        """
        value = self.raw(*keys)
        if value is None:
            return None
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = str(value)
        if not isinstance(value, str):
            raise InputError(f"{shown(value)} is not text", where=self.where(*keys), fix="write one word or path")
        return value.strip() or None

    def names(self, *keys: str) -> tuple[str, ...]:
        """Names with commas, blanks or as a list; () where there are none.

        Raises:
            InputError: anything else.
        """
        value = self.raw(*keys)
        if value is None or value is False:
            return ()
        parts = value.replace(",", " ").split() if isinstance(value, str) else value
        if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
            raise InputError(f"{shown(value)} is no list of names", where=self.where(*keys), fix="write [a, b]")
        return tuple(part.strip() for part in parts if part.strip())

    # fields ------------------------------------------------------------------------------------------------

    def put(self, name: str, value: object, *keys: str) -> None:
        """A field whose value stands at a key, or is that key's default."""
        place = self.where(*keys) if self.entry(*keys) else ""
        self.values[name] = Value(value, self.source(*keys), place)

    def derive(self, name: str, value: object, rule: str, *keys: str) -> None:
        """A field that follows from others by a rule."""
        self.values[name] = Value(value, Source(Origin.DERIVED, rule), self.where(*keys) if keys else "")

    def assume(self, name: str, value: object, why: str, place: str = "") -> None:
        """A field nobody states outright; the reason is shown as an assumption."""
        self.values[name] = Value(value, Source(Origin.ASSUMED, why), place)
        self.assumptions.append(why)

    def refuse(self, what: str, fix: str, *keys: str) -> None:
        """Something that keeps the run from being planned."""
        self.refusals.append(Refusal(what, self.where(*keys), fix))

    def warn(self, sentence: str, *keys: str) -> None:
        """Something the reader should check."""
        self.warnings.append(f"{self.where(*keys)}: {sentence}" if keys else sentence)

    def reading(self, kind: str = "train") -> Reading:
        """The finished reading."""
        return Reading(
            tool=self.said.tool,
            version=self.said.version,
            path=self.said.path,
            kind=kind,
            values=MappingProxyType(dict(self.values)),
            refusals=tuple(self.refusals),
            assumptions=tuple(dict.fromkeys(self.assumptions)),
            warnings=tuple(dict.fromkeys(self.warnings)),
        )
