"""Does a recipe fit a GPU? The bracket of its need against the usable memory.

Lower end: tensor bytes and what lies outside the allocator; upper end: what the caching allocator
takes when nothing presses it. The lower end is cheap; the replay runs only where it can change the answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from finefit.memory.allocator import replay
from finefit.memory.context import cublas_workspace, cuda_context, nccl_buffers
from finefit.memory.estimate import dims_of, estimate, timeline, with_evaluation
from finefit.memory.peak import Peak
from finefit.memory.timeline import Timeline
from finefit.memory.tracefile import Trace
from finefit.planner.answer import Fits, Margin
from finefit.planner.engine import usable_bytes
from finefit.workload.cluster import Cluster
from finefit.workload.model import Model
from finefit.workload.recipe import Recipe


@dataclass(frozen=True, slots=True)
class Fit:
    """One recipe on one GPU.

    Attributes:
        peak: tensor bytes at the peak; no replayed figures.
        outside: bytes outside the allocator.
        high: upper end of the bracket; None where the lower end is beyond the card already.
        reserved: bytes the allocator holds, None where it was not replayed.
    """

    fits: Fits
    peak: Peak
    outside: int
    high: int | None
    reserved: int | None = None

    @property
    def low(self) -> int:
        """Lower end of the bracket: no capacity below it can do."""
        return self.peak.allocated + self.outside

    @property
    def shown(self) -> int:
        """The end of the bracket that decides: the upper one where it is known."""
        return self.low if self.high is None else self.high


def outside_bytes(arch: str | None, gpus_per_node: int) -> int:
    """Bytes a process holds on each GPU outside the caching allocator."""
    return cuda_context(arch).nbytes + nccl_buffers(gpus_per_node)


def gpus_per_node(cluster: Cluster | None) -> int:
    """GPUs that talk to each other in one machine."""
    return 1 if cluster is None else -(-cluster.count // cluster.nodes)


def judge(low: int, high: int, usable: int) -> Fits:
    """Yes within the upper end of the bracket, no beyond the lower one, tight between."""
    if low > usable:
        return Fits.NO
    return Fits.YES if high <= usable else Fits.TIGHT


def margin_of(peak: Peak, usable: int) -> Margin:
    """The bracket of a measured peak on a card."""
    if peak.required is None or peak.device is None:
        raise ValueError("a peak without the allocator's replay has no bracket")
    return Margin(usable, peak.required, max(peak.required, peak.device))


def measured_fit(peak: Peak, outside: int, usable: int) -> Fit:
    """The verdict of a peak whose least capacity was searched for."""
    margin = margin_of(peak, usable)
    return Fit(judge(margin.low, margin.high, usable), peak, outside, margin.high)


@lru_cache(maxsize=64)
def reserved_bytes(model: Model, recipe: Recipe, arch: str | None, trace: Trace | None = None) -> int:
    """What the caching allocator holds at most when nothing presses it."""
    return replay(_events(model, recipe, arch, trace), dims_of(recipe)).reserved


def _events(model: Model, recipe: Recipe, arch: str | None, trace: Trace | None) -> Timeline:
    workspace = cublas_workspace(arch)
    if trace is None:
        return timeline(model, recipe, workspace=workspace)
    return with_evaluation(trace.timeline(workspace), model, recipe, workspace)


def fit(model: Model, recipe: Recipe, cluster: Cluster, trace: Trace | None = None) -> Fit:
    """Judge a recipe on each GPU of a cluster, replaying the allocator only as far as the answer needs it.

    Between the ends of the bracket the replay at that very capacity decides between tight and no. A stored
    trace of the recipe answers in place of the model.
    """
    arch = cluster.gpu.arch
    peak = estimate(model, recipe, arch=arch, trace=trace)
    usable = usable_bytes(model, recipe, cluster.gpu.memory, peak.allocated)
    outside = outside_bytes(arch, gpus_per_node(cluster))
    if peak.allocated + outside > usable:
        return Fit(Fits.NO, peak, outside, None)
    events, dims = _events(model, recipe, arch, trace), dims_of(recipe)
    reserved = replay(events, dims).reserved
    fits = judge(peak.allocated + outside, reserved + outside, usable)
    if fits is Fits.TIGHT and not replay(events, dims, capacity=usable - outside).ok:
        fits = Fits.NO
    return Fit(fits, peak, outside, reserved + outside, reserved)
