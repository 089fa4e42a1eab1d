"""How big a tensor is, as a formula in the batch, the length, the rank and the shard count.

A size is a monomial: item size × fixed elements × named symbols, divided among shards with rounding
up. Every symbol is an integer function of ``Dims``, so a size is exact at any (b, s, r, N), and two
tensors of the same formula are the same column of the compiled form.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

BLOCK = 512  # c10/core/AllocatorConfig.h kMinBlockSize (torch 2.13): each request rounds up to it


@dataclass(frozen=True, slots=True)
class Dims:
    """The free numbers of one compiled structure.

    Attributes:
        b: rows of the micro-batch; s: tokens of the longest row; r: LoRA rank; n: shard ranks.
    """

    b: int
    s: int
    r: int = 0
    n: int = 1


def _up(value: int, step: int) -> int:
    return -(-value // step) * step


SYMBOLS: dict[str, Callable[[Dims], int]] = {
    "b": lambda d: d.b,
    "s": lambda d: d.s,
    "r": lambda d: d.r,
    "s128": lambda d: _up(d.s, 128),  # flash attention backward pads rows to its block
    "s64": lambda d: _up(d.s, 64),  # chunks of linear attention (transformers 5.24.0 torch_chunk_gated_delta_rule)
    "s32": lambda d: _up(d.s, 32),  # memory-efficient attention pads its log-sum-exp
    "s16": lambda d: _up(d.s, 16),  # and the rows of its mask
    "s+1": lambda d: d.s + 1,  # labels padded by one before they are shifted (transformers 5.24.0 loss_utils.py)
    "sorted": lambda d: _sorted(d),  # tokens that the embedding's backward sorts
    "tile": lambda d: min(d.b * d.s, 4096),  # TRL chunked log-prob tile, trl 1.16 kernels/chunked_logprob.py
}


SUB_GROUP = 1_000_000_000


def _sorted(dims: Dims) -> int:
    """aten/native/cuda/Embedding.cu (torch 2.13.0): up to 3072 tokens another kernel runs, which sorts nothing."""
    tokens = dims.b * dims.s
    return tokens if tokens > 3072 else 0


def symbol(name: str, dims: Dims) -> int:
    """Value of a symbol; some kinds carry numbers in their names.

    ``chunk/k`` is Liger's chunk, the next power of two of T/k tokens, with k = ceil(V/H)
    (linkedin/Liger-Kernel 0.8 ops/fused_linear_cross_entropy.py). ``subgroup/p/q`` is ZeRO-3's
    sub-group: this rank's share of p + q·r elements, at most 1e9 (DeepSpeed 0.19.8 sub_group_size).
    ``segments/V`` are the distinct tokens of a vocabulary that a sorted batch can hold, ``parts/V`` the pieces
    of 10 rows that they are summed in (aten/native/cuda/EmbeddingBackwardKernel.cu, torch 2.13.0).
    ``times/P`` is P itself: rows that do not depend on the text, such as patches of a sample's pictures.
    """
    if name.startswith("segments/"):
        return min(_sorted(dims), int(name[9:]))
    if name.startswith("parts/"):
        return _sorted(dims) // 10 + min(_sorted(dims), int(name[6:]))
    if name.startswith("subgroup/"):
        fixed_part, per_rank = (int(x) for x in name[9:].split("/"))
        return min(-(-(fixed_part + per_rank * dims.r) // dims.n), SUB_GROUP)
    if name.startswith("times/"):
        return int(name[6:])
    if name.startswith("s+"):  # rows that a convolution has padded
        return dims.s + int(name[2:])
    if name.startswith("chunks+1/"):  # states at the ends of all chunks, and the one before the first
        return -(-dims.s // int(name[9:])) + 1
    if name.startswith("s/"):  # rows in whole chunks of so many
        return _up(dims.s, int(name[2:]))
    if name.startswith("chunk/"):
        rows = -(-dims.b * dims.s // int(name[6:]))
        return 1 << (rows - 1).bit_length()
    return SYMBOLS[name](dims)


@dataclass(frozen=True, slots=True)
class Size:
    """Bytes of one tensor: ``itemsize * ceil(numel * Π symbols / n)``.

    Attributes:
        itemsize: bytes of an element.
        numel: product of the fixed dimensions.
        symbols: names from ``SYMBOLS``, sorted; repeated names are powers.
        sharded: divide the elements among ``n`` ranks.
    """

    itemsize: int
    numel: int
    symbols: tuple[str, ...] = ()
    sharded: bool = False

    def elements(self, dims: Dims) -> int:
        """Elements on one rank."""
        count = self.numel
        for name in self.symbols:
            count *= symbol(name, dims)
        return -(-count // dims.n) if self.sharded else count

    def raw(self, dims: Dims) -> int:
        """Bytes of the data itself."""
        return self.itemsize * self.elements(dims)

    def block(self, dims: Dims) -> int:
        """Bytes the caching allocator takes for it, a multiple of 512."""
        return _up(self.raw(dims), BLOCK)


def fixed(nbytes: int) -> Size:
    """A size known in bytes, as in traced and measured timelines."""
    return Size(1, nbytes)
