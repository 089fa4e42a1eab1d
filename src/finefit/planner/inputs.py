"""Every input of an answer with where it came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Protocol

from finefit.workload.cluster import Cluster
from finefit.workload.model import Model
from finefit.workload.recipe import Recipe
from finefit.workload.sourced import Source


class Answered(Protocol):
    """What plans and memory answers have in common."""

    @property
    def model(self) -> Model: ...
    @property
    def model_text(self) -> str: ...
    @property
    def recipe(self) -> Recipe: ...
    @property
    def cluster(self) -> Cluster | None: ...
    @property
    def sources(self) -> Mapping[str, Source]: ...


def inputs_of(answer: Answered) -> dict[str, dict[str, Any]]:
    """Dotted field name → {"value", "source"}: the model, the recipe, the lengths where there are any, the GPUs."""
    sources = answer.sources
    out: dict[str, dict[str, Any]] = {"model": _entry(answer.model.name, sources.get("model"))}
    out["model"]["stated_as"] = answer.model_text
    out["model"]["origin"] = answer.model.origin
    for name, value in flat(answer.recipe):
        out[name] = _entry(value, sources.get(name))
    lengths = getattr(answer, "lengths", None)
    if lengths is not None:
        for name in ("samples", "mean", "tokens", "longest"):
            value = getattr(lengths, name)
            if value is not None:
                out[f"lengths.{name}"] = _entry(value, sources.get(f"lengths.{name}"))
    if answer.cluster is not None:
        out["gpus"] = {"value": f"{answer.cluster.count}x {answer.cluster.gpu.name}", "source": "stated (--gpu)"}
    return out


def flat(part: object, prefix: str = "") -> list[tuple[str, Any]]:
    """Dotted fields of a recipe and their plain values, in order; parts that are absent as None."""
    out: list[tuple[str, Any]] = []
    if not is_dataclass(part) or isinstance(part, type):
        return out
    for field in fields(part):
        if field.name == "sources":
            continue
        value = getattr(part, field.name)
        name = f"{prefix}{field.name}"
        if is_dataclass(value):
            out += flat(value, f"{name}.")
        elif isinstance(value, tuple):
            out.append((name, list(value)))
        elif isinstance(value, Mapping):
            out.append((name, dict(value)))
        else:
            out.append((name, str(value) if isinstance(value, str) else value))
    return out


def _entry(value: Any, source: Source | None) -> dict[str, Any]:
    return {"value": value, "source": None if source is None else str(source)}
