"""Device memory outside the caching allocator: what a process holds before its first tensor.

Figures are measured ones from public sources, per GPU architecture; where none was found the value is
None and said to be unknown. They belong to a driver and a torch build as much as to a card, so each
carries the build it was read on.
"""

from __future__ import annotations

from dataclasses import dataclass

from finefit.units import KIB, MIB


@dataclass(frozen=True, slots=True)
class Measured:
    """Bytes somebody read off a device, and where they said so."""

    nbytes: int
    source: str


# CUDA context with lazily loaded kernels (the default since CUDA 11.7): nvidia-smi of a process that
# has touched the device once, without its tensors. Keys are ``Gpu.arch`` in lower case.
_LAZY = {
    "ampere": Measured(481 * MIB, "0.47 GiB, A100, lazy loading: stas00/ml-engineering training/performance/README.md"),
    "ada": Measured(426 * MIB, "RTX 6000 Ada, torch 2.10 cu130: unslothai/unsloth-zoo PR #1053"),
    "blackwell": Measured(635 * MIB, "0.62 GiB, RTX 5090: loggetta docs/RESULTS.md section 5"),
}
# Eager loading (every kernel at start): torch before CUDA 11.7, or CUDA_MODULE_LOADING=EAGER.
_EAGER = {
    "volta": Measured(1343 * MIB, "V100 16 GB, 2021-22: huggingface/transformers docs perf_train_gpu_one @0016acf7"),
    "ampere": Measured(
        942 * MIB, "0.92 GiB, A100, eager loading: stas00/ml-engineering training/performance/README.md"
    ),
}
# Any other card: the middle of what torch's own forum reports for lazy loading, 300 to 400 MB.
_OTHER = Measured(350 * 10**6, "300-400 MB: pytorch issues #107667 and #109888")

# Collective communication: NCCL's buffers and the contexts it opens on the peers. 0 on one GPU, and
# 342, 392, 392 MB on 2, 4, 8 GPUs of one node (ai-dynamo/aiconfigurator, NCCL memory by TP size).
_NCCL = ((8, 392 * 10**6), (4, 392 * 10**6), (2, 342 * 10**6))

# aten/src/ATen/cuda/CublasHandlePool.cpp: 2 x 4096 KiB + 8 x 16 KiB; 32 MiB on compute capability 9.0.
# One per handle and stream (forward thread, autograd thread), taken from the caching allocator.
CUBLAS_WORKSPACE = (2 * 4096 + 8 * 16) * KIB
CUBLAS_WORKSPACE_HOPPER = 32 * MIB


def cublas_workspace(arch: str | None) -> int:
    """Bytes of one cuBLAS workspace on an architecture; an unknown one takes the default."""
    return CUBLAS_WORKSPACE_HOPPER if (arch or "").lower() == "hopper" else CUBLAS_WORKSPACE


def cuda_context(arch: str | None, *, eager: bool = False) -> Measured:
    """CUDA context of one process on one GPU.

    Args:
        arch: architecture of the GPU ("Ampere"); None when no GPU was stated.
        eager: kernels are loaded at start (CUDA before 11.7).
    """
    key = (arch or "").lower()
    if eager and key in _EAGER:
        return _EAGER[key]
    return _LAZY.get(key, _OTHER)


def nccl_buffers(gpus_per_node: int) -> int:
    """Bytes NCCL holds on each GPU outside the allocator; above 8 GPUs a node, the figure for 8."""
    return next((nbytes for at_least, nbytes in _NCCL if gpus_per_node >= at_least), 0)
