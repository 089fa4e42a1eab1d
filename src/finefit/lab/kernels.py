"""Memory that CUDA kernels take inside themselves, which no trace of tensors can see.

Every function gives the bytes of the temporaries of one call, all live together with the call's output,
from the kernel's source of the version named. They are marked *assumed* in the Timeline.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Temps = Callable[[tuple[Any, ...], Mapping[str, Any]], list[int]]


def _up(value: int, step: int) -> int:
    return -(-value // step) * step


def flash_backward(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[int]:
    """FlashAttention-2 backward: row sums, an fp32 dq accumulator, and dk, dv over all heads for grouped queries.

    torch 2.13.0 ``transformers/cuda/flash_attn/flash_api.cpp`` ``mha_bwd``: rows to 128, head dimension to
    32 up to 192 and to 256 beyond.
    """
    query, key = args[1], args[2]
    b, heads, s, d = query.shape
    rows, width = _up(s, 128), _up(d, 32) if d <= 192 else 256
    temps = [4 * b * heads * rows, 4 * b * heads * rows * width]
    if key.shape[1] != heads:
        temps += [b * key.shape[2] * heads * d * query.element_size()] * 2
    return temps


def embedding_backward(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[int]:
    """Gradient of an embedding: beyond 3072 tokens the rows are sorted and summed in fp32 parts.

    torch 2.13.0 ``native/cuda/Embedding.cu`` ``embedding_dense_backward_cuda`` and
    ``EmbeddingBackwardKernel.cu``: sorted and original indices, segment offsets, the parts of each segment
    (10 rows a part) and one fp32 row for each part at most possible.
    """
    grad, tokens, vocab = args[0], args[1].numel(), int(args[2])
    if tokens <= 3072:
        return []
    segments = min(tokens, vocab)
    parts = tokens // 10 + segments
    return [8 * tokens] * 3 + [8 * segments] * 2 + [8 * parts, 4 * parts * grad.shape[-1]]


def gemm_4bit(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[int]:
    """bitsandbytes 4-bit product: the weight is dequantised into a 16-bit buffer first.

    bitsandbytes 0.50.2 ``backends/cuda/ops.py`` ``_dequant_linear_fallback``; nested constants make two fp32
    copies on the way (``absmax_dq`` and its sum with the offset). Up to 4 rows a fused kernel does without;
    from 5 to 1536 rows the choice depends on the GPU and the shape, and the larger need is taken.
    """
    rows = args[0].numel() // args[0].shape[-1]
    if rows <= 4:
        return []
    n, k = args[2]
    temps = [n * k * args[0].element_size()]
    if kwargs.get("absmax_8bit") is not None:
        temps += [4 * -(-n * k // args[4])] * 2
    return temps


def int8_scaled_mm(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[int]:
    """bitsandbytes' int8 product: int32 sums before they are scaled.

    bitsandbytes 0.50.2 ``backends/default/ops.py`` ``int8_scaled_mm``, which CUDA uses too.
    """
    rows = args[0].numel() // args[0].shape[-1]
    return [4 * rows * args[1].shape[0]]


def safe_softmax(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[int]:
    """The softmax itself and a boolean of its shape, before rows that are masked whole become zeros.

    torch 2.13.0 ``native/SoftMax.cpp`` ``_safe_softmax``.
    """
    return [args[0].numel() * args[0].element_size(), args[0].numel()]


TEMPS: dict[str, Temps] = {
    "aten::_safe_softmax": safe_softmax,
    "aten::_scaled_dot_product_flash_attention_backward": flash_backward,
    "aten::embedding_dense_backward": embedding_backward,
    "bitsandbytes::gemm_4bit": gemm_4bit,
    "bitsandbytes::int8_scaled_mm": int8_scaled_mm,
}

# Where each assumed block of memory was read, by the name of the operation in the Timeline.
SOURCES = {
    "_scaled_dot_product_flash_attention_backward": "torch 2.13.0 transformers/cuda/flash_attn/flash_api.cpp mha_bwd",
    "embedding_dense_backward": "torch 2.13.0 native/cuda/Embedding.cu and EmbeddingBackwardKernel.cu",
    "_safe_softmax": "torch 2.13.0 native/SoftMax.cpp _safe_softmax",
    "gemm_4bit": "bitsandbytes 0.50.2 backends/cuda/ops.py _dequant_linear_fallback",
    "int8_scaled_mm": "bitsandbytes 0.50.2 backends/default/ops.py int8_scaled_mm",
    "cublas_workspace": "torch 2.13.0 cuda/CublasHandlePool.cpp parseChosenWorkspaceSize",
    "nonzero": "torch 2.13.0 native/TensorAdvancedIndexing.cpp expandTensors: every element taken as chosen",
}

# Operators that take a cuBLAS handle and with it a workspace for each thread.
CUBLAS = frozenset(("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "bitsandbytes::gemm_4bit"))


def cublas_workspace(arch: str) -> int:
    """Bytes of one workspace: torch 2.13.0 ``cuda/CublasHandlePool.cpp`` ``parseChosenWorkspaceSize``."""
    return 4096 * 8 * 1024 if arch in ("sm90", "sm100") else 2 * 4096 * 1024 + 8 * 16 * 1024
