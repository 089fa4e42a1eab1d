"""Step times of the model against published ones: ``python -m benchmarks.throughput FILE [--json]``.

FILE is any CSV with the columns of ``throughput.csv``: model, method, rank, dtype, quant, micro_batch,
grad_accum, tokens_per_microbatch, grad_ckpt, attn_impl, kernels, n_gpus, n_nodes, tp, pp, cp, ep, zero,
offload, gpu, tok_s_gpu, grade. The peer is the rule of thumb 6·N·D / (0.45·peak).
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from finefit.errors import FinefitError
from finefit.speed.steptime import step_time
from finefit.workload import Cluster, DType, Gpu, Lora, Model, Optimizer, Quant, Recipe, Sharding
from finefit.workload.lora import linear_modules, lora_targets

# GPU names of published tables -> catalogue ids
GPUS = {
    "A100-SXM-80GB": "a100-sxm-80",
    "A100-SXM-40GB": "a100-sxm-40",
    "A800-SXM-80GB": "a800-sxm-80",
    "H100-SXM-80GB": "h100-sxm-80",
    "H200-SXM": "h200-sxm",
    "L40S": "l40s",
    "RTX4090": "rtx-4090",
    "RTX5090": "rtx-5090",
    "RTX5060Ti": "rtx-5060-ti-16",
    "RTX6000Ada": "rtx-6000-ada",
    "RTXPRO6000": "rtx-pro-6000",
    "RTXPRO4500": "rtx-pro-4500",
    "B200": "b200-sxm",
    "A6000": "rtx-a6000",
    "T4": "t4",
}
DTYPES = {
    "bf16": DType.BF16,
    "bf16-pure": DType.BF16,
    "bfloat16": DType.BF16,
    "bfloat16+amp": DType.BF16,
    "bf16 (adapters fp32)": DType.BF16,
    "bf16-amp(fp32 master)": DType.BF16,
    "float16": DType.FP16,
    "float16+amp": DType.FP16,
    "fp16": DType.FP16,
}
METHODS = {"full": "full", "full(pretrain)": "full", "lora": "lora", "lora+emb": "lora", "qlora": "lora"}
SHARDING = {"": "ddp", "1": "zero1", "2": "zero2", "3": "zero3"}


class Skipped(Exception):
    """The row is not scored; the message says why."""


@dataclass(frozen=True)
class Scored:
    """One row with what was predicted and what was measured, in seconds an optimizer step."""

    id: str
    source: str
    method: str
    gpu: str
    n_gpus: int
    predicted: float
    measured: float
    spread: float
    peer: float

    @property
    def error(self) -> float:
        """Relative error of the step time."""
        return self.predicted / self.measured - 1


def recipe_of(row: Mapping[str, str], model: Model) -> Recipe:
    """The one generic mapping from a row's columns to a recipe.

    Raises:
        Skipped: a column says something that is not modelled, or leaves out what decides the time.
    """
    if row["method"] not in METHODS:
        raise Skipped(f"method {row['method']}")
    if row["dtype"] not in DTYPES:
        raise Skipped(f"dtype {row['dtype'] or 'unstated'}")
    if row["grad_ckpt"] not in ("full", "none", "none?"):
        raise Skipped(f"checkpointing {row['grad_ckpt'].split('(')[0].split(' ')[0] or 'unstated'}")
    if row["offload"]:
        raise Skipped("offload")
    if any(row[axis] not in ("", "1") for axis in ("tp", "pp", "cp", "ep")):
        raise Skipped("model parallel")
    if "device_map" in row["interconnect"]:
        raise Skipped("layers spread over GPUs")
    if row["zero"] not in SHARDING:
        raise Skipped(f"sharding {row['zero']}")
    if not row["micro_batch"] or not row["tokens_per_microbatch"]:
        raise Skipped("tokens a micro-batch unstated")
    if "non-pad" in row["packing"]:
        raise Skipped("padded length unstated")
    batch = int(row["micro_batch"])
    kernels = row["kernels"].lower()
    compiled = (
        ("compile" in kernels and "no torch.compile" not in kernels) or "te" in kernels.split() or "cuda c++" in kernels
    )
    compiled = compiled or kernels.startswith("te")
    fused = not compiled and any(word in kernels for word in ("liger", "unsloth", "fused (", "composer"))
    dtype = DTYPES[row["dtype"]]
    lora = None
    if METHODS[row["method"]] == "lora":
        saved = ("wte", "embed_tokens", "lm_head") if row["method"] == "lora+emb" else ()
        lora = Lora(
            int(float(row["rank"] or 8)), 16, targets=_targets(row["lora_targets"], model), modules_to_save=saved
        )
    ranks = int(row["n_gpus"])
    return Recipe(
        method=METHODS[row["method"]],
        weight_dtype=DType.FP32 if "fp32 master" in row["dtype"] else dtype,
        autocast=dtype,
        optimizer=Optimizer("adamw"),
        micro_batch=batch,
        seq_len=max(1, round(float(row["tokens_per_microbatch"]) / batch)),
        grad_accum=int(row["grad_accum"] or 1),
        lora=lora,
        quant=Quant("gptq" if "gptq" in row["quant"] else "nf4") if row["quant"] else None,
        checkpointing="full" if row["grad_ckpt"] == "full" else "none",
        attention="eager" if row["attn_impl"] == "eager" else "flash2",
        fused_kernels=fused,
        compiled=compiled,
        sharding=Sharding(SHARDING[row["zero"]], ranks),
    )


def _targets(text: str, model: Model) -> tuple[str, ...]:
    short = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "o_proj"}
    names = [short.get(name.strip(), name.strip()) for name in text.split(" ")[0].split(",")]
    try:
        return lora_targets(model, names)
    except FinefitError:
        return linear_modules(model)


def score(
    rows: list[dict[str, str]], models: Mapping[str, Model], gpus: Mapping[str, Gpu]
) -> tuple[list[Scored], Counter[str]]:
    """Predict every row that can be, and count the others by reason."""
    scored, skipped = [], Counter[str]()
    for row in rows:
        try:
            scored.append(_score_row(row, models, gpus))
        except Skipped as reason:
            skipped[str(reason)] += 1
        except FinefitError as error:
            skipped[error.what] += 1
    return scored, skipped


def _score_row(row: Mapping[str, str], models: Mapping[str, Model], gpus: Mapping[str, Gpu]) -> Scored:
    if row["grade"] not in ("A", "B"):
        raise Skipped(f"grade {row['grade']}")
    if row["params_total_b"] != row["params_active_b"]:
        raise Skipped("mixture of experts")
    if row["model"] not in models:
        raise Skipped("model not in the catalogue")
    if row["gpu"] not in GPUS:
        raise Skipped(f"GPU {row['gpu']}")
    if not row["tok_s_gpu"]:
        raise Skipped("no measured throughput")
    model, gpu = models[row["model"]], gpus[GPUS[row["gpu"]]]
    recipe = recipe_of(row, model)
    cluster = Cluster(gpu, int(row["n_gpus"]), int(row["n_nodes"] or 1))
    time = step_time(model, recipe, cluster)
    measured = time.tokens / float(row["tok_s_gpu"])
    peer = 6 * float(row["params_total_b"]) * 1e9 * time.tokens / (0.45 * (gpu.bf16_flops or gpu.fp16_flops or 1))
    return Scored(
        row["id"], row["source"], row["method"], row["gpu"], cluster.count, time.seconds, measured, time.spread, peer
    )


def summary(errors: list[float]) -> dict[str, float]:
    """Median, p90 and share under by more than 5 % of relative errors."""
    size = sorted(abs(e) for e in errors)
    return {
        "scored": len(size),
        "median_abs_error": statistics.median(size),
        "p90_abs_error": size[min(len(size) - 1, int(0.9 * len(size)))],
        "under_share": sum(e < -0.05 for e in errors) / len(size),
    }


def report(scored: list[Scored], skipped: Counter[str]) -> dict[str, Any]:
    """The benchmark contract's object."""
    groups: dict[str, dict[str, Any]] = {}
    for field in ("source", "method", "gpu", "n_gpus"):
        by = defaultdict(list)
        for s in scored:
            by[str(getattr(s, field))].append(s.error)
        groups[field] = {key: summary(errors) for key, errors in sorted(by.items())}
    worst = sorted(scored, key=lambda s: -abs(s.error))[:20]
    return {
        **summary([s.error for s in scored]),
        "coverage": sum(abs(s.measured - s.predicted) <= s.spread * s.predicted for s in scored) / len(scored),
        "agreement": None,
        "skipped": dict(skipped.most_common()),
        "groups": groups,
        "peers": {"6ND/(0.45 peak)": summary([s.peer / s.measured - 1 for s in scored])},
        "worst": [{"id": s.id, "predicted": s.predicted, "measured": s.measured} for s in worst],
    }
