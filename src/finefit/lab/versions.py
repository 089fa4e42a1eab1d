"""The libraries that a trace runs: their versions, and their silence."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version

import transformers

LIBRARIES = ("torch", "transformers", "peft", "trl", "accelerate", "bitsandbytes")
TRANSFORMERS = tuple(int(part) for part in version("transformers").split(".")[:2])


def versions() -> dict[str, str]:
    """Name and version of each that is installed."""
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


@contextmanager
def quiet() -> Iterator[None]:
    """The libraries say nothing below an error for the duration of the block."""
    bitsandbytes = logging.getLogger("bitsandbytes")  # it looks for CPU kernels, which are never run
    before = transformers.logging.get_verbosity(), bitsandbytes.level
    transformers.logging.set_verbosity_error()
    bitsandbytes.setLevel(logging.ERROR)
    try:
        yield
    finally:
        transformers.logging.set_verbosity(before[0])
        bitsandbytes.setLevel(before[1])
