"""Cards of the catalogue in words: all in one table, or one with everything known of it."""

from __future__ import annotations

from finefit.catalog.gpu_facts import GpuFacts
from finefit.planner.gpu_list import GpuList
from finefit.report import text
from finefit.report.i18n import Translator
from finefit.report.layout import Page

_PRECISIONS = ("tf32", "bf16", "fp16", "fp8", "fp4")
_COLUMNS = ("bf16", "fp16", "fp8")  # of the table of all cards


def gpus_page(found: GpuList, language: str, *, cells: int) -> Page:
    """The list as a page."""
    t, page = Translator(language), Page(cells)
    if found.one:
        _one(found, page, t)
    else:
        _all(found, page, t)
    page.heading(t("As of {date}, catalogue {revision}.", date=text.date(found.as_of), revision=found.catalog_revision))
    return page


def _all(found: GpuList, page: Page, t: Translator) -> None:
    page.heading(t("GPUs: {n}", n=len(found.gpus)))
    head = ["GPU", t("memory"), *_COLUMNS, t("GB/s"), t("link GB/s")]
    page.table([head, *(_row(facts, t) for facts in found.gpus)], "lrrrrrr")
    page.line(
        t("Memory is what torch reports on one device; rates are dense TFLOP/s accumulated in fp32; -: none."), indent=2
    )


def _row(facts: GpuFacts, t: Translator) -> list[str]:
    memory = text.size(facts.card.gpu.memory, t)
    if facts.card.devices > 1:
        memory = t("{n} x {size}", n=facts.card.devices, size=memory)
    support = {"bf16": facts.bf16, "fp16": None, "fp8": facts.fp8}
    rates = [_rate(facts, name, support[name], t) for name in _COLUMNS]
    link = f"{facts.link_bw / 1e9:g}" if facts.link_bw else "-"
    return [facts.card.gpu.id, memory, *rates, f"{facts.bandwidth / 1e9:g}", link]


def _rate(facts: GpuFacts, name: str, supported: bool | None, t: Translator) -> str:
    """TFLOP/s, "-" where the units do not take the type."""
    if name in facts.flops:
        return text.figures(facts.flops[name] / 1e12)
    return "-" if supported is False else t("unknown")


def _one(found: GpuList, page: Page, t: Translator) -> None:
    facts = found.gpus[0]
    card = facts.card
    page.heading(t("{name} ({id})", name=card.gpu.name, id=card.gpu.id))
    page.bullets(t.sentence(note) for note in found.notes)
    memory = t(
        "{size} as torch reports, {gb} GB on the box", size=text.size(card.gpu.memory, t), gb=f"{card.nominal_gb:g}"
    )
    if card.devices > 1:
        memory = t("{devices} devices of {memory}", devices=card.devices, memory=memory)
    link = t("none to a neighbouring card")
    if facts.link and facts.link_bw:
        link = t("{link}, {rate} GB/s both directions together", link=facts.link, rate=f"{facts.link_bw / 1e9:g}")
    rates = t(", ").join(
        f"{name} {text.figures(facts.flops[name] / 1e12)}" for name in _PRECISIONS if name in facts.flops
    )
    page.table(
        [
            [
                t("maker, architecture"),
                t(", ").join(filter(None, (facts.vendor, facts.arch, facts.compute_capability))),
            ],
            [t("memory"), memory],
            [t("bandwidth"), t("{rate} GB/s", rate=f"{facts.bandwidth / 1e9:g}")],
            [t("dense TFLOP/s, accumulated in fp32"), rates or t("unknown")],
            [t("bf16 units"), _yes(facts.bf16, t)],
            [t("fp8 units"), _yes(facts.fp8, t)],
            [t("link"), link],
            ["PCIe", facts.pcie or "-"],
            [t("power limit"), t("{watts} W", watts=facts.watts) if facts.watts else t("unknown")],
            [t("launched"), str(facts.launched) if facts.launched else t("unknown")],
            [t("other names"), t(", ").join(card.aliases) or "-"],
            [
                t("source"),
                t(
                    "{source} ({confidence} confidence)",
                    source=facts.source,
                    confidence=text.confidence(facts.confidence, t),
                ),
            ],
        ],
        "ll",
        most=36,
    )
    if found.variants:
        page.heading(t("Not to be confused with"))
        page.table(
            [[other.card.gpu.id, text.size(other.card.gpu.memory, t), other.card.label] for other in found.variants],
            "lrl",
        )


def _yes(found: bool | None, t: Translator) -> str:
    return t("unknown") if found is None else t(text.VALUES["yes" if found else "no"])
