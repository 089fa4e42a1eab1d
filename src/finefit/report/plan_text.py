"""A whole plan in words, and the two tables that answer half a question."""

from __future__ import annotations

from finefit.planner.answer import Fits
from finefit.planner.plan import LargestModels, MethodTable, Plan
from finefit.report import memory_text, money_text, text
from finefit.report.i18n import Translator
from finefit.report.inputs import inputs
from finefit.report.layout import Page


def answer_text(answer: Plan | MethodTable | LargestModels, page: Page, t: Translator) -> None:
    """The answer without its assumptions and warnings."""
    if isinstance(answer, Plan):
        _plan(answer, page, t)
    elif isinstance(answer, MethodTable):
        _method_table(answer, page, t)
    else:
        _largest_models(answer, page, t)


def _plan(plan: Plan, page: Page, t: Translator) -> None:
    title = [plan.model.name, text.method(plan.recipe.method_label, t)]
    page.heading(" · ".join([*title, *([memory_text.gpus(plan.cluster, t)] if plan.cluster else [])]))
    _verdict(plan, page, t)
    memory_text.steps(plan, page, t)
    memory_text.peak(plan.peak, plan.context, plan.cluster, page, t)
    memory_text.cards(plan, page, t)
    money_text.remedies(plan, page, t)
    money_text.time(plan, page, t)
    money_text.bill(plan, page, t)
    money_text.offers(plan, page, t)
    inputs(plan.model_text, plan.recipe, plan.lengths, plan.sources, page, t)
    if plan.notes:
        page.heading(t("Notes"))
        page.bullets(t.message(note) for note in plan.notes)


def _verdict(plan: Plan, page: Page, t: Translator) -> None:
    verdict = t(text.VERDICTS[plan.verdict])
    if plan.fits is Fits.UNKNOWN:
        page.line(verdict, style="bold")
        return
    page.line(
        t("{fits}. {verdict}", fits=t(text.FITS[plan.fits]).capitalize(), verdict=verdict),
        style=memory_text.STYLES[plan.fits],
    )
    margin = plan.steps.margin
    if margin:
        need = text.between(margin.low, margin.high, t)
        page.line(t("Each GPU needs {need} and has {usable}.", need=need, usable=text.size(margin.usable, t)))
    if plan.too_large and plan.fits is not Fits.YES:
        page.line(t(text.TOO_LARGE[plan.too_large]))
    if plan.shard_count:
        page.line(t("{count} of these GPUs hold it with the states spread over them.", count=plan.shard_count))
    if plan.fewer:
        each = plan.fewer
        page.line(
            t(
                "{needed} of the {count} GPUs would do: {pay} times the price an hour for {speed} times the speed.",
                needed=each.needed,
                count=each.count,
                pay=text.figures(each.times_pay),
                speed=text.figures(each.times_speed),
            )
        )
    _whole_run(plan, page, t)
    for label, limit in ((t("Budget"), plan.budget), (t("Deadline"), plan.deadline)):
        if limit:
            page.line(
                t(
                    "{what} {kept}: {reason}.",
                    what=label,
                    kept=t(text.KEPT[limit.meets]),
                    reason=t.sentence(limit.reason),
                )
            )


def _whole_run(plan: Plan, page: Page, t: Translator) -> None:
    """Hours and cost in one line: of the run, else of 1,000 samples."""
    if plan.run is None:
        return
    of_run = plan.run.hours is not None
    hours = text.duration(plan.run.hours if of_run else plan.run.hours_per_1000_samples, t)
    cost = (plan.bill.total if plan.bill else None) if of_run else plan.bill_per_1000
    said = {"hours": money_text.bound(hours, plan.run, t), "cost": text.money(cost, t)}
    page.line(t("The whole run: {hours}, {cost}." if of_run else "1,000 samples: {hours}, {cost}.", **said))


def _method_table(table: MethodTable, page: Page, t: Translator) -> None:
    said = {"model": table.model.name, "parameters": text.parameters(table.parameters)}
    page.heading(t("{model}, {parameters} parameters: memory of one GPU by method and length", **said))
    missing = t(", ").join(f"--{each}" for each in table.missing)
    page.line(t("Not stated: {missing}. State them for a whole plan.", missing=missing))
    if table.cluster:
        page.line(
            t(
                "On {gpus}, {usable} each.",
                gpus=memory_text.gpus(table.cluster, t),
                usable=text.size(table.cluster.gpu.memory, t),
            )
        )
    rows = [[t("method"), t("tokens"), t("needs"), t("on the stated GPU") if table.cluster else t("smallest card")]]
    for cell in table.cells:
        if table.cluster:
            last = t(text.FITS[cell.fits])
        else:
            last = t("{gb} GB", gb=f"{cell.smallest_gb:g}") if cell.smallest_gb else t("no single card")
        need = text.between(cell.low, cell.high, t)
        rows.append([text.method(cell.method, t), text.count(cell.seq_len), need, last])
    page.heading(t("Memory of each GPU"))
    page.table(rows, "lrrl")


def _largest_models(answer: LargestModels, page: Page, t: Translator) -> None:
    page.heading(
        t(
            "The largest models that {gpus} trains, {tokens} tokens a sample",
            gpus=memory_text.gpus(answer.cluster, t),
            tokens=text.count(answer.seq_len),
        )
    )
    rows = [[t("method"), t("parameters"), t("needs"), "", t("model")]]
    for found in answer.models:
        need = text.between(found.margin.low, found.margin.high, t)
        method = text.method(found.method, t)
        rows.append([method, text.parameters(found.parameters), need, t(text.FITS[found.fits]), found.name])
    page.table(rows, "lrrll")
