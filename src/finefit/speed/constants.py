"""Fitted constants of the time model, and which of them a GPU and a recipe use.

Every value stands in ``speed_constants.json`` beside the rows that fixed it. A GPU without a fitted
value takes that of its architecture and says so, which widens the interval.
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
class GpuRates:
    """What one GPU reaches of its peak.

    Attributes:
        gemm: share of the dense 16-bit peak that matrix products reach (above 1: it boosts beyond its specification).
        attention: share of that peak for causal flash attention, whose FLOPs count half the square.
        l2: bytes of L2 cache.
        fitted: measurements of this very card fixed ``gemm``; otherwise it is its architecture's.
        source: the rows behind ``gemm``.
    """

    gemm: float
    attention: float
    l2: int
    fitted: bool
    source: str


@cache
def table() -> dict[str, Any]:
    """The whole constants file."""
    text = files("finefit.speed").joinpath("speed_constants.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def constant(*path: str) -> float:
    """One value by its path: ``constant("launch_seconds", "eager")``.

    Raises:
        DataError: the file has no such value.
    """
    node: Any = table()
    for key in path:
        node = node.get(key) if isinstance(node, dict) else None
    if not isinstance(node, dict) or "value" not in node:
        raise DataError(f"no constant {'.'.join(path)}", where="speed_constants.json")
    return float(node["value"])


def listed(gpu_id: str, *path: str) -> dict[str, Any] | None:
    """The entry of a per-card list that names a GPU."""
    node: Any = table()
    for key in path:
        node = node[key]
    return next((entry for entry in node if gpu_id in entry["gpus"]), None)


def architecture_class(gpu: Gpu) -> str:
    """The class whose constants stand in for a card without its own.

    Raises:
        NotModelled: no training speed of that architecture has been measured.
    """
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


@cache
def gpu_rates(gpu: Gpu) -> GpuRates:
    """Efficiencies of a GPU: its own where fitted, else its architecture's.

    Raises:
        NotModelled: no training speed of that architecture has been measured.
    """
    kind = architecture_class(gpu)
    arch = kind if kind == "volta_turing" else kind.partition("_")[0]
    own = listed(gpu.id, "gemm_efficiency", "fitted")
    entry = own or table()["gemm_efficiency"]["class"][kind]
    caches = table()["l2_bytes"]
    return GpuRates(
        gemm=float(entry["value"]),
        attention=constant("attention_efficiency", arch),
        l2=int((caches.get(kind) or caches[arch])["value"]),
        fitted=own is not None,
        source=entry["rows"],
    )
