"""LLaMA-Factory training configurations as written: v0 YAML, JSON and command lines (llamafactory 0.9.5).

The tool reads YAML through OmegaConf (0.9.5 ``hparams/parser.py`` ``read_args``), which resolves no
``${...}``, takes ``2e-5`` for a number and refuses duplicate keys.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from finefit.errors import InputError
from finefit.formats import config
from finefit.formats.said import Said


def read(path: str | Path) -> Said:
    """A configuration file, or the flags of ``llamafactory-cli train`` in a script, with keys, values and lines.

    Raises:
        InputError: the file is missing or malformed, or names no model_name_or_path.
    """
    said = config.read(path, "llamafactory")
    entries = {key: entry for key, entry in said.entries.items() if "." not in key}  # every key of the tool is flat
    if "model_name_or_path" not in entries:
        raise InputError(
            "no model_name_or_path: this is not a LLaMA-Factory training config",
            where=str(path),
            fix="add model_name_or_path, or name another file",
        )
    return replace(said, entries=MappingProxyType(entries))
