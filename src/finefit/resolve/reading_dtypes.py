"""Which dtype each tensor has under the tools of ``reading_recipe``.

Sources: axolotl 0.19.0 ``loaders/model.py`` (loads in the training dtype), trl 1.16.0 ``trainer/model_config.py``
(``dtype``) and ``sft_trainer.py`` (adapters of a quantised base to bf16), ms-swift 4.6.0
``arguments/base_args/model_args.py``, torchtune 0.6.1 recipes (one dtype, no autocast); peft
``tuners/tuners_utils.py`` ``cast_adapter_dtype``; accelerate 1.15.0 ``accelerator.py`` (trained parameters are
upcast to fp32 under FSDP with mixed precision, no autocast under DeepSpeed); deepspeed 0.19.8 ``runtime/engine.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

from finefit.errors import NotModelled
from finefit.formats.deepspeed import DeepSpeed
from finefit.resolve.notes import Notes
from finefit.resolve.readings.reading import Reading
from finefit.workload.dtypes import DType
from finefit.workload.model import Model

_ACCELERATED = ("axolotl", "trl", "ms-swift")  # their FSDP is accelerate's
_NAMES = {"bf16": DType.BF16, "fp16": DType.FP16, "fp32": DType.FP32}


@dataclass(frozen=True, slots=True)
class Dtypes:
    """As ``resolve.precision.Precision``: of weights, autocast, adapters, bitsandbytes matmuls; an fp32 copy."""

    weights: DType
    autocast: DType | None
    adapters: DType
    compute: DType
    master: bool


def dtypes(reading: Reading, model: Model, engine: DeepSpeed | None, quantised: bool, notes: Notes) -> Dtypes:
    """The dtypes of a run, with their sources noted.

    Raises:
        NotModelled: DeepSpeed without bf16 or fp16.
    """
    load, amp = reading.text("load_dtype"), reading.text("amp")
    loaded = _NAMES.get(load or "", model.checkpoint_dtype)
    autocast = _NAMES.get(amp or "")
    lora = reading.text("method") != "full"
    notes.source("weight_dtype", reading.values["load_dtype"].source)
    if load == "checkpoint":
        notes.derived("weight_dtype", f"the checkpoint is {model.checkpoint_dtype.value}")
    if autocast is not None and "amp" in reading.values:
        notes.source("autocast", reading.values["amp"].source)
    else:
        notes.derived("autocast", "without mixed precision")
    compute = loaded if reading.tool in ("axolotl", "trl") else (autocast or loaded)
    notes.derived(
        "quant.compute_dtype", f"bnb_4bit_compute_dtype is {compute.value} ({reading.tool}@{reading.version})"
    )
    if engine is not None:
        half = autocast or (loaded if loaded is not DType.FP32 else None)
        if half is None:
            raise NotModelled(
                "DeepSpeed without bf16 or fp16 is not modelled yet",
                where=reading.where("deepspeed"),
                fix="set bf16: true",
            )
        notes.derived("weight_dtype", "DeepSpeed casts the whole module (deepspeed@0.19.8)")
        notes.derived("autocast", "DeepSpeed casts the whole module instead of using autocast (deepspeed@0.19.8)")
        notes.derived("lora.dtype", "DeepSpeed casts the whole module (deepspeed@0.19.8)")
        notes.derived("master_weights", "DeepSpeed keeps an fp32 copy of the trained parameters (deepspeed@0.19.8)")
        return Dtypes(half, None, half, compute if quantised else half, master=True)
    if reading.text("strategy") == "megatron":
        rule = "Megatron-Core keeps 16-bit weights and an fp32 copy in its distributed optimizer"
        for name in ("master_weights", "weight_dtype", "autocast", "lora.dtype"):
            notes.derived(name, rule)
        half = loaded if loaded is not DType.FP32 else DType.BF16
        return Dtypes(half, None, half, half, master=True)
    notes.derived("master_weights", "only DeepSpeed and Megatron keep an extra fp32 copy")
    adapters = _adapters(reading, quantised, notes)
    weights = loaded
    sharded = (reading.text("strategy") or "").startswith("fsdp") and reading.tool in _ACCELERATED
    if sharded and autocast is not None and not lora:
        weights = DType.FP32
        notes.derived("weight_dtype", "accelerate upcasts trained parameters to fp32 under FSDP (accelerate@1.15.0)")
    elif reading.tool == "axolotl" and not lora and not sharded and reading.text("attention") != "flash2":
        notes.assume(
            "without FlashAttention Axolotl keeps embeddings and norms in fp32 in a full fine-tune; "
            "they are planned in the training dtype, which is less"
        )
    return Dtypes(weights, autocast, adapters, compute, master=False)


def _adapters(reading: Reading, quantised: bool, notes: Notes) -> DType:
    stated = _NAMES.get(reading.text("adapter_dtype") or "")
    if stated is not None:
        notes.source("lora.dtype", reading.values["adapter_dtype"].source)
        return stated
    if reading.tool == "trl" and quantised:
        notes.derived("lora.dtype", "TRL casts the adapters of a quantised base to bf16 (trl@1.16.0 sft_trainer.py)")
        return DType.BF16
    notes.derived("lora.dtype", "PEFT casts 16-bit adapters to fp32 (cast_adapter_dtype)")
    return DType.FP32
