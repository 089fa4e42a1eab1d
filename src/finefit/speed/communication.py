"""What data-parallel ranks send each other, and how fast the links carry it.

Bytes follow the ring algorithms: an all-gather or a reduce-scatter of S bytes sends (N-1)/N·S from
each rank, an all-reduce twice that (NCCL-tests, doc/PERFORMANCE.md "bus bandwidth"; ZeRO, Rajbhandari
2020, 1910.02054, section 7).
"""

from __future__ import annotations

from dataclasses import dataclass

from finefit.errors import NotModelled
from finefit.speed.constants import constant, listed
from finefit.speed.work import StepWork
from finefit.workload.cluster import Cluster, Gpu
from finefit.workload.recipe import Recipe

_PCIE_OF = {"volta": 3, "turing": 3, "ampere": 4, "ada": 4, "hopper": 5, "blackwell": 5}  # vendor data sheets
_PCIE_3_X16 = 31.5e9  # bytes a second, both directions: 16 lanes of 8 GT/s, 128b/130b coding (PCI-SIG)


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes one rank sends over the links.

    Attributes:
        per_micro_batch: gathers and scatters of every micro-batch, beside compute.
        per_step: gradients and parameters once an optimizer step.
        from_host: weights fetched from host memory every micro-batch (parameter offload).
    """

    per_micro_batch: float = 0.0
    per_step: float = 0.0
    from_host: float = 0.0


def traffic(work: StepWork, recipe: Recipe, ranks: int) -> Traffic:
    """Bytes each of ``ranks`` data-parallel ranks sends.

    Gradients travel in the dtype of the trained weights, which is fp32 for adapters and for fp32
    weights under autocast; ZeRO-2 and -3 scatter them every micro-batch (DeepSpeed reduces at each
    backward, FSDP without ``no_sync`` too), ZeRO-3 gathers the weights in forward and in backward.
    """
    kind = recipe.sharding.kind
    ring = (ranks - 1) / ranks
    trained_dtype = recipe.lora.dtype if recipe.lora else recipe.weight_dtype
    gradients = work.trained * trained_dtype.bytes
    weights = _gathered_bytes(work, recipe)
    host = 2 * weights / ranks if recipe.sharding.offload_params else 0.0
    if kind in ("none", "ddp", "zero1"):
        return Traffic(per_step=2 * ring * gradients, from_host=host)
    if kind == "zero2":
        return Traffic(ring * gradients, ring * work.trained * _compute_bytes(recipe), host)
    if kind in ("zero3", "fsdp"):
        return Traffic(ring * (2 * weights + gradients), 0.0, host)
    raise NotModelled(f"sharding {kind!r} has no time model", where="sharding.kind", fix="use ddp, ZeRO or FSDP")


def bus_bandwidth(cluster: Cluster) -> float:
    """Bytes a second of ring collectives among the GPUs of one machine ("bus bandwidth").

    Cards joined by a bridge, or by nothing, are taken over PCIe: a bridge joins two cards only and
    rented machines mostly lack it.

    Raises:
        NotModelled: more than one machine (the network between them is not part of the question yet).
    """
    if cluster.nodes > 1:
        raise NotModelled(
            "time across machines depends on their network, which is not modelled yet",
            where="nodes",
            fix="ask for one machine; memory is answered all the same",
        )
    gpu = cluster.gpu
    measured = listed(gpu.id, "bus_bytes_per_second", "measured")
    if measured:
        return float(measured["value"])
    if _switched(gpu) and gpu.interconnect_bw:
        return gpu.interconnect_bw * constant("bus_bytes_per_second", "switched_share")
    share = constant("bus_bytes_per_second", "pcie_eight_share") if cluster.count > 4 else 1.0
    return pcie_bandwidth(gpu) * share


def pcie_bandwidth(gpu: Gpu) -> float:
    """Bytes a second over the card's own PCIe link, by its generation; half of it with eight lanes."""
    name = gpu.interconnect.lower()
    digits = name.removeprefix("pcie")[:1] if name.startswith("pcie") else ""
    generation = int(digits) if digits.isdigit() else _PCIE_OF.get(gpu.arch.split()[0].lower(), 4)
    generation = min(max(generation, 3), 5)
    share = 1.0
    if digits and gpu.interconnect_bw:
        share = min(1.0, gpu.interconnect_bw / (_PCIE_3_X16 * 2 ** (generation - 3)))
    return constant("bus_bytes_per_second", "pcie", str(generation)) * share


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
