"""The whole question: a model, a recipe, data and (maybe) GPUs."""

from __future__ import annotations

from dataclasses import dataclass, field

from finefit.workload.cluster import Cluster
from finefit.workload.lengths import Lengths
from finefit.workload.model import Model
from finefit.workload.recipe import Recipe


@dataclass(frozen=True, slots=True)
class Workload:
    """What is to be estimated. ``cluster`` is None when no GPU was stated: nothing is assumed."""

    model: Model
    recipe: Recipe
    lengths: Lengths = field(default_factory=Lengths)
    cluster: Cluster | None = None
