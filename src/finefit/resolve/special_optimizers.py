"""Optimizers that tools switch on by keys of their own, beside ``optim``."""

from __future__ import annotations

from finefit.errors import InputError
from finefit.resolve.notes import Notes
from finefit.resolve.optimizers import OPTIMIZER_FIELDS, low_rank, optimizer
from finefit.resolve.readings.reading import Reading
from finefit.resolve.settings import Settings
from finefit.workload.model import Model
from finefit.workload.recipe import Optimizer

# llamafactory 0.9.5 train/trainer_utils.py _create_galore_optimizer, _create_apollo_optimizer: class by optim
_EIGHT_BIT = ("adamw_bnb_8bit", "adamw_8bit", "paged_adamw_8bit")
_GALORE = {"adamw_torch": "galore_adamw", **dict.fromkeys(_EIGHT_BIT, "galore_adamw_8bit")}
_GALORE["adafactor"] = "galore_adafactor"
_APOLLO = {"adamw_torch": "apollo_adamw"}
_SWITCHES = ("use_galore", "use_apollo", "use_badam", "use_adam_mini", "use_muon")


def of_llamafactory(settings: Settings, model: Model, notes: Notes) -> Optimizer | None:
    """The optimizer of a switch of LLaMA-Factory 0.9.5; None where ``optim`` decides (BAdam steps that one).

    Raises:
        InputError: a combination that the tool refuses.
    """
    switch = next((key for key in _SWITCHES if settings.flag(key)), None)
    if switch is None or switch == "use_badam":
        return None
    for field in OPTIMIZER_FIELDS:
        notes.source(f"optimizer.{field}", settings.source(switch))
    if switch in ("use_adam_mini", "use_muon"):
        return optimizer(switch.removeprefix("use_"), where=settings.where(switch))
    word, classes = (("galore", _GALORE), ("apollo", _APOLLO))[switch == "use_apollo"]
    optim = settings.text("optim") or ""
    if not settings.stated("optim"):  # adamw_torch until torch 2.8, then the fused one (training_args.py)
        optim = "adamw_torch"
        notes.warn(
            f"{settings.where(switch)}: write optim: adamw_torch, since its default from torch 2.8 on is refused"
        )
    if optim not in classes:
        raise InputError(
            f"LLaMA-Factory has no {'APOLLO' if word == 'apollo' else 'GaLore'} for optim: {optim}",
            where=settings.where("optim"),
            fix="write optim: adamw_torch",
        )
    if settings.text("finetuning_type") == "lora":
        raise InputError(
            "LLaMA-Factory refuses GaLore and APOLLO with LoRA",
            where=settings.where(switch),
            fix="set finetuning_type: full",
        )
    layerwise = settings.flag(f"{word}_layerwise")
    found = optimizer(classes[optim] + ("_layerwise" if layerwise else ""), where=settings.where(switch))
    names = settings.names(f"{word}_target")
    rank = settings.integer(f"{word}_rank", minimum=1)
    for field, key in (("rank", f"{word}_rank"), ("targets", f"{word}_target"), ("in_backward", f"{word}_layerwise")):
        notes.source(f"optimizer.{field}", settings.source(key))
    return low_rank(found, model, rank, () if names == ("all",) else names, where=settings.where(f"{word}_target"))


def of_reading(reading: Reading, name: str, model: Model, notes: Notes) -> Optimizer:
    """The optimizer of any other tool, with the rank and targets of GaLore and APOLLO."""
    where = reading.where("optimizer")
    if name == "q_galore_adamw8bit":
        notes.assume("Q-GaLore keeps its projections in 4 bits; they are planned unquantised, which is more")
        name = "galore_adamw_8bit"
    found = optimizer(name, where=where)
    if not found.kind.low_rank:
        return found
    targets = reading.get("optim_targets")
    names = tuple(str(target) for target in targets) if isinstance(targets, tuple) else ()
    for field, key in (("rank", "optim_rank"), ("targets", "optim_targets")):
        if key in reading.values:
            notes.source(f"optimizer.{field}", reading.values[key].source)
    return low_rank(found, model, reading.whole("optim_rank"), names, where=reading.where("optim_targets"))
