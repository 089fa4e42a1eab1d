"""What LLaMA-Factory 0.9.5 trains besides LoRA and all parameters: ``model/adapter.py``, ``train/trainer_utils.py``."""

from __future__ import annotations

from collections.abc import Iterable

from finefit.errors import InputError, NotModelled
from finefit.resolve.notes import Notes
from finefit.resolve.settings import Settings
from finefit.workload.dtypes import DType
from finefit.workload.families import layout
from finefit.workload.model import Model
from finefit.workload.parameters import layer_parameters
from finefit.workload.recipe import Trained

# Ways to start or step LoRA that leave its tensors as they are
_SAME_SIZE = {
    "use_rslora": "rsLoRA scales LoRA's output, which changes neither memory nor time",
    "loraplus_lr_ratio": "LoRA+ has two learning rates, which changes neither memory nor time",
}


def adapter_kind(settings: Settings, notes: Notes) -> tuple[str, int]:
    """Kind of adapter and OFT's block size.

    Raises:
        InputError: an adapter that the tool refuses.
    """
    for key, sentence in _SAME_SIZE.items():
        if settings.raw(key):
            notes.assume(f"{settings.where(key)}: {sentence}")
    notes.source("lora.block", settings.source("oft_block_size"))
    notes.derived("lora.feedforward", "LLaMA-Factory has no (IA)³")
    if settings.text("finetuning_type") == "oft":
        notes.source("lora.kind", settings.source("finetuning_type"))
        if settings.integer("oft_rank", minimum=0):
            raise InputError(
                "OFT takes a rank or a block size, and its block size is set",
                where=settings.where("oft_rank"),
                fix="leave oft_rank out and write oft_block_size",
            )
        return "oft", settings.integer("oft_block_size", minimum=2)
    notes.source("lora.kind", settings.source("use_dora"))
    return ("dora" if settings.flag("use_dora") else "lora"), 0


def selection(settings: Settings, model: Model, shards: str, notes: Notes) -> Trained | None:
    """The part that is trained by ``finetuning_type: freeze`` or BAdam; None where all of it is.

    Raises:
        InputError: modules or layers that the model lacks.
        NotModelled: BAdam over several GPUs, or by shares of each matrix.
    """
    notes.source("trained", settings.source("finetuning_type"))
    if settings.flag("use_badam"):
        return _badam(settings, model, shards, notes)
    if settings.text("finetuning_type") != "freeze":
        return None
    count = settings.integer("freeze_trainable_layers", minimum=-(2**31) + 1)
    if settings.flag("use_llama_pro"):
        raise NotModelled(
            "LLaMA Pro is not modelled yet", where=settings.where("use_llama_pro"), fix="remove use_llama_pro"
        )
    layers: Iterable[int] = range(max(0, model.layers - count), model.layers) if count > 0 else range(-count)
    layers = tuple(index for index in layers if index < model.layers)
    modules = settings.names("freeze_trainable_modules")
    extra = settings.names("freeze_extra_modules")
    inside = {p.name.split(".")[0] for p in layer_parameters(model, 0)}
    for name in modules:
        if name != "all" and name not in inside:
            raise InputError(
                f"a layer of {model.name} has no module {name[:40]}",
                where=settings.where("freeze_trainable_modules"),
                fix=f"its modules are {', '.join(sorted(inside))}",
            )
    names = layout(model.family)
    outside = {path.rpartition(".")[2] for path in (names.embedding, names.head, names.final_norm)}
    for name in extra:
        if name not in outside:
            raise InputError(
                f"{model.name} has no module {name[:40]} outside its layers",
                where=settings.where("freeze_extra_modules"),
                fix=f"its modules are {', '.join(sorted(outside))}",
            )
    for field, key in (
        ("layers", "freeze_trainable_layers"),
        ("modules", "freeze_trainable_modules"),
        ("outside", "freeze_extra_modules"),
    ):
        notes.source(f"trained.{field}", settings.source(key))
    wide = not settings.flag("pure_bf16") and shards not in ("zero1", "zero2", "zero3")
    if wide:
        notes.derived("trained.dtype", "llamafactory@0.9.5 casts trained parameters to fp32")
    return Trained(
        layers,
        () if "all" in modules else tuple(f"{name}." for name in modules),
        tuple(f"{name}." for name in extra),
        DType.FP32 if wide else None,
        selective=True,
    )


def _badam(settings: Settings, model: Model, shards: str, notes: Notes) -> Trained:
    """badam 1.4 ``BlockOptimizer``: one layer at a time, with fp32 copies of it."""
    where = settings.where("use_badam")
    if settings.text("badam_mode") != "layer":
        raise NotModelled(
            "BAdam by shares of each matrix is not modelled yet",
            where=settings.where("badam_mode"),
            fix="use badam_mode: layer",
        )
    if shards != "none":
        raise NotModelled("BAdam on several GPUs is not modelled yet", where=where, fix="plan it on one GPU")
    fixed = settings.text("badam_switch_mode") == "fixed"
    first = (settings.optional_integer("badam_start_block", minimum=0) or 0) if fixed else 0
    notes.source("trained.layers", settings.source("use_badam"))
    notes.assume(
        f"{where}: BAdam trains one layer at a time; layer {first} is planned, since all above it keep their "
        "activations without checkpointing"
    )
    return Trained((min(first, model.layers - 1),), selective=True)
