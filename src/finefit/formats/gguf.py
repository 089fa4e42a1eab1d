"""GGUF headers, versions 2 and 3 (ggml ``docs/gguf.md``): sizes, tensor types and exact counts, without the data."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

from finefit.errors import InputError, NotModelled

MAX_HEADER = 200_000_000  # bytes; a vocabulary of 256k tokens with its merges takes some 20 MB
MAX_ITEMS = 5_000_000  # items of one array, tensors, keys
# ggml.h enum ggml_type: name, weights of a block, bytes of a block (ggml-common.h)
TYPES = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 9: ("Q8_1", 32, 36), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292),
    20: ("IQ4_NL", 32, 18), 23: ("IQ4_XS", 256, 136), 24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4),
    27: ("I64", 1, 8), 28: ("F64", 1, 8), 30: ("BF16", 1, 2), 39: ("MXFP4", 32, 17),
}  # fmt: skip
_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9
# general.architecture (llama.cpp gguf-py constants.py MODEL_ARCH_NAMES) to model_type of transformers
_FAMILIES = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gemma": "gemma", "gemma2": "gemma2", "phi3": "phi3"}
_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}


@dataclass(frozen=True, slots=True)
class Gguf:
    """A header: its keys (arrays as their lengths), and each tensor's type and shape (innermost side first)."""

    keys: dict[str, Any]
    tensors: dict[str, tuple[str, tuple[int, ...]]]

    @property
    def parameters(self) -> int:
        """Weights of all tensors."""
        return sum(prod(shape) for _, shape in self.tensors.values())


def nbytes(kind: str, shape: tuple[int, ...]) -> int:
    """Bytes of a tensor; 0 for a type that is not known here."""
    block, size = next(((block, size) for name, block, size in TYPES.values() if name == kind), (1, 0))
    return -(-prod(shape) // block) * size


class _Reader:
    def __init__(self, handle: BinaryIO, where: str) -> None:
        self.handle, self.where, self.left = handle, where, MAX_HEADER

    def take(self, count: int) -> bytes:
        self.left -= count
        data = self.handle.read(count) if count >= 0 and self.left >= 0 else b""
        if len(data) != count:
            raise _damaged(self.where)
        return data

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def count(self) -> int:
        found = int(self.number("<Q"))
        if found > MAX_ITEMS:
            raise _damaged(self.where)
        return found

    def text(self) -> str:
        return self.take(self.count()).decode("utf-8", errors="replace")

    def value(self, kind: int, depth: int = 0) -> Any:
        """A scalar or text; an array as its length, since only tokenizers have any."""
        if kind in _SCALARS:
            return self.number(_SCALARS[kind])
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY or depth > 4:
            raise _damaged(self.where)
        inner, count = self.number("<I"), self.count()
        if inner in _SCALARS:
            self.take(count * struct.calcsize(_SCALARS[inner]))
        else:
            for _ in range(count):
                self.value(inner, depth + 1)
        return count


def read(path: Path) -> Gguf:
    """The header of a file.

    Raises:
        InputError: no GGUF file, or a damaged one.
    """
    where = str(path)
    try:
        with path.open("rb") as handle:
            reader = _Reader(handle, where)
            if reader.take(4) != b"GGUF" or reader.number("<I") not in (2, 3):
                raise _damaged(where)
            tensors, pairs = reader.count(), reader.count()
            keys = {}
            for _ in range(pairs):
                name = reader.text()
                keys[name] = reader.value(reader.number("<I"))
            found = {}
            for _ in range(tensors):
                name, sides = reader.text(), reader.number("<I")
                if sides > 4:  # ggml.h GGML_MAX_DIMS
                    raise _damaged(where)
                shape = tuple(int(reader.number("<Q")) for _ in range(sides))
                kind = int(reader.number("<I"))
                reader.take(8)
                found[name] = (TYPES[kind][0] if kind in TYPES else f"type {kind}", shape)
    except OSError as error:
        raise InputError(f"the file cannot be read: {error.strerror}", where=where, fix="check the path") from None
    return Gguf(keys, found)


def config_of(header: Gguf, where: str) -> dict[str, Any]:
    """The header as the config.json it stands for; transformers restores such weights to fp32 (5.24.0 ``ggml.py``).

    Raises:
        NotModelled: another architecture than those whose keys are known.
    """
    arch = str(header.keys.get("general.architecture"))
    if arch not in _FAMILIES:
        raise NotModelled(
            f"a GGUF file of architecture {arch[:40]} is not modelled yet",
            where=where,
            fix="name the checkpoint it was made from",
        )

    def key(name: str) -> Any:
        return header.keys.get(f"{arch}.{name}")

    embedding = header.tensors.get("token_embd.weight", ("", ()))
    vocab = embedding[1][-1] if len(embedding[1]) == 2 else key("vocab_size")
    config = {
        "model_type": _FAMILIES[arch],
        "hidden_size": key("embedding_length"),
        "num_hidden_layers": key("block_count"),
        "num_attention_heads": key("attention.head_count"),
        "num_key_value_heads": key("attention.head_count_kv"),
        "head_dim": key("attention.key_length"),
        "intermediate_size": key("feed_forward_length"),
        "max_position_embeddings": key("context_length"),
        "vocab_size": vocab,
        "tie_word_embeddings": "output.weight" not in header.tensors,
        "dtype": _DTYPES.get(embedding[0]),
    }
    return {name: value for name, value in config.items() if value is not None}


def _damaged(where: str) -> InputError:
    return InputError("this is no whole GGUF file", where=where, fix="download the file again")
