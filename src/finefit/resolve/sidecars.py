"""What a config.json leaves out and the files beside it say: how the weights are stored, and in which dtype."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from finefit.errors import InputError
from finefit.formats import packing, safetensors
from finefit.formats.safetensors import Tensor

_MAX_SIDECAR = 1_000_000
# auto-gptq's, autoawq's and modelopt's own files, which older checkpoints have in place of quantization_config
SIDECARS = ("quantize_config.json", "quant_config.json", "hf_quant_config.json")


def completed(config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A config with the quantisation and the dtype that the files beside it state; its own keys win."""

    def sidecar(name: str) -> bytes | None:
        file = folder / name
        return file.read_bytes()[:_MAX_SIDECAR] if file.is_file() else None

    def tensors() -> Mapping[str, Tensor]:
        try:
            return safetensors.folder(folder)
        except InputError:  # the weights are not needed here: whoever trains with them will see
            return {}

    try:
        return completed_by(config, sidecar, tensors)
    except OSError:
        return dict(config)


def completed_by(
    config: Mapping[str, Any],
    sidecar: Callable[[str], bytes | None],
    tensors: Callable[[], Mapping[str, Tensor]],
) -> dict[str, Any]:
    """The same from wherever the files are; tensors are asked for only where the config leaves something open."""
    out = dict(config)
    quantised = any(out.get(key) for key in ("quantization_config", "compression_config"))
    block = (
        None if quantised else next((found for name in SIDECARS if (found := _quantised(name, sidecar(name)))), None)
    )
    typed = any(_in(out, key) for key in ("dtype", "torch_dtype"))
    if typed and (quantised or block):
        return out if block is None else {**out, "quantization_config": block}
    held = tensors()
    stored = packing.contents(held)
    if block is None and not quantised and stored.quant:
        block = {"quant_method": stored.quant, "bits": stored.bits, "group_size": stored.group}
    if block is not None:
        out["quantization_config"] = block
    dtype = safetensors.dtype_of(held.values())
    if not typed and dtype is not None:
        out["dtype"] = dtype
    return out


def _in(config: Mapping[str, Any], key: str) -> bool:
    inner = config.get("text_config")
    return bool(config.get(key)) or (isinstance(inner, Mapping) and bool(inner.get(key)))


def _quantised(name: str, text: bytes | None) -> dict[str, Any] | None:
    """A sidecar as the quantization_config it stands for; None where it is none."""
    if text is None:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    if name == "hf_quant_config.json":
        return {"quant_method": "modelopt"}
    bits, group = found.get("bits", found.get("w_bit")), found.get("group_size", found.get("q_group_size"))
    if not isinstance(bits, int):
        return None
    return {"quant_method": "awq" if "w_bit" in found else "gptq", "bits": bits, "group_size": group}
