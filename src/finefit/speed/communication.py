"""What ranks send each other, and how fast the links carry it.

Bytes follow the ring algorithms: an all-gather or a reduce-scatter of S bytes sends (N-1)/N·S from
each rank, an all-reduce twice that (NCCL-tests, doc/PERFORMANCE.md "bus bandwidth"; ZeRO, Rajbhandari
2020, 1910.02054, section 7).
"""

from __future__ import annotations

from dataclasses import dataclass

from finefit.errors import NotModelled
from finefit.speed.constants import Rate, architecture, constant, of_card
from finefit.speed.work import StepWork
from finefit.workload.cluster import Cluster, Gpu
from finefit.workload.model import Model
from finefit.workload.recipe import Recipe

_PCIE_3_X16 = 31.5e9  # bytes a second, both directions: 16 lanes of 8 GT/s, 128b/130b coding (PCI-SIG)
_PCIE_OF = {"volta": 3, "turing": 3, "ampere": 4, "ada": 4, "hopper": 5, "blackwell": 5}  # vendor data sheets


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes one rank sends over the links.

    Attributes:
        per_micro_batch: gathers and scatters of every micro-batch, beside compute.
        per_step: gradients and parameters once an optimizer step.
        from_host: weights fetched from host memory every micro-batch (parameter offload).
        activations: what tensor and pipeline ranks send of every micro-batch, in the way of compute.
        experts: what expert ranks send of every micro-batch.
    """

    per_micro_batch: float = 0.0
    per_step: float = 0.0
    from_host: float = 0.0
    activations: float = 0.0
    experts: float = 0.0


def traffic(work: StepWork, model: Model, recipe: Recipe, ranks: int, recomputed: float, shards: int = 0) -> Traffic:
    """Bytes each GPU sends; ``ranks`` GPUs hold the same part of the model.

    Gradients travel in the dtype of the trained weights, which is fp32 for adapters and for fp32
    weights under autocast; ZeRO-2 and -3 scatter them every micro-batch (DeepSpeed reduces at each
    backward, FSDP without ``no_sync`` too), ZeRO-3 gathers the weights in forward and in backward.

    Args:
        shards: ranks among which ZeRO-3 shards, where the rest hold replicas (HSDP); 0: all.
        recomputed: share of the forward computed again, whose collectives run again.
    """
    shards = shards or ranks
    kind = recipe.sharding.kind
    ring = (shards - 1) / shards
    trained_dtype = recipe.lora.dtype if recipe.lora else recipe.weight_dtype
    gradients = work.trained * trained_dtype.bytes
    weights = _gathered_bytes(work, recipe)
    host = 2 * weights / ranks if recipe.sharding.offload_params else 0.0
    passed = _activations(work, model, recipe, recomputed)
    context = _context(work, model, recipe, recomputed)
    if kind in ("none", "ddp", "zero1", "megatron"):
        return Traffic(context, 2 * (ranks - 1) / ranks * gradients, host, *passed)
    if kind == "zero2":
        return Traffic(ring * gradients + context, ring * work.trained * _compute_bytes(recipe), host, *passed)
    if kind in ("zero3", "fsdp"):
        copies = ranks // shards
        replicated = 2 * (copies - 1) / copies * gradients / shards
        return Traffic(ring * (2 * weights + gradients) + context, replicated, host, *passed)
    raise NotModelled(f"sharding {kind!r} has no time model", where="sharding.kind", fix="use ddp, ZeRO or FSDP")


def _activations(work: StepWork, model: Model, recipe: Recipe, recomputed: float) -> tuple[float, float]:
    """Bytes of hidden states that tensor and pipeline ranks send, and those that expert ranks do, in a micro-batch.

    A layer all-reduces twice forward and twice backward under tensor parallelism (Shoeybi 2019, 1909.08053, section
    3), sequence parallelism splits each into a gather and a scatter of the same bytes (Korthikanti 2022, 2205.05198);
    a pipeline stage passes the hidden state on and its gradient back; experts send a token's k copies out and back,
    forward and backward (Lepikhin 2020, 2006.16668).
    """
    parallel, state = recipe.parallel, work.tokens * model.hidden * _compute_bytes(recipe)
    tensor, expert = parallel.tensor, parallel.expert
    sent = work.layers * (4 + 2 * recomputed) * 2 * (tensor - 1) / tensor * state
    if parallel.pipeline > 1:
        sent += 2 * state
    visited = work.visits * model.hidden * _compute_bytes(recipe)
    return sent, (4 + 2 * recomputed) * (expert - 1) / expert * visited


def _context(work: StepWork, model: Model, recipe: Recipe, recomputed: float) -> float:
    """Bytes of keys and values that context ranks pass around the ring, beside attention: once forward, twice
    backward (Ring Attention, Liu 2023, 2310.01889)."""
    parallel = recipe.parallel
    held = 2 * max(1, model.kv_heads // parallel.tensor) * model.head_dim * _compute_bytes(recipe)
    return work.layers * (3 + recomputed) * (parallel.context - 1) * work.tokens * held


def bus_rate(cluster: Cluster) -> Rate:
    """Bytes a second of ring collectives among the GPUs of one machine ("bus bandwidth").

    Cards joined by a bridge, or by nothing, are taken over PCIe: a bridge joins two cards only and
    rented machines mostly lack it.
    """
    gpu = cluster.gpu
    measured = of_card("bus", gpu.id)
    if measured is not None:
        return measured
    if _switched(gpu) and gpu.interconnect_bw:
        return Rate("bus.switched_share", gpu.interconnect_bw)
    share = constant("bus", "pcie_eight_share") if cluster.count // cluster.nodes > 4 else 1.0
    generation, lanes = _pcie(gpu)
    return Rate(f"bus.pcie{generation}", lanes * share)


def network_of(cluster: Cluster) -> tuple[float, bool]:
    """Bytes a second of one machine's network cards together, and whether they were stated.

    Where nothing is known: one 400 Gb/s card a GPU beside NVLink 4 and later, 200 Gb/s beside NVLink 3 (NVIDIA DGX
    H100 and DGX A100 user guides), one of 100 Gb/s a machine otherwise.
    """
    if cluster.network is not None:
        return cluster.network, True
    if not _switched(cluster.gpu):
        return 100e9 / 8, False
    each = 200e9 / 8 if architecture(cluster.gpu) in ("ampere", "volta_turing") else 400e9 / 8
    return each * cluster.count / cluster.nodes, False


def pcie_bandwidth(gpu: Gpu) -> float:
    """Bytes a second over the card's own PCIe link, by its generation; half of it with eight lanes."""
    generation, lanes = _pcie(gpu)
    return constant("bus", f"pcie{generation}") * lanes


def _pcie(gpu: Gpu) -> tuple[int, float]:
    """Generation (3 to 5) and the share of sixteen lanes."""
    name = gpu.interconnect.lower()
    digits = name.removeprefix("pcie")[:1] if name.startswith("pcie") else ""
    generation = int(digits) if digits.isdigit() else _PCIE_OF.get(gpu.arch.split()[0].lower(), 4)
    generation = min(max(generation, 3), 5)
    share = 1.0
    if digits and gpu.interconnect_bw:
        share = min(1.0, gpu.interconnect_bw / (_PCIE_3_X16 * 2 ** (generation - 3)))
    return generation, share


def _switched(gpu: Gpu) -> bool:
    return gpu.interconnect.startswith("NVLink") and "bridge" not in gpu.interconnect and "C2C" not in gpu.interconnect


def _compute_bytes(recipe: Recipe) -> int:
    return (recipe.autocast or recipe.weight_dtype).bytes


def _gathered_bytes(work: StepWork, recipe: Recipe) -> float:
    """Bytes of all weights as they are gathered: 16-bit, or quantised blocks with their scales.

    4-bit: half a byte and an fp32 scale every 64 elements; double quantisation keeps a byte for each
    scale and an fp32 constant every 256 scales (QLoRA, 2305.14314, section 3).
    """
    if recipe.quant is None:
        return float(work.parameters * _compute_bytes(recipe))
    stored = 1.0 if recipe.quant.kind == "int8" else 0.5 + (1 / 64 + 4 / (64 * 256) if recipe.quant.double else 4 / 64)
    return work.quantised * stored + (work.parameters - work.quantised) * _compute_bytes(recipe)
