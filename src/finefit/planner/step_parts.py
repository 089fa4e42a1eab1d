"""Where one step's time goes: each part as what it does, how much of it, and the constant it meets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from finefit.planner.message import Message, message
from finefit.speed import Run
from finefit.speed.constants import Rate, entry
from finefit.speed.steptime import Asked, ask
from finefit.workload import Cluster, Model, Recipe

_TERA, _GIGA = 1e12, 1e9


@dataclass(frozen=True, slots=True)
class StepPart:
    """One part of a step.

    Attributes:
        name: of ``StepTime.parts``; seconds: of the step, share: of all of it.
        does: the work in numbers.
        constants: what it is divided by or multiplied with: path in speed_constants.json, value, measured runs that
            fixed it (0: held at the value of its source).
    """

    name: str
    seconds: float
    share: float
    does: Message
    constants: tuple[tuple[str, float, int], ...]

    def to_dict(self) -> dict[str, Any]:
        """``run.step_explained`` of the JSON contract."""
        names = ("constant", "value", "runs")
        return {
            "part": self.name,
            "seconds": self.seconds,
            "share": self.share,
            "does": str(self.does),
            "constants": [dict(zip(names, each, strict=True)) for each in self.constants],
        }


def step_parts(model: Model, recipe: Recipe, cluster: Cluster, run: Run) -> tuple[StepPart, ...]:
    """The parts of a run's step that take time, longest first."""
    asked = ask(model, replace(recipe, seq_len=run.row_tokens), cluster)
    said = dict(_does(asked, recipe, cluster))
    out = []
    for name, seconds in run.step.parts.items():
        if seconds > 0:
            does, slots = said[name]
            constants = tuple(_constant(asked.rates[slot]) for slot in slots)
            out.append(StepPart(name, seconds, seconds / run.step_seconds, does, constants))
    return tuple(sorted(out, key=lambda part: -part.seconds))


def _constant(rate: Rate) -> tuple[str, float, int]:
    rows = entry(*rate.key.split(".")).get("rows", {})
    return rate.key, rate.value, sum(rows.values())


def _does(asked: Asked, recipe: Recipe, cluster: Cluster) -> Iterator[tuple[str, tuple[Message, tuple[str, ...]]]]:
    work, load, gpu = asked.work, asked.load, cluster.gpu
    times, wide = int(load.times), f"{gpu.bandwidth / _GIGA:,.0f}"
    peak = f"{(gpu.bf16_flops or gpu.fp16_flops or 0.0) / _TERA:,.0f}"
    products = message(
        "{flops} TFLOP a micro-batch at {peak} TFLOP/s, {times} times",
        flops=f"{(work.linear_flops + work.expert_flops + work.head_flops) / _TERA:,.1f}",
        times=times,
        peak=peak,
    )
    slots = ("gemm", "experts") if work.expert_flops else ("gemm",)
    yield "linear", (products, slots)
    scores = message(
        "{flops} TFLOP a micro-batch at {peak} TFLOP/s, {times} times",
        flops=f"{work.attention_flops / _TERA:,.2f}",
        times=times,
        peak=peak,
    )
    yield "attention", (scores, ("attention",))
    yield "elementwise", (_bytes(work.elementwise_bytes + work.adapter_bytes, times, wide), ("elementwise",))
    yield "loss", (_bytes(work.loss_bytes, times, wide), ("loss",))
    yield "weight_reads", (_bytes(work.weight_bytes, times, wide), ("weight_reads",))
    unpacked = message(
        "{count} billion weights unpacked a micro-batch at {wide} GB/s, {times} times",
        count=f"{work.dequantised / 1e9:,.1f}",
        times=times,
        wide=wide,
    )
    yield "dequantisation", (unpacked, ("dequantisation",))
    launched = message("{count} layers that Python walks through slower than the GPU computes them", count=work.layers)
    python = {"host": True, "adapter": load.adapters > 0, "unit": load.units > 0}
    yield "launch", (launched, tuple(slot for slot, used in python.items() if used))
    sent = message(
        "{each} GB a micro-batch, {times} times, and {once} GB a step: what computing does not hide",
        each=f"{(load.gathered + load.activations + load.exchanged) / _GIGA:,.2f}",
        times=times,
        once=f"{load.reduced / _GIGA:,.2f}",
    )
    links = {
        "bus": True,
        "network": cluster.nodes > 1,
        "overlap": load.gathered > 0,
        "exposed": load.reduced > 0,
        "tensor_exposed": load.activations > 0,
        "expert_exposed": load.exchanged > 0,
    }
    yield "communication", (sent, tuple(slot for slot, used in links.items() if used))
    idle = message("{stages} stages wait for each other as a step begins and ends", stages=recipe.parallel.pipeline)
    yield "bubble", (idle, ())
    updated = message("{count} million trained parameters", count=f"{work.trained / 1e6:,.0f}")
    yield "optimizer", (updated, ("cpu_adam",) if load.on_host else ("optimizer",))


def _bytes(count: float, times: int, wide: str) -> Message:
    return message(
        "{size} GB a micro-batch at {wide} GB/s, {times} times",
        size=f"{count / _GIGA:,.2f}",
        times=times,
        wide=wide,
    )
