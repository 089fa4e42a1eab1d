"""Where the seconds of one optimizer step go: the roofline of ``roofline.py`` over the step's work.

Constants and the rows that fix them are in ``speed_constants.json``.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

from finefit.errors import NotModelled
from finefit.speed.communication import bus_rate, network_of, pcie_bandwidth, traffic
from finefit.speed.constants import Rate, architecture, cache_bytes, gemm_rate, table
from finefit.speed.interval import Interval, interval_of
from finefit.speed.roofline import PARTS, Load, parts
from finefit.speed.traits import Traits, traits
from finefit.speed.update import update
from finefit.speed.work import StepWork, work
from finefit.workload.cluster import Cluster, Gpu
from finefit.workload.dtypes import DType
from finefit.workload.model import Model
from finefit.workload.recipe import Recipe

_BEFORE_FP8 = ("pascal", "volta", "turing", "ampere")  # compute capability below 8.9 (torchao 0.18.0 float8)
_GENERATING = frozenset({"grpo", "rloo", "ppo"})


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of one optimizer step (all its micro-batches) on each GPU, by where they go.

    The parts add up to ``seconds``. ``launch`` and ``communication`` are the exposed shares only.

    Attributes:
        linear: matrix products of layers and head; attention: score and value products.
        elementwise: norms, activations, rotary, residuals, unfused softmax; loss: cross-entropy.
        weight_reads, dequantisation: memory traffic of the weights.
        bubble: a pipeline stage waits for the others.
        optimizer: the update itself, on the GPU or the host.
        tokens: padded tokens of the step, divided over the GPUs.
        ranks: GPUs.
        interval: the 90 % interval and what it rests on.
    """

    linear: float
    attention: float
    elementwise: float
    loss: float
    weight_reads: float
    dequantisation: float
    launch: float
    communication: float
    bubble: float
    optimizer: float
    tokens: float
    ranks: int
    interval: Interval

    @property
    def spread(self) -> float:
        """The 90 % interval reaches from ``seconds``/(1 + spread) to ``seconds``·(1 + spread)."""
        return self.interval.spread

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the interval is as wide as it is."""
        return self.interval.reasons

    @property
    def parts(self) -> dict[str, float]:
        """Seconds by part, in the order of the model."""
        return {name: float(getattr(self, name)) for name in PARTS}

    @property
    def seconds(self) -> float:
        """Seconds of one optimizer step."""
        return sum(self.parts.values())

    @property
    def low(self) -> float:
        """Lower end of the 90 % interval, seconds."""
        return self.seconds / (1 + self.spread)

    @property
    def high(self) -> float:
        """Upper end of the 90 % interval, seconds."""
        return self.seconds * (1 + self.spread)


@dataclass(frozen=True, slots=True)
class Asked:
    """A step ready for the roofline: its load, and the constant of each slot."""

    load: Load
    rates: dict[str, Rate]
    work: StepWork
    traits: Traits


def step_time(model: Model, recipe: Recipe, cluster: Cluster, habits: Traits | None = None) -> StepTime:
    """Seconds of one optimizer step of ``grad_accum`` micro-batches at ``recipe.seq_len`` tokens a row.

    The GPUs that do not cut a copy of the model are data-parallel ranks; several without sharding run as DDP.
    ``habits`` are those of the stack; None: what the recipe implies.

    Raises:
        InputError: a batch or length below 1, or a degree of parallelism that does not divide the model.
        NotModelled: an architecture or a precision without measured speed.
    """
    asked = ask(model, recipe, cluster, habits)
    seconds = parts(asked.load, SimpleNamespace(**{slot: rate.value for slot, rate in asked.rates.items()}))
    copies = cluster.count / recipe.parallel.gpus
    stated = network_of(cluster)[1]
    return StepTime(
        **{name: float(seconds[name]) for name in PARTS},
        tokens=recipe.grad_accum * recipe.rows * recipe.seq_len * copies / cluster.count,
        ranks=cluster.count,
        interval=interval_of(asked.work.tokens, model, recipe, cluster, asked.traits, stated),
    )


def ask(model: Model, recipe: Recipe, cluster: Cluster, habits: Traits | None = None) -> Asked:
    """The load of a step and the constants it meets; raises as ``step_time``."""
    if recipe.task in _GENERATING:
        raise NotModelled("the time that reinforcement learning spends on generating text is not modelled yet")
    habits = habits or traits(model, recipe)
    load, gpu, parallel = work(model, recipe, habits.recomputed), cluster.gpu, recipe.parallel
    peak, bandwidth = _peak(gpu, recipe), cluster.gpu.bandwidth
    ranks = max(1, cluster.count // (parallel.tensor * parallel.pipeline))
    shards = habits.shard_ranks or max(1, ranks // parallel.replicas)
    sent = traffic(load, model, recipe, ranks, habits.recomputed, min(shards, ranks))
    per_node = cluster.count // cluster.nodes
    updated, on_host, direct = update(model, load, recipe, ranks, gpu)
    low = habits.precision != "16bit"
    asked = Load(
        matmul=(load.head_flops + (0 if low else load.linear_flops)) / peak,
        low_matmul=(load.linear_flops if low else 0.0) / peak,
        experts=(0.0 if low else load.expert_flops) / peak,
        low_experts=(load.expert_flops if low else 0.0) / peak,
        attention=load.attention_flops / peak,
        elementwise=load.elementwise_bytes / bandwidth,
        adapter_traffic=load.adapter_bytes / bandwidth,
        cache_ratio=2 * load.tokens * model.hidden / cache_bytes(gpu),
        softmax=load.softmax_bytes / bandwidth,
        loss=load.loss_bytes / bandwidth,
        weight_reads=load.weight_bytes / bandwidth,
        dequantised=load.dequantised / bandwidth,
        routed=4 * load.visits * model.hidden * 2 * (3 + habits.recomputed) / bandwidth,
        formed=habits.formed / bandwidth,
        host_layers=load.layers * (0.8 + 0.2 * habits.recomputed),
        adapters=load.layers * (0.8 + 0.2 * habits.recomputed) * habits.adapters,
        units=load.layers * habits.wrapped_adapters,
        gathered=sent.per_micro_batch if cluster.count > 1 else 0.0,
        reduced=sent.per_step if cluster.count > 1 else 0.0,
        activations=sent.activations,
        exchanged=sent.experts,
        from_host=sent.from_host / pcie_bandwidth(gpu),
        gather_crosses=float(cluster.nodes > 1 and shards * parallel.tensor > per_node),
        reduce_crosses=float(cluster.nodes > 1),
        exchange_crosses=float(parallel.tensor * parallel.expert > per_node),
        network=network_of(cluster)[0] if cluster.nodes > 1 else 1.0,
        times=float(recipe.grad_accum),
        bubble=(parallel.pipeline - 1) / (recipe.grad_accum * habits.virtual_stages),
        updated=updated,
        on_host=on_host,
        update_seconds=direct,
    )
    rates = {
        "gemm": gemm_rate(gpu)[0],
        "low_precision": Rate(f"low_precision.{habits.precision}"),
        "experts": Rate(f"experts.{habits.experts}"),
        "attention": Rate(_attention(habits.attention, gpu)),
        "elementwise": Rate(f"elementwise.{habits.kernels}"),
        "adapter_traffic": Rate("adapter_traffic"),
        "cached": Rate("cached"),
        "cache_fill": Rate("cache_fill"),
        "loss": Rate(f"loss.{habits.loss}"),
        "weight_reads": Rate("weight_reads"),
        "dequantisation": Rate(f"dequantisation.{_quant(recipe)}"),
        "routing": Rate("routing"),
        "host": Rate(f"host.{habits.host}"),
        "forming": Rate("forming"),
        "adapter": Rate("adapter"),
        "unit": Rate("unit"),
        "bus": bus_rate(cluster),
        "network": Rate("network"),
        "overlap": Rate("overlap"),
        "exposed": Rate("exposed"),
        "tensor_exposed": Rate("tensor_exposed"),
        "expert_exposed": Rate("expert_exposed"),
        "optimizer": Rate("optimizer"),
        "cpu_adam": Rate("cpu_adam"),
    }
    return Asked(asked, rates, load, habits)


def _peak(gpu: Gpu, recipe: Recipe) -> float:
    """Dense FLOP/s of the compute dtype."""
    dtype = recipe.autocast or recipe.weight_dtype
    if dtype not in (DType.BF16, DType.FP16):
        raise NotModelled(
            f"no training speed in {dtype} is known",
            where="precision",
            fix="train in bf16 or fp16 (bf16: true)",
        )
    peak = gpu.bf16_flops if dtype is DType.BF16 else gpu.fp16_flops
    if recipe.products != "16bit" and gpu.arch.lower().startswith(_BEFORE_FP8):
        raise NotModelled(f"{gpu.name} has no fp8 matrix units", where="precision", fix="train in bf16 on this card")
    if peak is None:
        raise NotModelled(f"{gpu.name} has no {dtype} matrix units", where="precision", fix="use fp16 on this card")
    return peak


def _attention(kind: str, gpu: Gpu) -> str:
    arch = architecture(gpu)
    own = f"{kind}_{arch}"
    return f"attention.{own}" if own in table()["attention"] else f"attention.{arch}"


def _quant(recipe: Recipe) -> str:
    return "gptq" if recipe.quant and recipe.quant.kind == "gptq" else "bitsandbytes"
