"""How a stack runs a step, as far as its speed tells: what a recipe implies, and what only notes on a run say."""

from __future__ import annotations

from dataclasses import dataclass

from finefit.workload.model import Model
from finefit.workload.recipe import Recipe


@dataclass(frozen=True, slots=True)
class Traits:
    """Habits of a training stack. Names are those of ``speed_constants.json``.

    Attributes:
        kernels: "eager" | "fused" (Liger, Unsloth, Composer) | "compiled" (torch.compile, TransformerEngine, CUDA):
            how often elementwise kernels touch memory.
        loss: the same for cross-entropy over the logits; "fused_linear": head and loss together, tile by tile (Liger).
        host: "eager" | "sharded" | "compiled" | "captured" (CUDA graphs): seconds of Python a layer.
        adapters: modules of a layer with an adapter beside them, each run from Python too.
        experts: "loop" (one expert after the other in Python) | "grouped" (one kernel for all).
        attention: "flash" | "alibi" (biased scores, for which the fast kernels are not built).
        recomputed: share of the layers' forward computed again in backward.
        wrapped_adapters: adapters that a sharding wrapper gathers one by one, in a layer (FSDP1's policy of PEFT wraps
            each trainable leaf: peft 0.21.2 utils/other.py ``fsdp_auto_wrap_policy``).
        formed: elements of weights that adapters form anew in every pass (LoHa, LoKr, FourierFT ...: W + ΔW is
            multiplied, not the factors).
        virtual_stages: model chunks of a pipeline rank (interleaved schedule).
        shard_ranks: GPUs among which ZeRO-3 shards, the rest holding replicas (HSDP); 0: all.
        streamed: optimizer states or activations rest in host memory and stream through the GPU beside its work.
        precision: of the layers' matrix products: "16bit" | "fp8" | "mxfp8" | "nvfp4".
    """

    kernels: str
    loss: str
    host: str
    experts: str
    attention: str
    recomputed: float
    adapters: float = 0.0
    wrapped_adapters: int = 0
    formed: int = 0
    virtual_stages: int = 1
    shard_ranks: int = 0
    streamed: bool = False
    precision: str = "16bit"


def traits(model: Model, recipe: Recipe) -> Traits:
    """What a recipe says of them."""
    kernels = "compiled" if recipe.compiled else "fused" if recipe.fused_kernels else "eager"
    sharded = recipe.sharding.kind in ("zero3", "fsdp")
    host = "compiled" if recipe.compiled else "sharded" if sharded else "eager"
    targets = len(recipe.lora.targets) if recipe.lora else 0
    wraps = recipe.sharding.kind == "fsdp" and recipe.sharding.ranks > 1 and not recipe.compiled
    return Traits(
        kernels=kernels,
        loss=kernels if recipe.loss == "full" or kernels == "compiled" else "fused_linear",
        host=host,
        experts="grouped" if recipe.compiled or _groups_experts(recipe) else "loop",
        attention="alibi" if model.position == "alibi" else "flash",
        recomputed=1.0 if recipe.checkpointing == "full" else 0.0,
        adapters=0 if recipe.compiled else targets,
        wrapped_adapters=2 * targets if wraps else 0,
        precision=recipe.products,
    )


def _groups_experts(recipe: Recipe) -> bool:
    """transformers runs experts in one grouped product from 5.0 on (integrations/moe.py), before in a Python loop."""
    version = recipe.stack.get("transformers", "")
    return version.partition(".")[0].isdigit() and int(version.partition(".")[0]) >= 5
