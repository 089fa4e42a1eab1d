"""Pictures of a sample and the frozen parts of a vision-language model: stated, a tool's default, or assumed.

llamafactory 0.9.5 ``hparams/finetuning_args.py``, ``hparams/model_args.py``, ``model/adapter.py``; ms-swift 4.6.0
``arguments/tuner_args.py``, ``tuners``; axolotl 0.19.0 ``utils/schemas``; transformers and TRL freeze nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from finefit.errors import InputError
from finefit.workload.lora import linear_modules
from finefit.workload.model import Model
from finefit.workload.pixels import grid
from finefit.workload.sourced import Origin, Source
from finefit.workload.tower import Images, Tower
from finefit.workload.vision import tower_linears

if TYPE_CHECKING:  # they bring a reader of YAML, which flags do not need
    from finefit.formats.said import Said
    from finefit.resolve.resolved import Resolved
    from finefit.resolve.settings import Settings

PARTS = ("tower", "projector", "language")
_ASSUMED_SIDE = 768  # the largest picture that LLaMA-Factory lets through by default (image_max_pixels)
_SMALLER = (768, 672, 560, 448, 336, 224)
_BOUND = (
    "of the tower that reads pictures or sound, and of layers that attend to it, only the parameters are counted, "
    "not what they compute: the memory is a lower bound"
)
_SIZE = re.compile(r"(\d+)(?:\s*[xX×]\s*(\d+))?")


@dataclass(frozen=True, slots=True)
class Seen:
    """What was said of pictures.

    Attributes:
        images: None where nothing was said of their size or number.
        frozen: parts that are neither trained nor adapted; adapts: adapters may sit on the tower too.
    """

    images: Images | None
    images_source: Source
    frozen: tuple[str, ...]
    frozen_source: Source
    adapts: bool
    text_only: bool = False


def refuse_on_text(model: Model, flags: Mapping[str, object]) -> None:
    """A model without a vision tower has no use for what was said of pictures.

    Raises:
        InputError: names the flag.
    """
    stated = next((flag for flag, value in flags.items() if value is not None), None)
    if model.tower is None and stated is not None:
        raise InputError(f"{model.name} reads text alone", where=stated, fix=f"leave {stated} out")


def pictured(resolved: Resolved, say: Callable[[], Seen]) -> Resolved:
    """The workload with its pictures, where the model has a vision tower.

    Raises:
        InputError: a sample is shorter than its pictures.
    """
    tower, recipe = resolved.model.tower, resolved.recipe
    if recipe is None:
        return resolved
    if tower is None:
        why = Source(Origin.DERIVED, "the model reads text alone")
        sources = MappingProxyType({**recipe.sources, "images": why, "frozen": why})
        notes = resolved.assumptions
        if resolved.model.head == "seq2seq":
            notes = (*notes, "source and target are each as long as the longest sample")
        return replace(resolved, recipe=replace(recipe, sources=sources), assumptions=notes)
    seen = say()
    if recipe.method == "full" and set(seen.frozen) == set(PARTS):
        raise InputError("nothing is left to train", where=seen.frozen_source.detail, fix="freeze fewer parts")
    if tower.opaque:
        why = Source(Origin.DERIVED, "the tower is known by its number of parameters alone")
        sources = MappingProxyType({**recipe.sources, "images": why, "frozen": seen.frozen_source})
        said = (*resolved.assumptions, _BOUND)
        return replace(resolved, recipe=replace(recipe, sources=sources, frozen=seen.frozen), assumptions=said)
    images, source, assumptions = seen.images, seen.images_source, list(resolved.assumptions)
    too_long = images is not None and grid(tower, images).tokens > recipe.seq_len
    if images is not None and too_long and source.origin is Origin.STATED:
        raise InputError(
            f"the pictures of a sample are {grid(tower, images).tokens} tokens, more than its {recipe.seq_len}",
            where=source.detail,
            fix="state longer samples or smaller pictures",
        )
    if seen.text_only:
        images = None
    elif images is None or too_long:
        images = _fitting(tower, recipe.seq_len)
        source = Source(Origin.ASSUMED, "nothing says how large the pictures are")
        assumptions.append(
            "the samples hold no picture: their length leaves no room for one"
            if images is None
            else f"each sample holds one picture of {images.width} x {images.height} pixels (--images, --image-size)"
        )
    found: dict[str, Source] = {**recipe.sources, "frozen": seen.frozen_source}
    if images is not None:
        found |= dict.fromkeys(("images.count", "images.height", "images.width", "images.max_pixels"), source)
    else:
        found["images"] = source
    lora = recipe.lora
    if lora is not None and seen.adapts and set(lora.targets) == set(linear_modules(resolved.model)):
        lora = replace(lora, targets=tuple(dict.fromkeys((*lora.targets, *tower_linears(tower)))))
    recipe = replace(recipe, images=images, frozen=seen.frozen, lora=lora, sources=MappingProxyType(found))
    own = {key: value for key, value in found.items() if key.partition(".")[0] in ("images", "frozen")}
    kept = MappingProxyType({**resolved.sources, **own})
    return replace(resolved, recipe=recipe, sources=kept, assumptions=tuple(assumptions))


def _fitting(tower: Tower, seq_len: int) -> Images | None:
    """The largest usual square picture whose tokens take half of a sample at most, or fit it at all."""
    for room in (seq_len // 2, seq_len):
        for side in _SMALLER:
            images = Images(1, side, side)
            if grid(tower, images).tokens <= room:
                return images
    return None


def size_of(value: object, where: str) -> tuple[int, int]:
    """(height, width) of "1024x768" (width first), of one side, or of a list of both.

    Raises:
        InputError: neither.
    """
    parts: list[Any] = list(value) if isinstance(value, list | tuple) else []
    if not parts:
        match = _SIZE.fullmatch(str(value).strip())
        parts = [match[1], match[2] or match[1]] if match else []
    numbers = [int(part) for part in parts if str(part).isdigit()]
    if len(numbers) != 2 or min(numbers) < 1 or max(numbers) > 1 << 16:
        raise InputError(f"{str(value)[:40]!r} is no size of a picture", where=where, fix="write 1024x768, in pixels")
    return numbers[1], numbers[0]


def of_flags(size: str | None, count: int | None, freeze: str | None) -> Seen:
    """What ``--image-size``, ``--images`` and ``--freeze`` say.

    Raises:
        InputError: a value out of range.
    """
    parts = tuple(part.strip() for part in (freeze or "").split(",") if part.strip())
    for part in parts:
        if part not in PARTS:
            raise InputError(f"{part[:40]!r} is no part of a model", where="--freeze", fix=f"name {', '.join(PARTS)}")
    if count is not None and count < 0:
        raise InputError("a sample has no negative number of pictures", where="--images", fix="write 0 or more")
    frozen = Source(Origin.STATED, "--freeze") if freeze else Source(Origin.DERIVED, "transformers freezes nothing")
    stated = Source(Origin.STATED, "--images" if size is None else "--image-size")
    adapts = "tower" not in parts
    if count == 0:
        return Seen(None, stated, parts, frozen, adapts, text_only=True)
    images = None
    if size is not None or count is not None:
        images = Images(count or 1, *size_of(size or _ASSUMED_SIDE, "--image-size"))
    return Seen(images, stated, parts, frozen, adapts)


def of_llamafactory(settings: Settings) -> Seen:
    """The largest picture ``image_max_pixels`` lets through; tower and projector are frozen unless said otherwise."""
    most = settings.integer("image_max_pixels", minimum=1)
    side = math.isqrt(most)
    keys = {
        "tower": "freeze_vision_tower",
        "projector": "freeze_multi_modal_projector",
        "language": "freeze_language_model",
    }
    frozen = [part for part, key in keys.items() if settings.flag(key)]
    lora = (settings.text("finetuning_type") or "lora") == "lora"
    if lora and "projector" not in frozen:
        frozen.append("projector")  # adapter.py find_all_linear_modules never adapts it
    return Seen(
        Images(1, side, side, most),
        Source(Origin.DERIVED, f"the largest picture that {settings.source('image_max_pixels').detail} lets through"),
        tuple(frozen),
        settings.source("freeze_vision_tower"),
        adapts="tower" not in frozen,
    )


def of_said(said: Said) -> Seen:
    """ms-swift freezes tower and aligner; Axolotl and TRL freeze nothing. A size is read where a tool has a key."""
    values = {key: entry.value for key, entry in said.entries.items() if entry.value is not None}
    tool = f"{said.tool}@{said.version}"
    frozen: tuple[str, ...] = ()
    why = Source(Origin.DERIVED, f"{tool} freezes nothing")
    if said.tool == "ms-swift":
        frozen, why = _swift_frozen(values), Source(Origin.DEFAULT, tool)
    images: Images | None = None
    source = Source(Origin.DERIVED, tool)
    if said.tool == "axolotl" and "image_size" in values:
        where = said.where("image_size")
        images, source = Images(1, *size_of(values["image_size"], where)), Source(Origin.STATED, where)
    bound = values.get("max_pixels")
    if said.tool == "ms-swift" and isinstance(bound, int) and bound > 0:
        side = math.isqrt(bound)
        where = said.where("max_pixels")
        images = Images(1, side, side, bound)
        source = Source(Origin.DERIVED, f"the largest that max_pixels lets through ({where})")
    return Seen(images, source, frozen, why, adapts="tower" not in frozen)


def _swift_frozen(values: Mapping[str, object]) -> tuple[str, ...]:
    """freeze_vit and freeze_aligner are true by default, freeze_llm false (ms-swift 4.6.0)."""
    keys = {"tower": ("freeze_vit", True), "projector": ("freeze_aligner", True), "language": ("freeze_llm", False)}
    return tuple(
        part for part, (key, default) in keys.items() if str(values.get(key, default)).lower() in ("true", "1", "yes")
    )
