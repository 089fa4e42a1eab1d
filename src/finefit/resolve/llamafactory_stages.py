"""LLaMA-Factory's stages beside pt and sft: preference data, reward models, PPO (llamafactory 0.9.5 train/*)."""

from __future__ import annotations

from dataclasses import replace

from finefit.resolve.beside import REFERENCED, alone
from finefit.resolve.notes import Notes
from finefit.resolve.settings import Settings
from finefit.workload.model import Model
from finefit.workload.recipe import Beside

_WITHOUT_REFERENCE = ("orpo", "simpo")  # hparams/finetuning_args.py use_ref_model


def task_of(settings: Settings) -> str:
    """The stage; for preference data the loss that decides on a reference model."""
    stage = settings.text("stage") or "sft"
    loss = settings.text("pref_loss")
    return loss if stage == "dpo" and loss in _WITHOUT_REFERENCE else stage


def beside_of(settings: Settings, task: str, model: Model, notes: Notes) -> Beside:
    """The models beside the trained one (train/trainer_utils.py ``create_ref_model``, ``create_reward_model``)."""
    alone(notes)
    if task not in (*REFERENCED, "ppo"):
        return Beside()
    copied = settings.text("finetuning_type") != "lora" or settings.stated("ref_model")
    if settings.stated("ref_model"):
        notes.source("beside.reference", settings.source("ref_model"))
        notes.assume(f"{settings.where('ref_model')}: the reference model is planned as large as {model.name}")
    elif copied:
        notes.derived("beside.reference", "a frozen copy of the model (llamafactory@0.9.5)")
    else:
        notes.derived("beside.reference", "the model with its adapters off (llamafactory@0.9.5)")
    found = Beside("copy", model.checkpoint_dtype) if copied else Beside("self")
    if task != "ppo":
        return found
    full = settings.text("reward_model_type") == "full"
    notes.source("beside.reward", settings.source("reward_model_type"))
    if full:
        notes.assume(f"{settings.where('reward_model')}: the reward model is planned as large as {model.name}")
    notes.derived("beside.generated", "a micro-batch is generated at a time (llamafactory@0.9.5 train/ppo/trainer.py)")
    return replace(found, reward=full, generated=1)
