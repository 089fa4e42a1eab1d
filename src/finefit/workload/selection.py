"""How many parameters a recipe trains, where that is a part of the model."""

from __future__ import annotations

from finefit.workload.lora import lora_parameters
from finefit.workload.model import Model
from finefit.workload.parameters import (
    embedding_parameters,
    final_parameters,
    head_parameters,
    layer_parameters,
    parameter_count,
)
from finefit.workload.recipe import Recipe


def knows_module(model: Model, name: str) -> bool:
    """Whether some parameter's name holds it, as ``Trained.holds`` looks for modules."""
    beside = (*embedding_parameters(model), *final_parameters(model), *head_parameters(model))
    layers = (f"layers.{index}.{p.name}" for index in range(model.layers) for p in layer_parameters(model, index))
    return any(name in parameter for parameter in (*(p.name for p in beside), *layers))


def trained_parameters(model: Model, recipe: Recipe) -> int:
    """Parameters that the optimizer updates: all, the adapters, or the selected ones."""
    if recipe.lora is not None:
        return lora_parameters(model, recipe.lora)
    if recipe.trained is None:
        return parameter_count(model)
    beside = (*embedding_parameters(model), *final_parameters(model), *head_parameters(model))
    count = sum(p.numel for p in beside if recipe.trained.holds(p.name))
    for index in range(model.layers):
        named = ((f"layers.{index}.{p.name}", p) for p in layer_parameters(model, index))
        count += sum(p.numel for name, p in named if recipe.trained.holds(name))
    return count
