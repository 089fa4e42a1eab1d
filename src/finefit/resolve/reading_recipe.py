"""A canonical reading as a complete recipe: every tool that is read but LLaMA-Factory v0, which has its own.

What the tools have in common stands here; where one differs in what lies on the GPU, its source is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from finefit.errors import InputError, NotModelled
from finefit.formats import deepspeed
from finefit.formats.deepspeed import DeepSpeed
from finefit.formats.said import Said
from finefit.resolve.adapters import feedforward_of, kind_of, selection, targets_of
from finefit.resolve.beside import PREFERENCE, alone, beside_of
from finefit.resolve.companions import deepspeed_named
from finefit.resolve.notes import Notes
from finefit.resolve.optimizers import OPTIMIZER_FIELDS, check
from finefit.resolve.parallel import parallel_of
from finefit.resolve.reading_dtypes import Dtypes, dtypes
from finefit.resolve.reading_rows import rows
from finefit.resolve.readings.reading import FLAGS, KINDS, Reading
from finefit.resolve.special_optimizers import of_reading
from finefit.step.preference import GENERATING
from finefit.workload.dtypes import DType
from finefit.workload.lengths import Lengths
from finefit.workload.lora import linear_modules, lora_targets
from finefit.workload.model import Model
from finefit.workload.recipe import Lora, Optimizer, Quant, Recipe, Sharding

# The newest versions each tool allows (Requires-Dist of the wheels named)
STACKS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "axolotl": {
            "axolotl": "0.19.0",
            "transformers": "5.16.1",
            "peft": "0.20.0",
            "accelerate": "1.13.0",
            "trl": "1.9.0",
        },
        "trl": {"trl": "1.16.0", "transformers": "5.24.0", "peft": "0.21.2", "accelerate": "1.15.0"},
        "ms-swift": {"ms-swift": "4.6.0", "transformers": "5.18.0", "peft": "0.20.0"},
        "torchtune": {"torchtune": "0.6.1"},
        "litgpt": {"litgpt": "0.5.13"},
        "torchtitan": {"torchtitan": "0.2.2"},
        "verl": {"verl": "0.9.1", "transformers": "5.9.0"},
        "nemo-automodel": {"nemo-automodel": "36044ad"},
        "nemo-rl": {"nemo-rl": "7ea279a"},
        "megatron-bridge": {"megatron-bridge": "0.3.1"},
        "llamafactory-v1": {"llamafactory": "0.9.5", "transformers": "5.6.0", "peft": "0.18.1"},
    }
)
# torch's and bitsandbytes' classes, which torchtune names, by the Trainer's word for the same
_CLASSES = {"AdamW": "adamw_torch", "PagedAdamW": "paged_adamw_32bit", "PagedAdamW8bit": "paged_adamw_8bit"}
_CLASSES |= {"AdamW8bit": "adamw_bnb_8bit", "SGD": "sgd", "Adam": "adamw_torch", "adam": "adamw_torch_fused"}
# What a tool takes where nothing is written: v1/core/base_trainer.py, examples/configs/sft.yaml and grpo_math_1B.yaml
_UNSAID = {"llamafactory-v1": "AdamW", "nemo-rl": "AdamW"}
_FUSED = ("optimizer.fused", "optimizer.implementation")  # torchtune's key, torchtitan's
_TASKS = frozenset({"sft", "pt"}) | PREFERENCE | GENERATING
_ALL = {"all-linear", "all"}
# Recipe field → field of the reading it is taken from
_SOURCES = {
    "task": "task", "method": "method", "lora": "method", "micro_batch": "micro_batch", "grad_accum": "grad_accum",
    "epochs": "epochs", "max_steps": "max_steps", "eval_batch": "eval_batch", "checkpointing": "checkpointing",
    "reentrant": "reentrant", "loss": "loss", "fused_kernels": "fused_kernels", "products": "products",
    "quant": "quant_bits", "quant.kind": "quant_kind", "quant.double": "quant_double",
    "lora.rank": "rank", "lora.alpha": "lora_alpha",
    "trained": "method", "lora.kind": "method", "lora.block": "method", "lora.feedforward": "method",
    "lora.dropout": "lora_dropout", "lora.targets": "lora_targets", "lora.modules_to_save": "modules_to_save",
    "sharding.kind": "strategy", "sharding.offload_optimizer": "offload", "sharding.offload_params": "offload",
    **{f"optimizer.{part}": "optimizer" for part in OPTIMIZER_FIELDS},
}  # fmt: skip


def refuse(reading: Reading) -> None:
    """Raise for the first thing that keeps a reading from being planned.

    Raises:
        InputError: the file is no training configuration by itself.
        NotModelled: one sentence with the line, the key and what to do.
    """
    if reading.kind in ("launcher", "engine"):
        raise InputError(
            f"this {reading.tool} file only spreads a run over GPUs and names no model",
            where=str(reading.path),
            fix="name the training config or script that uses it",
        )
    task = reading.text("task")
    if task is not None and task not in _TASKS:
        raise NotModelled(
            f"training by {task} is not modelled yet",
            where=reading.where("task"),
            fix="plan the supervised run; it is never planned as sft in silence",
        )
    if reading.refusals:
        whole = [refusal for refusal in reading.refusals if refusal.fix == FLAGS]  # nothing in the file cures these
        first = (whole or reading.refusals)[0]
        command = _command(reading)
        fix = f"plan it with flags: {command}" if first.fix == FLAGS else first.fix
        raise NotModelled(f"{first.what} is not modelled yet", where=first.where, fix=fix)
    if reading.tool not in STACKS:
        command = _command(reading)
        raise NotModelled(
            f"runs of {reading.tool} are read but not modelled yet",
            where=str(reading.path),
            fix=f"plan it with flags: {command}",
        )
    method = reading.text("method")
    if method != "full" and method not in KINDS:
        raise NotModelled(f"the method {method} is not modelled yet", where=reading.where("method"), fix="plan lora")
    if not reading.text("model"):
        raise InputError("the model is not named", where=reading.where("model"), fix="write its name into the config")


def _command(reading: Reading) -> str:
    """The command that plans the same model, method and sizes with the Trainer's code."""
    parts = ["finefit", "plan", reading.text("model") or "MODEL"]
    method = reading.text("method")
    parts += ["--method", method if method in ("full", "lora", "qlora") else "full"]
    for flag, name in (("--rank", "rank"), ("--batch", "micro_batch"), ("--accum", "grad_accum")):
        if (value := reading.whole(name)) is not None:
            parts += [flag, str(value)]
    parts += ["--seq", str(reading.whole("seq_len") or "N")]
    return " ".join(parts)


def recipe_of(reading: Reading, said: Said, model: Model, lengths: Lengths, notes: Notes) -> Recipe:
    """Every field of the recipe, each with its source in ``notes``.

    Raises:
        InputError: a value the tool cannot take, at its line.
        NotModelled: something understood and not modelled.
    """
    engine = _engine(reading, said, notes)
    lora = reading.text("method") != "full"
    quantised = lora and reading.get("quant_bits") is not None
    chosen = dtypes(reading, model, engine, quantised, notes)
    shards = _sharding(reading, model, engine, notes)
    for field, name in _SOURCES.items():
        if name in reading.values and reading.values[name].source:
            notes.sources.setdefault(field, reading.values[name].source)
    attention = _attention(reading, model, notes)
    seq_len, micro, padded, packing = rows(reading, model, lengths, notes)
    steps = reading.whole("max_steps") or -1
    checkpointing = reading.text("checkpointing") or "none"
    if checkpointing not in ("none", "full"):
        notes.assume(
            f"{checkpointing} checkpointing is planned as none, an upper bound: what it recomputes is planned as kept"
        )
        checkpointing = "none"
    notes.derived("compiled", "planned as eager execution")
    if "products" not in notes.sources:
        notes.derived("products", "the layers multiply in the compute dtype")
    notes.derived("max_samples", "every sample of the data is used")
    alone(notes)
    parallel, beside = parallel_of(reading, notes), beside_of(reading, notes)
    notes.derived("returns_cache", "the training loop asks for no keys and values")
    notes.derived("keeps_outputs", "the training loop drops a model's outputs before backward")
    notes.derived("stack", f"the newest versions that {reading.tool}@{reading.version} allows")
    for sentence in _own_modules(reading):
        notes.assume(sentence)
    trained = None if lora else selection(reading, model, notes)
    return Recipe(
        method="lora" if lora else "freeze" if trained is not None else "full",
        trained=trained,
        weight_dtype=chosen.weights,
        optimizer=_optimizer(reading, said, model, chosen, shards, notes),
        seq_len=seq_len,
        micro_batch=micro,
        grad_accum=reading.whole("grad_accum") or 1,
        task=reading.text("task") or "sft",
        lora=_lora(reading, model, chosen, notes) if lora else None,
        quant=_quant(reading, shards, chosen, notes) if quantised else None,
        autocast=chosen.autocast,
        master_weights=chosen.master,
        padded=padded,
        packing=packing,
        checkpointing=checkpointing,
        reentrant=bool(reading.get("reentrant")) and checkpointing == "full",
        attention=attention,
        loss=reading.text("loss") or "full",
        fused_kernels=bool(reading.get("fused_kernels")),
        products=reading.text("products") or "16bit",
        sharding=shards,
        parallel=parallel,
        beside=beside,
        epochs=_positive(reading, "epochs"),
        max_steps=steps if steps > 0 else None,
        eval_batch=reading.whole("eval_batch"),
        stack=MappingProxyType(dict(STACKS[reading.tool])),
        sources=MappingProxyType(dict(notes.sources)),
    )


# Tools with model code of their own
_OWN_MODULES = ("torchtune", "litgpt", "torchtitan", "megatron-bridge", "nemo-automodel", "nemo-rl")


def _own_modules(reading: Reading) -> list[str]:
    said = []
    if reading.tool in _OWN_MODULES or reading.text("strategy") == "megatron":
        said.append(
            f"the modules that {reading.tool} runs are planned as those of transformers for the same architecture"
        )
    if reading.get("compiled"):
        said.append("torch.compile is planned as eager execution, which needs as much memory or more")
    return said


def _engine(reading: Reading, said: Said, notes: Notes) -> DeepSpeed | None:
    value = reading.get("deepspeed")
    if value is not None:
        return deepspeed_named(said, value, reading.where("deepspeed"), notes)
    if not (reading.text("strategy") or "").startswith("zero"):
        return None
    return deepspeed.from_mapping(deepspeed_mapping(reading), reading.where("strategy"))


def deepspeed_mapping(reading: Reading) -> dict[str, object]:
    """DeepSpeed's settings where an accelerate file states the stage in keys of its own.

    As accelerate 1.15.0 utils/dataclasses.py DeepSpeedPlugin fills them in; the buckets stay DeepSpeed's.
    """
    strategy = reading.text("strategy") or "zero0"
    offload = reading.get("offload") or ()
    zero: dict[str, object] = {"stage": int(strategy[4])}
    for word, key in (("optimizer", "offload_optimizer"), ("params", "offload_param")):
        if isinstance(offload, tuple) and word in offload:
            zero[key] = {"device": "cpu"}
    both: dict[str, object] = {"enabled": "auto"}
    return {"bf16": both, "fp16": both, "zero_optimization": zero}


def _sharding(reading: Reading, model: Model, engine: DeepSpeed | None, notes: Notes) -> Sharding:
    notes.derived("sharding.ranks", "the number of GPUs, 1 until they are stated")
    for part in ("reduce_bucket", "gather_bucket", "prefetch_bucket", "persistence_threshold", "max_live"):
        notes.derived(f"sharding.{part}", "DeepSpeed's setting (deepspeed@0.19.8)")
    notes.derived("sharding.overlap_comm", "DeepSpeed's setting (deepspeed@0.19.8)")
    if engine is not None:
        return deepspeed.sharding(engine, model.hidden)
    strategy, offload = reading.text("strategy"), reading.get("offload") or ()
    returns = reading.tool == "verl" and reading.get("offload_between")  # for each step
    held = offload if isinstance(offload, tuple) and not returns else ()
    if strategy in ("fsdp1", "fsdp2"):
        return Sharding("fsdp", offload_optimizer="optimizer" in held, offload_params="params" in held)
    if strategy == "megatron":
        half = bool(reading.get("half_gradients"))
        return Sharding("megatron", offload_optimizer="optimizer" in held, main_gradient=2 if half else 4)
    if strategy is None:
        notes.assumed(
            "sharding.kind",
            "the file does not say how the run is spread",
            "how the run is spread over GPUs stands in the launch command, not in this file: plain data parallelism "
            "is planned, which is the upper bound for one GPU",
        )
    return Sharding()


def _optimizer(reading: Reading, said: Said, model: Model, chosen: Dtypes, shards: Sharding, notes: Notes) -> Optimizer:
    name, where = reading.text("optimizer") or _UNSAID.get(reading.tool, ""), reading.where("optimizer")
    if reading.tool == "litgpt" and reading.get("quant_bits"):  # litgpt 0.5.13 utils.py instantiate_bnb_optimizer
        name = "PagedAdamW"
    if reading.tool not in ("axolotl", "trl") and name in _CLASSES:
        fused = next((said.entries[key].value for key in _FUSED if key in said.entries), None)
        # torchtitan 0.2.2 config/job_config.py Optimizer.implementation is "fused" where it is not written
        fused = "fused" if fused is None and reading.tool == "torchtitan" else fused
        name = _CLASSES.get(name, name)
        name = "adamw_torch_fused" if name == "adamw_torch" and fused in (True, "fused") else name
    found = of_reading(reading, name, model, notes)
    if reading.get("in_backward"):
        found = replace(found, in_backward=True)
        notes.source("optimizer.in_backward", reading.values["in_backward"].source)
    check(
        found,
        full=reading.text("method") == "full",
        sharding=shards.kind,
        accum=reading.whole("grad_accum") or 1,
        where=where,
    )
    if chosen.master and not found.kind.quantised:
        notes.derived("optimizer.state_dtype", "the optimizer steps on the fp32 copy")
        return replace(found, state_dtype=DType.FP32)
    return found


def _lora(reading: Reading, model: Model, chosen: Dtypes, notes: Notes) -> Lora:
    kind = kind_of(reading, notes)
    rank, where = reading.whole("rank"), reading.where("rank")
    if not rank and kind not in ("ia3", "oft"):
        raise InputError("the LoRA rank is missing", where=where, fix="write it: lora_r: 16")
    targets = targets_of(reading, model, kind, notes)
    if targets is None and reading.tool != "trl":
        raise InputError("the LoRA targets are missing", where=reading.where("lora_targets"), fix="name the modules")
    names = targets.split(",") if targets else []
    if len(names) > 1 and _ALL & set(names):  # "all-linear embed_tokens lm_head": every linear module, and these
        targets = ",".join([*linear_modules(model), *(name for name in names if name not in _ALL)])
    saved = reading.get("modules_to_save") or ()
    dropout = reading.get("lora_dropout")
    notes.derived("lora.saved_dtype", "PEFT copies a module in its own dtype (ModulesToSaveWrapper)")
    alpha = reading.get("lora_alpha")
    modules = lora_targets(model, targets, where=reading.where("lora_targets"))
    return Lora(
        rank=rank or 1,
        alpha=int(alpha) if isinstance(alpha, int | float) else rank or 1,
        dropout=float(dropout) if isinstance(dropout, int | float) else 0.0,
        targets=modules,
        dtype=chosen.adapters,
        modules_to_save=tuple(str(name) for name in saved) if isinstance(saved, tuple) else (),
        kind=kind,
        block=reading.whole("oft_block") or 32 if kind == "oft" else 0,  # peft tuners/oft/config.py oft_block_size
        feedforward=feedforward_of(kind, modules),
    )


def _quant(reading: Reading, shards: Sharding, chosen: Dtypes, notes: Notes) -> Quant:
    where = reading.where("quant_bits")
    if shards.kind == "zero3":
        raise NotModelled(
            "a quantised base under ZeRO-3 is not modelled yet",
            where=where,
            fix="use ZeRO-2, or 16-bit LoRA with ZeRO-3, which shards the base",
        )
    bits, kind = reading.whole("quant_bits"), reading.text("quant_kind") or "nf4"
    if bits not in (4, 8):
        raise InputError(f"bitsandbytes has 4 and 8 bits, not {bits}", where=where, fix="write 4 or 8")
    why = {
        "axolotl": "prepare_model_for_kbit_training is called, then norms and embeddings are cast back to 16 bits "
        "(axolotl@0.19.0 loaders/model.py), so nothing stays in fp32",
        "trl": "trl@1.16.0 does not call prepare_model_for_kbit_training",
        "ms-swift": "ms-swift@4.6.0 does not call prepare_model_for_kbit_training",
    }.get(reading.tool, "not called")
    notes.derived("quant.kbit_prepare", why)
    notes.derived("quant.recast", "nothing to cast back")
    for field in ("bits", "group"):
        notes.derived(f"quant.{field}", "the checkpoint is not quantised")
    return Quant(kind, double=bool(reading.get("quant_double")), compute_dtype=chosen.compute)


def _attention(reading: Reading, model: Model, notes: Notes) -> str:
    stated = reading.text("attention")
    if stated:
        notes.source("attention", reading.values["attention"].source)
        if stated == "flash2":
            notes.assume("FlashAttention-2 is installed, as the config asks for it")
        return stated
    if model.family == "gemma2":
        notes.assumed("attention", "transformers takes eager for Gemma 2", "Gemma 2 runs with eager attention")
        return "eager"
    notes.derived("attention", "transformers takes SDPA where nothing is written")
    return "sdpa"


def _positive(reading: Reading, name: str) -> float | None:
    value = reading.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    if value <= 0:
        raise InputError(f"{name} is not above 0", where=reading.where(name), fix="write 1 or more")
    return float(value)
