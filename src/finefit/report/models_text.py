"""One model in words: its shape, its parameters, and what its checkpoint stores."""

from __future__ import annotations

from finefit.planner.model_facts import ModelFacts
from finefit.report import text
from finefit.report.i18n import Translator
from finefit.report.layout import Page


def model_page(facts: ModelFacts, language: str, *, cells: int) -> Page:
    """The facts as a page."""
    t, page = Translator(language), Page(cells)
    model, held = facts.model, facts.contents
    page.heading(t("{name} ({origin})", name=model.name, origin=model.origin))
    page.bullets(
        [
            t("{family}: {layers} layers, {hidden} wide, {vocab} tokens in the vocabulary", family=model.family,
              layers=model.layers, hidden=f"{model.hidden:,}", vocab=f"{model.vocab:,}"),
            t("{n} parameters by the shapes of the architecture", n=f"{facts.parameters:,}"),
        ]
    )  # fmt: skip
    if held is None:
        stored = model.checkpoint_quant or model.checkpoint_dtype.value
        page.bullets([t("stored as {dtype}; no weights are at hand to count", dtype=stored)])
        return page
    parts = ", ".join(f"{name} {text.size(nbytes, t)}" for name, nbytes in held.stored.items())
    page.bullets([t("the checkpoint: {size} ({parts})", size=text.size(held.bytes, t), parts=parts)])
    if held.quant:
        bits = t("{bits} bits", bits=held.bits) if held.bits else t("several widths")
        group = t(", groups of {n}", n=held.group) if held.group else ""
        page.bullets([t("quantised: {kind}, {bits}{group}", kind=held.quant, bits=bits, group=group)])
    if held.parameters == facts.parameters:
        page.bullets([t("its tensors stand for exactly these parameters")])
    elif facts.twice:
        page.bullets([t("its tensors stand for exactly these parameters, and the tied head is stored a second time")])
    else:
        n = f"{held.parameters:,}"
        page.bullets(
            [t("its tensors stand for {n} parameters: parts that the architecture does not use, or lacks", n=n)]
        )
    return page
