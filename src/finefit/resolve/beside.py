"""Which other models and engines a training method keeps on the GPU, tool by tool."""

from __future__ import annotations

from dataclasses import fields

from finefit.resolve.notes import Notes
from finefit.workload.recipe import Beside, Parallel

# Methods whose loss compares with a reference model (Rafailov 2023, arXiv 2305.18290; Ethayarajh 2024, 2402.01306);
# ORPO (2403.07691), SimPO (2405.14734) and CPO (2401.08417) have none
REFERENCED = frozenset({"dpo", "ipo", "kto"})
PREFERENCE = frozenset({"dpo", "ipo", "orpo", "simpo", "cpo", "kto", "rm"})
GENERATING = frozenset({"grpo", "rloo", "ppo"})


def alone(notes: Notes) -> None:
    """Sources of a run with no other model beside it and none of it cut over GPUs."""
    for field in fields(Beside):
        notes.derived(f"beside.{field.name}", "this method trains one model and generates nothing")
    for field in fields(Parallel):
        notes.derived(f"parallel.{field.name}", "each GPU holds a whole copy of the model, or a shard of it")


def reference(task: str, method: str, notes: Notes, *, tool: str) -> Beside:
    """The reference of a preference run: the model without its adapters, else a frozen copy; none for ORPO and SimPO.

    llamafactory 0.9.5 train/trainer_utils.py ``create_ref_model``, trl 1.16.0 and 0.24.0 dpo_trainer.py, ms-swift
    4.6.0 rlhf: all the same.
    """
    if task not in REFERENCED:
        notes.derived("beside.reference", f"{task} compares with no reference model")
        return Beside()
    if method == "full":
        notes.derived("beside.reference", f"a frozen copy of the model ({tool})")
        return Beside("copy")
    notes.derived("beside.reference", f"the model with its adapters off ({tool})")
    return Beside("self")
