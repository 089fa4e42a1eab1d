"""Headers of safetensors files: names, dtypes and shapes of all tensors, without their data.

A file is 8 bytes (little-endian length N), N bytes of JSON, then the data (safetensors 0.6 ``lib.rs``, which allows
100 MB of JSON). An index, ``model.safetensors.index.json``, names the files of a checkpoint in parts.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

from finefit.errors import InputError

MAX_HEADER = 100_000_000  # safetensors 0.6 lib.rs MAX_HEADER_SIZE
MAX_FILES = 1_000  # the largest checkpoints have a few hundred parts
_BITS = {"F64": 64, "I64": 64, "U64": 64, "F32": 32, "I32": 32, "U32": 32, "F16": 16, "BF16": 16, "I16": 16, "U16": 16}
_BITS |= {"I8": 8, "U8": 8, "BOOL": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F4": 4, "C64": 64}


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor as stored."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Stored elements: of packed weights, not the parameters."""
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes in the file."""
        return self.elements * _BITS.get(self.dtype, 8) // 8


def read(path: Path) -> dict[str, Tensor]:
    """All tensors of one file.

    Raises:
        InputError: no safetensors file, or a damaged one.
    """
    where = str(path)
    try:
        with path.open("rb") as handle:
            size = length(handle.read(8), where)
            return tensors(handle.read(size), size, where)
    except OSError as error:
        raise InputError(f"the file cannot be read: {error.strerror}", where=where, fix="check the path") from None


def folder(path: Path) -> dict[str, Tensor]:
    """All tensors of the checkpoint in a folder; {} where it has none in this format.

    Raises:
        InputError: a damaged file, or an index that names a file outside the folder.
    """
    index = path / "model.safetensors.index.json"
    if index.is_file():
        try:
            text = index.read_bytes()[: MAX_HEADER + 1]
        except OSError as error:
            raise InputError(f"the file cannot be read: {error.strerror}", where=str(index), fix="check it") from None
        names = parts(text, str(index))
        found: dict[str, Tensor] = {}
        for name in names:
            if (path / name).is_file():
                found |= read(path / name)
        return found
    whole = path / "model.safetensors"
    return read(whole) if whole.is_file() else {}


def length(head: bytes, where: str) -> int:
    """Bytes of the header, from the first 8 bytes of a file.

    Raises:
        InputError: not the beginning of a safetensors file.
    """
    size = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
    if not 2 <= size <= MAX_HEADER:
        raise _damaged(where)
    return int(size)


def tensors(header: bytes, size: int, where: str) -> dict[str, Tensor]:
    """The tensors that a header lists.

    Raises:
        InputError: not a whole header.
    """
    listed = _object(header, where) if len(header) == size else None
    if listed is None:
        raise _damaged(where)
    out = {}
    for name, entry in listed.items():
        if name == "__metadata__":
            continue
        dtype = entry.get("dtype") if isinstance(entry, Mapping) else None
        shape = entry.get("shape") if isinstance(entry, Mapping) else None
        if not isinstance(dtype, str) or not isinstance(shape, list):
            raise _damaged(where)
        if any(type(side) is not int or not 0 <= side < 2**48 for side in shape) or len(shape) > 16:
            raise _damaged(where)
        out[name] = Tensor(dtype, tuple(shape))
    return out


def parts(text: bytes, where: str) -> list[str]:
    """The files that an index names, each a plain name.

    Raises:
        InputError: not an index, or a name that leads elsewhere.
    """
    index = _object(text, where)
    weights = index.get("weight_map") if index is not None else None
    if not isinstance(weights, Mapping) or not all(isinstance(name, str) for name in weights.values()):
        raise _damaged(where)
    names = sorted(set(weights.values()))
    if len(names) > MAX_FILES or any(Path(name).name != name or "\\" in name or "\0" in name for name in names):
        raise InputError("the index names files that are no parts of a checkpoint", where=where, fix="check the index")
    return names


def dtype_of(found: Iterable[Tensor]) -> str | None:
    """The float dtype that most elements have, as config.json spells it; None without any."""
    spelled = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
    counts: dict[str, int] = {}
    for tensor in found:
        if tensor.dtype in spelled:
            counts[tensor.dtype] = counts.get(tensor.dtype, 0) + tensor.elements
    return spelled[max(counts, key=lambda name: counts[name])] if counts else None


def _object(text: bytes, where: str) -> dict[str, object] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _damaged(where: str) -> InputError:
    return InputError("this is no whole safetensors file", where=where, fix="download the file again")
