"""The same job on each kind of terms: by the hour, spot, by the month, longer, bought; once or often."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from finefit.catalog.commitments import all_commitments
from finefit.catalog.currency import convert
from finefit.catalog.offers import Kind, drift_band
from finefit.catalog.purchases import purchases_of
from finefit.cost import Limit, Price, within_deadline
from finefit.cost.owned import HOST_KILOWATTS, Owned
from finefit.cost.terms import HOURS_A_MONTH, BreakEven, break_even, hours_paid
from finefit.errors import InputError
from finefit.planner.market import span_of
from finefit.planner.message import Message, message
from finefit.planner.project import Job, Project, project, refuse_spot
from finefit.units import Money
from finefit.workload.saving import Saving

OWNED, BARE_METAL = "owned", "bare metal"
_LARGEST_SERVER = 8  # GPUs of HGX and DGX boards and of the servers that are let whole
# Assumed where no tariff is stated, and shown as assumed: ordinary commercial electricity, a kWh.
POWER = {"USD": Decimal("0.10"), "CNY": Decimal("0.6")}


@dataclass(frozen=True, slots=True)
class TermLine:
    """One way to pay for the GPUs.

    Attributes:
        kind: on-demand, spot, community, monthly, yearly, bare metal, commitment, owned.
        name: what a reader calls it: the kind, or a provider's term.
        price: of a GPU-hour, for owned ones at the stated utilisation; None unknown, ``unknown`` says why.
        project: its bill, None without a price.
        month: what a month of ``runs_per_month`` runs costs in GPUs; None while that is not stated.
        break_even: from where it is cheaper than on demand; None for terms paid by the hour.
        deadline: whether a run ends in time on it.
        refused: why it cannot be used; note: what its source says of it.
    """

    kind: str
    name: str
    price: Price | None
    project: Project | None
    month: Money | None
    break_even: BreakEven | None
    deadline: Limit | None
    source: str
    unknown: Message | None = None
    refused: Message | None = None
    note: str = ""


def term_lines(job: Job, saving: Saving | None, deadline_seconds: float | None) -> tuple[TermLine, ...]:
    """Every kind of terms, on-demand first; those without a price say what to state.

    Raises:
        InputError: the price of a GPU-hour is stated for GPUs that are bought.
    """
    if job.settings.gpu_price is not None and job.terms == OWNED:
        raise InputError("bought GPUs have no price by the hour", where="--gpu-price", fix="state --card-price instead")
    prices = {kind: job.price_of(job.cluster.gpu, job.cluster.count, kind) for kind in Kind}
    hourly = prices[Kind.ON_DEMAND]
    lines = [_rented(job, str(kind), price, hourly, saving, deadline_seconds) for kind, price in prices.items()]
    return (
        *lines,
        *_whole_servers(job, hourly, deadline_seconds),
        *_committed(job, hourly, deadline_seconds),
        _bought(job, hourly, deadline_seconds),
    )


def _rented(
    job: Job, kind: str, price: Price | None, hourly: Price | None, saving: Saving | None, deadline: float | None
) -> TermLine:
    if kind == "spot":
        try:
            refuse_spot(saving, job.run, job.recipe)
        except InputError as refused:
            why = message("{what} ({where})", what=refused.what, where=refused.where)
            return TermLine(kind, kind, price, None, None, None, None, price.source if price else "", refused=why)
    if price is None:
        unknown = message("no published {kinds} price of this card is known", kinds=kind)
        return TermLine(kind, kind, None, None, None, None, None, "", unknown=unknown)
    made = project(job, kind, price)
    termed = kind in ("monthly", "yearly")
    even = None
    if termed and hourly is not None:
        even = break_even(price.unit_price, hourly.unit_price, run_hours(job))
    return TermLine(
        kind, kind, price, made, _month(job, made, price, termed), even, _deadline(job, made, deadline), price.source
    )


def _whole_servers(job: Job, hourly: Price | None, deadline: float | None) -> list[TermLine]:
    """Bare metal: servers of more GPUs than the job needs, let whole by the month or the year; all GPUs are paid."""
    count = job.cluster.count
    offers = job.prices.of(job.cluster.gpu.id, kinds=(Kind.MONTHLY, Kind.YEARLY), count=_LARGEST_SERVER)
    lines = []
    for offer in offers:
        if offer.min_gpus < _LARGEST_SERVER or offer.min_gpus <= count:
            continue
        quoted = offer.price * (Decimal(offer.gpus_billed(count)) / count)
        each = convert(quoted, job.currency, on=job.on)
        low, high = drift_band(offer, job.on)
        source = f"{offer.gpus_billed(count)} GPUs of {offer.provider} paid for {count} ({offer.source})"
        price = Price(each, source, low, high, quoted if quoted.currency != job.currency else None)
        made = project(job, str(offer.kind), price)
        even = break_even(each, hourly.unit_price, run_hours(job)) if hourly else None
        name = f"{BARE_METAL} ({offer.kind})"
        month = _month(job, made, price, True)
        lines.append(TermLine(BARE_METAL, name, price, made, month, even, _deadline(job, made, deadline), source))
    return lines


def _committed(job: Job, hourly: Price | None, deadline: float | None) -> list[TermLine]:
    """Each provider's longer terms on its own on-demand price of this card."""
    lines = []
    for term in all_commitments():
        own = [
            offer
            for offer in job.prices.of(job.cluster.gpu.id, kinds=(Kind.ON_DEMAND,), count=job.cluster.count)
            if offer.provider.lower() == term.provider.lower()
        ]
        if not own:
            continue
        quoted = min((offer.price for offer in own), key=lambda money: convert(money, job.currency, on=job.on).amount)
        base = convert(quoted, job.currency, on=job.on)
        source = f"{term.provider}'s on-demand price less {term.likely * 100:.0f} % ({term.source}, {term.as_of})"
        price = Price(
            base * (1 - term.likely),
            source,
            (1 - term.high) / (1 - term.likely),
            (1 - term.low) / (1 - term.likely),
            quoted * (1 - term.likely) if quoted.currency != job.currency else None,
        )
        made = project(job, "commitment", price, Decimal(24 * term.days))
        even = break_even(price.unit_price, hourly.unit_price, run_hours(job)) if hourly else None
        name = f"{term.provider} {term.term}"
        lines.append(
            TermLine(
                kind="commitment",
                name=name,
                price=price,
                project=made,
                month=_month(job, made, price, True),
                break_even=even,
                deadline=_deadline(job, made, deadline),
                source=source,
                note=term.note,
            )
        )
    return lines


def _bought(job: Job, hourly: Price | None, deadline: float | None) -> TermLine:
    """Owned hardware; a card whose price nobody knows is asked for."""
    machine, source = owned(job)
    if machine is None:
        ask = message("no price of {gpu} is known: state it with --card-price", gpu=job.cluster.gpu.name)
        return TermLine(OWNED, OWNED, None, None, None, None, None, "", unknown=ask)
    price = None if machine.hourly is None else Price(machine.hourly, source)
    even = None
    if hourly is not None:
        share = machine.break_even_utilisation(hourly.unit_price)
        if share is not None:
            hours, each = share * HOURS_A_MONTH, run_hours(job)
            even = BreakEven(hours, share, hours / each if each else None)
    unknown = None if price else message("state --utilisation for the price of an hour")
    made = project(job, OWNED, price)
    month, runs, each = None, job.settings.runs_per_month, run_hours(job)
    if runs is not None and each is not None:
        amount = machine.standing * HOURS_A_MONTH + machine.power * runs * each
        month = Money(amount * job.cluster.count, job.currency, machine.price.as_of)
    return TermLine(OWNED, OWNED, price, made, month, even, _deadline(job, made, deadline), source, unknown=unknown)


def owned(job: Job) -> tuple[Owned | None, str]:
    """The hardware as stated or as sold, in the bill's currency; None where no price of the card is known."""
    own, gpu = job.settings, job.cluster.gpu
    known = purchases_of(gpu.id)
    if own.card_price is not None:
        price, source = own.card_price, "stated (--card-price)"
    elif known:
        sold = known[0]
        price = sold.price * (Decimal(1) / sold.gpus)
        source = f"{sold.what}, {sold.date}, {sold.source} ({sold.confidence} confidence)"
    else:
        return None, ""
    watts = own.watts
    if watts is None and gpu.tdp_w is not None:
        watts = gpu.tdp_w + HOST_KILOWATTS * 1000
    if watts is None:
        return None, ""
    power = own.power_price or Money(POWER[job.currency], job.currency)
    return (
        Owned(
            price=convert(price, job.currency, on=job.on),
            kilowatts=watts / 1000,
            tariff=convert(power, job.currency, on=job.on),
            life_years=own.life_years,
            residual=own.residual,
            upkeep=own.upkeep,
            pue=own.pue,
            utilisation=own.utilisation,
        ),
        source,
    )


def run_hours(job: Job) -> Decimal | None:
    """Likely hours of one run."""
    return None if job.run is None or job.run.hours is None else Decimal(str(job.run.hours))


def _month(job: Job, made: Project, price: Price, termed: bool) -> Money | None:
    """GPUs of a month with so many runs: hours one by one, or whole months of a term."""
    runs, each, gpus = job.settings.runs_per_month, run_hours(job), job.cluster.count
    if runs is None or each is None:
        return None
    used = runs * each * (1 + (made.lost.waste.likely if made.lost else 0))
    return price.unit_price * ((hours_paid(used, HOURS_A_MONTH) if termed else used) * gpus)


def _deadline(job: Job, made: Project, seconds: float | None) -> Limit | None:
    if seconds is None:
        return None
    limit = within_deadline(made.wall or span_of(job.run), seconds)
    if made.wall is None and limit.meets == "yes":
        return Limit("unknown", f"{limit.reason} without interruptions, and nobody knows how often they come")
    return limit


def headline(lines: tuple[TermLine, ...], kind: str) -> TermLine:
    """The line of one kind.

    Raises:
        InputError: a kind that is none.
    """
    found = next((line for line in lines if line.kind == kind), None)
    if found is None:
        raise InputError(
            f"{kind!r} is not a kind of terms", where="--terms", fix=f"write one of {', '.join((*Kind, OWNED))}"
        )
    return found
