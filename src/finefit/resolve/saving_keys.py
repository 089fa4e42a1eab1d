"""Checkpoints in the words of each tool but LLaMA-Factory: which keys say when, how many, and whether with states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from finefit.errors import InputError
from finefit.formats.said import Said
from finefit.resolve.readings.draft import Draft
from finefit.resolve.readings.reading import Reading
from finefit.workload.saving import Saving


def saving_said(said: Said, reading: Reading) -> Saving | None:
    """Saving as the tool reads its own keys; None where neither the file nor a known default tells."""
    rule = _RULES.get(said.tool)
    if rule is None:
        return None
    try:
        return rule(Draft(said), reading)
    except InputError:  # "${save_freq}" of a script: the run can be planned without it
        return None


def _trainer(draft: Draft, _: Reading) -> Saving | None:
    """TrainingArguments (transformers 5.24.0 training_args.py); ms-swift passes the same keys on."""
    strategy = _word(draft.raw("save_strategy"))
    only = draft.flag("save_only_model")
    key = "save_only_model" if only else "save_steps" if strategy == "steps" else "save_strategy"
    return _saving(draft, key, strategy, draft.number("save_steps"), only, draft.integer("save_total_limit"))


def _swift(draft: Draft, reading: Reading) -> Saving | None:
    if not draft.said.program.startswith("megatron"):
        return _trainer(draft, reading)
    # ms-swift 4.6.0 megatron/arguments/megatron_args.py; save_interval is Megatron's older word for save_steps
    every = draft.number("save_steps", "save_interval")
    only = draft.flag("no_save_optim")
    key = "no_save_optim" if only else "save_steps" if draft.stated("save_steps") else "save_interval"
    return _saving(draft, key, "steps", every, only, draft.integer("save_total_limit"), "save_steps")


def _axolotl(draft: Draft, reading: Reading) -> Saving | None:
    """axolotl 0.19.0: saves_per_epoch becomes a share of the run, save_steps comes before save_strategy
    (utils/config/__init__.py normalize_config, core/builders/base.py _configure_save_and_eval_strategy)."""
    only = draft.flag("save_only_model")
    limit = draft.integer("save_total_limit") or 4
    each = draft.number("saves_per_epoch")
    epochs = reading.get("epochs")
    if each and isinstance(epochs, int | float) and each * epochs > 1:
        return _saving(
            draft, "save_only_model" if only else "saves_per_epoch", "steps", 1 / (each * epochs), only, limit
        )
    every = draft.number("save_steps")
    strategy = "steps" if every else _word(draft.raw("save_strategy") or "epoch")
    key = "save_only_model" if only else "save_steps" if every else "save_strategy"
    return _saving(draft, key, strategy, every, only, limit)


def _torchtune(draft: Draft, _: Reading) -> Saving | None:
    """torchtune 0.6.1 recipes: after each epoch but the last with the optimizer's states, then the model alone."""
    return _saving(draft, "epochs", "epoch", None, False, None)


def _litgpt(draft: Draft, reading: Reading) -> Saving | None:
    """litgpt 0.5.13: finetune/full.py saves its whole state, finetune/lora.py adapters alone
    (save_lora_checkpoint)."""
    every = draft.number("train.save_interval")
    strategy = "steps" if every else "no"
    return _saving(draft, "train.save_interval", strategy, every, reading.get("method") != "full", None)


def _torchtitan(draft: Draft, _: Reading) -> Saving | None:
    """torchtitan 0.2.2 config/job_config.py: all but the last hold the optimizer's states."""
    if not draft.flag("checkpoint.enable"):
        return _saving(draft, "checkpoint.enable", "no", None, False, None)
    key = "checkpoint.interval"
    return _saving(draft, key, "steps", draft.number(key), False, draft.integer("checkpoint.keep_latest_k") or None)


def _verl(draft: Draft, reading: Reading) -> Saving | None:
    """verl 0.9.1 trainer/config: save_freq -1 saves nothing; the contents hold the optimizer unless told otherwise."""
    every = draft.number("trainer.save_freq")
    contents = ("trainer.checkpoint.save_contents", "checkpoint.save_contents")
    named = draft.names(*contents, "actor_rollout_ref.actor.checkpoint.save_contents")
    only = bool(named) and "optimizer" not in " ".join(named)
    key = contents[0] if only else "trainer.save_freq"
    strategy = "steps" if every and every > 0 else "no"
    limit = draft.integer("trainer.max_ckpt_to_keep", "trainer.max_actor_ckpt_to_keep")
    return _saving(draft, key, strategy, every, only, limit, "trainer.save_freq")


def _nemo(switch: str, every: str) -> Callable[[Draft, Reading], Saving | None]:
    def rule(draft: Draft, _: Reading) -> Saving | None:
        if draft.stated(switch) and not draft.flag(switch):
            return _saving(draft, switch, "no", None, False, None)
        if not draft.stated(every):
            return None
        return _saving(draft, every, "steps", draft.number(every), False, None)

    return rule


_RULES: Final[dict[str, Callable[[Draft, Reading], Saving | None]]] = {
    "axolotl": _axolotl,
    "litgpt": _litgpt,
    "ms-swift": _swift,
    "nemo-automodel": _nemo("checkpoint.enabled", "step_scheduler.ckpt_every_steps"),
    "nemo-rl": _nemo("checkpointing.enabled", "checkpointing.save_period"),
    "torchtitan": _torchtitan,
    "torchtune": _torchtune,
    "trl": _trainer,
    "verl": _verl,
}


def _word(value: object) -> str:
    """YAML 1.1 reads a bare "no" as false."""
    return "no" if value is False else str(value).lower()


def _saving(
    draft: Draft,
    key: str,
    strategy: str,
    every: float | None,
    only_model: bool,
    limit: int | None,
    default: str | None = None,
) -> Saving:
    """A saving decided by ``key``, or by the default of another where that is written nowhere."""
    return Saving(
        strategy=strategy,
        steps=every or 0.0,
        only_model=only_model,
        limit=limit or None,
        decided_by=draft.source(key) if draft.stated(key) or default is None else draft.source(default),
        key=key if draft.stated(key) or default is None else default,
    )
