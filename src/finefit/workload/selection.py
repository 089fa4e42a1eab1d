"""How many parameters a recipe trains, where that is a part of the model."""

from __future__ import annotations

from collections.abc import Iterator

from finefit.workload.lora import lora_parameters
from finefit.workload.model import Model
from finefit.workload.parameters import (
    embedding_parameters,
    final_parameters,
    head_parameters,
    layer_parameters,
    parameter_count,
)
from finefit.workload.recipe import Recipe, Trained


def selects(model: Model, trained: Trained) -> bool:
    """Whether a selection trains anything."""
    return any(trained.holds(name) for name, _ in _sizes(model))


def trained_parameters(model: Model, recipe: Recipe) -> int:
    """Parameters that the optimizer updates: all, the adapters, or the selected ones."""
    if recipe.lora is not None:
        return lora_parameters(model, recipe.lora)
    if recipe.trained is None:
        return parameter_count(model)
    return sum(numel for name, numel in _sizes(model) if recipe.trained.holds(name))


def _sizes(model: Model) -> Iterator[tuple[str, int]]:
    """Name, as ``Trained.holds`` takes it, and elements of each parameter."""
    for each in (*embedding_parameters(model), *final_parameters(model), *head_parameters(model)):
        yield each.name, each.numel
    for index in range(model.layers):
        for each in layer_parameters(model, index):
            yield f"layers.{index}.{each.name}", each.numel
