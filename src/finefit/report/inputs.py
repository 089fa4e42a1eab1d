"""Each input with its value and where it came from."""

from __future__ import annotations

from collections.abc import Mapping

from finefit.report import text
from finefit.report.i18n import Translator
from finefit.report.layout import Page
from finefit.workload.lengths import Lengths
from finefit.workload.recipe import Recipe
from finefit.workload.sourced import Source


def inputs(
    model: str, recipe: Recipe, lengths: Lengths | None, sources: Mapping[str, Source], page: Page, t: Translator
) -> None:
    """The section of inputs: those that have a say in this run, in the order a reader checks them."""
    rows = []
    for key in (*text.FIELDS, *(key for key in sources if key not in text.FIELDS)):
        if key in sources and _matters(key, recipe) and not (key.startswith("lengths.") and lengths is None):
            found = model if key == "model" else _value(key, recipe, lengths)
            rows.append([text.name(text.FIELDS, key, t), text.value(found, t), text.source(sources[key], t)])
    page.heading(t("Inputs and where they come from"))
    page.table(rows, "lll", most=27)


def _value(key: str, recipe: Recipe, lengths: Lengths | None) -> object:
    """The value of a dotted field."""
    found: object = lengths if key.startswith("lengths.") else recipe
    for part in key.removeprefix("lengths.").split("."):
        found = getattr(found, part, None)
    return found


def _matters(key: str, recipe: Recipe) -> bool:
    """Whether the field describes something that this run has."""
    if key in ("lora", "quant"):
        return False  # shown field by field
    if key.startswith("lora."):
        return recipe.lora is not None and key != "lora.alpha"  # a factor of the output, no memory or time
    if key.startswith("quant."):
        return recipe.quant is not None and (key != "quant.double" or recipe.quant.kind != "int8")
    if key.startswith("sharding."):
        sharded = recipe.sharding.kind not in ("none", "ddp")
        return sharded or key in ("sharding.kind", "sharding.ranks")
    if key == "optimizer.momentum":
        return recipe.optimizer.name == "sgd"
    if key in ("max_steps", "max_samples", "eval_batch"):
        return _value(key, recipe, None) is not None
    return key != "reentrant" or recipe.checkpointing != "none"
