"""Constants of the time model, and which of them a GPU uses.

Every value stands in ``speed_constants.json`` with its source and, where it is fitted, the measured runs that fixed it.
A GPU without a fitted value takes that of its architecture and says so, which widens the interval.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from finefit.errors import DataError, NotModelled
from finefit.workload.cluster import Gpu

_WORKSTATION = ("rtx-", "gtx-", "titan-", "quadro-", "gb10")  # catalogue ids of GeForce and RTX professional cards


@dataclass(frozen=True, slots=True)
class Rate:
    """One constant by its path in the file ("gemm.a100"), times a known factor."""

    key: str
    scale: float = 1.0

    @property
    def value(self) -> float:
        """Its number."""
        return constant(*self.key.split(".")) * self.scale


@cache
def table() -> dict[str, Any]:
    """The whole constants file."""
    text = files("finefit.speed").joinpath("speed_constants.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def constant(*path: str) -> float:
    """One value by its path: ``constant("host", "eager")``.

    Raises:
        DataError: the file has no such value.
    """
    return float(entry(*path)["value"])


def entry(*path: str) -> dict[str, Any]:
    """One constant with its source.

    Raises:
        DataError: the file has no such value.
    """
    node: Any = table()
    for key in path:
        node = node.get(key) if isinstance(node, dict) else None
    if not isinstance(node, dict) or "value" not in node:
        raise DataError(f"no constant {'.'.join(path)}", where="speed_constants.json")
    return node


def of_card(group: str, gpu_id: str) -> Rate | None:
    """The constant of a group that names the card; None where only its class has one."""
    for name, found in table()[group].items():
        if gpu_id in found.get("gpus", ()):
            return Rate(f"{group}.{name}")
    return None


def architecture(gpu: Gpu) -> str:
    """ "volta_turing", "ampere", "ada", "hopper" or "blackwell".

    Raises:
        NotModelled: no training speed of that architecture has been measured.
    """
    return _class(gpu).partition("_")[0] if _class(gpu) != "volta_turing" else "volta_turing"


def gemm_rate(gpu: Gpu) -> tuple[Rate, bool]:
    """Share of the peak that matrix products reach, and whether 16-bit runs on this very card fixed it.

    Raises:
        NotModelled: no training speed of that architecture has been measured.
    """
    own = of_card("gemm", gpu.id)
    if own is not None:
        return own, "only" not in entry(*own.key.split("."))
    kind = _class(gpu)
    return Rate(f"gemm.{table()['gemm_class'].get(kind, kind)}"), False


def cache_bytes(gpu: Gpu) -> int:
    """L2 cache of the card's class, bytes."""
    caches = table()["l2_bytes"]
    return int((caches.get(_class(gpu)) or caches[architecture(gpu)])["value"])


@cache
def _class(gpu: Gpu) -> str:
    """The class whose constants stand in for a card without its own."""
    arch = gpu.arch.split()[0].lower() if gpu.arch else ""
    workstation = gpu.id.startswith(_WORKSTATION)
    if arch in ("volta", "turing"):
        return "volta_turing"
    if arch == "ada":
        professional = not workstation or gpu.id.endswith("-ada")
        return "ada_professional" if professional else "ada_geforce"
    if arch == "hopper":
        return "hopper_cut" if gpu.id.startswith("h20-") else "hopper"
    if arch in ("ampere", "blackwell"):
        return f"{arch}_geforce" if workstation else f"{arch}_datacentre"
    raise NotModelled(
        f"no training speed of {gpu.name} ({gpu.arch}) is known",
        where="GPU",
        fix="memory is estimated all the same; for time choose an NVIDIA card from Volta on",
    )
