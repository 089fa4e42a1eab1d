"""Types of the question: frozen dataclasses, no I/O."""

from finefit.workload.cluster import Cluster, Gpu
from finefit.workload.dtypes import DType
from finefit.workload.lengths import Lengths
from finefit.workload.model import Experts, Model
from finefit.workload.recipe import Lora, Optimizer, Quant, Recipe, Sharding, Trained
from finefit.workload.sourced import Origin, Source
from finefit.workload.workload import Workload

__all__ = [
    "Cluster",
    "DType",
    "Experts",
    "Gpu",
    "Lengths",
    "Lora",
    "Model",
    "Optimizer",
    "Origin",
    "Quant",
    "Recipe",
    "Sharding",
    "Source",
    "Trained",
    "Workload",
]
