"""LLaMA-Factory training configurations as written: v0 YAML, JSON and command lines (llamafactory 0.9.5).

The tool reads YAML through OmegaConf (0.9.5 ``hparams/parser.py`` ``read_args``), which resolves no
``${...}``, takes ``2e-5`` for a number and refuses duplicate keys.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from finefit.errors import InputError, NotModelled
from finefit.formats import config
from finefit.formats.said import Said
from finefit.formats.tools import TOOLS


def read(path: str | Path, tool: str | None = None) -> Said:
    """A configuration file, or the flags of ``llamafactory-cli train`` in a script, with keys, values and lines.

    Args:
        path: the file.
        tool: "llamafactory" where the user says so; without, a file of another tool is refused.

    Raises:
        InputError: the file is missing or malformed, or names no model_name_or_path.
        NotModelled: the file is for another tool, or in the v1 schema.
    """
    said = config.read(path, tool)
    if said.tool == "llamafactory-v1":
        raise NotModelled(
            "the v1 schema of LLaMA-Factory (USE_V1=1) is not modelled yet",
            where=said.where("model"),
            fix="write the same run in the v0 schema (model_name_or_path: ...)",
        )
    if said.tool != "llamafactory":
        raise NotModelled(
            f"this is a configuration for {TOOLS[said.tool].title}, not for LLaMA-Factory",
            where=str(path),
            fix="name a LLaMA-Factory config",
        )
    entries = {key: entry for key, entry in said.entries.items() if "." not in key}  # every key of the tool is flat
    if "model_name_or_path" not in entries:
        raise InputError(
            "no model_name_or_path: this is not a LLaMA-Factory training config",
            where=str(path),
            fix="add model_name_or_path, or name another file",
        )
    return replace(said, entries=MappingProxyType(entries))
