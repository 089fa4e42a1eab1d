"""The answer of ``finefit memory``: the memory part alone, as cheap as it can be."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

from finefit.catalog.revision import catalog_revision
from finefit.memory.estimate import estimate
from finefit.planner.answer import Fits, Margin, MemoryAnswer
from finefit.planner.fit import fit, gpus_per_node, outside_bytes, reserved_bytes
from finefit.resolve.resolved import Resolved
from finefit.workload.cluster import Cluster


def memory_answer(resolved: Resolved, cluster: Cluster | None, as_of: dt.date) -> MemoryAnswer:
    """Memory of a complete workload: allocated, reserved and device bytes, and whether the GPUs hold it.

    The least capacity that survives (``required``) is searched for in plans only.

    Raises:
        InputError: the recipe is incomplete.
        NotModelled: the memory of the recipe is not modelled.
    """
    work = resolved.workload(cluster)
    arch = cluster.gpu.arch if cluster else None
    outside = outside_bytes(arch, gpus_per_node(cluster))
    fits, margin, reserved = Fits.UNKNOWN, None, None
    if cluster is None:
        peak = estimate(work.model, work.recipe)
    else:
        found = fit(work.model, work.recipe, cluster)
        fits, peak, reserved = found.fits, found.peak, found.reserved
    if reserved is None:
        reserved = reserved_bytes(work.model, work.recipe, arch)
    if cluster is not None:
        margin = Margin(cluster.gpu.memory, peak.allocated + outside, reserved + outside)
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
        assumptions=resolved.assumptions,
        warnings=resolved.warnings,
    )
