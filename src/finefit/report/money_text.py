"""What to change, hours, bill and prices in words."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from finefit.cost import BillItem, Span
from finefit.planner.answer import Fits
from finefit.planner.plan import OfferLine, Plan, Remedy
from finefit.planner.step_parts import StepPart
from finefit.report import text
from finefit.report.i18n import Translator
from finefit.report.layout import Page
from finefit.speed import Run

_OFFERS = 5  # lines shown; the JSON holds all


def remedies(plan: Plan, page: Page, t: Translator) -> None:
    """Changes in order of preference, each re-estimated."""
    if not plan.remedies:
        return
    page.heading(t("What to change, least painful first"))
    for number, remedy in enumerate(plan.remedies, 1):
        page.line(f"{number}. {t.message(remedy.change)}", indent=2, hang=5)
        page.line(_effect(remedy, t), indent=5)
        page.line(t("Why: {rule}.", rule=t.message(remedy.rule)), indent=5)
        if remedy.risk:
            page.line(t("Risk: {risk}.", risk=t.message(remedy.risk)), indent=5)


def _effect(remedy: Remedy, t: Translator) -> str:
    """Saved memory, time, money, and whether it then fits."""
    if remedy.saved_bytes >= 0:
        said = [t("saves {size}", size=text.size(remedy.saved_bytes, t))]
    else:
        said = [t("takes {size} more", size=text.size(-remedy.saved_bytes, t))]
    if remedy.slowdown is not None:
        said.append(_speed(remedy.slowdown, t))
    if remedy.money is not None and abs(remedy.money.amount) >= Decimal("0.01"):
        extra = text.money(remedy.money, t)
        extra = extra if remedy.money.amount < 0 else f"+{extra}"
        per = t("{money} for {samples} samples", money=extra, samples=text.count(remedy.money_samples or 0))
        said.append(per if remedy.money_samples else t("{money} for the run", money=extra))
    need = text.size(remedy.peak_bytes, t)
    then = {
        Fits.YES: t("then fits, with at most {size}", size=need),
        Fits.TIGHT: t("then tight, with up to {size}", size=need),
        Fits.NO: t("still too large, with {size}", size=need),
        Fits.UNKNOWN: t("then needs {size}", size=need),
    }
    return t("{effects}.", effects=t(", ").join([*said, then[remedy.fits]]))


def _speed(slowdown: float, t: Translator) -> str:
    if abs(slowdown) < 0.005:
        return t("as fast")
    return t("{share} slower" if slowdown > 0 else "{share} faster", share=text.percent(abs(slowdown)))


def time(plan: Plan, page: Page, t: Translator) -> None:
    """Hours of 1,000 samples and of the run, and what they rest on."""
    if plan.cluster is None:
        return
    page.heading(t("Time"))
    run = plan.run
    if run is None:
        why = t.message(plan.run_unknown) if plan.run_unknown else t("no model of it")
        page.line(t("Unknown: {why}.", why=why), indent=2)
        return
    rows = [[t("one optimizer step"), _seconds(run, t)]]
    rows.append([t("1,000 samples"), bound(text.duration(run.hours_per_1000_samples, t), run, t)])
    if run.hours is None or run.hours_interval is None:
        rows.append([t("the whole run"), t("unknown")])
    else:
        low, high = (text.duration(each, t) for each in run.hours_interval)
        hours = bound(text.duration(run.hours, t), run, t)
        rows.append([t("the whole run"), t("{hours} ({low} to {high})", hours=hours, low=low, high=high)])
    page.table(rows, "ll")
    page.line(t("Length of a row: {rule}.", rule=t.sentence(run.row_rule)), indent=2)
    where = sorted(((seconds, part) for part, seconds in run.step.parts.items() if seconds), reverse=True)[:4]
    shares = [f"{text.name(text.TIMES, part, t)} {text.percent(each / run.step_seconds)}" for each, part in where]
    page.line(t("Where it goes: {shares}.", shares=t(", ").join(shares)), indent=2)
    interval = run.step.interval
    page.line(
        t(
            "The ends held for {coverage} of {count} published runs of this kind whose source was left out of the fit.",
            coverage=text.percent(interval.coverage),
            count=interval.runs,
        ),
        indent=2,
    )
    if run.evaluation_seconds:
        hours = text.duration(run.evaluation_seconds / 3600, t)
        page.line(t("Evaluations take {hours} of the run.", hours=hours), indent=2)
    if run.checkpoint_seconds:
        hours = text.duration(run.checkpoint_seconds / 3600, t)
        page.line(t("Writing checkpoints takes {hours} of the run.", hours=hours), indent=2)
    page.bullets(t.sentence(each) for each in (*run.step.reasons, *run.notes))
    explained(plan.step_explained, page, t)


def explained(parts: Sequence[StepPart], page: Page, t: Translator) -> None:
    """A line for each part of a step: seconds, share, work, and the constants it meets."""
    if not parts:
        return
    page.heading(t("Where the time of a step goes"))
    for part in parts:
        name = text.name(text.TIMES, part.name, t)
        seconds = t("{seconds} s", seconds=text.figures(part.seconds))
        page.line(t("{what}: {seconds}, {share}", what=name, seconds=seconds, share=text.percent(part.share)), indent=2)
        page.line(t.message(part.does), indent=4)
        for key, value, runs in part.constants:
            fixed = t("{runs} measured runs", runs=runs) if runs else t("held")
            page.line(f"{key} = {value:.3g} ({fixed})", indent=4)
    page.line(t("The constants and the measured runs behind them: docs/throughput.md."), indent=2)


def bound(figure: str, run: Run | None, t: Translator) -> str:
    """A figure that rests on the length of a row, which may be a bound from above."""
    return t("at most {figure}", figure=figure) if run and run.upper_bound else figure


def _seconds(run: Run, t: Translator) -> str:
    return t(
        "{seconds} s ({low} to {high}), {rate} tokens a second",
        seconds=text.figures(run.step_seconds),
        low=text.figures(run.step.low),
        high=text.figures(run.step.high),
        rate=text.count(run.tokens_per_second),
    )


def bill(plan: Plan, page: Page, t: Translator) -> None:
    """The items of the bill with low, likely and high amounts."""
    if plan.bill is None and plan.bill_per_1000 is None:
        return
    page.heading(t("Cost"))
    if plan.price:
        price, source = text.both(plan.price, plan.price_quoted, t), t.sentence(plan.price_source)
        page.line(t("At {price} a GPU-hour ({source}).", price=price, source=source), indent=2)
    if plan.bill_per_1000:
        cost = bound(text.money(plan.bill_per_1000, t), plan.run, t)
        page.line(t("1,000 samples: {cost}.", cost=cost), indent=2)
    if plan.bill is None:
        return
    rows = [[t("item"), t("quantity"), t("low / likely / high")]]
    rows += [
        [text.name(text.BILL_ITEMS, item.name, t), _quantity(item, t), _amount(item, t)] for item in plan.bill.items
    ]
    total = text.money_range((plan.bill.low, plan.bill.total, plan.bill.high), t)
    if plan.bill.lower_bound and plan.bill.total:
        total = t("{total}, the unknown on top", total=total)
    page.table([*rows, [t("total"), "", total]], "lrl")


def _quantity(item: BillItem, t: Translator) -> str:
    if item.quantity is None:
        return t("unknown")
    unit = text.name(text.UNITS, item.unit, t)
    return t("{number} {unit}", number=_likely(item.quantity), unit=unit)


def _likely(span: Span) -> str:
    return text.figures(float(span.likely))


def _amount(item: BillItem, t: Translator) -> str:
    if item.amount is None:
        return t("unknown: {why}", why=t.sentence(item.source))
    return text.money_range((item.low, item.amount, item.high), t)


def offers(plan: Plan, page: Page, t: Translator) -> None:
    """Prices by kind, and the cheapest offers."""
    if not plan.prices and not plan.offers:
        if plan.cluster:
            page.line(t("No price of {gpu} is known.", gpu=plan.cluster.gpu.name), indent=2)
        return
    page.heading(t("Prices of a GPU-hour: low / median / high"))
    rows = []
    for kind, by_currency in plan.prices.items():
        for summary in by_currency.values():
            prices = text.money_range((summary.low, summary.median, summary.high), t)
            days = (plan.as_of - summary.newest).days, (plan.as_of - summary.oldest).days
            said = {"n": summary.offers, "age": f"{days[0]}-{days[1]}" if days[0] != days[1] else str(days[0])}
            offers = t("1 offer, {age} days old" if summary.offers == 1 else "{n} offers, {age} days old", **said)
            rows.append([text.name(text.KINDS, kind, t), prices, offers])
    page.table(rows, "lll")
    if not plan.offers:
        return
    page.heading(t("Cheapest offers"))
    whole = any(offer.total for offer in plan.offers)
    head = [
        t("provider"),
        t("GPUs"),
        t("a GPU-hour"),
        t("expected today"),
        t("days old"),
        t("the run") if whole else t("1,000 samples"),
    ]
    page.table([head, *(_offer(offer, whole, t) for offer in plan.offers[:_OFFERS])], "lrrrrr")
    if plan.rate:
        page.line(text.converted(plan.rate, t), indent=2)


def _offer(offer: OfferLine, whole: bool, t: Translator) -> list[str]:
    drift = text.money_range([offer.price * factor for factor in offer.drift], t, mark=" - ")
    who = offer.provider if offer.kind == "on-demand" else f"{offer.provider}, {text.name(text.KINDS, offer.kind, t)}"
    quoted = offer.total if whole else offer.per_1000
    cost = text.money(offer.converted or quoted, t)
    return [who, str(offer.gpus_billed), text.money(offer.price, t), drift, str(offer.age_days), cost]
