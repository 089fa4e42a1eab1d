"""DeepSpeed JSON (deepspeed 0.19.8): the ZeRO stage, offload, buckets and precision it asks for.

"auto" is kept as None here and filled by ``sharding``, as transformers 5.6.0
``integrations/deepspeed.py`` ``trainer_config_finalize`` fills it from the model's hidden size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from finefit.errors import InputError, NotModelled
from finefit.formats import json_file, yaml11
from finefit.workload.recipe import Sharding

# Defaults of deepspeed 0.19.8 runtime/zero/config.py DeepSpeedZeroConfig, in elements
_BUCKET = 500_000_000
_PREFETCH = 50_000_000
_PERSISTENCE = 100_000
_MAX_LIVE = 1_000_000_000

_PLAIN_OPTIMIZERS = {"adam", "adamw"}  # DeepSpeed's fused Adam: the same states as torch's


@dataclass(frozen=True, slots=True)
class DeepSpeed:
    """What a DeepSpeed file asks for.

    Attributes:
        name: the file as the user wrote it, for errors and sources.
        stage: ZeRO stage 0 to 3; None where the file is not there to say.
        offload_optimizer, offload_params: states kept in host memory.
        reduce_bucket, gather_bucket, prefetch_bucket, persistence_threshold, max_live: elements; None for "auto".
        overlap_comm: a second bucket is filled while the first is sent.
        bf16, fp16: True or False as stated, None for "auto" (follows the trainer).
        micro_batch, grad_accum: as stated, None for "auto" or absent.
        assumed: the file is not here; what it says is taken from its name.
    """

    name: str
    stage: int | None
    offload_optimizer: bool
    offload_params: bool
    reduce_bucket: int | None
    gather_bucket: int | None
    prefetch_bucket: int | None
    persistence_threshold: int | None
    max_live: int
    overlap_comm: bool
    bf16: bool | None
    fp16: bool | None
    micro_batch: int | None
    grad_accum: int | None
    assumed: bool = False


def read(path: str | Path) -> DeepSpeed:
    """A DeepSpeed JSON file.

    Raises:
        InputError: the file cannot be read, or a value has a wrong type.
        NotModelled: a feature that changes memory and is not modelled.
    """
    document = json_file.load_mapping(yaml11.read_text(Path(path)), str(path))
    return from_mapping({key: value for key, value, _ in document.items}, str(path))


def from_mapping(config: Mapping[str, object], name: str) -> DeepSpeed:
    """The same from a mapping, as trainers also take it inline.

    Raises:
        InputError: a value has a wrong type.
        NotModelled: a feature that changes memory and is not modelled.
    """
    zero_value = config.get("zero_optimization", {})
    if zero_value is True:  # deprecated spelling of stage 1 (runtime/zero/config.py read_zero_config_deprecated)
        zero_value = {"stage": 1}
    zero = _section(zero_value, name, "zero_optimization")
    bf16 = _section(config.get("bf16", config.get("bfloat16", {})), name, "bf16")
    fp16 = _section(config.get("fp16", {}), name, "fp16")
    stage = _integer(zero, name, "zero_optimization", "stage", 0)
    if stage not in (0, 1, 2, 3):
        raise InputError("zero_optimization.stage is 0, 1, 2 or 3", where=name, fix=f"it says {stage}")
    _refuse_unmodelled(config, zero, bf16, fp16, name)

    def elements(key: str, default: int, alias: str = "") -> int | None:
        found = key if key in zero else alias
        return None if zero.get(found) == "auto" else _integer(zero, name, "zero_optimization", found or key, default)

    return DeepSpeed(
        name=name,
        stage=stage,
        offload_optimizer=_offloaded(zero, "offload_optimizer", "cpu_offload", name),
        offload_params=_offloaded(zero, "offload_param", "cpu_offload_params", name),
        reduce_bucket=elements("reduce_bucket_size", _BUCKET),
        gather_bucket=elements("allgather_bucket_size", _BUCKET),
        prefetch_bucket=elements("stage3_prefetch_bucket_size", _PREFETCH, "prefetch_bucket_size"),
        persistence_threshold=elements(
            "stage3_param_persistence_threshold", _PERSISTENCE, "param_persistence_threshold"
        ),
        max_live=elements("stage3_max_live_parameters", _MAX_LIVE, "max_live_parameters") or 0,
        # runtime/zero/config.py overlap_comm_valid: None means True for stage 3 only
        overlap_comm=_flag(zero, name, "zero_optimization", "overlap_comm", stage == 3) or False,
        bf16=_flag(bf16, name, "bf16", "enabled", False),
        fp16=_flag(fp16, name, "fp16", "enabled", False),
        micro_batch=_count(config, name, "train_micro_batch_size_per_gpu"),
        grad_accum=_count(config, name, "gradient_accumulation_steps"),
    )


def sharding(config: DeepSpeed, hidden: int) -> Sharding:
    """The recipe's sharding; ``ranks`` is left at 1 until the GPUs are known.

    "auto" buckets: reduce h·h, prefetch 0.9·h·h, persistence 10·h (transformers 5.6.0
    ``integrations/deepspeed.py``); an "auto" that this rule does not fill keeps DeepSpeed's default.

    Raises:
        NotModelled: stage 0, whose 16-bit optimizer keeps other copies than ZeRO's.
    """
    if config.stage == 0:
        raise NotModelled(
            "DeepSpeed without ZeRO (stage 0) is not modelled yet",
            where=config.name,
            fix="plan stage 2, or remove the deepspeed key to plan plain data parallelism",
        )

    def auto(value: int | None, filled: int) -> int:
        return filled if value is None else value

    return Sharding(
        kind="none" if config.stage is None else f"zero{config.stage}",
        offload_optimizer=config.offload_optimizer,
        offload_params=config.offload_params,
        reduce_bucket=auto(config.reduce_bucket, hidden * hidden),
        gather_bucket=auto(config.gather_bucket, _BUCKET),
        overlap_comm=config.overlap_comm,
        prefetch_bucket=auto(config.prefetch_bucket, int(0.9 * hidden * hidden)),
        persistence_threshold=auto(config.persistence_threshold, 10 * hidden),
        max_live=config.max_live,
    )


def _refuse_unmodelled(
    config: Mapping[str, object],
    zero: Mapping[str, object],
    bf16: Mapping[str, object],
    fp16: Mapping[str, object],
    name: str,
) -> None:
    types = _section(config.get("data_types", {}), name, "data_types")
    tensor = _section(config.get("tensor_parallel", {}), name, "tensor_parallel")
    autocast = _section(config.get("torch_autocast", {}), name, "torch_autocast")
    optimizer = _section(config.get("optimizer", {}), name, "optimizer")
    kind = optimizer.get("type")
    cases: tuple[tuple[bool, str, str], ...] = (
        (
            _truthy(bf16.get("bf16_master_weights_and_grads")) or _truthy(fp16.get("fp16_master_weights_and_grads")),
            "16-bit master weights",
            "remove the *_master_weights_and_grads key",
        ),
        (_truthy(autocast.get("enabled")), "torch_autocast under DeepSpeed", "disable it"),
        (
            types.get("grad_accum_dtype") not in (None, "auto"),
            "data_types.grad_accum_dtype",
            "remove it: gradients then keep the model's dtype",
        ),
        (_above_one(tensor.get("autotp_size")), "tensor parallelism (tensor_parallel.autotp_size)", "set it to 1"),
        (_above_one(config.get("sequence_parallel_size")), "sequence parallelism", "set sequence_parallel_size to 1"),
        (_above_one(zero.get("zero_hpz_partition_size")), "ZeRO++ (zero_hpz_partition_size)", "set it to 1"),
        (
            any(
                _truthy(zero.get(f"zero_quantized_{part}")) for part in ("weights", "nontrainable_weights", "gradients")
            ),
            "ZeRO++ (zero_quantized_*)",
            "remove it",
        ),
        (_above_one(zero.get("mics_shard_size")), "MiCS (mics_shard_size)", "remove it"),
        ("zenflow" in zero, "ZenFlow", "remove zero_optimization.zenflow"),
        (
            kind is not None and str(kind).lower() not in _PLAIN_OPTIMIZERS,
            f"DeepSpeed's optimizer {str(kind)[:40]!r}",
            "use AdamW, or leave the optimizer to the trainer",
        ),
    )
    for found, what, fix in cases:
        if found:
            raise NotModelled(f"{what} is not modelled yet", where=name, fix=fix)


def _offloaded(zero: Mapping[str, object], key: str, deprecated: str, name: str) -> bool:
    if key not in zero:
        return _truthy(zero.get(deprecated))
    section = _section(zero[key] or {}, name, f"zero_optimization.{key}")
    device = section.get("device", "none")
    if device == "nvme":
        raise NotModelled("offload to NVMe is not modelled yet", where=f"{name}: {key}", fix="set device to cpu")
    if _truthy(section.get("super_offload")) or section.get("ratio", 1) not in (1, 1.0):
        raise NotModelled(
            "partial offload is not modelled yet", where=f"{name}: {key}", fix="remove ratio, super_offload"
        )
    if device not in ("cpu", "none", None):
        raise InputError("the offload device is cpu, nvme or none", where=f"{name}: {key}.device", fix="correct it")
    return device == "cpu"


def _section(value: object, name: str, key: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise InputError("this is not an object", where=f"{name}: {key}", fix='write {"...": ...}')
    return value


def _integer(section: Mapping[str, object], name: str, path: str, key: str, default: int) -> int:
    """A count; JSON files write 5e8 for it."""
    value = section.get(key, default)
    whole = (
        isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**53 and value == int(value)
    )
    if not whole or value < 0:  # type: ignore[operator]
        raise InputError("this is not a whole number of elements", where=f"{name}: {path}.{key}", fix="correct it")
    return int(value)  # type: ignore[call-overload, no-any-return]


def _count(config: Mapping[str, object], name: str, key: str) -> int | None:
    value = config.get(key, "auto")
    if value == "auto" or value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(
            "this is not a whole number of 1 or more", where=f"{name}: {key}", fix='write a number or "auto"'
        )
    return value


def _flag(section: Mapping[str, object], name: str, path: str, key: str, default: bool) -> bool | None:
    value = section.get(key, default)
    if value is None:
        return default
    if value == "auto":
        return None
    if not isinstance(value, bool):
        raise InputError("this is not true, false or auto", where=f"{name}: {path}.{key}", fix="correct it")
    return value


def _truthy(value: object) -> bool:
    return value is True


def _above_one(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 1
