"""What to change when the run does not fit: each change re-estimated, those that suffice first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from finefit.cost import Price
from finefit.errors import NotModelled
from finefit.planner import levers
from finefit.planner.answer import Fits
from finefit.planner.fit import Fit, fit
from finefit.planner.levers import Change, changed_fields
from finefit.planner.market import cost_of
from finefit.planner.message import Message, message
from finefit.planner.plan import Remedy
from finefit.planner.verdict import SHARD_COUNTS
from finefit.speed import Run, step_time
from finefit.units import Money
from finefit.workload import Cluster, Model, Recipe

# A change that saves less of the card than this is not worth a reader's time, unless it suffices.
_WORTH = 0.01
_SUFFICES = (Fits.YES, Fits.TIGHT)


@dataclass(frozen=True, slots=True)
class Situation:
    """What a change is compared with: the run as configured on the stated GPUs, its time where that is known."""

    model: Model
    recipe: Recipe
    cluster: Cluster
    before: Fit
    run: Run | None
    price: Price | None


def remedies(situation: Situation) -> tuple[Remedy, ...]:
    """Changes in order of preference: those that make the run fit, then those that only help.

    Each is tried alone. Where none suffices alone without changing the method or the data, the shortest
    joint change that does is added.
    """
    model, recipe = situation.model, situation.recipe
    alone: list[tuple[Change, Remedy]] = []
    best_batch = _micro_batch(situation, recipe)
    found = [best_batch] if best_batch else []
    found += [change for lever in levers.SINGLE if (change := lever(model, recipe)) is not None]
    for change in found:
        remedy = _evaluate(situation, [change])
        if remedy is not None:
            alone.append((change, remedy))
    lossless = [change for change, remedy in alone if remedy.risk is None]
    out = [remedy for _, remedy in alone]
    if not any(remedy.fits is Fits.YES for remedy in out if remedy.risk is None):
        joint = _joint(situation, [change.kind for change in lossless])
        if joint is None and not any(remedy.fits is Fits.YES for remedy in out):
            joint = _joint(situation, [change.kind for change, _ in alone])
        if joint is not None:
            out.append(joint)
    out += _sharding(situation, [change.kind for change in lossless])
    usable = situation.cluster.gpu.memory
    worth = [r for r in out if r.fits in _SUFFICES or r.saved_bytes > _WORTH * usable]
    return tuple(sorted(worth, key=_rank))


def _rank(remedy: Remedy) -> tuple[int, int]:
    """Fitting ones first; more GPUs after all else of the same kind."""
    return [Fits.YES, Fits.TIGHT, Fits.NO].index(remedy.fits), int(remedy.kind.endswith("shard"))


def _micro_batch(situation: Situation, recipe: Recipe) -> Change | None:
    """The largest smaller micro-batch that fits; one row where none does."""
    last = None
    for last in levers.micro_batches(situation.model, recipe):
        if fit(situation.model, last.recipe, situation.cluster).fits is Fits.YES:
            return last
    return last


def _lever(situation: Situation, kind: str, recipe: Recipe) -> Change | None:
    """One lever by its name on an already changed recipe."""
    if kind == "micro_batch":
        return _micro_batch(situation, recipe)
    lever = next(lever for lever in levers.SINGLE if lever.__name__ == kind)
    return lever(situation.model, recipe)


def _apply(situation: Situation, kinds: Iterable[str]) -> list[Change]:
    """Levers on top of each other; QLoRA stands for LoRA."""
    done: list[Change] = []
    for kind in kinds:
        change = _lever(situation, kind, done[-1].recipe if done else situation.recipe)
        if change is not None:
            done.append(change)
    return done


def _joint(situation: Situation, kinds: list[str]) -> Remedy | None:
    """The shortest sequence of levers, in order, that fits together; those it can do without are left out."""
    for size in range(2, len(kinds) + 1):
        chosen = kinds[:size]
        if not _fits(situation, chosen):
            continue
        for kind in kinds[: size - 1]:
            rest = [other for other in chosen if other != kind]
            if len(rest) > 1 and _fits(situation, rest):
                chosen = rest
        return _evaluate(situation, _apply(situation, chosen))
    return None


def _fits(situation: Situation, kinds: list[str]) -> bool:
    done = _apply(situation, kinds)
    if not done:
        return False
    try:
        return fit(situation.model, done[-1].recipe, situation.cluster).fits is Fits.YES
    except NotModelled:
        return False


def _sharding(situation: Situation, lossless: list[str]) -> list[Remedy]:
    """The states over the stated GPUs, or over the fewest of one machine that hold them.

    Where spreading them does not suffice alone, the changes that cost nothing but time come with it.
    """
    stated = situation.cluster.count
    counts = sorted({*(c for c in SHARD_COUNTS if c > stated), *([stated] if stated > 1 else [])})
    for before in ([], _apply(situation, lossless)):
        recipe = before[-1].recipe if before else situation.recipe
        for count in counts:
            cluster = situation.cluster if count == stated else Cluster(situation.cluster.gpu, count)
            found = [
                _evaluate(situation, [*before, change], cluster)
                for change in levers.shard(situation.model, recipe, count)
            ]
            suffice = [remedy for remedy in found if remedy is not None and remedy.fits in _SUFFICES]
            if suffice:
                return suffice
    return []


def _evaluate(situation: Situation, changes: list[Change], cluster: Cluster | None = None) -> Remedy | None:
    """A change with its figures; None where the changed recipe is not modelled."""
    where = cluster or situation.cluster
    after = changes[-1].recipe
    try:
        now = fit(situation.model, after, where)
    except NotModelled:
        return None
    slowdown = _slowdown(situation, after, where)
    money, samples = _money(situation, slowdown, where)
    return Remedy(
        kind="+".join(change.kind for change in changes),
        change=_joined([change.what for change in changes]),
        settings=changed_fields(situation.recipe, after),
        saved_bytes=situation.before.peak.allocated - now.peak.allocated,
        slowdown=slowdown,
        money=money,
        money_samples=samples,
        risk=_joined([change.risk for change in changes if change.risk is not None]) if _risky(changes) else None,
        rule=_joined([change.rule for change in changes]),
        peak_bytes=now.shown,
        fits=now.fits,
        recipe=replace(after, sources=situation.recipe.sources),
    )


def _risky(changes: list[Change]) -> bool:
    return any(change.risk is not None for change in changes)


def _joined(messages: list[Message]) -> Message:
    """Several sentences as one: each keeps its own template."""
    if len(messages) == 1:
        return messages[0]
    names = [f"part{number}" for number in range(len(messages))]
    text = "; ".join(f"{{{name}}}" for name in names)
    return message(text, **dict(zip(names, messages, strict=True)))


def _slowdown(situation: Situation, after: Recipe, cluster: Cluster) -> float | None:
    """Additional time for the same data, at the same length of a row: padding saved by smaller batches is not counted.

    Packed rows hold more or fewer samples as they grow or shrink, so they are compared by the token.
    """
    run = situation.run
    if run is None:
        return None
    row = run.row_tokens
    short = min(row, after.seq_len)
    try:
        then = step_time(situation.model, replace(after, seq_len=short), cluster)
    except NotModelled:
        return None
    rows = after.micro_batch * after.grad_accum * cluster.count
    each, before = then.seconds / rows, run.step_seconds / run.rows_per_step
    if after.packing:
        each, before = each / short, before / row
    return each / before - 1


def _money(situation: Situation, slowdown: float | None, cluster: Cluster) -> tuple[Money | None, int | None]:
    """GPU-hours after less those before, of the whole run where its length is known, else of 1,000 samples."""
    run = situation.run
    if run is None or slowdown is None or situation.price is None:
        return None, None
    hours = run.hours_per_1000_samples if run.hours is None else run.hours
    more = hours * ((1 + slowdown) * cluster.count - situation.cluster.count)
    return cost_of(more, 1, situation.price), 1000 if run.hours is None else None
