"""Memory outside the allocator: the figures are those their sources print."""

from __future__ import annotations

from finefit.memory.context import CUBLAS_WORKSPACE, cublas_workspace, cuda_context, nccl_buffers
from finefit.units import GIB, MIB


def test_context_of_a_card() -> None:
    assert round(cuda_context("Ampere").nbytes / GIB, 2) == 0.47
    assert round(cuda_context("Ampere", eager=True).nbytes / GIB, 2) == 0.92
    assert cuda_context("Ada").nbytes == 426 * MIB
    assert cuda_context("Volta", eager=True).nbytes == 1343 * MIB
    assert 300e6 <= cuda_context(None).nbytes <= 400e6
    assert "pytorch" in cuda_context("Turing").source


def test_cublas_workspace() -> None:
    assert cublas_workspace("Ampere") == cublas_workspace(None) == CUBLAS_WORKSPACE == 8_519_680
    assert cublas_workspace("Hopper") == 32 * MIB


def test_nccl_is_nothing_on_one_gpu() -> None:
    assert [nccl_buffers(n) for n in (1, 2, 3, 4, 8, 16)] == [0, *(mb * 10**6 for mb in (342, 342, 392, 392, 392))]
