"""How a row spreads its run over GPUs."""

from __future__ import annotations

import re
from collections.abc import Mapping

from benchmarks.rows import Skip
from finefit.workload.recipe import Sharding

# A degree above 1 of tensor, pipeline, context or expert parallelism: "TP 8", "TP2 PP1", "8 x TP/SP 2".
_DEGREE = re.compile(r"\b(TP(?:/SP)?|PP|CP|EP|SP)\s*(\d+)")


def sharding_of(row: Mapping[str, str], assumed: list[str]) -> Sharding:
    """Sharding of states over the data-parallel ranks.

    Raises:
        Skip: the model itself is split (tensor, pipeline, context, sequence), or states in a way not modelled.
    """
    text = row.get("distributed", "")
    low = text.lower()
    for name, degree in _DEGREE.findall(text):
        if int(degree) > 1:
            raise Skip(f"not modelled yet: {name.partition('/')[0]} parallelism")
    if re.search(r"megatron|pipeline|sequence parallel|ulysses|model parallel|device_map", low):
        raise Skip("not modelled yet: a model split over GPUs")
    try:
        gpus = max(1, int(float(row.get("num_gpus", "") or 1)))
    except (ValueError, OverflowError):
        gpus = 1
    options = row.get("memory_options", "").lower()
    offload = f"{row.get('offload', '').lower()} {low} {options}"
    optimizer_off = bool(re.search(r"offload|optimi[sz]er.*cpu", offload)) and "activation" not in offload
    params_off = optimizer_off and bool(re.search(r"param|zero-?3 cpu|cpu offload", offload))
    kind = _kind(low, gpus, assumed)
    if kind == "fsdp" and re.search(r"never|grad_op|hybrid|hsdp", low):
        raise Skip("not modelled yet: FSDP that keeps parameters gathered, or shards within a node only")
    if optimizer_off and kind not in ("zero1", "zero2", "zero3", "fsdp"):
        raise Skip("not modelled yet: offload without ZeRO or FSDP")
    return Sharding(kind, gpus, offload_optimizer=optimizer_off, offload_params=params_off)


def _kind(text: str, gpus: int, assumed: list[str]) -> str:
    if match := re.search(r"zero-?\s?([123])", text):
        return f"zero{match[1]}"
    if "fsdp" in text:
        return "fsdp"
    if "ddp" in text:
        return "ddp"
    if text not in ("", "none"):
        raise Skip(f"not modelled yet: {text}")
    if gpus > 1:
        assumed.append("DDP")
        return "ddp"
    return "none"
