"""Each input with its value and where it came from, those of one origin together."""

from __future__ import annotations

import re
from collections.abc import Mapping

from finefit.report import text
from finefit.report.i18n import Translator
from finefit.report.layout import Page
from finefit.workload.lengths import Lengths
from finefit.workload.recipe import Recipe
from finefit.workload.sourced import Origin, Source

_LINE = re.compile(r"(?P<file>.+):(?P<line>\d+)")


def inputs(
    model: str, recipe: Recipe, lengths: Lengths | None, sources: Mapping[str, Source], page: Page, t: Translator
) -> None:
    """The section of inputs: those that have a say in this run, each group in the order a reader checks them."""
    groups: dict[tuple[Origin, str], list[str]] = {}
    for key in (*text.FIELDS, *(key for key in sources if key not in text.FIELDS)):
        if key in sources and _matters(key, recipe, lengths):
            found = model if key == "model" else _value(key, recipe, lengths)
            shown = text.method(recipe.method_label, t) if key == "method" else text.value(found, t)
            said = t("{name} {value}", name=text.name(text.FIELDS, key, t), value=shown)
            heading, detail = _place(sources[key])
            if detail:
                said = t("{input} ({detail})", input=said, detail=t.sentence(detail))
            groups.setdefault((sources[key].origin, heading), []).append(said)
    page.heading(t("Inputs and where they come from"))
    for origin in Origin:  # stated first, then what follows from it, what nobody said last
        for (of, place), several in groups.items():
            if of is origin:
                _group(origin, place, several, page, t)


def _place(source: Source) -> tuple[str, str]:
    """What an input shares with others, and what is its own: a file and a line, a tool and version, a rule."""
    if source.origin is Origin.DEFAULT:
        return source.detail, ""
    match = _LINE.fullmatch(source.detail) if source.origin is Origin.STATED else None
    return (match["file"], match["line"]) if match else ("", source.detail)


def _group(origin: Origin, place: str, several: list[str], page: Page, t: Translator) -> None:
    """Inputs of one origin: in one paragraph, or one a line where each has a rule of its own."""
    heading = t(text.ORIGINS[origin])
    if place:
        heading = t("{origin} {place}", origin=heading, place=t.sentence(place))
    if origin in (Origin.STATED, Origin.DEFAULT):
        page.line(t("{heading}: {inputs}", heading=heading, inputs=t("; ").join(several)), indent=2, hang=4)
    else:
        page.line(t("{heading}:", heading=heading), indent=2)
        page.bullets(several, indent=4)


def _value(key: str, recipe: Recipe, lengths: Lengths | None) -> object:
    """The value of a dotted field."""
    found: object = lengths if key.startswith("lengths.") else recipe
    for part in key.removeprefix("lengths.").split("."):
        found = getattr(found, part, None)
    return found


def _matters(key: str, recipe: Recipe, lengths: Lengths | None) -> bool:
    """Whether the field describes something that this run has."""
    if key in ("lora", "quant"):
        return False  # shown field by field
    if key.startswith("lengths."):
        return lengths is not None
    if key in ("lora.saved_dtype", "lora.modules_to_save"):
        return recipe.lora is not None and bool(recipe.lora.modules_to_save)
    if key.startswith("trained."):
        return recipe.trained is not None and bool(_value(key, recipe, None))
    if key == "lora.kind":
        return recipe.lora is not None and recipe.lora.kind != "lora"
    if key.startswith("lora."):
        return recipe.lora is not None and key != "lora.alpha"  # a factor of the output, no memory or time
    if key.startswith("quant."):
        return recipe.quant is not None and (key != "quant.double" or recipe.quant.kind != "int8")
    if key.startswith("sharding."):
        sharded = recipe.sharding.kind not in ("none", "ddp")
        return sharded or key in ("sharding.kind", "sharding.ranks")
    if key.startswith(("parallel.", "beside.")):
        return _value(key, recipe, None) not in (1, False, 0, None, "none")
    if key in ("optimizer.rank", "optimizer.targets", "optimizer.in_backward"):
        return bool(_value(key, recipe, None))
    if key in ("images.max_pixels", "frozen"):
        return bool(_value(key, recipe, None))
    if key == "optimizer.momentum":
        return recipe.optimizer.name == "sgd"
    if key in ("max_steps", "max_samples", "eval_batch", "optimizer.state_dtype"):
        return _value(key, recipe, None) is not None
    return key != "reentrant" or recipe.checkpointing != "none"
