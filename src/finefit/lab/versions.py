"""Versions of the libraries that a trace runs."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

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
