"""The bill of a whole project: one run with everything it draws after it, and what comes on top of all runs."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal

from finefit.catalog.currency import convert
from finefit.catalog.offers import PriceList
from finefit.catalog.storage import Tariff, all_tariffs
from finefit.cost import (
    Bill,
    BillItem,
    Price,
    Span,
    bill,
    checkpoint_bytes,
    egress_item,
    gpu_item,
    result_bytes,
    setup_item,
    storage_item,
)
from finefit.cost.bill import setup_hours
from finefit.cost.interruption import Interruption, hours_between, interruption, write_hours
from finefit.cost.items import (
    cold_item,
    disk_item,
    failed_item,
    held_item,
    minimum_item,
    people_item,
    stopped_item,
    unused_item,
    upload_item,
    waste_item,
)
from finefit.cost.settings import CostSettings
from finefit.cost.terms import HOURS_A_MONTH, HOURS_A_YEAR
from finefit.errors import InputError
from finefit.planner.market import among, market, span_of
from finefit.speed import Run, work
from finefit.units import GB, Money
from finefit.workload import Cluster, Gpu, Model, Recipe
from finefit.workload.saving import Saving

_TERMS = {"monthly": HOURS_A_MONTH, "yearly": HOURS_A_YEAR}
_HOUR = Decimal(60)


@dataclass(frozen=True, slots=True)
class Project:
    """What a job costs on some terms.

    Attributes:
        run: items of one run; whole: of the project, all runs in its first line.
        lost: interruptions, None where nobody knows how often they come.
        wall: hours of one run from start to end, interruptions and waits for a machine included.
    """

    kind: str
    price: Price | None
    run: Bill
    whole: Bill
    lost: Interruption | None
    wall: Span | None


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be paid for; ``terms`` are those that the bill is made on."""

    model: Model
    recipe: Recipe
    cluster: Cluster
    run: Run | None
    settings: CostSettings
    currency: str
    prices: PriceList
    terms: str = "on-demand"

    def price_of(self, gpu: Gpu, count: int, kind: str) -> Price | None:
        """Of a GPU-hour: the user's for the stated card on the bill's terms, else the median of published ones."""
        own = self.settings.gpu_price
        if own is None or kind != self.terms or gpu.id != self.cluster.gpu.id:
            return market(gpu, count, (kind,), self.currency, self.prices).price
        each = convert(own, self.currency, on=self.on)
        return Price(each, "stated", quoted=None if own.currency == self.currency else own)

    @property
    def on(self) -> dt.date:
        """The day of the answer."""
        return self.prices.on


def refuse_spot(saving: Saving | None, run: Run | None, recipe: Recipe) -> None:
    """Refuse machines that are taken away where the config saves nothing that training can go on from.

    Raises:
        InputError: names the line that decides it.
    """
    steps = None if run is None else run.steps
    if saving is None or saving.resumable(steps, recipe.epochs):
        return
    raise InputError(
        "spot machines are taken away at short notice, and this run saves no checkpoint that it can go on from",
        where=f"{saving.decided_by.detail}: {saving.key}",
        fix="save with optimizer states before the run ends (save_steps, without save_only_model), or rent on demand",
    )


def project(job: Job, kind: str, price: Price | None, term: Decimal | None = None) -> Project:
    """The bill on one kind of terms at one price of a GPU-hour.

    Args:
        term: hours that are paid at least, used or not; those of the kind where None.
    """
    load, gpus, own = work(job.model, job.recipe), job.cluster.count, job.settings
    checkpoint = checkpoint_bytes(load.parameters, load.trained, job.recipe)
    result = result_bytes(load.parameters, load.trained, job.recipe)
    weights = load.parameters * job.model.checkpoint_dtype.bytes
    lost = lost_to(job, kind, checkpoint, weights)
    # what interruptions waste holds the writing of checkpoints at the best interval: not the config's beside it
    hours = span_of(job.run if job.run is None or lost is None else replace(job.run, checkpoint_seconds=0.0))
    disks = _tariffs(job, lambda t: t.kind == "block" and t.tier != "volume-stopped")
    cool = _tariffs(job, lambda t: t.kind == "object" and t.tier == "cool")
    stopped = _tariffs(job, lambda t: t.tier == "volume-stopped") or disks
    traffic = _tariffs(job, lambda t: t.kind == "egress" and t.tier == own.egress_tier)
    out = result if own.download_gb is None else int(own.download_gb * GB)

    rental, setup = gpu_item(hours, gpus, price), setup_item(weights, gpus, price, own.setup_minutes)
    wasted = waste_item(hours, gpus, lost, price)
    lines = [
        rental,
        wasted,
        setup,
        _priced(
            job,
            own.storage_price,
            disks,
            lambda cost, why: storage_item(checkpoint, own.kept, own.hot_months, cost, why),
        ),
        _priced(
            job, own.cold_price, cool, lambda cost, why: cold_item(checkpoint, own.kept, own.cold_months, cost, why)
        ),
        _priced(
            job,
            own.egress_price,
            [_after(tariff, own.egress_before_gb) for tariff in traffic],
            lambda cost, why: egress_item(out, cost, why),
        ),
        upload_item(own.upload_gb, _in(job, own.upload_price)),
        minimum_item(_in(job, own.minimum_charge), lambda: _rental(rental, wasted, setup)),
    ]
    run_bill = bill(lines)
    disk_gb = Decimal(weights + checkpoint * own.kept) / GB if own.stopped_gb is None else own.stopped_gb
    used = None if hours is None else hours.scaled(*(Decimal(own.runs),) * 3)
    idle = unused_item(used, gpus, term or _TERMS.get(kind), price)
    on_top = [
        _runs(own.runs, run_bill),
        failed_item(own.failed_attempts, own.failed_share, _attempt(rental, wasted, setup)),
        held_item("queueing", own.queue_hours, gpus, price, "hours of queueing not stated"),
        held_item("debugging", own.debug_hours, gpus, price, "hours of debugging not stated"),
        held_item("forgotten to release", own.idle_hours, gpus, price, "hours forgotten to release not stated"),
        *([idle] if idle else []),
        _priced(
            job,
            own.storage_price,
            disks,
            lambda cost, why: disk_item(
                "data storage", own.data_gb, own.hot_months, cost, why, "size of the data not stated"
            ),
        ),
        _priced(
            job,
            own.storage_price,
            disks,
            lambda cost, why: disk_item(
                "image storage", own.image_gb, own.hot_months, cost, why, "size of the image not stated"
            ),
        ),
        _priced(
            job,
            own.storage_price if own.stopped_price is None else own.stopped_price,
            stopped,
            lambda cost, why: stopped_item(disk_gb, own.stopped_days, cost, why),
        ),
        people_item(own.engineer_hours, _in(job, own.engineer_rate)),
    ]
    whole = bill(on_top)
    if run_bill.total is None:
        whole = replace(whole, total=None, low=None, high=None)
    whole = replace(whole, unknown=(*run_bill.unknown, *(name for name in whole.unknown if name != "runs")))
    return Project(
        kind, price, run_bill, whole, lost, _wall(hours, lost, own.spot_wait_hours if kind == "spot" else None)
    )


def lost_to(job: Job, kind: str, checkpoint: int, weights: int) -> Interruption | None:
    """Interruptions of a run on some terms, as measured by the user or as known of such machines."""
    own = job.settings
    if own.hours_between_interruptions is not None:
        mean, source = Span.exact(own.hours_between_interruptions), "stated"
    else:
        known = hours_between(kind, job.cluster.count, job.cluster.nodes)
        if known is None:
            return None
        mean, source = known
    write = write_hours(checkpoint)
    if own.checkpoint_minutes is not None:
        write = Span.exact(own.checkpoint_minutes / _HOUR)
    restart = setup_hours(weights)
    minutes = own.setup_minutes if own.restart_minutes is None else own.restart_minutes
    if minutes is not None:
        restart = Span.exact(minutes / _HOUR)
    return interruption(mean, write, restart, source)


def _wall(hours: Span | None, lost: Interruption | None, wait: Decimal | None) -> Span | None:
    """Hours from start to end; waits for the next machine come once an interruption."""
    if hours is None or lost is None:
        return None
    waits = [
        (wait or Decimal(0)) / mean for mean in (lost.mean_hours.high, lost.mean_hours.likely, lost.mean_hours.low)
    ]
    shares = (lost.waste.low, lost.waste.likely, lost.waste.high)
    return hours.scaled(*(1 + share + each for share, each in zip(shares, waits, strict=True)))


def _tariffs(job: Job, wanted: Callable[[Tariff], bool]) -> list[Tariff]:
    """Tariffs in the bill's currency, of the stated provider or of all."""
    own = job.settings.provider
    found = [t for t in all_tariffs() if t.currency == job.currency and wanted(t)]
    return [t for t in found if own is None or t.provider.lower() == own.lower()]


def _priced(
    job: Job,
    stated: Money | None,
    tariffs: list[Tariff],
    item: Callable[[Callable[[Decimal], Money | None] | None, str], BillItem],
) -> BillItem:
    """An item at the user's price of a unit, else among published tariffs."""
    if stated is None:
        return among(tariffs, item)
    each = convert(stated, job.currency, on=job.on)
    return item(lambda units: each * units, "stated")


def _after(tariff: Tariff, before: Decimal) -> Tariff:
    """A tariff as it stands after some GB of the same month: its bands move down."""
    if not before:
        return tariff
    bands = tuple(
        replace(
            band,
            from_gb=max(band.from_gb - before, Decimal(0)),
            to_gb=None if band.to_gb is None else band.to_gb - before,
        )
        for band in tariff.bands
        if band.to_gb is None or band.to_gb > before
    )
    return replace(tariff, bands=bands or tariff.bands[-1:])


def _in(job: Job, amount: Money | None) -> Money | None:
    return None if amount is None else convert(amount, job.currency, on=job.on)


def _attempt(*items: BillItem) -> Money | None:
    """Likely cost of the GPU-hours of one run; None where the run itself is unknown."""
    return _rental(*items)[1]


def _rental(rental: BillItem, *others: BillItem) -> tuple[Money | None, Money | None, Money | None]:
    """Low, likely and high cost of a run's GPU-hours; items that are unknown are left out, but not the run."""
    if rental.amount is None:
        return None, None, None
    total = bill([rental, *(item for item in others if item.amount is not None)])
    return total.low, total.total, total.high


def _runs(runs: int, each: Bill) -> BillItem:
    quantity = Span.exact(Decimal(runs))
    if each.total is None or each.low is None or each.high is None:
        why = next((item.source for item in each.items if item.name == "GPU-hours"), "hours of the run unknown")
        return BillItem("runs", "run", quantity, None, None, None, None, why)
    return BillItem(
        "runs", "run", quantity, each.total, each.total * runs, each.low * runs, each.high * runs, "the bill of one run"
    )
