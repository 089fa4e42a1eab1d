"""Any tool's configuration in one vocabulary: one module a tool, all giving a ``Reading``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from finefit.formats import config
from finefit.formats.said import Entry, Said
from finefit.resolve.readings import (
    accelerate,
    axolotl,
    cloud,
    deepspeed,
    litgpt,
    llamafactory,
    nemo,
    python,
    swift,
    torchtitan,
    torchtune,
    trl,
    verl,
)
from finefit.resolve.readings.reading import CORE, FIELDS, Reading, Refusal, Value

__all__ = ["CORE", "FIELDS", "Reading", "Refusal", "Value", "read_config", "reading_of"]

_READERS: dict[str, Callable[[Said], Reading]] = {
    "accelerate": accelerate.reading,
    "axolotl": axolotl.reading,
    "deepspeed": deepspeed.reading,
    "litgpt": litgpt.reading,
    "llamafactory": llamafactory.v0,
    "llamafactory-v1": llamafactory.v1,
    "megatron-bridge": nemo.bridge,
    "ms-swift": swift.reading,
    "nemo-automodel": nemo.automodel,
    "nemo-rl": nemo.rl,
    "torchtitan": torchtitan.reading,
    "torchtune": torchtune.reading,
    "trl": trl.reading,
    "unsloth": python.unsloth,
    "verl": verl.reading,
    "xtuner": python.xtuner,
}


def read_config(path: str | Path, tool: str | None = None, *, launcher: str | Path | None = None) -> Reading:
    """A configuration file or launch script in canonical terms.

    Args:
        path: the file.
        tool: whose it is ("axolotl"); told by its content if left out.
        launcher: the accelerate file that the run is launched with, where no script says it.

    Raises:
        InputError: the file is missing, malformed, of no known tool, or a value in it has a wrong kind.
    """
    said = config.read(path, tool)
    if launcher is not None:
        named = {"config_file": Entry(str(launcher), str(launcher)), **said.launch}
        said = replace(said, launch=MappingProxyType(named))
    return reading_of(said)


def reading_of(said: Said) -> Reading:
    """The same from a file already read.

    Raises:
        InputError: a value has a wrong kind.
    """
    if said.tool in ("skypilot", "dstack"):
        return cloud.reading(said, reading_of)
    return _READERS[said.tool](said)
