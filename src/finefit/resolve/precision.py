"""Which dtype each tensor has under LLaMA-Factory's switches.

Sources: llamafactory 0.9.5 ``model/loader.py`` (``torch_dtype="auto"``), ``model/adapter.py`` ``init_adapter``
(the cast of trained parameters), ``hparams/parser.py`` (compute dtype); peft 0.18.1 ``tuners/tuners_utils.py``
``cast_adapter_dtype``; accelerate 1.11.0 ``accelerator.py`` (no autocast under DeepSpeed).
"""

from __future__ import annotations

from dataclasses import dataclass

from finefit.errors import InputError, NotModelled
from finefit.formats.deepspeed import DeepSpeed
from finefit.resolve.notes import Notes
from finefit.resolve.settings import Settings
from finefit.workload.dtypes import DType
from finefit.workload.model import Model
from finefit.workload.sourced import Source


@dataclass(frozen=True, slots=True)
class Precision:
    """Dtypes of a run.

    Attributes:
        weights: of the parameters on the GPU (quantised ones apart).
        autocast: compute dtype under autocast, None without.
        adapters: of LoRA's matrices.
        compute: of bitsandbytes matmuls.
        master: DeepSpeed keeps an fp32 copy of the trained parameters.
    """

    weights: DType
    autocast: DType | None
    adapters: DType
    compute: DType
    master: bool


def precision(settings: Settings, model: Model, method: str, engine: DeepSpeed | None, notes: Notes) -> Precision:
    """The dtypes of a run, with their sources noted.

    Raises:
        InputError: a combination that the tool refuses.
        NotModelled: DeepSpeed without bf16 or fp16.
    """
    bf16, fp16, pure = (settings.flag(key) for key in ("bf16", "fp16", "pure_bf16"))
    if bf16 and fp16:
        raise InputError("bf16 and fp16 are both on", where=settings.where("fp16"), fix="keep one of them")
    switch = next((key for key in ("bf16", "fp16", "pure_bf16") if settings.flag(key)), "bf16")
    source = settings.source(switch)
    stored = model.checkpoint_dtype
    if bf16 or pure:
        compute = DType.BF16
    elif fp16:
        compute = DType.FP16
    else:  # extras/misc.py infer_optim_dtype
        compute = DType.BF16 if stored is DType.BF16 else DType.FP16
    if engine is not None:
        return _under_deepspeed(settings, engine, compute, source, notes)

    autocast = DType.BF16 if bf16 else DType.FP16 if fp16 else None
    notes.source("autocast", source)
    notes.derived("master_weights", "only DeepSpeed keeps an extra fp32 copy")
    notes.derived("lora.dtype", "PEFT casts 16-bit adapters to fp32 (peft@0.18.1 cast_adapter_dtype)")
    if method == "full" and not pure and not settings.flag("use_badam"):
        weights = DType.FP32
        notes.derived("weight_dtype", f"{settings.said.tool}@{settings.said.version} casts trained parameters to fp32")
    else:
        weights = stored
        notes.derived("weight_dtype", f'loaded with torch_dtype="auto": the checkpoint is {stored.value}')
        if pure and stored is not DType.BF16:
            notes.warn(
                f"{settings.where('pure_bf16')}: the checkpoint is {stored.value} and "
                f"{settings.said.tool} {settings.said.version} does not cast it to bf16"
            )
    return Precision(weights, autocast, DType.FP32, compute, master=False)


def _under_deepspeed(settings: Settings, engine: DeepSpeed, compute: DType, source: Source, notes: Notes) -> Precision:
    """DeepSpeed casts the whole module, adapters included, to 16 bits and keeps an fp32 copy of what it trains.

    deepspeed 0.19.8 ``runtime/engine.py`` ``_configure_distributed_model``, ``runtime/zero/*.py``.
    """
    where = settings.where("deepspeed")
    for key, stated in (("bf16", engine.bf16), ("fp16", engine.fp16)):
        if stated is True and not settings.flag(key):
            raise InputError(
                f"the DeepSpeed file turns {key} on and the config does not: the trainer refuses the pair",
                where=where,
                fix=f'set {key}: true, or {key}.enabled to "auto" in the DeepSpeed file',
            )
    if settings.flag("pure_bf16") and engine.stage == 3:
        raise InputError("LLaMA-Factory refuses pure_bf16 with ZeRO-3", where=where, fix="use bf16: true")
    halves = [key for key, stated in (("bf16", engine.bf16), ("fp16", engine.fp16)) if stated is not False]
    if not any(settings.flag(key) for key in halves):
        raise NotModelled(
            "DeepSpeed without bf16 or fp16 is not modelled yet", where=where, fix="set bf16: true in the config"
        )
    notes.source("weight_dtype", source)
    for name in ("autocast", "lora.dtype"):
        notes.derived(name, "DeepSpeed casts the whole module instead of using autocast (deepspeed@0.19.8)")
    notes.derived("master_weights", "DeepSpeed keeps an fp32 copy of the trained parameters (deepspeed@0.19.8)")
    return Precision(compute, None, compute, compute, master=True)
