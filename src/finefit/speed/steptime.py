"""Where the seconds of one optimizer step go: an additive roofline over the step's work.

    T_gpu  = linear + head + attention + elementwise + loss + weight reads + dequantisation
    T_c    = (T_gpu⁴ + T_launch⁴)^¼                                  the host may not keep up
    T_mb   = max(T_c, t_comm) + overlap·min(T_c, t_comm)             part of the traffic hides
    T_step = accumulation · T_mb + exposed all-reduce + optimizer

Constants and the rows that fix them are in ``speed_constants.json``.
"""

from __future__ import annotations

from dataclasses import dataclass

from finefit.errors import NotModelled
from finefit.speed.communication import bus_bandwidth, pcie_bandwidth, traffic
from finefit.speed.constants import GpuRates, constant, gpu_rates
from finefit.speed.work import StepWork, work
from finefit.workload.cluster import Cluster, Gpu
from finefit.workload.dtypes import DType
from finefit.workload.model import Model
from finefit.workload.recipe import Recipe

_GENERATING = frozenset({"grpo", "rloo", "ppo"})
STEADY_TOKENS = 16_384  # tokens a micro-batch from which the narrow interval holds (377 rows)
SHORT_TOKENS = 4096  # below it the host and small messages decide: within 20 % of measured in 6 of 10 rows only


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of one optimizer step (all its micro-batches) on each GPU, by where they go.

    The parts add up to ``seconds``. ``launch`` and ``communication`` are the exposed shares only.

    Attributes:
        linear: matrix products of layers and head; attention: score and value products.
        elementwise: norms, activations, rotary, residuals, unfused softmax; loss: cross-entropy.
        weight_reads, dequantisation: memory traffic of the weights.
        optimizer: the update itself, on the GPU or the host.
        tokens: padded tokens of the step on one GPU.
        ranks: data-parallel GPUs.
        spread: half width of the 90 % interval, relative to ``seconds``.
        reasons: why the interval is as wide as it is.
    """

    linear: float
    attention: float
    elementwise: float
    loss: float
    weight_reads: float
    dequantisation: float
    launch: float
    communication: float
    optimizer: float
    tokens: int
    ranks: int
    spread: float
    reasons: tuple[str, ...]

    @property
    def parts(self) -> dict[str, float]:
        """Seconds by part, in the order of the model."""
        return {name: float(getattr(self, name)) for name in _PARTS}

    @property
    def seconds(self) -> float:
        """Seconds of one optimizer step."""
        return sum(self.parts.values())

    @property
    def low(self) -> float:
        """Lower end of the 90 % interval, seconds."""
        return self.seconds * (1 - self.spread)

    @property
    def high(self) -> float:
        """Upper end of the 90 % interval, seconds."""
        return self.seconds * (1 + self.spread)


_PARTS = (
    "linear",
    "attention",
    "elementwise",
    "loss",
    "weight_reads",
    "dequantisation",
    "launch",
    "communication",
    "optimizer",
)


def step_time(model: Model, recipe: Recipe, cluster: Cluster) -> StepTime:
    """Seconds of one optimizer step of ``grad_accum`` micro-batches at ``recipe.seq_len`` tokens a row.

    All GPUs of the cluster are data-parallel ranks; several without sharding run as DDP.

    Raises:
        InputError: a batch or length below 1.
        NotModelled: several machines, an architecture or a precision without measured speed.
    """
    _refuse(recipe)
    load = work(model, recipe)
    ranks = cluster.count
    rates, peak = gpu_rates(cluster.gpu), _peak(cluster.gpu, recipe)
    bandwidth = cluster.gpu.bandwidth
    kernels = kernel_class(recipe)

    linear = (load.linear_flops + load.head_flops) / (peak * rates.gemm)
    attention = load.attention_flops / (peak * rates.attention)
    elementwise = (
        load.elementwise_bytes * constant("elementwise_factor", kernels) * _cache_share(load, model, rates)
        + load.softmax_bytes
    ) / bandwidth
    loss_kernel = kernels if recipe.loss == "full" or kernels == "compiled" else "fused"
    loss = load.loss_bytes * constant("loss_factor", loss_kernel) / bandwidth
    weight_reads = load.weight_bytes / (bandwidth * constant("weight_read_share"))
    dequantisation = load.dequantised * _dequant_bytes(recipe) / bandwidth
    on_gpu = linear + attention + elementwise + loss + weight_reads + dequantisation

    recompute = 0.2 if recipe.checkpointing == "full" else 0.0
    host = model.layers * constant("launch_seconds", launch_class(recipe)) * (0.8 + recompute)
    compute = (on_gpu**4 + host**4) ** 0.25

    sent = traffic(load, recipe, ranks)
    bus = bus_bandwidth(cluster) if ranks > 1 else 0.0
    moved = sent.per_micro_batch / bus if bus else 0.0
    if sent.from_host:
        moved += sent.from_host / pcie_bandwidth(cluster.gpu)
    micro = max(compute, moved) + constant("overlap") * min(compute, moved)
    per_step = constant("allreduce_exposed") * sent.per_step / bus if bus else 0.0

    times = recipe.grad_accum
    spread, reasons = _interval(load, model, recipe, cluster.gpu, rates)
    return StepTime(
        linear=times * linear,
        attention=times * attention,
        elementwise=times * elementwise,
        loss=times * loss,
        weight_reads=times * weight_reads,
        dequantisation=times * dequantisation,
        launch=times * (compute - on_gpu),
        communication=times * (micro - compute) + per_step,
        optimizer=_optimizer(load, recipe, ranks, bandwidth),
        tokens=times * load.tokens,
        ranks=ranks,
        spread=spread,
        reasons=reasons,
    )


def _refuse(recipe: Recipe) -> None:
    """What has a memory and no time yet."""
    if recipe.parallel.gpus > 1 or recipe.parallel.expert > 1:
        raise NotModelled("the time of tensor, pipeline, context and expert parallel runs is not modelled yet")
    if recipe.task in _GENERATING:
        raise NotModelled("the time that reinforcement learning spends on generating text is not modelled yet")


def kernel_class(recipe: Recipe) -> str:
    """ "compiled", "fused" (Liger, Unsloth) or "eager": how often elementwise kernels touch memory."""
    return "compiled" if recipe.compiled else "fused" if recipe.fused_kernels else "eager"


def launch_class(recipe: Recipe) -> str:
    """Which host cost a layer has: what the framework does in Python between kernels."""
    if recipe.compiled:
        return "compiled"
    if recipe.sharding.kind in ("zero3", "fsdp"):
        return "sharded"
    return "adapters" if recipe.lora else "eager"


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
    if peak is None:
        raise NotModelled(f"{gpu.name} has no {dtype} matrix units", where="precision", fix="use fp16 on this card")
    return peak


def _cache_share(load: StepWork, model: Model, rates: GpuRates) -> float:
    """Share of the elementwise traffic that reaches device memory: small tensors stay in L2.

    A third always does; the rest grows with a hidden-state tensor (T·H, 16 bits) until it fills a
    quarter of the cache. The form was fitted on litgpt and Qwen README rows of 130-512 tokens.
    """
    return 1 / 3 + 2 / 3 * min(1.0, 2 * load.tokens * model.hidden / (rates.l2 / 4))


def _dequant_bytes(recipe: Recipe) -> float:
    return constant("dequant_bytes", "gptq" if recipe.quant and recipe.quant.kind == "gptq" else "bitsandbytes")


def _optimizer(load: StepWork, recipe: Recipe, ranks: int, bandwidth: float) -> float:
    """Seconds of the update. Sharded states divide it among the ranks; on the host nothing does.

    8-bit Adam is given AdamW's time: it moves less and computes more (torchtune: 5 % slower in all). So are the
    others that pass once over the elements of their states.
    """
    if recipe.sharding.offload_optimizer:
        return load.trained * constant("cpu_adam_seconds")
    shards = ranks if recipe.sharding.kind in ("zero1", "zero2", "zero3", "fsdp") else 1
    kind = recipe.optimizer.kind
    if recipe.optimizer.name != "adamw" and (kind.each or kind.widened or kind.host or kind.low_rank):
        raise NotModelled(f"the time of optimizer {recipe.optimizer.name!r} is not modelled", where="optimizer")
    if recipe.optimizer.name == "sgd":
        # weight and gradient read, weight written; momentum read and written
        moved = (5 if recipe.optimizer.momentum else 3) * recipe.weight_dtype.bytes
        return load.trained * moved / shards / bandwidth
    return load.trained * constant("optimizer_bytes") / shards / bandwidth


def _interval(load: StepWork, model: Model, recipe: Recipe, gpu: Gpu, rates: GpuRates) -> tuple[float, tuple[str, ...]]:
    """Half width of the 90 % interval and why."""
    wide = []
    if not rates.fitted:
        wide.append(f"no measured run on {gpu.name} behind it: {rates.source}")
    if load.tokens < SHORT_TOKENS:
        wide.append(f"{load.tokens} tokens a micro-batch: host speed and small messages decide")
    if recipe.quant and recipe.quant.kind == "int8":
        wide.append("int8 weights: constant of 4-bit weights, no measured rows")
    if model.experts is not None:
        wide.append("a mixture of experts: its kernels have no measured rows")
    if recipe.sharding.offload_optimizer or recipe.sharding.offload_params:
        wide.append("offload to host memory depends on the host")
    if wide:
        return constant("interval", "wide"), tuple(wide)
    if load.tokens >= STEADY_TOKENS:
        return constant("interval", "steady"), (f"{load.tokens} tokens a micro-batch on a measured GPU",)
    return constant("interval", "usual"), (f"{load.tokens} tokens a micro-batch on a measured GPU",)
