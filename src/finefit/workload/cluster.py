"""The GPUs a run would use."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU product.

    Attributes:
        memory: bytes torch reports as total (below the nominal GB on the box).
        bandwidth: bytes a second of device memory.
        bf16_flops: dense bf16 FLOP/s with fp32 accumulation; None where the card has no bf16 units.
        fp16_flops: dense fp16 FLOP/s.
        interconnect: "NVLink4", "PCIe4", ...; interconnect_bw: bytes a second, both directions.
    """

    id: str
    name: str
    arch: str
    memory: int
    memory_nominal_gb: float
    bandwidth: float
    bf16_flops: float | None
    fp16_flops: float | None
    interconnect: str
    interconnect_bw: float | None
    tdp_w: int | None
    source: str
    confidence: str


@dataclass(frozen=True, slots=True)
class Cluster:
    """``count`` equal GPUs on ``nodes`` machines (count is the total).

    Attributes:
        network: bytes a second that the network cards of one machine carry together; None: not stated.
    """

    gpu: Gpu
    count: int = 1
    nodes: int = 1
    network: float | None = None
