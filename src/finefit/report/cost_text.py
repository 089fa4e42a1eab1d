"""The whole bill in words: a run, the project, other terms, other GPUs, managed services."""

from __future__ import annotations

from decimal import Decimal

from finefit.cost import Bill, BillItem, Limit
from finefit.planner.comparisons import ClusterLine, ManagedLine
from finefit.planner.cost_answer import CostAnswer
from finefit.planner.term_lines import TermLine
from finefit.report import memory_text, money_text, text
from finefit.report.i18n import N_, Translator
from finefit.report.layout import Page

TERMS = {
    **text.KINDS,
    "bare metal (monthly)": N_("whole server by the month"),
    "bare metal (yearly)": N_("whole server by the year"),
    "owned": N_("bought"),
}
ITEMS = {
    **text.BILL_ITEMS,
    "interruptions": N_("interruptions"),
    "cold storage": N_("cold storage"),
    "upload": N_("upload"),
    "minimum charge": N_("minimum charge"),
    "runs": N_("runs"),
    "failed attempts": N_("failed attempts"),
    "queueing": N_("queueing"),
    "debugging": N_("debugging"),
    "forgotten to release": N_("forgotten to release"),
    "unused hours of the term": N_("unused hours of the term"),
    "data storage": N_("data storage"),
    "image storage": N_("image storage"),
    "disk while stopped": N_("disk while stopped"),
    "engineers": N_("engineers"),
}
UNITS = {**text.UNITS, "attempt": N_("attempts"), "run": N_("runs"), "rental": N_("rental"), "hour": N_("hours")}


def cost_page(answer: CostAnswer, language: str, *, cells: int) -> Page:
    """The answer as a page."""
    t, page = Translator(language), Page(cells)
    method = text.name(text.METHODS, answer.recipe.method_label, t)
    page.heading(" · ".join([answer.model.name, method, memory_text.gpus(answer.cluster, t)]))
    _summary(answer, page, t)
    money_text.explained(answer.step_explained, page, t)
    _bill(t("One run"), answer.project.run, page, t)
    _bill(t("The project"), answer.project.whole, page, t)
    _sources(answer, page, t)
    _interruptions(answer, page, t)
    _terms(answer, page, t)
    _clusters(answer, page, t)
    _managed(answer, page, t)
    for heading, sentences in (
        (t("Notes"), [t.message(note) for note in answer.notes]),
        (t("Assumed"), [t.sentence(each) for each in answer.assumptions]),
        (t("Please check"), [t.sentence(each) for each in answer.warnings]),
    ):
        if sentences:
            page.heading(heading)
            page.bullets(sentences)
    if answer.rate:
        page.line(text.converted(answer.rate, t))
    page.heading(
        t("As of {date}, catalogue {revision}.", date=text.date(answer.as_of), revision=answer.catalog_revision)
    )
    return page


def _summary(answer: CostAnswer, page: Page, t: Translator) -> None:
    made = answer.project
    if answer.fits.value != "yes":
        page.line(t("On these GPUs the run is judged: {fits}.", fits=t(text.FITS[answer.fits])), style="warn")
    if made.price:
        price = text.both(made.price.unit_price, made.price.quoted, t)
        said = {"terms": text.name(TERMS, made.kind, t), "price": price}
        page.line(t("Terms: {terms}, {price} a GPU-hour ({source}).", **said, source=t.sentence(made.price.source)))
    if answer.run and answer.run.hours is not None:
        page.line(t("One run: {hours}, {cost}.", hours=text.duration(answer.run.hours, t), cost=_total(made.run, t)))
    elif answer.run_unknown:
        page.line(t("Unknown: {why}.", why=t.message(answer.run_unknown)))
    runs = answer.settings.runs
    page.line(t("The project ({runs} runs): {cost}.", runs=runs, cost=_total(made.whole, t)), style="bold")
    if answer.per_million:
        page.line(t("A million tokens: {cost} of GPUs.", cost=text.money(answer.per_million, t)))
    for label, limit in ((t("Budget"), answer.budget), (t("Deadline"), answer.deadline)):
        if limit:
            page.line(_limit(label, limit, t))


def _limit(label: str, limit: Limit, t: Translator) -> str:
    return t("{what} {kept}: {reason}.", what=label, kept=t(text.KEPT[limit.meets]), reason=t.sentence(limit.reason))


def _total(bill: Bill, t: Translator) -> str:
    total = text.money(bill.total, t)
    return t("{total}, the unknown on top", total=total) if bill.lower_bound and bill.total else total


def _bill(heading: str, bill: Bill, page: Page, t: Translator) -> None:
    page.heading(heading)
    rows = [[t("item"), t("quantity"), t("low / likely / high")]]
    rows += [[text.name(ITEMS, item.name, t), _quantity(item, t), _amount(item, t)] for item in bill.items]
    total = text.money_range((bill.low, bill.total, bill.high), t)
    page.table([*rows, [t("total"), "", total]], "lrl")


def _sources(answer: CostAnswer, page: Page, t: Translator) -> None:
    """Where each price of the bill comes from, items of one source together."""
    by_source: dict[str, list[str]] = {}
    for item in (*answer.project.run.items, *answer.project.whole.items):
        if item.amount is not None and item.source:
            by_source.setdefault(item.source, []).append(text.name(ITEMS, item.name, t))
    if by_source:
        page.heading(t("Where the prices come from"))
        page.bullets(
            t("{name}: {why}", name=t(", ").join(names), why=t.sentence(source)) for source, names in by_source.items()
        )


def _quantity(item: BillItem, t: Translator) -> str:
    if item.quantity is None:
        return ""
    unit = text.name(UNITS, item.unit, t)
    return t("{number} {unit}", number=text.figures(float(item.quantity.likely)), unit=unit)


def _amount(item: BillItem, t: Translator) -> str:
    if item.amount is None:
        return t("unknown: {why}", why=t.sentence(item.source))
    return text.money_range((item.low, item.amount, item.high), t)


def _interruptions(answer: CostAnswer, page: Page, t: Translator) -> None:
    lost = answer.project.lost
    if lost is None:
        return
    page.heading(t("Interruptions"))
    page.line(
        t(
            "One every {hours} ({source}): save every {interval}, {share} of the time is lost.",
            hours=text.duration(float(lost.mean_hours.likely), t),
            source=t.sentence(lost.source),
            interval=text.duration(lost.interval, t),
            share=text.percent(float(lost.waste.likely)),
        ),
        indent=2,
    )


def _terms(answer: CostAnswer, page: Page, t: Translator) -> None:
    often = answer.settings.runs_per_month is not None
    page.heading(t("Terms: by the hour, by the month, bought"))
    head = [t("terms"), t("a GPU-hour"), t("one run"), t("a month"), t("pays from")]
    rows = [head, *(_term(line, t) for line in answer.terms if line.project)]
    if not often:
        rows = [[*row[:3], *row[4:]] for row in rows]
    page.table(rows, "lrrrl" if often else "lrrl", most=26)
    page.bullets(
        t("{name}: {why}", name=text.name(TERMS, line.name, t), why=why)
        for line in answer.terms
        for why in _remarks(line, t)
    )
    for note in dict.fromkeys(line.note for line in answer.terms if line.note):
        names = t(", ").join(text.name(TERMS, line.name, t) for line in answer.terms if line.note == note)
        page.bullets([t("{name}: {why}", name=names, why=t.sentence(note))])
    if often:
        page.line(t("{runs} runs a month.", runs=f"{answer.settings.runs_per_month:f}"), indent=2)
    else:
        page.line(t("Once or often? --runs-per-month compares what a month costs."), indent=2)
    page.line(t("Pays from: use a month from which it is cheaper than on demand."), indent=2)


def _term(line: TermLine, t: Translator) -> list[str]:
    made = line.project
    return [
        text.name(TERMS, line.name, t),
        text.both(line.price.unit_price, line.price.quoted, t) if line.price else "-",
        text.money(made.run.total, t) if made and made.run.total else "-",
        text.money(line.month, t) if line.month else "-",
        _pays_from(line, t),
    ]


def _remarks(line: TermLine, t: Translator) -> list[str]:
    """Why it cannot be used or priced, and the deadline where it may be missed."""
    said = [t.message(why) for why in (line.refused, line.unknown) if why]
    # of spot machines it is said either way: whether interruptions still leave time is what one wants to know
    if line.deadline and (line.deadline.meets != "yes" or line.kind == "spot") and line.project:
        said.append(_limit(t("Deadline"), line.deadline, t))
    return said


def _pays_from(line: TermLine, t: Translator) -> str:
    even = line.break_even
    if even is None:
        return "-"
    if even.utilisation > 1:
        return t("never")
    hours = t("{hours} h ({share})", hours=text.count(float(even.hours)), share=text.percent(float(even.utilisation)))
    return hours if even.runs is None else t("{hours}, {runs} runs", hours=hours, runs=text.figures(float(even.runs)))


def _clusters(answer: CostAnswer, page: Page, t: Translator) -> None:
    if not answer.clusters:
        return
    page.heading(t("One big card or several small ones, on demand"))
    head = [t("GPUs"), t("one run"), t("cost"), t("1M tokens"), t("waits"), t("against one")]
    page.table([head, *(_cluster(line, t) for line in answer.clusters)], "lrrrrl")
    page.line(t("Waits: share of the time and money lost waiting for the other GPUs."), indent=2)
    factors = [line.interval[1] / line.hours for line in answer.clusters if line.interval and line.hours]
    if factors:
        least, most = f"{min(factors):.2f}", f"{max(factors):.2f}"
        within = t(
            "These hours held within a factor of {low} to {high} for 9 of 10 published runs.", low=least, high=most
        )
        page.line(within, indent=2)
    if any(line.spread for line in answer.clusters):
        page.line(t("*: one does not hold it, the states are spread over all of them."), indent=2)


def _cluster(line: ClusterLine, t: Translator) -> list[str]:
    return [
        f"{line.count} x {line.gpu.id}{' *' if line.spread else ''}",
        text.duration(line.hours, t),
        text.both(line.cost, line.quoted, t) if line.cost else text.money(None, t),
        text.money(line.per_million, t),
        text.percent(line.communication),
        "-" if line.against_one is None or line.count == 1 else t("{times} times", times=f"{line.against_one:.2f}"),
    ]


def _managed(answer: CostAnswer, page: Page, t: Translator) -> None:
    page.heading(t("Managed services for this model and method"))
    if not answer.managed:
        page.line(t("No published price of one is known."), indent=2)
        return
    head = [t("provider"), t("1M tokens"), t("one run"), t("own is cheaper from"), t("read")]
    page.table([head, *(_service(line, t) for line in answer.managed)], "lrrll")
    page.line(
        t("Own: set-up and engineers' hours as far as known, against each token saved. Serving is not in it."), indent=2
    )


def _service(line: ManagedLine, t: Translator) -> list[str]:
    even = t("never, by the token")
    if line.own_cheaper:
        even = t("unknown") if line.break_even is None else _tokens(line.break_even, t)
    dated = text.date(line.row.as_of) if line.row.as_of else t("date unknown")
    return [
        line.row.provider,
        text.both(line.price, line.row.price, t),
        text.money(line.cost, t),
        even,
        t("{evidence}, {date}", evidence=text.name(_EVIDENCE, line.row.evidence, t), date=dated),
    ]


_EVIDENCE = {"quoted": N_("quoted"), "secondary": N_("second hand"), "none": N_("not read")}


def _tokens(tokens: Decimal, t: Translator) -> str:
    return t("{tokens} tokens", tokens=text.parameters(int(tokens)))
