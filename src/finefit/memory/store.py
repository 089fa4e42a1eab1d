"""Traces kept on disk in their compiled form, loadable without torch.

A file (``memory.tracefile``) is named by the hash of what its events depend on: the model's dimensions, the
recipe's structure, the class of its batch, the versions of the libraries that ran, and the formats. It is looked
for in the user's cache first, then among those that come with the package.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from finefit.memory.estimate import structure
from finefit.memory.timeline import FORMAT
from finefit.memory.tracefile import LAYOUT, Trace, read
from finefit.workload.model import Model
from finefit.workload.recipe import Recipe

SHIPPED = Path(__file__).parent / "traces"
SUFFIX = ".trace"

# What the extra ``trace`` pins: the stack of a recipe that states no version.
VERSIONS = {"torch": "2.13.0", "transformers": "5.24.0", "peft": "0.21.2", "bitsandbytes": "0.50.2"}
_NO_FLASH = ("volta", "turing")  # torch 2.13.0 sdp_utils.cpp: flash attention from compute capability 8.0 on
_FUSED_ROWS = 4  # bitsandbytes 0.50.2 backends/cuda/ops.py: up to here 4-bit products need no buffer
# Fields that say where something comes from, or what the loaded dtype and the versions say again.
_NOT_MEMORY = ("name", "origin", "dtype_stated", "checkpoint_dtype", "sources", "stack", "task")


@dataclass(frozen=True, slots=True)
class Batch:
    """Class of batches whose steps have the same events in the same order.

    Attributes:
        single: one row, where ``contiguous()`` copies nothing.
        masked: SDPA is given a mask; aligned: whose rows are a multiple of 16 and so need no padding (torch 2.13.0
            attention.cpp preprocess_mask).
        windowed: as long as the sliding window, so that its mask is no plain causal one (transformers 5.24.0
            masking_utils.py _ignore_causal_mask_sdpa).
        rank: LoRA rank where more than sizes depend on it (8-bit states of small tensors stay fp32), else None.
    """

    single: bool
    masked: bool
    aligned: bool
    windowed: bool
    rank: int | None


def batch_class(model: Model, recipe: Recipe) -> Batch:
    """The class of a recipe's micro-batch."""
    eight_bit = recipe.lora is not None and recipe.optimizer.kind.quantised
    windowed = model.windowed(recipe.seq_len)
    masked = (recipe.padded or windowed) and recipe.attention == "sdpa"
    return Batch(
        single=recipe.micro_batch == 1,
        masked=masked,
        aligned=masked and recipe.seq_len % 16 == 0,
        windowed=windowed,
        rank=recipe.lora.rank if recipe.lora and eight_bit else None,
    )


def versions_of(recipe: Recipe) -> dict[str, str]:
    """Versions of the libraries that a recipe's step runs."""
    used = ["torch", "transformers"]
    if recipe.lora is not None:
        used.append("peft")
    if recipe.quant is not None or recipe.optimizer.kind.quantised:
        used.append("bitsandbytes")
    # a build's local part ("2.13.0+cpu") is the same library
    return {name: recipe.stack.get(name, VERSIONS[name]).partition("+")[0] for name in used}


def key_of(model: Model, recipe: Recipe) -> str:
    """Name of the trace of a model and a recipe; equal for recipes that differ in free dimensions only."""
    bare = structure(recipe)
    if bare.lora is not None:
        bare = replace(bare, lora=replace(bare.lora, dropout=1.0 if bare.lora.dropout else 0.0))
    parts: dict[str, Any] = {
        "formats": [FORMAT, LAYOUT],
        "model": _stated(model, _NOT_MEMORY),
        "recipe": _stated(bare, _NOT_MEMORY),
        "batch": asdict(batch_class(model, recipe)),
        "versions": versions_of(recipe),
    }
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _stated(value: Any, left_out: tuple[str, ...] = ()) -> dict[str, Any]:
    """Fields that differ from their defaults, so that a field added later changes no name."""
    found: dict[str, Any] = {}
    for field in fields(value):
        item = getattr(value, field.name)
        usual = field.default_factory() if field.default_factory is not MISSING else field.default
        if field.name not in left_out and item != usual:
            found[field.name] = _stated(item) if is_dataclass(item) else item
    return found


def cache_folder() -> Path:
    """Where traces of this user lie."""
    from platformdirs import user_cache_path

    return user_cache_path("finefit") / "traces"


def load(model: Model, recipe: Recipe, *, arch: str | None = None) -> Trace | None:
    """The stored trace of a model and a recipe, None where there is none.

    Args:
        arch: architecture of the GPU; those without flash attention run another step than was traced.
    """
    few = recipe.quant is not None and recipe.micro_batch * recipe.seq_len <= _FUSED_ROWS
    if (arch or "").lower() in _NO_FLASH or few:
        return None
    name = key_of(model, recipe) + SUFFIX
    for folder in (cache_folder(), SHIPPED):
        try:
            data = (folder / name).read_bytes()
        except OSError:
            continue
        try:
            return read(data, shipped=folder is SHIPPED)
        except (zlib.error, ValueError, KeyError, TypeError):
            continue  # cut off or damaged: as good as none
    return None


def save(model: Model, recipe: Recipe, data: bytes, *, folder: Path | None = None) -> Path:
    """Put a trace's bytes where ``load`` finds them, whole or not at all; its path."""
    folder = cache_folder() if folder is None else folder
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (key_of(model, recipe) + SUFFIX)
    part = path.with_suffix(f".{os.getpid()}")
    part.write_bytes(data)
    part.replace(path)
    return path
