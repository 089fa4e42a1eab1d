"""How a LLaMA-Factory run is sharded: DeepSpeed, FSDP, or neither."""

from __future__ import annotations

from collections.abc import Mapping

from finefit.errors import InputError, NotModelled
from finefit.formats import deepspeed, json_file, yaml11
from finefit.formats.deepspeed import DeepSpeed
from finefit.resolve.companions import find
from finefit.resolve.notes import Notes
from finefit.resolve.settings import Settings
from finefit.resolve.shown import shown
from finefit.workload.model import Model
from finefit.workload.recipe import Sharding
from finefit.workload.sourced import Origin, Source

_ELEMENTS = ("reduce_bucket", "gather_bucket", "prefetch_bucket", "persistence_threshold", "max_live", "overlap_comm")
_FSDP_WORDS = {"full_shard", "auto_wrap", "offload"}


def sharding(settings: Settings, model: Model, engine: DeepSpeed | None, notes: Notes) -> Sharding:
    """The sharding a config asks for; ranks stay 1 until the GPUs are known (``gpus.on_gpus``).

    Raises:
        InputError: DeepSpeed and FSDP together, or a malformed FSDP setting.
        NotModelled: an FSDP strategy other than full sharding with auto_wrap.
    """
    words = _fsdp_words(settings)
    if engine is not None and words:
        raise InputError(
            "deepspeed and fsdp are both set", where=settings.where("fsdp"), fix="keep one: a run uses one of them"
        )
    notes.derived("sharding.ranks", "the number of GPUs, 1 until they are stated")
    if engine is not None:
        return _deepspeed(settings, model, engine, notes)
    fields = ("offload_optimizer", "offload_params", *_ELEMENTS)
    for name in ("kind", *fields):
        notes.source(f"sharding.{name}", settings.source("fsdp"))
    if not words:
        return Sharding()
    return Sharding("fsdp", offload_optimizer="offload" in words, offload_params="offload" in words)


def fsdp_version(settings: Settings) -> int:
    """FSDP 1 or 2: ``fsdp_config.version``, 1 where it is not said (transformers 5.6.0 training_args.py).

    Raises:
        InputError: the setting or its file is malformed.
    """
    config = settings.raw("fsdp_config")
    if isinstance(config, str):
        found = find(settings.said, config)
        if found is None:
            return 1
        config = {k: v for k, v, _ in json_file.load_mapping(yaml11.read_text(found), str(found)).items}
    if config is None:
        return 1
    if not isinstance(config, Mapping):
        raise InputError(
            f"{shown(config)} is not a file or a mapping", where=settings.where("fsdp_config"), fix="fix it"
        )
    version = config.get("version", config.get("fsdp_version", 1))
    if version not in (1, 2):
        raise InputError("the FSDP version is 1 or 2", where=settings.where("fsdp_config"), fix="write 1 or 2")
    return int(version)


def _deepspeed(settings: Settings, model: Model, engine: DeepSpeed, notes: Notes) -> Sharding:
    stated = settings.source("deepspeed")
    base = engine.name.replace("\\", "/").rpartition("/")[2]
    origin = Source(Origin.STATED, f"{base} ({stated.detail})")
    if engine.assumed:
        why = f"{base} is not here" if engine.stage is None else f"{base} is not here, taken from its name"
        origin = Source(Origin.ASSUMED, why)
    for name in ("kind", "offload_optimizer", "offload_params", *_ELEMENTS):
        notes.source(f"sharding.{name}", origin)
    for field, value in (
        ("reduce_bucket", engine.reduce_bucket),
        ("prefetch_bucket", engine.prefetch_bucket),
        ("persistence_threshold", engine.persistence_threshold),
    ):
        if value is None:
            notes.derived(f"sharding.{field}", '"auto": from the hidden size (transformers@5.6.0)')
    for key, said, used in (
        ("per_device_train_batch_size", engine.micro_batch, settings.raw("per_device_train_batch_size")),
        ("gradient_accumulation_steps", engine.grad_accum, settings.raw("gradient_accumulation_steps")),
    ):
        if said is not None and said != used:
            notes.warn(f"{engine.name} says {said} where {key} is {shown(used)}: the trainer refuses the pair")
    return deepspeed.sharding(engine, model.hidden)


def _fsdp_words(settings: Settings) -> set[str]:
    value = settings.raw("fsdp")
    where = settings.where("fsdp")
    if value is None or value is False or value == "" or value == []:
        return set()
    words = ["full_shard"] if value is True else value.split() if isinstance(value, str) else value
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise InputError(f"{shown(value)} is not an FSDP setting", where=where, fix='write "full_shard auto_wrap"')
    unknown = sorted(set(words) - _FSDP_WORDS)
    if unknown:
        raise NotModelled(
            f"FSDP with {unknown[0][:40]} is not modelled yet", where=where, fix="plan full_shard auto_wrap"
        )
    if "auto_wrap" not in words:
        raise NotModelled(
            "FSDP without auto_wrap, which gathers the whole model at once, is not modelled yet",
            where=where,
            fix='write "full_shard auto_wrap"',
        )
    return set(words)
