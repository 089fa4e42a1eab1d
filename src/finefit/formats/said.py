"""What a configuration file says: keys, values and the lines they stand on, before any default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Entry:
    """One value and where it was written ("train.yaml:12", or "--set" for an override)."""

    value: object
    place: str


@dataclass(frozen=True, slots=True)
class Said:
    """A configuration as written.

    Attributes:
        tool: whose configuration it is ("llamafactory", "axolotl", ...).
        version: version whose rules it is read by.
        path: the file; companions are looked for beside it.
        entries: keys in the order of the file; those of nested sections by dotted names.
        warnings: what is odd about the writing itself, one sentence each.
        program: the entry point and its subcommand where a command line says it ("swift rlhf"), else "".
        launch: what launchers and the environment say: nproc_per_node, CUDA_VISIBLE_DEVICES, config_file, ...
        comments: comments of the file with their lines; some state the recipe or the GPUs nowhere else.
    """

    tool: str
    version: str
    path: Path
    entries: Mapping[str, Entry] = field(default_factory=lambda: MappingProxyType({}))
    warnings: tuple[str, ...] = ()
    program: str = ""
    launch: Mapping[str, Entry] = field(default_factory=lambda: MappingProxyType({}))
    comments: tuple[tuple[int, str], ...] = ()

    def where(self, key: str) -> str:
        """The place of a key, or of the file where the key is absent: "train.yaml:12: cutoff_len"."""
        entry = self.entries.get(key)
        return f"{entry.place}: {key}" if entry else str(self.path)

    def override(self, values: Mapping[str, object], place: str) -> Said:
        """A copy in which ``values`` replace or extend the file's keys, as ``key=value`` after the file does."""
        extra = {key: Entry(value, place) for key, value in values.items()}
        return replace(self, entries=MappingProxyType({**self.entries, **extra}))
