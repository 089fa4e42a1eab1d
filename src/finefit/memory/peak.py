"""What one GPU needs: four numbers that are never mixed, and what they are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Peak:
    """Bytes on the fullest GPU.

    Attributes:
        allocated: tensor bytes in 512-byte blocks (torch.cuda.max_memory_allocated).
        required: smallest capacity, outside memory included, at which the replayed allocator survives.
        reserved: what the caching allocator holds when nothing presses it (max_memory_reserved).
        device: reserved + CUDA context + communication buffers (nvidia-smi).
        phase: phase of the allocated peak; op and module: the allocation that reached it.
        parts: bytes at the allocated peak by category; phases: allocated peak of each phase.
        host: bytes of host RAM the run needs beside the data loader (offload), per rank.
    """

    allocated: int
    phase: str
    op: str
    module: str
    parts: Mapping[str, int]
    phases: Mapping[str, int]
    required: int | None = None
    reserved: int | None = None
    device: int | None = None
    host: int = 0
