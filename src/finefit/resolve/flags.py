"""From flags alone to a workload: Hugging Face's Trainer with PEFT and bitsandbytes, nothing else.

Defaults are those of transformers 5.24.0 and peft 0.21.2 in catalog/data/tool_defaults.csv; what these
libraries leave open is assumed and said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType

from finefit.errors import InputError, NotModelled
from finefit.resolve import flag_values as words
from finefit.resolve.beside import alone
from finefit.resolve.flag_values import FlagValues
from finefit.resolve.images import of_flags, pictured, refuse_on_text
from finefit.resolve.models import resolve_model
from finefit.resolve.notes import Notes
from finefit.resolve.optimizers import LOW_RANK, OPTIMIZER_FIELDS, check, low_rank
from finefit.resolve.optimizers import optimizer as optimizer_named
from finefit.resolve.resolved import Resolved
from finefit.resolve.shown import shown
from finefit.resolve.stored_quant import restored, stored_quant
from finefit.workload.dtypes import DType
from finefit.workload.families import PEFT_DEFAULT_TARGETS
from finefit.workload.lengths import Lengths
from finefit.workload.lora import linear_modules, lora_targets
from finefit.workload.model import Model
from finefit.workload.recipe import Lora, Optimizer, Quant, Recipe, Sharding, Trained
from finefit.workload.selection import selects
from finefit.workload.sourced import Origin, Source

STACK = MappingProxyType({"transformers": words.VERSION, "peft": "0.21.2"})
_QLORA = "QLoRA, arXiv 2305.14314: NF4 with double quantisation"


def resolve_flags(
    model_text: str,
    *,
    method: str | None = None,
    rank: int | None = None,
    targets: str | Sequence[str] | None = None,
    batch: int | None = None,
    seq: int | None = None,
    accum: int | None = None,
    eval_batch: int | None = None,
    precision: str | None = None,
    optimizer: str | None = None,
    checkpointing: str | None = None,
    attention: str | None = None,
    quant_bits: int | None = None,
    kbit_prepare: bool | None = None,
    loss: str | None = None,
    sharding: str | None = None,
    padded: bool | None = None,
    train_layers: int | None = None,
    train_modules: str | None = None,
    epochs: float | None = None,
    image_size: str | None = None,
    images: int | None = None,
    freeze: str | None = None,
    lengths: Lengths | None = None,
    outline: Model | None = None,
) -> Resolved:
    """A model and flags as a workload; a method or length left out is reported in ``missing``, not guessed.

    Args:
        model_text: catalogue name, config.json, folder or Hub id.
        method: "full", "lora", "qlora", "dora" and the others of ``flag_values.METHODS``; "freeze" trains a part.
        rank, targets: LoRA; targets as PEFT takes them ("all-linear", "q_proj,v_proj"). Of GaLore and APOLLO in
            full fine-tuning, the rank of the projection and what is projected.
        batch, seq, accum: rows of a micro-batch, tokens of the longest row, micro-batches a step.
        eval_batch: rows of an evaluation batch; None: the run never evaluates.
        precision: "bf16", "fp16", "fp32" (weights and compute), "bf16-mixed", "fp16-mixed" (fp32 weights, autocast).
        optimizer: a value of transformers' ``optim`` ("adamw_torch", "paged_adamw_8bit", ...).
        checkpointing: "none", "full" or "reentrant".
        attention: "eager", "sdpa" or "flash2".
        quant_bits: 4 or 8, for qlora.
        kbit_prepare: whether ``prepare_model_for_kbit_training`` is called.
        loss: "full", "fused_linear" (Liger) or "chunked".
        sharding: "none", "zero1", "zero2", "zero3" or "fsdp".
        padded: rows of a batch differ in length.
        image_size, images: pixels of a picture ("1024x768") and pictures of a sample, for vision-language models.
        freeze: parts left alone, of "tower", "projector" and "language" ("tower,projector").
        train_layers, train_modules: of "freeze": so many of the last layers (of the first where negative), and which
            modules of theirs ("mlp,norm").
        epochs, lengths: for the run's duration.
        outline: stands for a model that is not modelled, whose modules nobody knows; for the tracer.

    Raises:
        InputError: a value out of range, or an unknown model.
        NotModelled: an optimizer, model or combination that is not modelled.
    """
    model = outline or resolve_model(model_text, where="MODEL")
    notes = Notes()
    model = restored(model, "the Trainer", "MODEL", notes)
    flags = FlagValues(notes)
    notes.source("model", Source(Origin.STATED, "MODEL"))
    if method is not None:
        flags.choice(["method", "lora", "lora.kind"], "--method", method, words.METHODS, "")
    if method is not None and method in words.METHODS and not words.METHODS[method]:
        projects = optimizer is not None and optimizer.startswith(LOW_RANK)
        for flag, stated in (("--rank", rank), ("--targets", targets)):
            if stated is not None and not projects:
                raise InputError("full fine-tuning has no adapters", where=flag, fix=f"leave {flag} out, or use LoRA")
    if outline is not None and method == "freeze":
        raise NotModelled(
            "the layers of a model that is not modelled have no known names", where="--method", fix="use full or lora"
        )
    selection = _selection(flags, model, method, train_layers, train_modules)
    missing = frozenset(name for name, value in (("method", method), ("seq", seq)) if value is None)
    recipe = None
    if method is not None and seq is not None:
        recipe = _dtypes(flags, model, precision, _choices(flags, checkpointing, attention, loss, sharding))
        micro = flags.integer("micro_batch", "--batch", batch, "per_device_train_batch_size")
        steps = flags.integer("grad_accum", "--accum", accum, "gradient_accumulation_steps")
        recipe = replace(recipe, grad_accum=steps)
        adapters = bool(words.METHODS[method])
        compute = recipe.autocast or recipe.weight_dtype
        quant = stored_quant(model, model_text, adapters=adapters, compute=compute, where="MODEL", notes=notes)
        if quant is not None and quant_bits is not None:
            raise InputError("the checkpoint is quantised already", where="--quant-bits", fix="leave --quant-bits out")
        quant = quant or _quant(flags, method, quant_bits, kbit_prepare, recipe)
        recipe = replace(
            recipe,
            method="lora" if words.METHODS[method] else method,
            trained=selection,
            seq_len=flags.integer("seq_len", "--seq", seq, "per_device_train_batch_size"),
            micro_batch=micro,
            optimizer=_optimizer(flags, model, method, optimizer, rank, targets, recipe),
            quant=quant,
            lora=(
                _lora(flags, model, words.METHODS[method], rank, targets, recipe, outline is None) if adapters else None
            ),
            padded=_padded(flags, padded, micro),
            epochs=_epochs(flags, epochs),
            eval_batch=_eval_batch(flags, eval_batch),
        )
        recipe = replace(recipe, sources=MappingProxyType(dict(notes.sources)))
    resolved = Resolved(
        model=model,
        model_text=model_text,
        recipe=recipe,
        lengths=lengths or Lengths(),
        origin="flags",
        sources=MappingProxyType(dict(notes.sources)),
        assumptions=tuple(notes.assumptions),
        warnings=tuple(notes.warnings),
        missing=missing,
    )
    refuse_on_text(model, {"--image-size": image_size, "--images": images, "--freeze": freeze})
    return pictured(resolved, lambda: of_flags(image_size, images, freeze))


def _eval_batch(flags: FlagValues, rows: int | None) -> int | None:
    """Rows of an evaluation batch; without the flag nothing is evaluated, the Trainer's ``eval_strategy``."""
    return None if rows is None else flags.integer("eval_batch", "--eval-batch", rows, "per_device_eval_batch_size")


def _choices(
    flags: FlagValues, checkpointing: str | None, attention: str | None, loss: str | None, sharding: str | None
) -> Recipe:
    """A recipe with the fields that are plain words; the others follow."""
    notes = flags.notes
    notes.derived("task", "flags plan supervised fine-tuning")
    alone(notes)
    notes.derived("returns_cache", f"the Trainer asks for no keys and values (transformers@{words.VERSION})")
    notes.derived(
        "keeps_outputs", f"the Trainer drops a model's outputs before backward (transformers@{words.VERSION})"
    )
    notes.derived("stack", "the versions whose defaults are taken")
    for field, key in (
        ("checkpointing", "activation_checkpointing"),
        ("reentrant", "activation_checkpointing"),
        ("loss", "use_liger_kernel"),
        ("fused_kernels", "use_liger_kernel"),
        ("compiled", "torch_compile"),
        ("packing", "train_sampling_strategy"),
        ("max_steps", "max_steps"),
        ("eval_batch", "eval_strategy"),
        ("sharding.kind", "fsdp"),
    ):
        notes.source(field, flags.library(key))
    notes.derived("attention", f"transformers@{words.VERSION} takes SDPA")
    notes.derived("products", "the layers multiply in the compute dtype")
    notes.derived("max_samples", "flags cut no data set")
    for field in ("reduce_bucket", "gather_bucket", "prefetch_bucket", "persistence_threshold", "max_live"):
        notes.source(f"sharding.{field}", Source(Origin.DEFAULT, "deepspeed@0.19.8"))
    for field in ("overlap_comm", "offload_optimizer", "offload_params"):
        notes.source(f"sharding.{field}", Source(Origin.DEFAULT, "deepspeed@0.19.8"))
    notes.derived("sharding.ranks", "the number of GPUs, 1 until they are stated")
    kept, reentrant = flags.choice(
        ["checkpointing", "reentrant"], "--checkpointing", checkpointing, words.CHECKPOINTING, ("none", False)
    )
    chosen = flags.choice(["loss", "fused_kernels"], "--loss", loss, words.LOSSES, "full")
    kind = flags.choice(["sharding.kind"], "--sharding", sharding, words.SHARDING, "none")
    return Recipe(
        method="full",
        weight_dtype=DType.FP32,
        optimizer=Optimizer("adamw"),
        seq_len=1,
        checkpointing=kept,
        reentrant=reentrant,
        attention=flags.choice(["attention"], "--attention", attention, words.ATTENTION, "sdpa"),
        loss=chosen,
        fused_kernels=chosen == "fused_linear",
        # deepspeed 0.19.8 runtime/zero/config.py: overlap_comm is on for stage 3 unless said otherwise
        sharding=Sharding(kind, overlap_comm=kind == "zero3"),
        stack=STACK,
    )


def _dtypes(flags: FlagValues, model: Model, precision: str | None, recipe: Recipe) -> Recipe:
    """Weights in the checkpoint's dtype without autocast, unless stated; DeepSpeed keeps an fp32 copy."""
    notes = flags.notes
    stored = Source(Origin.DEFAULT, f'transformers@{words.VERSION}, from_pretrained(dtype="auto")')
    notes.source("weight_dtype", stored)
    notes.source("autocast", flags.library("bf16"))
    notes.derived("master_weights", "only DeepSpeed keeps an extra fp32 copy")
    weights, autocast = flags.choice(
        ["weight_dtype", "autocast"], "--precision", precision, words.PRECISIONS, (model.checkpoint_dtype, None)
    )
    if recipe.sharding.kind.startswith("zero"):
        weights, autocast = autocast or weights, None
        if weights is DType.FP32:
            raise NotModelled(
                "DeepSpeed without bf16 or fp16 is not modelled yet", where="--sharding", fix="add --precision bf16"
            )
        notes.derived("master_weights", "DeepSpeed keeps an fp32 copy of the trained parameters (deepspeed@0.19.8)")
        return replace(recipe, weight_dtype=weights, master_weights=True)
    return replace(recipe, weight_dtype=weights, autocast=autocast)


def _optimizer(
    flags: FlagValues,
    model: Model,
    method: str,
    name: str | None,
    rank: int | None,
    targets: str | Sequence[str] | None,
    recipe: Recipe,
) -> Optimizer:
    key = name if name is not None else str(flags.default("optim"))
    source = flags.library("optim") if name is None else Source(Origin.STATED, "--optimizer")
    for field in OPTIMIZER_FIELDS:
        flags.notes.source(f"optimizer.{field}", source)
    found = optimizer_named(key, where="--optimizer")
    check(
        found,
        full=not words.METHODS[method],
        sharding=recipe.sharding.kind,
        accum=recipe.grad_accum,
        where="--optimizer",
    )
    if found.kind.low_rank:
        names = () if targets in (None, "all-linear", "all") else tuple(_names(targets))
        if not names:
            flags.notes.assume(f"{key} projects the gradients of every linear module (optim_target_modules)")
        return low_rank(found, model, rank, names, where="--targets")
    if recipe.master_weights and not found.kind.quantised:
        flags.notes.derived("optimizer.state_dtype", "the optimizer steps on the fp32 copy (deepspeed@0.19.8)")
        return replace(found, state_dtype=DType.FP32)
    return found


def _names(targets: str | Sequence[str] | None) -> list[str]:
    words_ = targets.split(",") if isinstance(targets, str) else list(targets or ())
    return [word.strip() for word in words_ if word.strip()]


def _quant(flags: FlagValues, method: str, bits: int | None, kbit_prepare: bool | None, recipe: Recipe) -> Quant | None:
    notes = flags.notes
    if method not in words.QUANTISED and bits is None:
        notes.derived("quant", "not quantised")
        return None
    if not words.METHODS[method]:
        raise InputError("quantised weights cannot be trained in full", where="--quant-bits", fix="use --method qlora")
    if bits not in (None, 4, 8):
        raise InputError(f"{shown(bits)} is not 4 or 8 bits", where="--quant-bits", fix="write 4 or 8")
    if recipe.sharding.kind == "zero3":
        raise NotModelled(
            "a quantised base under ZeRO-3 is not modelled yet",
            where="--sharding",
            fix="use --sharding zero2, or --method lora, whose 16-bit base ZeRO-3 shards",
        )
    stated = Source(Origin.STATED, "--method" if bits is None else "--quant-bits")
    notes.source("quant", stated)
    notes.source("quant.kind", stated)
    if kbit_prepare is None:
        notes.assumed(
            "quant.kbit_prepare",
            "not called",
            "prepare_model_for_kbit_training is not called (it would keep embeddings, head and norms in fp32)",
        )
    else:
        notes.source("quant.kbit_prepare", Source(Origin.STATED, "--kbit-prepare"))
    compute = recipe.autocast or (DType.BF16 if recipe.weight_dtype is DType.FP32 else recipe.weight_dtype)
    notes.derived("quant.recast", "only TRL casts embeddings and head back to 16 bits")
    for field in ("bits", "group"):
        notes.derived(f"quant.{field}", "the checkpoint is not quantised")
    notes.assumed("quant.compute_dtype", "bnb_4bit_compute_dtype is set to the dtype of training, as QLoRA scripts do")
    if bits == 8:
        notes.derived("quant.double", "int8 has no second quantisation")
        return Quant("int8", kbit_prepare=bool(kbit_prepare), compute_dtype=compute)
    notes.assumed("quant.double", _QLORA, f"4 bits are {_QLORA}")
    return Quant("nf4", double=True, kbit_prepare=bool(kbit_prepare), compute_dtype=compute)


def _selection(
    flags: FlagValues, model: Model, method: str | None, layers: int | None, modules: str | None
) -> Trained | None:
    """The last layers or the first, whole or some modules of them; the last two where nothing is said."""
    if method is not None:
        flags.notes.source("trained", Source(Origin.STATED, "--method"))
    if method != "freeze":
        for flag, stated in (("--train-layers", layers), ("--train-modules", modules)):
            if stated is not None:
                raise InputError(f"{flag} says what --method freeze trains", where=flag, fix="add --method freeze")
        return None
    names = tuple(_names(modules))
    for field, flag, stated in (("layers", "--train-layers", layers), ("modules", "--train-modules", modules)):
        if stated is not None:
            flags.notes.source(f"trained.{field}", Source(Origin.STATED, flag))
    if layers is None and names:
        return _known(model, Trained(None, names, names))
    if layers is None:
        flags.notes.assumed("trained.layers", "the last two, as LLaMA-Factory does", "the last two layers are trained")
        layers = 2
    if not 0 < abs(layers) <= model.layers:
        raise InputError(
            f"{model.name} has {model.layers} layers", where="--train-layers", fix=f"write 1 to {model.layers}"
        )
    chosen = range(model.layers - layers, model.layers) if layers > 0 else range(-layers)
    return _known(model, Trained(tuple(chosen), names))


def _known(model: Model, trained: Trained) -> Trained:
    """The selection itself.

    Raises:
        InputError: a module that it finds nowhere.
    """
    for name in trained.modules:
        if not selects(model, replace(trained, modules=(name,), outside=(name,) if trained.outside else ())):
            raise InputError(
                f"{model.name} has no module {name[:40]!r}",
                where="--train-modules",
                fix="write names such as mlp or norm",
            )
    return trained


# peft 0.21.2 tuners/adalora/config.py init_r, tuners/vera/config.py r, tuners/oft/config.py oft_block_size
_RANKS = {"adalora": 12, "vera": 256}
_OFT_BLOCK = 32
# peft 0.21.2 utils/constants.py TRANSFORMERS_MODELS_TO_IA3_TARGET_MODULES_MAPPING and its feed-forward counterpart, of
# llama and the families like it
_IA3_TARGETS, _IA3_FEEDFORWARD = ("k_proj", "v_proj", "down_proj"), ("down_proj",)


def _lora(
    flags: FlagValues,
    model: Model,
    kind: str,
    rank: int | None,
    targets: str | Sequence[str] | None,
    recipe: Recipe,
    known: bool,
) -> Lora:
    """``known``: the model's modules are, so that names can be checked; else PEFT finds them."""
    notes = flags.notes
    if rank is None and kind in _RANKS:
        notes.source("lora.rank", Source(Origin.DEFAULT, "peft@0.21.2"))
        r = _RANKS[kind]
    else:
        r = flags.integer("lora.rank", "--rank", rank, "r")
    if kind == "ia3" and targets is None:
        targets = ",".join(_IA3_TARGETS)
        notes.source("lora.targets", Source(Origin.DEFAULT, "peft@0.21.2"))
    for field, key in (("alpha", "lora_alpha"), ("dropout", "lora_dropout"), ("modules_to_save", "modules_to_save")):
        notes.source(f"lora.{field}", flags.library(key))
    for field in ("kind", "block", "feedforward"):
        notes.sources.setdefault(f"lora.{field}", Source(Origin.STATED, "--method"))
    notes.derived("lora.dtype", "PEFT casts 16-bit adapters to fp32 (peft@0.21.2 cast_adapter_dtype)")
    notes.derived("lora.saved_dtype", "PEFT copies a module in its own dtype (peft@0.21.2 ModulesToSaveWrapper)")
    dtype = DType.FP32
    if recipe.master_weights:
        notes.derived("lora.dtype", "DeepSpeed casts the whole module (deepspeed@0.19.8)")
        dtype = recipe.weight_dtype
    if targets is not None:
        notes.source("lora.targets", Source(Origin.STATED, "--targets"))
        names = lora_targets(model, targets, where="--targets") if known else _unchecked(targets)
    elif model.family in PEFT_DEFAULT_TARGETS:
        notes.source("lora.targets", Source(Origin.DEFAULT, f"peft@0.21.2 for {model.family}"))
        names = lora_targets(model, None)
        if not known or set(names) != set(linear_modules(model)):
            notes.assume(
                f"LoRA sits on {', '.join(names)}, PEFT's default for {model.family}; "
                "many tools take every linear module (--targets all-linear), which needs more memory"
            )
    else:
        why = f"PEFT has no default for {model.family}"
        notes.assumed("lora.targets", why, f"LoRA sits on every linear module: {why}")
        names = lora_targets(model, "all-linear") if known else _unchecked("all-linear")
    # alpha scales the adapters' output and has no effect on memory or time
    alpha = flags.default("lora_alpha")
    return Lora(
        rank=r,
        alpha=alpha if isinstance(alpha, int) else r,
        targets=names,
        dtype=dtype,
        kind=kind,
        block=_OFT_BLOCK if kind == "oft" else 0,
        feedforward=tuple(name for name in names if name in _IA3_FEEDFORWARD) if kind == "ia3" else (),
    )


def _unchecked(targets: str | Sequence[str]) -> tuple[str, ...]:
    """Names of modules as PEFT takes them."""
    names = targets.split(",") if isinstance(targets, str) else targets
    found = tuple(dict.fromkeys(name.strip() for name in names if name.strip()))
    if not found:
        raise InputError("no module is named", where="--targets", fix="write all-linear, or names of linear modules")
    return ("all-linear",) if found == ("all",) else found


def _padded(flags: FlagValues, padded: bool | None, micro: int) -> bool:
    if padded is not None:
        flags.notes.source("padded", Source(Origin.STATED, "--padded"))
        return padded
    if micro > 1:
        flags.notes.assumed("padded", "rows differ in length", "rows of a batch differ in length, so a mask is passed")
    else:
        flags.notes.derived("padded", "one row needs no padding")
    return micro > 1


def _epochs(flags: FlagValues, epochs: float | None) -> float:
    if epochs is None:
        flags.notes.source("epochs", flags.library("num_train_epochs"))
        found = flags.default("num_train_epochs")
        return float(found) if isinstance(found, int | float) else 1.0
    if not 0 < epochs < 1e6:
        raise InputError(f"{shown(epochs)} is no number of epochs", where="--epochs", fix="write 1 or more")
    flags.notes.source("epochs", Source(Origin.STATED, "--epochs"))
    return float(epochs)
