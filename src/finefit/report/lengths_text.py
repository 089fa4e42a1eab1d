"""Lengths of training data in words."""

from __future__ import annotations

from finefit.planner.lengths_answer import LengthsAnswer
from finefit.report import text
from finefit.report.i18n import Translator
from finefit.report.layout import Page

_BAR = 30  # cells of the longest bar of the histogram


def lengths_page(found: LengthsAnswer, language: str, *, cells: int) -> Page:
    """The lengths as a page."""
    t, page = Translator(language), Page(cells)
    page.heading(
        t("{file}: {n} samples, {tokens} tokens", file=found.file, n=f"{found.samples:,}", tokens=_n(found.tokens))
    )
    page.line(
        t("read as {shape}; tokens by {counter}", shape=found.shape, counter=t.sentence(found.counted_by)), indent=2
    )
    if found.cutoff is not None:
        page.line(
            t("cut to {cutoff} tokens: {n} samples are longer", cutoff=_n(found.cutoff), n=_n(found.truncated)),
            indent=2,
        )
    page.line(
        t("longest before truncation: {n} tokens, at line {line}", n=_n(found.longest_uncut), line=found.longest_line),
        indent=2,
    )
    page.heading(t("Tokens a sample"))
    shares = [(f"{share * 100:g} %", _n(tokens)) for share, tokens in found.percentiles.items()]
    page.table([[t("mean"), f"{found.mean:,.1f}"], *map(list, shares), [t("longest"), _n(found.longest)]], "lr")
    page.heading(t("Samples by tokens"))
    most = max(n for _, _, n in found.histogram)
    page.table(
        [[f"{_n(a)}-{_n(b)}", _n(n), "#" * -(-n * _BAR // most)] for a, b, n in found.histogram], "rrl", most=_BAR
    )
    _batches(found, page, t)
    _saving(found, page, t)
    for heading, sentences in ((t("Assumed"), found.assumptions), (t("Please check"), found.warnings)):
        if sentences:
            page.heading(heading)
            page.bullets(t.sentence(each) for each in sentences)
    page.bullets((t("line {line}: {why}", line=line, why=t.sentence(why)) for line, why in found.bad_rows), indent=4)
    page.heading(t("As of {date}, catalogue {revision}.", date=text.date(found.as_of), revision=found.catalog_revision))
    return page


def _batches(found: LengthsAnswer, page: Page, t: Translator) -> None:
    page.heading(t("Batches of {n} samples", n=found.batch))
    names = {
        "padding": t("padded, random order"),
        "group_by_length": t("padded, grouped by length"),
        "packing": t("packed"),
    }
    rows = [["", t("longest batch"), t("tokens an epoch"), t("of these padding")]]
    for name, each in found.batchings.items():
        share = 1 - found.tokens / each.epoch_tokens
        rows.append([names[name], _n(each.longest_batch), _n(each.epoch_tokens), f"{share * 100:.1f} %"])
    rows.append([t("without padding"), "", _n(found.tokens), ""])
    page.table(rows, "lrrr")


def _saving(found: LengthsAnswer, page: Page, t: Translator) -> None:
    saving = found.saving
    page.heading(t("Without the longest 1 %"))
    if not saving.samples:
        page.line(t("fewer than 100 samples: none is left out"), indent=2)
        return
    page.line(
        t(
            "{n} samples fewer; the longest then has {longest} tokens, an epoch {tokens} tokens fewer",
            n=_n(saving.samples),
            longest=_n(saving.longest),
            tokens=_n(saving.tokens),
        ),
        indent=2,
    )
    if saving.memory is None:
        page.line(t("state --method for the memory this saves, and --gpu for the hours and money"), indent=2)
        return
    page.line(t("memory saved on each GPU: {size}", size=text.size(saving.memory, t)), indent=2)
    if saving.seconds is None:
        page.line(t("state --gpu for the hours and money this saves"), indent=2)
        return
    page.line(t("time saved: {hours} hours", hours=f"{saving.seconds / 3600:.2f}"), indent=2)
    money = t("unknown") if saving.price is None else f"{saving.price.amount:.2f} {saving.price.currency}"
    page.line(t("GPU-hours saved: {money}", money=money), indent=2)


def _n(number: int) -> str:
    return f"{number:,}"
