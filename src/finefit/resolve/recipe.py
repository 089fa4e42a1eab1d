"""A LLaMA-Factory configuration as a complete recipe (llamafactory 0.9.5 on transformers 5.6.0, peft 0.18.1)."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from finefit.errors import InputError, NotModelled
from finefit.resolve.beside import PREFERENCE
from finefit.resolve.companions import deepspeed_of
from finefit.resolve.llamafactory_methods import adapter_kind, selection
from finefit.resolve.llamafactory_stages import beside_of, task_of
from finefit.resolve.notes import Notes
from finefit.resolve.optimizers import OPTIMIZER_FIELDS, check, low_rank, optimizer
from finefit.resolve.precision import Precision, precision
from finefit.resolve.settings import Settings
from finefit.resolve.sharding import fsdp_version, sharding
from finefit.resolve.special_optimizers import of_llamafactory
from finefit.resolve.stored_quant import stored_quant
from finefit.workload.dtypes import DType
from finefit.workload.families import layout
from finefit.workload.lengths import Lengths
from finefit.workload.lora import lora_targets, saved_numel
from finefit.workload.model import Model
from finefit.workload.recipe import Lora, Optimizer, Quant, Recipe

# The newest versions llamafactory 0.9.5 allows (its METADATA), and torch with them
STACK = MappingProxyType(
    {"llamafactory": "0.9.5", "transformers": "5.6.0", "peft": "0.18.1", "accelerate": "1.11.0", "trl": "0.24.0"}
)
PAD_MULTIPLE = 8  # llamafactory 0.9.5 train/sft/workflow.py pad_to_multiple_of

# Dense text models that llamafactory 0.9.5 model/model_utils/liger_kernel.py patches
_LIGER = frozenset(
    {"gemma", "gemma2", "gemma3_text", "glm4", "granite", "llama", "mistral", "olmo2", "phi3", "qwen2", "qwen3"}
)


def recipe_of(settings: Settings, model: Model, lengths: Lengths, notes: Notes) -> Recipe:
    """Every field of the recipe, each with its source in ``notes``.

    Raises:
        InputError: a value the tool cannot take, at its line.
        NotModelled: something understood and not modelled.
    """
    task, method = task_of(settings), settings.text("finetuning_type") or "lora"
    notes.source("task", settings.source("stage"))
    for field in ("method", "lora"):
        notes.source(field, settings.source("finetuning_type"))
    engine = deepspeed_of(settings, notes)
    dtypes = precision(settings, model, method, engine, notes)
    shards = sharding(settings, model, engine, notes)
    quant = stored_quant(
        model,
        settings.text("model_name_or_path") or "",
        adapters=method in ("lora", "oft"),
        compute=dtypes.compute,
        where=settings.where("model_name_or_path"),
        notes=notes,
    )
    quant = quant or _quant(settings, method, dtypes, shards.kind, notes)
    attention = _attention(settings, model, notes)
    seq_len, padded, packing = _rows(settings, task, attention, lengths, notes)
    checkpointing, reentrant = _checkpointing(settings, shards.kind, notes)
    loss, kernels = _kernels(settings, model, task, notes)
    steps = settings.integer("max_steps", minimum=-1)
    for field, key in (
        ("micro_batch", "per_device_train_batch_size"),
        ("grad_accum", "gradient_accumulation_steps"),
        ("epochs", "num_train_epochs"),
        ("max_steps", "max_steps"),
        ("compiled", "torch_compile"),
        ("products", "fp8"),
    ):
        notes.source(field, settings.source(key))
    beside = beside_of(settings, task, model, notes)
    notes.derived("returns_cache", "the Trainer asks for no keys and values (transformers@5.6.0)")
    notes.derived("keeps_outputs", "the Trainer drops a model's outputs before backward (transformers@5.6.0)")
    notes.derived("stack", "the newest versions that llamafactory@0.9.5 allows")
    if settings.flag("fp8"):
        notes.assume(
            f"{settings.where('fp8')}: weights, states and saved activations keep their 16 or 32 bits; the fp8 copies "
            "that one product makes are not counted"
        )
    if settings.flag("fp8_enable_fsdp_float8_all_gather"):
        notes.assume(
            f"{settings.where('fp8_enable_fsdp_float8_all_gather')}: layers gathered in fp8 are planned in bf16, an "
            "upper bound"
        )
    trained = selection(settings, model, shards.kind, notes)
    badam = settings.flag("use_badam")
    if badam:
        notes.derived("master_weights", "BAdam steps on an fp32 copy of the layer that it trains (badam 1.4)")
    return Recipe(
        method="lora" if method == "oft" else method,
        weight_dtype=dtypes.weights,
        optimizer=_optimizer(settings, model, dtypes, shards.kind, notes),
        seq_len=seq_len,
        micro_batch=settings.integer("per_device_train_batch_size", minimum=1),
        grad_accum=settings.integer("gradient_accumulation_steps", minimum=1),
        task=task,
        lora=_lora(settings, model, dtypes, notes) if method in ("lora", "oft") else None,
        trained=trained,
        quant=quant,
        autocast=dtypes.autocast,
        master_weights=dtypes.master or badam,
        padded=padded,
        packing=packing,
        checkpointing=checkpointing,
        reentrant=reentrant,
        attention=attention,
        loss=loss,
        fused_kernels=kernels,
        products="fp8" if settings.flag("fp8") else "16bit",
        sharding=shards,
        beside=beside,
        epochs=_epochs(settings),
        max_steps=steps if steps > 0 else None,
        max_samples=_max_samples(settings, notes),
        eval_batch=_evaluation(settings, notes),
        stack=STACK,
        sources=MappingProxyType(dict(notes.sources)),
    )


def _max_samples(settings: Settings, notes: Notes) -> int | None:
    """Samples an epoch at most: ``max_samples`` of each data set (llamafactory 0.9.5 data/loader.py)."""
    cap = settings.optional_integer("max_samples", minimum=1)
    notes.source("max_samples", settings.source("max_samples"))
    sets = len(settings.names("dataset"))
    if cap is None or sets < 2:
        return cap
    notes.derived("max_samples", f"{settings.source('max_samples').detail}: {cap} of each of {sets} data sets")
    return cap * sets


def _epochs(settings: Settings) -> float | None:
    epochs = settings.number("num_train_epochs")
    if epochs is not None and epochs <= 0:
        raise InputError(
            "a run has more than 0 epochs", where=settings.where("num_train_epochs"), fix="write 1 or more"
        )
    return epochs


def _optimizer(settings: Settings, model: Model, dtypes: Precision, shards: str, notes: Notes) -> Optimizer:
    found = of_llamafactory(settings, model, notes)
    if found is None:
        found = optimizer(settings.text("optim") or "", where=settings.where("optim"))
        for field in OPTIMIZER_FIELDS:
            notes.source(f"optimizer.{field}", settings.source("optim"))
        if found.kind.low_rank:
            found = low_rank(found, model, None, settings.names("optim_target_modules"), where=settings.where("optim"))
    full = (settings.text("finetuning_type") or "lora") not in ("lora", "oft")
    accum = settings.integer("gradient_accumulation_steps", minimum=1)
    check(found, full=full, sharding=shards, accum=accum, where=settings.where("optim"))
    if dtypes.master and not found.kind.quantised:
        notes.derived("optimizer.state_dtype", "DeepSpeed's optimizer steps on the fp32 copy (deepspeed@0.19.8)")
        return replace(found, state_dtype=DType.FP32)
    return found


def _lora(settings: Settings, model: Model, dtypes: Precision, notes: Notes) -> Lora:
    rank = settings.integer("lora_rank", minimum=1)
    alpha = settings.optional_integer("lora_alpha", minimum=1)
    dropout = settings.number("lora_dropout") or 0.0
    if not 0 <= dropout < 1:
        raise InputError("a dropout lies between 0 and 1", where=settings.where("lora_dropout"), fix="write 0.05, say")
    for field, key in (("rank", "lora_rank"), ("alpha", "lora_alpha"), ("dropout", "lora_dropout")):
        notes.source(f"lora.{field}", settings.source(key))
    if alpha is None:
        notes.derived("lora.alpha", "2 x lora_rank (llamafactory@0.9.5)")
    wanted = settings.names("lora_target")
    notes.source("lora.targets", settings.source("lora_target"))
    targets = lora_targets(model, ",".join(wanted), where=settings.where("lora_target"))
    kind, block = adapter_kind(settings, notes)
    for key, sentence in (
        ("pissa_init", "PiSSA trains adapters of LoRA's size; the memory of its SVD at the start is not modelled"),
        ("adapter_name_or_path", "the adapter to continue from is taken to have the rank and targets stated here"),
    ):
        if settings.raw(key):
            notes.assume(f"{settings.where(key)}: {sentence}")
    saved = _saved_modules(settings, model, notes)
    saved_dtype = None
    notes.derived("lora.saved_dtype", "PEFT copies a module in its own dtype (peft@0.18.1 ModulesToSaveWrapper)")
    if saved and not settings.flag("pure_bf16"):
        saved_dtype = dtypes.adapters
        tool = f"{settings.said.tool}@{settings.said.version}"
        notes.derived("lora.saved_dtype", f"{tool} casts trained parameters to {saved_dtype.value}")
    return Lora(
        rank=rank,
        alpha=alpha or 2 * rank,
        dropout=dropout,
        targets=targets,
        dtype=dtypes.adapters,
        modules_to_save=saved,
        saved_dtype=saved_dtype,
        kind=kind,
        block=block,
    )


def _saved_modules(settings: Settings, model: Model, notes: Notes) -> tuple[str, ...]:
    """Modules trained in full: stated, or embeddings and head once the vocabulary may grow (model/adapter.py)."""
    stated = settings.names("additional_target")
    notes.source("lora.modules_to_save", settings.source("additional_target"))
    growing = next((k for k in ("resize_vocab", "add_tokens", "add_special_tokens") if settings.raw(k)), None)
    if growing:
        notes.assume(f"{settings.where(growing)}: the new tokens are taken to fit the vocabulary of {model.vocab} rows")
    for name in stated:
        if not saved_numel(model, (name,)):
            notes.warn(f"{settings.where('additional_target')}: {model.name} has no module {name[:40]}")
    if stated or not growing:
        return stated
    names = layout(model.family)
    notes.derived("lora.modules_to_save", f"{growing} makes embeddings and head trainable (llamafactory@0.9.5)")
    return (names.embedding, names.head)


def _quant(settings: Settings, method: str, dtypes: Precision, shards: str, notes: Notes) -> Quant | None:
    bits = settings.optional_integer("quantization_bit", minimum=1)
    notes.source("quant", settings.source("quantization_bit"))
    if bits is None:
        return None
    where = settings.where("quantization_bit")
    if bits not in (4, 8):
        raise InputError(f"bitsandbytes has 4 and 8 bits, not {bits}", where=where, fix="write 4 or 8")
    if method not in ("lora", "oft"):
        raise InputError("LLaMA-Factory quantises only under LoRA", where=where, fix="set finetuning_type: lora")
    for key in ("resize_vocab", "pissa_init"):
        if settings.flag(key):
            raise InputError(f"LLaMA-Factory refuses {key} on a quantised model", where=where, fix=f"remove {key}")
    if shards == "zero3":
        raise NotModelled(
            "a quantised base under ZeRO-3 is not modelled yet",
            where=where,
            fix="use ZeRO-2, or 16-bit LoRA with ZeRO-3, which shards the base",
        )
    if shards == "fsdp" and bits == 8:
        raise InputError("LLaMA-Factory refuses 8 bits under FSDP", where=where, fix="write quantization_bit: 4")
    notes.source("quant.kind", settings.source("quantization_bit" if bits == 8 else "quantization_type"))
    notes.source("quant.double", settings.source("double_quantization"))
    notes.derived("quant.kbit_prepare", "llamafactory@0.9.5 does not call prepare_model_for_kbit_training")
    notes.derived("quant.recast", "only TRL casts embeddings and head back to 16 bits")
    for field in ("bits", "group"):
        notes.derived(f"quant.{field}", "the checkpoint is not quantised")
    notes.derived("quant.compute_dtype", "bf16 or fp16 as trained, else that of the checkpoint (llamafactory@0.9.5)")
    if bits == 8:
        notes.derived("quant.double", "int8 has no second quantisation")
        return Quant("int8", compute_dtype=dtypes.compute)
    kind = settings.text("quantization_type") or "nf4"
    return Quant(kind, double=settings.flag("double_quantization"), compute_dtype=dtypes.compute)


def _attention(settings: Settings, model: Model, notes: Notes) -> str:
    """model/model_utils/attention.py; "auto" leaves the choice to transformers, which takes SDPA where it can."""
    stated = settings.text("flash_attn") or "auto"
    notes.source("attention", settings.source("flash_attn"))
    if stated == "fa2":
        notes.assume("FlashAttention-2 is installed (without it LLaMA-Factory falls back with a warning)")
    if stated != "auto":
        return {"disabled": "eager", "sdpa": "sdpa", "fa2": "flash2"}[stated]
    if model.family == "gemma2":
        why = "Gemma 2 takes FlashAttention-2 where it is installed, else eager; eager needs more memory"
        notes.assumed("attention", why, f"{why}, and is taken")
        return "eager"
    notes.derived("attention", "auto: transformers@5.6.0 takes SDPA")
    return "sdpa"


def _rows(settings: Settings, task: str, attention: str, lengths: Lengths, notes: Notes) -> tuple[int, bool, bool]:
    """Tokens of the longest row, whether rows carry a padding mask, whether they are packed (data/processor/*.py)."""
    cutoff = settings.integer("cutoff_len", minimum=1)
    if task == "ppo":  # train/ppo/trainer.py: a prompt of cutoff_len, then what is generated
        cutoff += settings.integer("max_new_tokens", minimum=1)
    neat = settings.flag("neat_packing")
    packed = settings.flag("packing") or neat or (task == "pt" and settings.raw("packing") is None)
    if neat and task != "sft":
        raise InputError("neat_packing is for stage: sft", where=settings.where("neat_packing"), fix="remove it")
    notes.source("seq_len", settings.source("cutoff_len"))
    notes.source("packing", settings.source("neat_packing" if neat else "packing"))
    if packed and not settings.stated("packing") and not neat:
        notes.derived("packing", "on by default for stage: pt (llamafactory@0.9.5)")
    micro = settings.integer("per_device_train_batch_size", minimum=1)
    if packed:
        notes.derived("padded", "packed rows are equally long; neat packing passes a mask unless FlashAttention-2 runs")
        # data_args.py takes 1 from cutoff_len where packing is written; the sft processor adds it again
        seq_len = cutoff - 1 if task == "pt" and settings.flag("packing") else cutoff
        return max(seq_len, 1), neat and attention != "flash2", True
    longest = cutoff
    if lengths.longest is not None and lengths.longest < cutoff:
        longest = lengths.longest
        notes.derived("seq_len", f"the longest sample, {lengths.source}")
    if task != "pt":
        longest_row = -(-longest // PAD_MULTIPLE) * PAD_MULTIPLE
        padded = micro > 1 or longest_row != longest or task in PREFERENCE
        notes.derived("padded", "rows of a batch are padded to the longest, to a multiple of 8 (llamafactory@0.9.5)")
        return longest_row, padded, False
    notes.derived("padded", "rows of a batch are padded to the longest (transformers@5.6.0)")
    return longest, micro > 1, False


def _checkpointing(settings: Settings, shards: str, notes: Notes) -> tuple[str, bool]:
    """model/model_utils/checkpointing.py: on unless disabled; the Trainer's own key can only add it."""
    disabled, asked = settings.flag("disable_gradient_checkpointing"), settings.flag("gradient_checkpointing")
    notes.source("checkpointing", settings.source("disable_gradient_checkpointing"))
    notes.source("reentrant", settings.source("use_reentrant_gc"))
    if disabled and asked:
        notes.source("checkpointing", settings.source("gradient_checkpointing"))
        notes.derived("reentrant", "the Trainer's own checkpointing is not reentrant (transformers@5.6.0)")
        return "full", False
    if disabled:
        notes.derived("reentrant", "no checkpointing")
        return "none", False
    if settings.stated("gradient_checkpointing") and not asked:
        notes.warn(
            f"{settings.where('gradient_checkpointing')}: false has no effect in LLaMA-Factory; "
            "disable_gradient_checkpointing: true turns checkpointing off"
        )
    if shards == "fsdp" and fsdp_version(settings) == 2:
        notes.derived("reentrant", "llamafactory@0.9.5 turns it off under FSDP 2")
        return "full", False
    return "full", settings.flag("use_reentrant_gc")


def _kernels(settings: Settings, model: Model, task: str, notes: Notes) -> tuple[str, bool]:
    key = "use_liger_kernel" if settings.flag("use_liger_kernel") else "enable_liger_kernel"
    for field in ("loss", "fused_kernels"):
        notes.source(field, settings.source(key))
    if not settings.flag(key):
        return "full", False
    if model.family not in _LIGER:
        notes.warn(
            f"{settings.where(key)}: LLaMA-Factory 0.9.5 has no Liger kernels for {model.family}; it has no effect"
        )
        return "full", False
    if task not in ("pt", "sft"):  # model/model_utils/liger_kernel.py require_logits
        notes.derived("loss", "the stages besides pt and sft need logits (llamafactory@0.9.5)")
        return "full", True
    return "fused_linear", True


def _evaluation(settings: Settings, notes: Notes) -> int | None:
    """Rows of an evaluation batch, None where the run never evaluates. YAML reads ``no`` as false."""
    strategy = settings.raw("eval_strategy")
    key = "eval_strategy" if settings.stated("eval_strategy") else "do_eval"
    notes.source("eval_batch", settings.source(key))
    if strategy not in (False, "no", "steps", "epoch"):
        raise InputError("eval_strategy is no, steps or epoch", where=settings.where("eval_strategy"), fix="correct it")
    if strategy in (False, "no") and not settings.flag("do_eval"):
        return None
    notes.source("eval_batch", settings.source("per_device_eval_batch_size"))
    if settings.flag("predict_with_generate"):
        notes.warn(f"{settings.where('predict_with_generate')}: the memory of generation is not modelled")
    return settings.integer("per_device_eval_batch_size", minimum=1)
