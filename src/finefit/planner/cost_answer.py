"""The answer of ``finefit cost``: the bill of a run and of the project, and what else one could do."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from finefit.catalog.currency import Rate, rate_between
from finefit.catalog.offers import PriceList
from finefit.catalog.revision import catalog_revision
from finefit.cost import Limit, within_budget
from finefit.cost.settings import CostSettings
from finefit.errors import InputError, NotModelled
from finefit.planner.answer import Fits
from finefit.planner.comparisons import ClusterLine, ManagedLine, cluster_lines, managed_lines, per_million, run_tokens
from finefit.planner.fit import fit
from finefit.planner.market import REFRESHED
from finefit.planner.message import Message, message
from finefit.planner.pauses import pauses_of
from finefit.planner.project import Job, Project, project, refuse_spot
from finefit.planner.step_parts import StepPart, step_parts
from finefit.planner.term_lines import OWNED, POWER, TermLine, headline, owned, term_lines
from finefit.resolve.resolved import Resolved
from finefit.speed import Run, run_time
from finefit.units import Money
from finefit.workload import Cluster, Model, Recipe, Source
from finefit.workload.sourced import Origin

COST_SCHEMA = "finefit/cost/1"
_FIXED = ("set-up",)  # paid before the first token, beside engineers


@dataclass(frozen=True, slots=True)
class CostAnswer:
    """What a job costs altogether.

    Attributes:
        settings, sources: every money setting and where it was said; those without a source are unknown or assumed.
        run: its time, None where unknown; ``run_unknown`` then says why; step_explained: where a
            step's time goes, where asked for.
        project: the bill on the terms asked for.
        terms: the same job on every kind of terms; clusters: on other GPUs; managed: at services.
        rate: the exchange rate behind prices that were published in another currency.
        tokens: of the run, before padding; per_million: what a million of them cost on these GPUs.
    """

    model: Model
    recipe: Recipe
    cluster: Cluster
    origin: str
    settings: CostSettings
    sources: Mapping[str, Source]
    currency: str
    fits: Fits
    run: Run | None
    run_unknown: Message | None
    step_explained: tuple[StepPart, ...]
    tokens: int | None
    per_million: Money | None
    project: Project
    terms: tuple[TermLine, ...]
    clusters: tuple[ClusterLine, ...]
    managed: tuple[ManagedLine, ...]
    budget: Limit | None
    deadline: Limit | None
    as_of: dt.date
    catalog_revision: str
    rate: Rate | None
    notes: tuple[Message, ...]
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The JSON contract object."""
        from finefit.planner.cost_contract import cost_object

        return cost_object(self)


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked beside the workload.

    Attributes:
        terms: the kind of terms the bill is made on; prices: what it is made from.
        explain: with the parts of a step and what they rest on.
    """

    terms: str
    currency: str
    prices: PriceList
    budget: Money | None
    deadline_seconds: float | None
    explain: bool = False


def cost_answer(
    resolved: Resolved, cluster: Cluster | None, settings: CostSettings, sources: Mapping[str, Source], asked: Asked
) -> CostAnswer:
    """The whole answer.

    Raises:
        InputError: no GPU; spot without a checkpoint to go on from; terms that do not exist or have no price asked for.
        NotModelled: the memory of the recipe is not modelled.
    """
    if cluster is None:
        raise InputError("a bill needs GPUs", where="--gpu", fix='name them: --gpu "2x RTX 4090"')
    load = resolved.workload(cluster)
    model, recipe = load.model, load.recipe
    run, unknown = None, None
    try:
        run = run_time(model, recipe, cluster, resolved.lengths, pauses_of(resolved, model, recipe))
    except NotModelled as why:
        unknown = message("{why}", why=why.what)
    job = Job(model, recipe, cluster, run, settings, asked.currency, asked.prices, asked.terms)
    if asked.terms == "spot":
        refuse_spot(resolved.saving, run, recipe)
    lines = term_lines(job, resolved.saving, asked.deadline_seconds)
    chosen = headline(lines, asked.terms)
    made = chosen.project or project(job, chosen.kind, None)
    price = chosen.price.unit_price if chosen.price else None
    each = per_million(run, cluster.count, price, _mean(resolved))
    fixed = [item for item in (*made.run.items, *made.whole.items) if item.name in (*_FIXED, "engineers")]
    clusters = cluster_lines(job, resolved.lengths)
    services = managed_lines(job, resolved.lengths, each, fixed)
    return CostAnswer(
        model=model,
        recipe=recipe,
        cluster=cluster,
        origin=resolved.origin,
        settings=settings,
        sources=sources,
        currency=asked.currency,
        fits=fit(model, recipe, cluster).fits,
        run=run,
        run_unknown=unknown,
        step_explained=step_parts(model, recipe, cluster, run) if run is not None and asked.explain else (),
        tokens=run_tokens(resolved.lengths, recipe.epochs),
        per_million=each,
        project=made,
        terms=lines,
        clusters=clusters,
        managed=services,
        budget=within_budget(made.whole, asked.budget, cluster.count, chosen.price) if asked.budget else None,
        deadline=chosen.deadline,
        as_of=asked.prices.on,
        catalog_revision=catalog_revision(),
        rate=_rate(job, lines, clusters, services),
        notes=_notes(resolved, chosen, asked),
        assumptions=(*resolved.assumptions, *_assumptions(job, sources)),
        warnings=resolved.warnings,
    )


def setting_sources(answer: CostAnswer) -> dict[str, tuple[object, str]]:
    """Every setting with its value and where it comes from: stated, assumed or unknown."""
    out: dict[str, tuple[object, str]] = {}
    for field in fields(answer.settings):
        value = getattr(answer.settings, field.name)
        source = answer.sources.get(field.name)
        out[field.name] = (value, str(source) if source else ("unknown" if value is None else Origin.ASSUMED.value))
    return out


def _rate(
    job: Job, lines: Sequence[TermLine], clusters: Sequence[ClusterLine], services: Sequence[ManagedLine]
) -> Rate | None:
    """The rate of what was converted, None where nothing was."""
    quoted = [line.price.quoted.currency for line in lines if line.price and line.price.quoted]
    quoted += [line.quoted.currency for line in clusters if line.quoted]
    quoted += [line.row.price.currency for line in services if line.row.price]
    foreign = next((currency for currency in quoted if currency != job.currency), None)
    return None if foreign is None else rate_between(foreign, job.currency, on=job.on)


def _notes(resolved: Resolved, chosen: TermLine, asked: Asked) -> tuple[Message, ...]:
    notes = []
    if chosen.unknown:
        notes.append(chosen.unknown)
    if asked.prices.offers is not None:
        notes.append(message(REFRESHED))
    if asked.terms == "spot" and resolved.saving is None:
        notes.append(
            message("nothing is said of checkpoints: make sure that the run saves optimizer states before it ends")
        )
    if chosen.project and chosen.project.price is None:
        notes.append(message("the bill has no price of a GPU-hour"))
    return tuple(notes)


def _assumptions(job: Job, sources: Mapping[str, Source]) -> list[str]:
    own = job.settings
    said = []
    if "kept" not in sources and "hot_months" not in sources:
        said.append(f"{own.kept} checkpoint is kept on a disk for {own.hot_months} month")
    if own.failed_attempts is not None and "failed_share" not in sources:
        said.append("a failed attempt gets half way")
    machine, source = owned(job)
    if machine is not None:
        if own.card_price is None:
            said.append(f"buying: {source}")
        if "life_years" not in sources:
            said.append(f"owned hardware is written off in {own.life_years:f} years")
        if "residual" not in sources:
            said.append(f"a share of {own.residual:f} of its price is left then")
        if "upkeep" not in sources:
            said.append(f"upkeep takes a share of {own.upkeep:f} of its price a year")
        if "pue" not in sources:
            said.append(f"{own.pue:f} kWh are drawn for each one computed (PUE)")
        if own.power_price is None:
            said.append(f"a kWh costs {POWER[job.currency]} {job.currency}")
    return said


def _mean(resolved: Resolved) -> float | None:
    lengths = resolved.lengths
    if lengths.mean is not None:
        return lengths.mean
    return lengths.tokens / lengths.samples if lengths.tokens and lengths.samples else None


__all__ = ["COST_SCHEMA", "OWNED", "Asked", "CostAnswer", "cost_answer", "setting_sources"]
