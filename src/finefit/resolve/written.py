"""What a change of the recipe is called in each tool's configuration, at the version whose rules are read.

Keys and their meaning are those the readers of ``resolve.readings`` cite: llamafactory 0.9.5 ``hparams/*.py``, axolotl
0.19.0 ``utils/schemas/*.py``, trl 1.16.0 and transformers 5.24.0 ``training_args.py``, ms-swift 4.6.0
``arguments/*.py``, torchtune 0.6.1 recipes, litgpt 0.5.13, torchtitan 0.2.2, verl 0.9.1 SFT.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from finefit.errors import InputError, NotModelled
from finefit.formats.edits import Edit, How
from finefit.formats.said import Said
from finefit.formats.tools import TOOLS
from finefit.resolve.readings.reading import Reading


@dataclass(frozen=True, slots=True)
class Keys:
    """Names of what every recipe has; ``total``: the tool takes rows of a step over all GPUs, not accumulation."""

    micro: str
    accum: str
    seq: str
    total: bool = False


KEYS: Mapping[str, Keys] = {
    "llamafactory": Keys("per_device_train_batch_size", "gradient_accumulation_steps", "cutoff_len"),
    "axolotl": Keys("micro_batch_size", "gradient_accumulation_steps", "sequence_len"),
    "trl": Keys("per_device_train_batch_size", "gradient_accumulation_steps", "max_length"),
    "ms-swift": Keys("per_device_train_batch_size", "gradient_accumulation_steps", "max_length"),
    "megatron-swift": Keys("micro_batch_size", "global_batch_size", "max_length", total=True),
    "torchtune": Keys("batch_size", "gradient_accumulation_steps", "tokenizer.max_seq_len"),
    "litgpt": Keys("train.micro_batch_size", "train.global_batch_size", "train.max_seq_length", total=True),
    "torchtitan": Keys("training.local_batch_size", "training.global_batch_size", "training.seq_len", total=True),
    "verl": Keys("data.micro_batch_size_per_gpu", "data.train_batch_size", "data.max_length", total=True),
    "unsloth": Keys("args.per_device_train_batch_size", "args.gradient_accumulation_steps", "args.max_length"),
}
_EVALUATION: Mapping[str, str] = {
    "llamafactory": "per_device_eval_batch_size",
    "axolotl": "eval_batch_size",
    "trl": "per_device_eval_batch_size",
    "ms-swift": "per_device_eval_batch_size",
    "unsloth": "args.per_device_eval_batch_size",
}
_LIGER_AXOLOTL = "axolotl.integrations.liger.LigerPlugin"
# Rank and alpha of planner.levers.lora, 4 bits of planner.levers.qlora
_LORA: Mapping[str, Mapping[str, object]] = {
    "llamafactory": {"finetuning_type": "lora", "lora_rank": 8, "lora_alpha": 16, "lora_target": "all"},
    "axolotl": {"adapter": "lora", "lora_r": 8, "lora_alpha": 16, "lora_target_linear": True},
    "trl": {"use_peft": True, "lora_r": 8, "lora_alpha": 16, "lora_dropout": 0.0, "lora_target_modules": "all-linear"},
    "ms-swift": {
        "tuner_type": "lora",
        "lora_rank": 8,
        "lora_alpha": 16,
        "lora_dropout": 0.0,
        "target_modules": "all-linear",
    },
}
_QLORA: Mapping[str, Mapping[str, object]] = {
    "llamafactory": {"quantization_bit": 4},
    "axolotl": {"adapter": "qlora", "load_in_4bit": True},
    "trl": {"load_in_4bit": True, "use_bnb_nested_quant": True, "dtype": "bfloat16"},
    "ms-swift": {"quant_method": "bnb", "quant_bits": 4},
    "litgpt": {"quantize": "bnb.nf4-dq"},
}
_CHECKPOINTING: Mapping[str, Mapping[str, object]] = {
    "llamafactory": {"disable_gradient_checkpointing": False, "use_reentrant_gc": False},
    "axolotl": {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": False}},
    "trl": {"gradient_checkpointing": True},
    "ms-swift": {"gradient_checkpointing": True},
    "torchtune": {"enable_activation_checkpointing": True},
    "torchtitan": {"activation_checkpoint.mode": "full"},
    "verl": {"model.enable_gradient_checkpointing": True},
}
_FUSED: Mapping[str, Mapping[str, object]] = {
    "llamafactory": {"enable_liger_kernel": True},
    "axolotl": {
        "liger_rope": True,
        "liger_rms_norm": True,
        "liger_glu_activation": True,
        "liger_fused_linear_cross_entropy": True,
    },
    "ms-swift": {"use_liger_kernel": True},
}
_OPTIMIZER: Mapping[str, Mapping[str, object]] = {
    "llamafactory": {"optim": "adamw_8bit"},
    "axolotl": {"optimizer": "adamw_bnb_8bit"},
    "trl": {"optim": "adamw_8bit"},
    "ms-swift": {"optim": "adamw_8bit"},
    "torchtune": {"optimizer._component_": "bitsandbytes.optim.AdamW8bit"},
    "unsloth": {"args.optim": "adamw_8bit"},
}
# Sharding that a key of the config itself sets up; elsewhere it is the launcher's file
_SHARD: Mapping[tuple[str, str], Mapping[str, object]] = {
    ("ms-swift", "zero2"): {"deepspeed": "zero2"},
    ("ms-swift", "zero3"): {"deepspeed": "zero3"},
    ("ms-swift", "fsdp"): {"fsdp": "fsdp2"},
    ("trl", "zero2"): {"accelerate_config": "zero2"},
    ("trl", "zero3"): {"accelerate_config": "zero3"},
    ("trl", "fsdp"): {"accelerate_config": "fsdp2"},
    ("llamafactory", "fsdp"): {"fsdp": ["full_shard", "auto_wrap"], "fsdp_config": {"version": 2}},
    ("axolotl", "fsdp"): {
        "fsdp_version": 2,
        "fsdp_config": {"auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "reshard_after_forward": True},
    },
}
_OLD_NAMES = {
    "tuner_type": ("train_type", "sft_type"),
    "gradient_checkpointing": ("activation_checkpointing",),
    "dtype": (),
}
_PROJECTIONS = ("use_galore", "use_apollo", "use_badam")  # for whole matrices: adapters exclude them


@dataclass(slots=True)
class Written:
    """Edits of a configuration, and sentences on what they do not cover."""

    edits: list[Edit] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def put(self, key: str, value: object, near: str = "") -> None:
        """One key; the last of several values for it counts."""
        self.edits = [edit for edit in self.edits if edit.key != key]
        self.edits.append(Edit(key, value, near=near))


def keys_of(said: Said) -> Keys:
    """The names of micro-batch, accumulation and length in a configuration.

    Raises:
        NotModelled: a tool whose configurations are not written.
    """
    tool = said.tool
    if tool == "ms-swift" and said.program.startswith("megatron"):
        tool = "megatron-swift"
    if tool not in KEYS or (tool == "verl" and any(key.startswith("actor_rollout_ref") for key in said.entries)):
        raise NotModelled(
            f"changes are not written into configurations of {TOOLS[said.tool].title} yet",
            where=str(said.path),
            fix="make the changes of the plan by hand",
        )
    return KEYS[tool]


def scaled(reading: Reading, name: str, settings: Mapping[str, tuple[str, str]]) -> int:
    """The configuration's own figure after a change, in proportion to the recipe's.

    The two differ where a tool packs the rows of a micro-batch into one: axolotl's row is micro_batch_size times
    sequence_len tokens.

    Raises:
        InputError: the figure is no number here, or would be no whole one.
    """
    stated = reading.whole(name)
    if name not in settings:
        return stated or 1
    before, after = (int(text) for text in settings[name])
    if stated is None:
        return after
    if stated * after % before:
        raise InputError(
            f"{stated} cannot be cut from {before} to {after} here", where=reading.where(name), fix="choose --remedy"
        )
    return stated * after // before


def batches(out: Written, said: Said, reading: Reading, micro: int, accum: int, gpus: int) -> None:
    """Micro-batch and accumulation; the second is always written, so that no default changes the global batch."""
    keys = keys_of(said)
    stated = _stated(reading, "micro_batch") or keys.micro
    if reading.get("micro_batch") != micro:
        out.put(stated, micro)
    out.put(keys.accum, micro * accum * gpus if keys.total else accum, near=stated)


def lever(out: Written, said: Said, reading: Reading, kind: str, settings: Mapping[str, tuple[str, str]]) -> None:
    """The keys of one lever of ``planner.levers`` besides micro-batches.

    Raises:
        NotModelled: the tool's configuration has no such switch.
    """
    tool = said.tool
    if kind == "shorter" and reading.get("task") in ("grpo", "rloo", "ppo"):
        raise NotModelled(
            "a row is a prompt and a completion, which have keys of their own",
            where=reading.where("seq_len"),
            fix="shorten one of them yourself, or choose another change with --remedy",
        )
    if kind == "shorter":
        length = scaled(reading, "seq_len", settings)
        lengths = [key for key in ("from_pretrained.max_seq_length", "args.max_seq_length") if key in said.entries]
        for key in lengths if tool == "unsloth" else [_stated(reading, "seq_len") or keys_of(said).seq]:
            out.put(key, length)
        return
    if kind == "shard":
        _shard(out, said, settings)
        return
    if kind == "evaluation" and tool in _EVALUATION:
        out.put(_EVALUATION[tool], scaled(reading, "eval_batch", settings), near=_stated(reading, "micro_batch"))
        return
    if kind == "qlora" and tool == "torchtune":
        _torchtune_qlora(out, said)
        return
    if kind == "qlora" and reading.get("method") == "full":
        lever(out, said, reading, "lora", settings)
    tables = {
        "checkpointing": _CHECKPOINTING,
        "fused_loss": _FUSED,
        "optimizer_8bit": _OPTIMIZER,
        "lora": _LORA,
        "qlora": _QLORA,
    }
    found = tables[kind].get(tool) if kind in tables else None
    megatron = said.program.startswith("megatron")  # Megatron-Core has its own optimizer and kernels
    other = kind == "fused_loss" and reading.get("task") not in ("sft", "pt")  # Liger's loss is cross entropy
    if found is None or other or (megatron and kind in ("optimizer_8bit", "fused_loss", "checkpointing")):
        raise _no_key(said, kind)
    for key, value in found.items():
        name = next((old for old in _OLD_NAMES.get(key, ()) if old in said.entries), key)
        out.put(name, value, near=_neighbour(reading, kind))
    if kind == "fused_loss" and tool == "axolotl":
        plugins = said.entries.get("plugins")
        if plugins is not None and isinstance(plugins.value, list):
            out.edits.append(Edit("plugins", _LIGER_AXOLOTL, How.APPEND))
        else:
            out.put("plugins", [_LIGER_AXOLOTL])
    if kind == "optimizer_8bit" and tool == "torchtune":
        out.edits.append(Edit("optimizer.fused", how=How.REMOVE))  # bitsandbytes' classes take no such argument
    if kind in ("lora", "qlora") and tool == "llamafactory":
        for key in _PROJECTIONS:
            if key in said.entries and said.entries[key].value:
                out.put(key, False)


def _shard(out: Written, said: Said, settings: Mapping[str, tuple[str, str]]) -> None:
    kind = settings.get("sharding.kind", ("", ""))[1]
    count = settings.get("sharding.ranks", ("", ""))[1]
    found = _SHARD.get((said.tool, kind))
    if count:
        out.notes.append(f"start the run on {count} GPUs")
    if said.tool == "torchtune" and kind == "fsdp":
        out.notes.append("torchtune shards by its recipe: start the recipe whose name ends in _distributed")
    elif found is None and kind:
        raise NotModelled(
            f"sharding with {kind} is set up by a file of its own for {TOOLS[said.tool].title}",
            where=str(said.path),
            fix="name a DeepSpeed or accelerate file there yourself, or choose another change with --remedy",
        )
    else:
        for key, value in (found or {}).items():
            out.put(key, value)


def _torchtune_qlora(out: Written, said: Said) -> None:
    """The builder of the same model with its base in NF4 (torchtune 0.6.1 models/*/_model_builders.py)."""
    entry = said.entries.get("model._component_")
    module, _, builder = str(entry.value if entry else "").rpartition(".")
    if not builder.startswith("lora_"):
        raise _no_key(said, "qlora")
    out.put("model._component_", f"{module}.q{builder}")


def _no_key(said: Said, kind: str) -> NotModelled:
    names = {
        "checkpointing": "gradient checkpointing",
        "fused_loss": "Liger kernels",
        "optimizer_8bit": "an 8-bit AdamW",
        "lora": "LoRA",
        "qlora": "QLoRA",
        "evaluation": "a smaller evaluation batch",
    }
    title = TOOLS[said.tool].title
    return NotModelled(
        f"no key turns on {names.get(kind, kind)} here: {title} does it by another recipe or not at all",
        where=str(said.path),
        fix="choose another change with --remedy",
    )


def _neighbour(reading: Reading, kind: str) -> str:
    """A key that is written near the ones of a lever."""
    fields: Sequence[str] = {
        "checkpointing": ("grad_accum", "micro_batch"),
        "optimizer_8bit": ("grad_accum", "micro_batch"),
        "lora": ("method", "model"),
        "qlora": ("rank", "method", "model"),
    }.get(kind, ("seq_len",))
    return next((key for name in fields if (key := _stated(reading, name))), "")


def _stated(reading: Reading, name: str) -> str:
    """The key that states a field, "" where none does."""
    found = reading.values.get(name)
    return found.place.rpartition(": ")[2] if found and ": " in found.place else ""
