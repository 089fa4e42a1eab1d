"""Checkpoints that are stored quantised: what adapters on them train beside, and what a tool makes of them."""

from __future__ import annotations

from dataclasses import replace

from finefit.errors import InputError, NotModelled
from finefit.resolve.notes import Notes
from finefit.workload.dtypes import DType
from finefit.workload.model import Model
from finefit.workload.recipe import Quant

TRAINABLE = ("gptq", "awq")  # PEFT has adapters for them (peft 0.21.2 tuners/lora/gptq.py, awq.py)
# transformers 5.24.0 quantizers/quantizer_finegrained_fp8.py, quantizer_mxfp4.py: whole 16-bit weights on request, as
# LLaMA-Factory 0.9.5 model_utils/quantization.py asks for
_RESTORED = ("fp8", "mxfp4")
_BITS_8 = ("int8", "8bit", "8-bit")


def bits_of(name: str) -> int:
    """Bits of a GPTQ or AWQ checkpoint by its name: 8 where it says so, else the 4 that their makers publish."""
    return 8 if any(word in name.lower() for word in _BITS_8) else 4


def restored(model: Model, tool: str, where: str, notes: Notes) -> Model:
    """The model as a tool trains it: GPTQ and AWQ as they are, fp8 and mxfp4 as 16-bit weights.

    Raises:
        NotModelled: any other way of storing weights.
    """
    if not model.checkpoint_quant or model.checkpoint_quant in TRAINABLE:
        return model
    if model.checkpoint_quant in _RESTORED:
        notes.assume(f"{where}: {tool} restores {model.checkpoint_quant} weights to 16 bits when it loads them")
        return replace(model, checkpoint_quant="")
    raise NotModelled(
        f"a checkpoint stored quantised ({model.checkpoint_quant}) is not modelled yet",
        where=where,
        fix="name the 16-bit model and plan QLoRA on it",
    )


def stored_quant(model: Model, name: str, *, adapters: bool, compute: DType, where: str, notes: Notes) -> Quant | None:
    """The storage of a GPTQ or AWQ checkpoint under adapters; None for any other model.

    Raises:
        InputError: all parameters are to be trained.
    """
    if model.checkpoint_quant not in TRAINABLE:
        return None
    kind = model.checkpoint_quant
    if not adapters:
        raise InputError(
            f"a {kind.upper()} checkpoint cannot be trained in full",
            where=where,
            fix="name the 16-bit model, or use LoRA",
        )
    stated = model.checkpoint_bits
    bits = stated if stated is not None and 2 <= stated <= 8 else bits_of(name)
    group = model.checkpoint_group or 128
    group = group if group > 0 else model.hidden  # one scale for all inputs of an output
    for field in ("kind", "double", "kbit_prepare", "recast", "compute_dtype", "bits", "group"):
        notes.derived(f"quant.{field}", f"the checkpoint is stored in {kind.upper()}")
    notes.derived("quant", f"the checkpoint is stored in {kind.upper()}")
    notes.assume(
        f"{where}: {kind.upper()} with {bits} bits in groups of {group}, by a kernel that restores one weight at a time"
    )
    return Quant(kind, compute_dtype=compute, bits=bits, group=group)
