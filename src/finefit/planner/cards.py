"""Cards of the catalogue that hold a run, for an answer without stated GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from finefit.catalog.gpus import all_gpus
from finefit.catalog.offers import PriceList
from finefit.errors import NotModelled
from finefit.memory.context import cublas_workspace
from finefit.memory.estimate import estimate
from finefit.planner.answer import Fits, Margin
from finefit.planner.engine import usable_bytes
from finefit.planner.fit import judge, outside_bytes, reserved_bytes
from finefit.planner.market import cost_of, market
from finefit.planner.plan import CardFit
from finefit.planner.verdict import SHARD_COUNTS
from finefit.resolve.gpus import on_gpus
from finefit.speed import Run, run_time
from finefit.workload import Cluster, Gpu, Lengths, Model, Recipe


@dataclass(frozen=True, slots=True)
class _Need:
    """Bytes in the allocator on each of ``count`` GPUs, cuBLAS workspaces apart."""

    model: Model
    recipe: Recipe
    allocated: int
    reserved: int

    def margin(self, gpu: Gpu, count: int) -> Margin:
        """The workspaces are taken once and never given back, so they add to both ends."""
        outside = outside_bytes(gpu.arch, count) + 2 * cublas_workspace(gpu.arch)
        usable = usable_bytes(self.model, self.recipe, gpu.memory, self.allocated)
        return Margin(usable, self.allocated + outside, self.reserved + outside)


def cards_that_hold(
    model: Model, recipe: Recipe, lengths: Lengths, *, kind: str, currency: str, prices: PriceList
) -> tuple[tuple[CardFit, Run | None], ...]:
    """Every card that holds the run, with the fewest GPUs the recipe's own sharding needs; smallest memory first.

    A recipe that shards nothing needs the same on each of several GPUs, so one is tried alone. Where a copy of the
    model is cut over several GPUs, their multiples are tried.
    """
    spread = recipe.sharding.divides_states
    copy = recipe.parallel.gpus
    needs = {copy * count: _need(model, recipe, copy * count) for count in ((1, *SHARD_COUNTS) if spread else (1,))}
    found = [_card(model, lengths, gpu, needs, kind, currency, prices) for gpu in all_gpus()]
    held = [entry for entry in found if entry is not None]
    return tuple(sorted(held, key=lambda entry: _order(entry[0])))


def _need(model: Model, recipe: Recipe, count: int) -> _Need:
    spread = on_gpus(recipe, count)
    workspaces = 2 * cublas_workspace(None)
    peak = estimate(model, spread)
    return _Need(model, spread, peak.allocated - workspaces, reserved_bytes(model, spread, None) - workspaces)


def _card(
    model: Model, lengths: Lengths, gpu: Gpu, needs: dict[int, _Need], kind: str, currency: str, prices: PriceList
) -> tuple[CardFit, Run | None] | None:
    for count, need, margin in _margins(gpu, needs):
        fits = judge(margin.low, margin.high, margin.usable)
        if fits is Fits.NO:
            continue
        try:
            run: Run | None = run_time(model, need.recipe, Cluster(gpu, count), lengths)
        except NotModelled:
            run = None
        price = market(gpu, count, (kind,), currency, prices).price
        hours = None if run is None else run.hours_per_1000_samples
        cost = cost_of(hours, count, price)
        return CardFit(gpu, count, fits, margin, hours, price.unit_price if price else None, cost), run
    return None


def _margins(gpu: Gpu, needs: dict[int, _Need]) -> Iterator[tuple[int, _Need, Margin]]:
    for count, need in needs.items():
        yield count, need, need.margin(gpu, count)


def _order(card: CardFit) -> tuple[int, float, bool, float, str]:
    """Fewer GPUs, less memory, then cards that can be rented, cheapest work first."""
    cost = card.cost_per_1000
    return card.count, card.gpu.memory_nominal_gb, cost is None, float(cost.amount) if cost else 0.0, card.gpu.id
