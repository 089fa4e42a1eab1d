"""The answer of ``finefit memory``: the memory part alone, as cheap as it can be."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import TYPE_CHECKING

from finefit.catalog.revision import catalog_revision
from finefit.memory import store
from finefit.memory.estimate import estimate
from finefit.memory.evaluation import evaluation_recipe
from finefit.memory.tracefile import Trace
from finefit.planner.answer import Fits, Margin, MemoryAnswer
from finefit.planner.engine import usable_bytes
from finefit.planner.evaluation import evaluation_warnings
from finefit.planner.fit import fit, gpus_per_node, outside_bytes, reserved_bytes
from finefit.planner.mixtures import mixture_assumptions, mixture_warnings
from finefit.resolve.resolved import Resolved
from finefit.workload.cluster import Cluster

if TYPE_CHECKING:
    from finefit.planner.explain import Explanation
    from finefit.workload import Model, Recipe


def memory_answer(
    resolved: Resolved, cluster: Cluster | None, as_of: dt.date, *, exact: bool = False, explained: bool = False
) -> MemoryAnswer:
    """Memory of a complete workload: allocated, reserved and device bytes, and whether the GPUs hold it.

    The least capacity that survives (``required``) is searched for in plans only. ``exact`` answers from a stored
    trace of the libraries' own code where there is one, and says so either way. ``explained``: with the formulas
    behind the allocated peak, which are the model's.

    Raises:
        InputError: the recipe is incomplete.
        NotModelled: the memory of the recipe is not modelled.
    """
    work = resolved.workload(cluster)
    arch = cluster.gpu.arch if cluster else None
    outside = outside_bytes(arch, gpus_per_node(cluster))
    trace = store.load(work.model, work.recipe, arch=arch) if exact else None
    fits, margin, reserved = Fits.UNKNOWN, None, None
    if cluster is None:
        peak = estimate(work.model, work.recipe, trace=trace)
    else:
        found = fit(work.model, work.recipe, cluster, trace)
        fits, peak, reserved = found.fits, found.peak, found.reserved
    if reserved is None:
        reserved = reserved_bytes(work.model, work.recipe, arch, trace)
    if cluster is not None:
        usable = usable_bytes(work.model, work.recipe, cluster.gpu.memory, peak.allocated)
        margin = Margin(usable, peak.allocated + outside, reserved + outside)
    return MemoryAnswer(
        model=work.model,
        model_text=resolved.model_text,
        recipe=work.recipe,
        cluster=cluster,
        origin=resolved.origin,
        sources=resolved.sources,
        as_of=as_of,
        catalog_revision=catalog_revision(),
        peak=replace(peak, reserved=reserved, device=reserved + outside),
        context=outside,
        fits=fits,
        margin=margin,
        assumptions=(
            *resolved.assumptions,
            *mixture_assumptions(work.model, work.recipe),
            *([_said(trace)] if trace else ()),
            *([_MODELLED] if trace and evaluation_recipe(work.recipe) else ()),
        ),
        warnings=(
            *resolved.warnings,
            *mixture_warnings(work.model, work.recipe),
            *evaluation_warnings(work.model, work.recipe, cluster, peak, fits),
            *([_MISSING] if exact and trace is None else ()),
        ),
        exact=trace is not None if exact else None,
        explanation=_explanation(work.model, work.recipe, arch) if explained else None,
    )


def _explanation(model: Model, recipe: Recipe, arch: str | None) -> Explanation:
    from finefit.planner.explain import explain

    return explain(model, recipe, arch)


_MISSING = (
    "no trace of this recipe is stored, so its memory is modelled; finefit trace with the same model and options "
    "stores one (extra finefit[trace])"
)

_MODELLED = "evaluation, whose batch is not that of training, is modelled and not traced"


def _said(trace: Trace) -> str:
    """The libraries whose code was traced; memory inside their kernels is read in the source."""
    libraries = ", ".join(f"{name} {version}" for name, version in trace.versions.items())
    return f"exact: bytes of a trace of {libraries}; memory inside kernels is taken from their source"
