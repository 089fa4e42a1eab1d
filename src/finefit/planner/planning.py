"""The whole answer, assembled: memory, verdict, remedies, time, prices."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, replace
from decimal import Decimal

from finefit.catalog.currency import Rate, rate_between
from finefit.catalog.offers import Offer, PriceList
from finefit.catalog.revision import catalog_revision
from finefit.cost import Bill, Limit, Price, Span, within_budget, within_deadline
from finefit.errors import NotModelled
from finefit.memory.estimate import measure
from finefit.memory.peak import Peak
from finefit.planner.answer import Fits
from finefit.planner.cards import cards_that_hold
from finefit.planner.engine import usable_bytes
from finefit.planner.evaluation import evaluation_warnings
from finefit.planner.fit import gpus_per_node, margin_of, measured_fit, outside_bytes
from finefit.planner.market import KEPT, REFRESHED, Market, cost_of, market, offer_lines, run_bill
from finefit.planner.message import Message, message
from finefit.planner.mixtures import mixture_assumptions, mixture_warnings
from finefit.planner.parts import parts_at
from finefit.planner.pauses import pauses_of
from finefit.planner.plan import OfferLine, Plan, Remedy, Steps, Verdict
from finefit.planner.project import refuse_spot
from finefit.planner.remedies import Situation, remedies
from finefit.planner.step_parts import step_parts
from finefit.planner.verdict import fewer_cards, judge_cluster, too_large
from finefit.resolve.resolved import Resolved
from finefit.speed import Run, run_time
from finefit.units import Money
from finefit.workload import Cluster, Model, Recipe
from finefit.workload.parameters import parameter_count
from finefit.workload.selection import trained_parameters

_LISTED = 10  # offers shown where no GPU was stated
_HALF = 2  # bytes of a parameter in 16 bits


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the user wants besides memory.

    Attributes:
        kinds: kinds of offers, the headline first; currency: of the bill.
        as_of: the day the answer is for: prices age against it.
        explain: with the parts of a step and what they rest on.
        offers: known prices, refreshed ones among them; the bundled ones where None.
    """

    as_of: dt.date
    kinds: tuple[str, ...] = ("on-demand",)
    currency: str = "USD"
    budget: Money | None = None
    deadline_seconds: float | None = None
    explain: bool = False
    offers: tuple[Offer, ...] | None = None

    @property
    def prices(self) -> PriceList:
        """What the answer is priced from."""
        return PriceList(self.as_of, self.offers)


def make_plan(resolved: Resolved, cluster: Cluster | None, wishes: Wishes) -> Plan:
    """Answer a complete workload.

    Raises:
        InputError: the recipe is incomplete, a kind of offer does not exist, or the bill is to be made on spot machines
            and the config saves no checkpoint that training can go on from.
        NotModelled: the memory of the recipe is not modelled.
    """
    work = resolved.workload(cluster)
    model, recipe = work.model, work.recipe
    if wishes.kinds[:1] == ("spot",):
        refuse_spot(resolved.saving, None, recipe)
    nodes = gpus_per_node(cluster)
    arch = cluster.gpu.arch if cluster else None
    peak = measure(model, recipe, arch=arch, gpus_per_node=nodes)
    plan = Plan(
        model=model,
        model_text=resolved.model_text,
        recipe=recipe,
        lengths=resolved.lengths,
        cluster=cluster,
        origin=resolved.origin,
        sources=resolved.sources,
        as_of=wishes.as_of,
        catalog_revision=catalog_revision(),
        peak=peak,
        context=outside_bytes(arch, nodes),
        steps=steps_of(model, recipe, peak, cluster),
        verdict=Verdict.UNDECIDED,
        fits=Fits.UNKNOWN,
        assumptions=(*resolved.assumptions, *mixture_assumptions(model, recipe)),
        warnings=(*resolved.warnings, *mixture_warnings(model, recipe)),
    )
    return _without_gpus(plan, wishes) if cluster is None else _on_gpus(plan, cluster, wishes, resolved)


def steps_of(model: Model, recipe: Recipe, peak: Peak, cluster: Cluster | None) -> Steps:
    """The four steps: scale and precision, method, activations at the longest sample, margin."""
    parameters = parameter_count(model)
    trained = trained_parameters(model, recipe)
    held = parts_at(model, recipe, ("optimizer",))
    busy = parts_at(model, recipe, ("forward", "loss", "backward"))
    states = sum(held[name] for name in ("weights", "adapters", "gradients", "optimizer"))
    return Steps(
        parameters=parameters,
        trained=trained,
        weights_16bit=parameters * _HALF,
        weights=held["weights"],
        states=states,
        multiplier=states / (parameters * _HALF),
        activations=sum(busy[name] for name in ("activations", "logits", "buffers", "workspace")),
        logits=busy["logits"],
        tokens=recipe.micro_batch * recipe.seq_len,
        margin=None if cluster is None else margin_of(peak, _usable(model, recipe, peak, cluster)),
    )


def _usable(model: Model, recipe: Recipe, peak: Peak, cluster: Cluster) -> int:
    return usable_bytes(model, recipe, cluster.gpu.memory, peak.allocated)


def _without_gpus(plan: Plan, wishes: Wishes) -> Plan:
    """The cards that hold it, and the cheapest offers for them."""
    headline = wishes.kinds[0]
    held = cards_that_hold(
        plan.model, plan.recipe, plan.lengths, kind=headline, currency=wishes.currency, prices=wishes.prices
    )
    lines: list[OfferLine] = []
    quoted: set[str] = set()
    for card, run in held:
        if run is not None:
            found = market(card.gpu, card.count, wishes.kinds, wishes.currency, wishes.prices)
            quoted.update(offer.price.currency for offer in found.offers)
            lines += offer_lines(card.gpu, found.offers, card.count, run, wishes.currency, wishes.as_of)
    notes = [message("no GPU was stated, so the time and the bill are unknown; name one with --gpu")]
    if wishes.offers is not None:
        notes.append(message(REFRESHED))
    return replace(
        plan,
        cards=tuple(card for card, _ in held),
        warnings=(*plan.warnings, *evaluation_warnings(plan.model, plan.recipe, None, plan.peak, plan.fits)),
        offers=_cheapest(lines, wishes),
        rate=_rate(quoted, wishes),
        run_unknown=message("no GPU was stated"),
        notes=tuple(notes),
        budget=None if wishes.budget is None else Limit("unknown", "no GPU was stated"),
        deadline=None if wishes.deadline_seconds is None else Limit("unknown", "no GPU was stated"),
    )


def _cheapest(lines: list[OfferLine], wishes: Wishes) -> tuple[OfferLine, ...]:
    from finefit.catalog.currency import convert

    def cost(line: OfferLine) -> tuple[Decimal, str, str]:
        each = convert(line.per_1000 or line.hourly, wishes.currency, on=wishes.as_of)
        return each.amount, line.provider, line.gpu.id

    return tuple(sorted(lines, key=cost)[:_LISTED])


def _on_gpus(plan: Plan, cluster: Cluster, wishes: Wishes, resolved: Resolved) -> Plan:
    model, recipe = plan.model, plan.recipe
    usable = _usable(model, recipe, plan.peak, cluster)
    stated = measured_fit(plan.peak, plan.context, usable)
    judged = judge_cluster(model, recipe, cluster, stated)
    run, unknown = _run(model, recipe, cluster, resolved)
    found = market(cluster.gpu, cluster.count, wishes.kinds, wishes.currency, wishes.prices)
    bill = None
    if run is not None:
        bill = run_bill(model, recipe, cluster, run, found.price, wishes.currency)
    helped: tuple[Remedy, ...] = ()
    if stated.fits is not Fits.YES:
        helped = remedies(Situation(model, recipe, cluster, stated, run, found.price))
    return replace(
        plan,
        verdict=judged.verdict,
        fits=stated.fits,
        too_large=too_large(stated, usable),
        shard_count=judged.shard_count,
        fewer=fewer_cards(model, recipe, cluster, plan.lengths) if stated.fits is not Fits.NO else None,
        remedies=helped,
        prices=found.summaries,
        price=found.price.unit_price if found.price else None,
        price_source=found.price.source if found.price else "",
        price_quoted=found.price.quoted if found.price else None,
        rate=_rate({offer.price.currency for offer in found.offers}, wishes),
        offers=offer_lines(cluster.gpu, found.offers, cluster.count, run, wishes.currency, wishes.as_of),
        run=run,
        run_unknown=unknown,
        step_explained=step_parts(model, recipe, cluster, run) if run is not None and wishes.explain else (),
        bill=bill,
        bill_per_1000=cost_of(run.hours_per_1000_samples if run else None, cluster.count, found.price),
        budget=_budget(bill, wishes, cluster, found.price),
        deadline=_deadline(run, wishes),
        notes=_notes(found, run, wishes, plan),
        assumptions=(*plan.assumptions, KEPT) if bill is not None else plan.assumptions,
        warnings=(*plan.warnings, *evaluation_warnings(model, recipe, cluster, plan.peak, stated.fits)),
    )


def _run(model: Model, recipe: Recipe, cluster: Cluster, resolved: Resolved) -> tuple[Run | None, Message | None]:
    try:
        return run_time(model, recipe, cluster, resolved.lengths, pauses_of(resolved, model, recipe)), None
    except NotModelled as unknown:
        return None, message("{why}", why=unknown.what)


def _budget(bill: Bill | None, wishes: Wishes, cluster: Cluster, price: Price | None) -> Limit | None:
    if wishes.budget is None:
        return None
    if bill is None:
        return Limit("unknown", "hours of the run unknown")
    return within_budget(bill, wishes.budget, cluster.count, price)


def _deadline(run: Run | None, wishes: Wishes) -> Limit | None:
    if wishes.deadline_seconds is None:
        return None
    hours = None
    if run is not None and run.hours is not None and run.hours_interval is not None:
        hours = Span.of(run.hours_interval[0], run.hours, run.hours_interval[1])
    return within_deadline(hours, wishes.deadline_seconds)


def _rate(quoted: set[str], wishes: Wishes) -> Rate | None:
    """The rate behind prices that are quoted in another currency than the bill's, None where none is."""
    foreign = quoted - {wishes.currency}
    return rate_between(min(foreign), wishes.currency, on=wishes.as_of) if foreign else None


def _notes(found: Market, run: Run | None, wishes: Wishes, plan: Plan) -> tuple[Message, ...]:
    notes = []
    samples, cap = plan.lengths.samples, plan.recipe.max_samples
    if samples is not None and cap is not None and cap < samples:
        notes.append(
            message("max_samples takes {cap} of the {samples} samples", cap=f"{cap:,}", samples=f"{samples:,}")
        )
    if wishes.offers is not None:
        notes.append(message(REFRESHED))
    if found.price is None:
        notes.append(message("no published {kinds} price of this card is known", kinds=" or ".join(wishes.kinds)))
    if run is not None and run.upper_bound:
        notes.append(message("time and cost are upper bounds: {rule}", rule=run.row_rule))
    return tuple(notes)
