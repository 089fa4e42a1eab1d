"""What kind of job this is on cards of one kind, and which part of it is too large."""

from __future__ import annotations

from dataclasses import dataclass, replace

from finefit.errors import NotModelled
from finefit.planner.answer import Fits
from finefit.planner.fit import Fit, fit
from finefit.planner.levers import sharded
from finefit.planner.plan import FewerCards, Part, Verdict
from finefit.resolve.gpus import on_gpus
from finefit.speed import run_time
from finefit.workload import Cluster, Lengths, Model, Recipe

# GPUs that a sharded run is tried on: one machine of up to eight, as HGX and DGX boards carry
SHARD_COUNTS = (2, 4, 8)


@dataclass(frozen=True, slots=True)
class Judged:
    """A recipe on the stated GPUs.

    Attributes:
        single: on one GPU of the kind.
        shard_count: the fewest GPUs that hold it with everything sharded, None where one does or none do.
    """

    single: Fit
    verdict: Verdict
    shard_count: int | None


def judge_cluster(model: Model, recipe: Recipe, cluster: Cluster, stated: Fit) -> Judged:
    """Verdict on a kind of card. ``recipe`` is already spread over the cluster, where it was judged ``stated``."""
    one = replace(cluster, count=1, nodes=1)
    single = stated if cluster.count == 1 else fit(model, on_gpus(recipe, 1), one)
    if single.fits is Fits.YES:
        return Judged(single, Verdict.SINGLE_CARD_OK, None)
    if single.fits is Fits.TIGHT:
        return Judged(single, Verdict.SINGLE_CARD_TIGHT, None)
    count = fewest_shards(model, recipe, cluster)
    return Judged(single, Verdict.DOES_NOT_FIT if count is None else Verdict.MUST_SHARD, count)


def fewest_shards(model: Model, recipe: Recipe, cluster: Cluster) -> int | None:
    """Fewest GPUs of one machine, or the stated ones, that hold the recipe with everything sharded."""
    counts = sorted({*SHARD_COUNTS, *([cluster.count] if cluster.count > 1 else [])})
    for count in counts:
        spread = sharded(recipe, count)
        if spread is None:
            return None
        nodes = cluster.nodes if count == cluster.count else 1
        try:
            if fit(model, spread, replace(cluster, count=count, nodes=nodes)).fits is not Fits.NO:
                return count
        except NotModelled:
            return None
    return None


def too_large(found: Fit, usable: int) -> Part | None:
    """What does not fit: the states by themselves, or what the batch and its length add."""
    if found.fits is not Fits.NO:
        return None
    held = max(found.peak.phases["load"], found.peak.phases["optimizer"])
    return Part.STATES if held + found.outside > usable else Part.ACTIVATIONS


def fewer_cards(model: Model, recipe: Recipe, cluster: Cluster, lengths: Lengths) -> FewerCards | None:
    """Whether fewer of the stated GPUs hold the run, what they save an hour and cost in speed.

    None where all are needed, or where no time is known.
    """
    for needed in range(1, cluster.count):
        if cluster.count % needed:
            continue
        fewer = Cluster(cluster.gpu, needed)
        spread = on_gpus(recipe, needed)
        if fit(model, spread, fewer).fits is not Fits.YES:
            continue
        try:
            slow = run_time(model, spread, fewer, lengths).hours_per_1000_samples
            fast = run_time(model, recipe, cluster, lengths).hours_per_1000_samples
        except NotModelled:
            return None
        return FewerCards(cluster.count, needed, cluster.count / needed, slow / fast)
    return None
