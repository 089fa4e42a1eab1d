"""The additive roofline: seconds of a step's parts from its work and the fitted constants.

    T_gpu   = linear + attention + elementwise + loss + weight reads + dequantisation + routing of experts
    T_c     = (T_gpu⁴ + T_host⁴)^¼                              the host may not keep up
    T_mb    = max(T_c, t_comm) + overlap·min(T_c, t_comm) + exposed tensor-parallel collectives
    T_step  = accumulation·T_mb·(1 + bubble) + exposed all-reduce + optimizer

Everything is written with operations that floats and arrays share, so one answer and the fit over hundreds of measured
runs are the same formula.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

SLOTS = (
    "gemm",
    "low_precision",
    "experts",
    "attention",
    "elementwise",
    "adapter_traffic",
    "cached",
    "cache_fill",
    "loss",
    "weight_reads",
    "dequantisation",
    "routing",
    "forming",
    "host",
    "adapter",
    "unit",
    "bus",
    "network",
    "overlap",
    "exposed",
    "tensor_exposed",
    "expert_exposed",
    "optimizer",
    "cpu_adam",
)
PARTS = (
    "linear",
    "attention",
    "elementwise",
    "loss",
    "weight_reads",
    "dequantisation",
    "launch",
    "communication",
    "bubble",
    "optimizer",
)


@dataclass(frozen=True, slots=True)
class Load:
    """What one step asks of a GPU and its links, before any efficiency; seconds at the vendors' rates.

    Attributes:
        matmul, experts, attention: FLOPs of a micro-batch over the 16-bit peak rate; low_matmul, low_experts: those
            computed in 8 or 4 bits.
        elementwise, softmax, loss, weight_reads: bytes of a micro-batch over the memory's bandwidth.
        adapter_traffic: the bytes of it that adapters add.
        cache_ratio: a hidden-state tensor over the L2 cache: the traffic of small tensors stays in it.
        dequantised, routed: elements unpacked, and bytes of token copies moved for experts, over that bandwidth.
        host_layers: layers that Python walks through; adapters: modules with adapters in them; units: modules that
            are gathered on their own.
        formed: elements of weights that adapters form in every micro-batch, over the memory's bandwidth.
        gathered: bytes of weights and gradients sent each micro-batch; reduced: bytes sent once a step.
        activations, exchanged: bytes of hidden states that tensor and pipeline ranks, and that expert ranks send each
            micro-batch.
        from_host: seconds of weights fetched over PCIe each micro-batch.
        gather_crosses, reduce_crosses, exchange_crosses: 1 where that traffic leaves the machine, else 0; network:
            bytes a second of a machine's network cards together.
        times: micro-batches; bubble: idle share of a pipeline beside its work.
        updated: elements that the optimizer updates over the memory's bandwidth; on_host: elements that the CPU
            updates; update_seconds: plain SGD, and what other optimizers move and multiply on top.
    """

    matmul: float
    low_matmul: float
    experts: float
    low_experts: float
    attention: float
    elementwise: float
    adapter_traffic: float
    cache_ratio: float
    softmax: float
    loss: float
    weight_reads: float
    dequantised: float
    routed: float
    formed: float
    host_layers: float
    adapters: float
    units: float
    gathered: float
    reduced: float
    activations: float
    exchanged: float
    from_host: float
    gather_crosses: float
    reduce_crosses: float
    exchange_crosses: float
    network: float
    times: float
    bubble: float
    updated: float
    on_host: float
    update_seconds: float


def parts(load: Load, rate: Any) -> dict[str, Any]:
    """Seconds of an optimizer step by part; ``rate`` has one attribute for each of SLOTS."""
    dense = load.matmul + load.low_matmul / rate.low_precision
    linear = (dense + (load.experts + load.low_experts / rate.low_precision) / rate.experts) / rate.gemm
    attention = load.attention / rate.attention
    missed = rate.cached + (1 - rate.cached) * _least(1.0, load.cache_ratio / rate.cache_fill)
    touched = load.elementwise + load.adapter_traffic * rate.adapter_traffic
    elementwise = touched * rate.elementwise * missed + load.softmax + load.routed * rate.routing
    loss = load.loss * rate.loss
    weights = load.weight_reads / rate.weight_reads
    unpacking = load.dequantised * rate.dequantisation + load.formed * rate.forming
    on_gpu = linear + attention + elementwise + loss + weights + unpacking
    host = load.host_layers * rate.host + load.adapters * rate.adapter + load.units * rate.unit
    compute = (on_gpu**4 + host**4) ** 0.25

    moved = load.gathered / _bandwidth(load, rate, load.gather_crosses) + load.from_host
    exchange = rate.tensor_exposed * load.activations / rate.bus
    exchange = exchange + rate.expert_exposed * load.exchanged / _bandwidth(load, rate, load.exchange_crosses)
    micro = compute + moved - (1 - rate.overlap) * _least(compute, moved) + exchange
    per_step = rate.exposed * load.reduced / _bandwidth(load, rate, load.reduce_crosses)
    times = load.times
    return {
        "linear": times * linear,
        "attention": times * attention,
        "elementwise": times * elementwise,
        "loss": times * loss,
        "weight_reads": times * weights,
        "dequantisation": times * unpacking,
        "launch": times * (compute - on_gpu),
        "communication": times * (micro - compute) + per_step,
        "bubble": times * micro * load.bubble,
        "optimizer": load.updated * rate.optimizer + load.on_host * rate.cpu_adam + load.update_seconds,
    }


def _bandwidth(load: Load, rate: Any, crosses: Any) -> Any:
    """Bytes a second of a ring: the bus, and where it crosses machines no more than their network cards together."""
    return rate.bus + crosses * (_least(rate.bus, load.network * rate.network) - rate.bus)


def _least(a: Any, b: Any) -> Any:
    """The smaller of two numbers, or of two arrays one by one."""
    return (a + b - abs(a - b)) / 2
