"""Values of command-line flags: checked, with the libraries' defaults, each with its source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from finefit.errors import InputError
from finefit.resolve.defaults import defaults
from finefit.resolve.notes import Notes
from finefit.resolve.shown import shown
from finefit.workload.dtypes import DType
from finefit.workload.sourced import Origin, Source

TOO_LARGE = 2**31  # as in a config: sizes are products of several such numbers
VERSION = "5.24.0"  # of transformers; the table holds peft 0.21.2 with it
# Method → kind of adapter, "" without one. rsLoRA, PiSSA and LoRA+ are LoRA with another scale, start or learning rate.
METHODS = {
    "full": "",
    "freeze": "",
    "lora": "lora",
    "qlora": "lora",
    "rslora": "lora",
    "pissa": "lora",
    "lora+": "lora",
    "dora": "dora",
    "qdora": "dora",
    "lora-fa": "lora_fa",
    "adalora": "adalora",
    "vera": "vera",
    "oft": "oft",
    "ia3": "ia3",
}
QUANTISED = ("qlora", "qdora")
# Dtype of the weights and of autocast by the word of --precision
PRECISIONS: dict[str, tuple[DType, DType | None]] = {
    "bf16": (DType.BF16, None),
    "fp16": (DType.FP16, None),
    "fp32": (DType.FP32, None),
    "bf16-mixed": (DType.FP32, DType.BF16),
    "fp16-mixed": (DType.FP32, DType.FP16),
}
ATTENTION = {"eager": "eager", "sdpa": "sdpa", "flash2": "flash2", "flash_attention_2": "flash2"}
# (checkpointing, reentrant); transformers 5 checkpoints without re-entry unless asked (modeling_utils.py)
CHECKPOINTING = {"none": ("none", False), "full": ("full", False), "reentrant": ("full", True)}
LOSSES = {word: word for word in ("full", "fused_linear", "chunked")}
SHARDING = {word: word for word in ("none", "zero1", "zero2", "zero3", "fsdp")}

_T = TypeVar("_T")


class FlagValues:
    """Reads flags and notes where each recipe field comes from."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        self._table = defaults("transformers", VERSION)

    def library(self, key: str) -> Source:
        """The source of a default: the library that declares ``key``."""
        return Source(Origin.DEFAULT, self._table[key].library)

    def default(self, key: str) -> object:
        """The libraries' default of a key."""
        return self._table[key].value

    def integer(self, field: str, flag: str, value: int | None, key: str) -> int:
        """A whole number of 1 or more; the default of ``key`` where the flag is absent.

        Raises:
            InputError: below 1, or not a whole number.
        """
        self.notes.source(field, self.library(key) if value is None else Source(Origin.STATED, flag))
        found = self.default(key) if value is None else value
        if not isinstance(found, int) or isinstance(found, bool) or found < 1:
            raise InputError(f"{shown(found)} is not a whole number of 1 or more", where=flag, fix="write 1 or more")
        if found >= TOO_LARGE:
            raise InputError(f"{shown(found)} is beyond any run", where=flag, fix="write a smaller number")
        return found

    def choice(self, fields: Sequence[str], flag: str, value: str | None, words: Mapping[str, _T], default: _T) -> _T:
        """What a word means. Where the flag is absent: ``default``, whose source the caller has noted.

        Raises:
            InputError: a word that is not among ``words``.
        """
        if value is None:
            return default
        if value not in words:
            raise InputError(f"{shown(value)} is none of {', '.join(words)}", where=flag, fix="write one of them")
        for field in fields:
            self.notes.source(field, Source(Origin.STATED, flag))
        return words[value]
