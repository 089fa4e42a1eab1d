"""What a training framework does that a row's columns do not say.

One ``Stack`` a kind of framework, chosen by the words of the framework columns. A framework nobody has
seen before is a plain PyTorch loop over Transformers code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

# The Hugging Face Trainer and what is built on it.
_TRAINER = re.compile(r"HF Trainer|\bTRL\b|swift|LLaMA-?Factory|axolotl|finetune\.py|unsloth", re.I)
# Transformers release of a year, where only a date is known (its own release dates).
_OF_YEAR = {2022: (4, 20), 2023: (4, 33), 2024: (4, 44), 2025: (4, 53), 2026: (5, 10)}
_NEWEST = (5, 24)
_TORCH_OF_YEAR = {2022: (1, 12), 2023: (2, 0), 2024: (2, 3), 2025: (2, 7), 2026: (2, 11)}
_NEWEST_TORCH = (2, 13)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


@dataclass(frozen=True, slots=True)
class Stack:
    """Habits of one framework.

    Attributes:
        trainer: the Hugging Face Trainer runs the loop (autocast by accelerate, adapters by PEFT).
        transformers, torch: release as (major, minor).
        reentrant: its gradient checkpointing is the reentrant kind.
        keeps_outputs: its loop holds the logits while it runs backward.
        returns_cache: it leaves config.use_cache as it is, true.
        passes_mask: it hands the padding mask to the model.
        trl: TRL's SFTTrainer makes the PEFT model.
        kbit_prepare: QLoRA goes through peft.prepare_model_for_kbit_training.
        adapters_fp32: PEFT creates adapters in fp32 unless told otherwise.
    """

    trainer: bool
    transformers: tuple[int, int]
    torch: tuple[int, int]
    reentrant: bool
    keeps_outputs: bool
    returns_cache: bool
    passes_mask: bool
    trl: bool
    kbit_prepare: bool
    adapters_fp32: bool


def stack_of(row: Mapping[str, str], assumed: list[str]) -> Stack:
    """The framework of a row; what had to be assumed about it is appended to ``assumed``."""
    name, versions = row.get("framework", ""), row.get("framework_version", "")
    trainer = bool(_TRAINER.search(name))
    dated = _date(f"{name} {versions}")
    transformers = _release("transformers", versions)
    if transformers is None:
        transformers = _OF_YEAR.get(dated[0], _NEWEST) if dated else _NEWEST
        assumed.append("transformers release taken from the row's date" if dated else "newest transformers")
    torch = _version(row.get("torch_version", ""))
    if torch is None:
        torch = _TORCH_OF_YEAR.get(dated[0], _NEWEST_TORCH) if dated else _NEWEST_TORCH
        assumed.append("torch release taken from the row's date" if dated else "newest torch")
    plain = Stack(
        trainer=False,
        trl=False,
        transformers=transformers,
        torch=torch,
        reentrant=False,
        keeps_outputs=True,
        returns_cache=False,
        passes_mask=True,
        kbit_prepare=True,
        adapters_fp32=True,
    )
    if re.search(r"torchtune", name, re.I):
        # pytorch/torchtune recipes: `del logits` before backward since July 2024; no mask unless packed.
        keeps = dated is not None and dated < (2024, 7)
        return replace(plain, keeps_outputs=keeps, passes_mask=False, kbit_prepare=False, adapters_fp32=False)
    if re.search(r"torchtitan", name, re.I):
        # pytorch/torchtitan train.py: `del pred` before backward since June 2024 (#391), packed rows without a mask.
        return replace(plain, keeps_outputs=dated is not None and dated < (2024, 6), passes_mask=False)
    if trainer:
        return replace(
            plain,
            trainer=True,
            trl=bool(re.search(r"\bTRL\b", name)),
            reentrant=transformers < (5, 0),
            keeps_outputs=False,
            # ms-swift, LLaMA-Factory, axolotl and unsloth set use_cache false themselves
            returns_cache=transformers < (5, 0) and bool(re.search(r"HF Trainer|\bTRL\b", name)),
        )
    if not re.search(r"PEFT|PyTorch", name, re.I):
        assumed.append(f"framework {name!r} taken as a plain PyTorch loop over Transformers code")
    # model.gradient_checkpointing_enable() of Transformers; torch.utils.checkpoint in anything else
    return replace(plain, reentrant="PEFT" in name and transformers < (5, 0))


def _release(package: str, text: str) -> tuple[int, int] | None:
    """(4, 48) of "transformers 4.48.1"; "4.4x" is taken as the middle of its ten releases."""
    match = re.search(rf"{package} ~?(\d+)\.(\d+)(x?)", text)
    if not match:
        return None
    minor = int(match[2])
    return int(match[1]), minor * 10 + 5 if match[3] else minor


def _version(text: str) -> tuple[int, int] | None:
    match = re.search(r"(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else None


def _date(text: str) -> tuple[int, int] | None:
    """Year and month of "Aug 2024", "2024-03-28" or "(2024-01)"; the latest when there are several."""
    found = [(int(y), int(m)) for y, m in re.findall(r"\b(20\d\d)-(\d\d)\b", text)]
    words = re.findall(rf"\b({'|'.join(_MONTHS)})[a-z]* (20\d\d)\b", text, re.I)
    found += [(int(y), _MONTHS.index(m.lower()) + 1) for m, y in words]
    return max(found, default=None)
