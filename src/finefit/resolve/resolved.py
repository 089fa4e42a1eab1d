"""The answer of resolving: a whole workload but for the GPUs, and where every value came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from finefit.errors import InputError
from finefit.resolve.gpus import on_gpus
from finefit.workload.cluster import Cluster
from finefit.workload.lengths import Lengths
from finefit.workload.model import Model
from finefit.workload.recipe import Recipe
from finefit.workload.saving import Evaluation, Saving
from finefit.workload.sourced import Source
from finefit.workload.workload import Workload


@dataclass(frozen=True, slots=True)
class Resolved:
    """A workload without its cluster.

    Attributes:
        model: the architecture.
        model_text: what the user called it.
        recipe: complete, or None while ``missing`` names what it lacks.
        lengths: what is known of the data.
        origin: the config's path, or "flags".
        sources: by dotted name: recipe fields ("lora.rank"), "model", "lengths.samples".
        assumptions, warnings: sentences to show.
        saving, evaluation: checkpoints it writes, evaluations it stops for; None where nothing is said of them.
        missing: "method", "seq": with either, a caller shows a small table instead of one answer.
    """

    model: Model
    model_text: str
    recipe: Recipe | None
    lengths: Lengths
    origin: str
    sources: Mapping[str, Source] = field(default_factory=lambda: MappingProxyType({}))
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    missing: frozenset[str] = frozenset()
    saving: Saving | None = None
    evaluation: Evaluation | None = None

    def workload(self, cluster: Cluster | None = None) -> Workload:
        """The workload, spread over the cluster where one is stated.

        Raises:
            InputError: the recipe is incomplete, or one copy of the model is cut over more GPUs than there are.
        """
        if self.recipe is None:
            raise InputError(
                f"{' and '.join(sorted(self.missing))} not stated", where=self.origin, fix="state --method and --seq"
            )
        needed = self.recipe.parallel.gpus
        if cluster is not None and cluster.count % needed:
            raise InputError(
                f"one copy of the model is cut over {needed} GPUs, and {cluster.count} are no multiple of it",
                where="--gpu",
                fix=f"state {needed} of them, or 2 or 4 times as many",
            )
        recipe = self.recipe if cluster is None else on_gpus(self.recipe, cluster.count)
        return Workload(self.model, recipe, self.lengths, cluster)
