"""How far a measured step may lie from the predicted one.

The interval of a time t is [t/(1+s), t·(1+s)]. For each kind of run s is the ninth decile of max(measured/predicted,
predicted/measured) - 1 over published runs of that kind, each predicted by constants fitted without any run of its
source: what a new stack, machine and author can expect.
"""

from __future__ import annotations

from dataclasses import dataclass

from finefit.speed.constants import entry, gemm_rate
from finefit.speed.traits import Traits
from finefit.speed.update import is_unmeasured
from finefit.workload.cluster import Cluster
from finefit.workload.model import Model
from finefit.workload.recipe import Recipe

STEADY_TOKENS = 16_384  # tokens a micro-batch from which the GPU's own rates decide
SHORT_TOKENS = 4096  # below it the host and small messages decide


@dataclass(frozen=True, slots=True)
class Interval:
    """The interval of a step time.

    Attributes:
        kind: the kind of run by which it is measured.
        spread: s.
        coverage, runs: share of published runs of the kind that lie inside, and how many there are.
        reasons: why it is this kind, for the reader.
    """

    kind: str
    spread: float
    coverage: float
    runs: int
    reasons: tuple[str, ...]


def interval_of(
    tokens: int, model: Model, recipe: Recipe, cluster: Cluster, habits: Traits, network_stated: bool
) -> Interval:
    """The interval of a run of ``tokens`` a micro-batch: of all kinds that apply, the widest."""
    gpu = cluster.gpu
    rate, fitted = gemm_rate(gpu)
    special = []
    if recipe.sharding.offload_optimizer or recipe.sharding.offload_params or habits.streamed:
        special.append(("offload", "offload to host memory depends on the host"))
    if model.experts is not None:
        special.append(("experts", "a mixture of experts: its kernels differ from stack to stack"))
    if habits.precision != "16bit":
        special.append(("low_precision", f"{habits.precision} products: casts and scaling differ from stack to stack"))
    if not fitted:
        source = entry(*rate.key.split("."))["source"]
        special.append(("new_card", f"no measured run on {gpu.name} behind it: {source}"))
    if recipe.quant and recipe.quant.kind == "int8":
        special.append(("new_card", "int8 weights: constant of 4-bit weights, no measured rows"))
    if recipe.lora is not None and recipe.lora.kind != "lora":
        special.append(
            ("new_card", f"{recipe.lora.kind} is given the time of LoRA: DoRA and OFT take up to 1.3 times it")
        )
    if is_unmeasured(recipe):
        name = recipe.optimizer.name
        special.append(("new_card", f"{name}: AdamW's time and its own temporaries, no measured run of it is known"))
        if recipe.optimizer.kind.low_rank == "galore":
            special.append(("new_card", "GaLore's singular value decompositions are left out: a lower bound"))
    if cluster.nodes > 1 and not network_stated:
        special.append(("new_card", "the network between the machines is assumed"))
    if tokens < SHORT_TOKENS:
        special.append(("short", f"{tokens} tokens a micro-batch: host speed and small messages decide"))
    if not special:
        kind = "steady" if tokens >= STEADY_TOKENS else "usual"
        special.append((kind, f"{tokens} tokens a micro-batch on a measured GPU"))
    kind = max((kind for kind, _ in special), key=lambda each: float(entry("interval", each)["value"]))
    found = entry("interval", kind)
    reasons = tuple(why for _, why in special)
    return Interval(kind, float(found["value"]), float(found["coverage"]), int(found["runs"]), reasons)
