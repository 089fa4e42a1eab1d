"""Memory in words: the four steps, the parts at the peak, the four numbers, the cards that hold it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from finefit.memory.interval import intervals
from finefit.memory.timeline import CATEGORIES, PHASES
from finefit.planner.answer import MemoryAnswer
from finefit.report import text
from finefit.report.i18n import N_, Translator
from finefit.report.inputs import inputs
from finefit.report.layout import Page
from finefit.workload.cluster import Cluster

if TYPE_CHECKING:
    from finefit.memory.peak import Peak
    from finefit.planner.plan import Plan

_METRICS = {"allocated": N_("allocated"), "reserved": N_("reserved"), "device": N_("device")}
_CARDS = 16  # rows that a reader takes in
STYLES = {"yes": "good", "tight": "warn", "no": "bad", "unknown": "bold"}


def gpus(cluster: Cluster, t: Translator) -> str:
    """The stated GPUs: 2 x GeForce RTX 4090."""
    stated = f"{cluster.count} x {cluster.gpu.name}"
    return stated if cluster.nodes == 1 else t("{gpus} in {nodes} machines", gpus=stated, nodes=cluster.nodes)


def memory(answer: MemoryAnswer, page: Page, t: Translator) -> None:
    """What one GPU needs, from flags alone."""
    title = [answer.model.name, text.method(answer.recipe.method_label, t)]
    page.heading(" · ".join([*title, *([gpus(answer.cluster, t)] if answer.cluster else [])]))
    if answer.margin:
        said = {
            "need": text.between(answer.margin.low, answer.margin.high, t),
            "usable": text.size(answer.margin.usable, t),
        }
        fits = t(text.FITS[answer.fits]).capitalize()
        page.line(t("{fits}: each GPU needs {need} and has {usable}.", fits=fits, **said), style=STYLES[answer.fits])
    peak(answer.peak, answer.context, answer.cluster, page, t)
    if answer.explanation is not None:
        from finefit.report.explain_text import explanation

        explanation(answer.explanation, page, t)
    inputs(answer.model_text, answer.recipe, None, answer.sources, page, t)


def steps(plan: Plan, page: Page, t: Translator) -> None:
    """Scale and precision, training method, activations at the longest sample, margin."""
    found, recipe = plan.steps, plan.recipe
    page.heading(t("1. Scale and precision"))
    said = {"parameters": text.parameters(found.parameters), "size": text.size(found.weights_16bit, t)}
    page.line(t("{parameters} parameters, {size} at 16 bits each.", **said), indent=3)
    form = recipe.quant.kind if recipe.quant else recipe.weight_dtype.value
    page.line(
        t("{size} as the weights lie on each GPU ({form}).", size=text.size(found.weights, t), form=form), indent=3
    )

    page.heading(t("2. Training method: {method}", method=text.method(recipe.method_label, t)))
    trained = {"trained": text.parameters(found.trained), "share": text.percent(found.trained / found.parameters)}
    page.line(t("{trained} parameters are trained ({share}).", **trained), indent=3)
    page.line(
        t(
            "Weights, adapters, gradients and optimizer states: {size}, {times} times the 16-bit weights.",
            size=text.size(found.states, t),
            times=f"{found.multiplier:.2f}",
        ),
        indent=3,
    )

    page.heading(t("3. Activations at the longest sample"))
    batch = {"tokens": text.count(found.tokens), "rows": recipe.micro_batch, "length": text.count(recipe.seq_len)}
    page.line(t("A micro-batch of {tokens} tokens ({rows} x {length}).", **batch), indent=3)
    sizes = {"size": text.size(found.activations, t), "logits": text.size(found.logits, t)}
    page.line(t("{size} at the peak, {logits} of it logits and loss.", **sizes), indent=3)

    page.heading(t("4. Margin"))
    margin = found.margin
    if margin is None:
        page.line(t("No GPU was stated."), indent=3)
        return
    figures = {"usable": text.size(margin.usable, t), "high": text.size(margin.high, t)}
    if margin.bytes >= 0:
        left = t("{usable} usable - {high} needed = {left} left.", **figures, left=text.size(margin.bytes, t))
    else:
        left = t("{usable} usable - {high} needed: {short} short.", **figures, short=text.size(-margin.bytes, t))
    page.line(left, indent=3)


def peak(found: Peak, context: int, cluster: Cluster | None, page: Page, t: Translator) -> None:
    """Parts at the peak, its phase, and the four numbers apart."""
    page.heading(t("Memory of each GPU at the peak"))
    rows = [
        [
            text.name(text.PARTS, part, t),
            text.size(found.parts[part], t),
            text.percent(found.parts[part] / found.allocated),
        ]
        for part in CATEGORIES
        if found.parts.get(part)
    ]
    page.table(rows, "lrr")
    phase = text.name(text.PHASES, found.phase, t)
    where = f"{found.op}, {found.module}" if found.module else found.op
    page.line(t("The peak is in the {phase} ({where}).", phase=phase, where=where), indent=2)
    page.lines.append(("", ""))
    outside = t(
        "reserved and what lies outside PyTorch, {context}: what nvidia-smi shows", context=text.size(context, t)
    )
    searched = "" if found.required is not None else t(" (finefit plan looks for it)")
    numbers = [
        (t("allocated"), found.allocated, t("tensors alone")),
        (t("required"), found.required, t("the smallest card on which the allocator survives") + searched),
        (t("reserved"), found.reserved, t("what the allocator holds when nothing presses it")),
        (t("device"), found.device, outside),
    ]
    page.table([[label, text.size(nbytes, t), meaning] for label, nbytes, meaning in numbers], "lrl")
    ranges = intervals(found, cluster.count if cluster else 1)
    if ranges:
        said = t(", ").join(
            t("{name} {range}", name=t(_METRICS[name]), range=text.between(one.low, one.high, t))
            for name, one in ranges.items()
        )
        page.line(t("90 % interval by published runs: {ranges}.", ranges=said), indent=2)
    phases = [
        t("{phase} {size}", phase=text.name(text.PHASES, each, t), size=text.size(found.phases[each], t))
        for each in PHASES
        if each in found.phases
    ]
    page.line(t("Allocated by phase: {phases}.", phases=t(", ").join(phases)), indent=2)
    if found.host:
        page.line(t("Host memory for offloading: {size} a GPU.", size=text.size(found.host, t)), indent=2)


def cards(plan: Plan, page: Page, t: Translator) -> None:
    """Cards that hold the run, where no GPU was stated: those that can be rented at a known price, if any."""
    priced = [card for card in plan.cards if card.price]
    shown = (priced or list(plan.cards))[:_CARDS]
    if not shown:
        return
    page.heading(t("Cards that hold it"))
    rows = [["", t("card"), t("left"), t("1,000 samples"), t("cost")]]
    for card in shown:
        rows.append(
            [
                t(text.FITS[card.fits]),
                f"{card.count} x {card.gpu.name}",
                text.size(card.margin.bytes, t),
                text.duration(card.hours_per_1000, t),
                text.money(card.cost_per_1000, t),
            ]
        )
    page.table(rows, "llrrr", most=40)
    rest = len(plan.cards) - len(shown)
    if rest:
        page.line(t("{count} more hold it; --json lists them all.", count=rest), indent=2)
