"""Step times against published ones: ``python -m benchmarks.throughput FILE [--json]``.

FILE is any CSV with the columns of ``throughput.csv``. Scored are rows of grade A or B in bf16 or fp16, of
dense models in the catalogue, on one machine, without model parallelism and offload. The peer is the rule
of thumb 6·N·D / (0.45·peak).
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.metrics import Score, counted, groups, macro, summary, worst
from benchmarks.tables import percent, summaries, table
from finefit.catalog.gpus import find_gpu
from finefit.catalog.models import find
from finefit.errors import FinefitError, InputError, NotModelled, UnknownGpu, UnknownModel
from finefit.speed import StepTime, step_time
from finefit.workload import Cluster, DType, Lora, Model, Optimizer, Quant, Recipe, Sharding
from finefit.workload.lora import linear_modules, lora_targets
from finefit.workload.parameters import parameter_count

NEEDED = frozenset({"model", "method", "dtype", "micro_batch", "tokens_per_microbatch", "gpu", "tok_s_gpu"})
VALUE_COLUMNS = ("value", "tok_s_gpu", "step_s", "notes")  # what was measured, never an input of a prediction
GROUPS = ("source", "method", "gpu", "gpus", "tokens")
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
SHORT = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "o_proj"}


class Skip(Exception):
    """A row that is not scored; the message says why, without the row's numbers."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a row asks, and which of its fields had to be assumed."""

    model: Model
    recipe: Recipe
    cluster: Cluster
    assumed: tuple[str, ...]


def question(row: Mapping[str, str]) -> Question:
    """The generic mapping from a row's columns to a recipe; it never reads the value columns.

    Raises:
        Skip: something is not modelled, or a column that decides the time is empty.
    """
    _refuse(row)
    try:
        model = find(row["model"])
        gpu = find_gpu(row["gpu"]).gpu
    except (UnknownModel, UnknownGpu) as error:
        raise Skip("model not in the catalogue" if isinstance(error, UnknownModel) else "GPU not known") from error
    except NotModelled as error:
        raise Skip("model not modelled yet") from error
    assumed: list[str] = []
    lora = None
    if METHODS[row["method"]] == "lora":
        lora = Lora(
            int(float(row["rank"] or 8)),
            16,
            targets=_targets(row["lora_targets"], model, assumed),
            modules_to_save=("wte", "embed_tokens", "lm_head") if row["method"] == "lora+emb" else (),
        )
        if not row["rank"]:
            assumed.append("rank: 8")
    if not row["attn_impl"]:
        assumed.append("attention: flash")
    if not row["kernels"]:
        assumed.append("kernels: eager")
    if not row["grad_accum"]:
        assumed.append("accumulation: 1")
    compiled, fused = _kernels(row["kernels"].lower())
    dtype = DTYPES[row["dtype"]]
    batch, ranks = int(row["micro_batch"]), int(row["n_gpus"] or 1)
    recipe = Recipe(
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
    return Question(model, recipe, Cluster(gpu, ranks, int(row["n_nodes"] or 1)), tuple(assumed))


def predict(asked: Question) -> StepTime:
    """finefit's step time.

    Raises:
        Skip: the recipe is understood but not modelled yet.
    """
    try:
        return step_time(asked.model, asked.recipe, asked.cluster)
    except NotModelled as error:
        raise Skip(f"not modelled yet: {error.what}") from error


def run(rows: list[dict[str, str]]) -> dict[str, Any]:
    """Score a table; the object that ``--json`` prints."""
    ours: list[Score] = []
    peer: list[Score] = []
    skipped: list[str] = []
    assumed: list[str] = []
    inside = 0
    for row in rows:
        try:
            if row.get("grade", "A") not in ("A", "B"):
                raise Skip(f"grade {row['grade']}")
            asked = question({k: v for k, v in row.items() if k not in VALUE_COLUMNS})
            time = predict(asked)
            measured = _measured(row, time)
        except Skip as reason:
            skipped.append(str(reason))
            continue
        assumed += asked.assumed
        fields = _fields(row, asked)
        ours.append(Score(row.get("id", ""), fields, measured, time.seconds))
        peer.append(Score(row.get("id", ""), fields, measured, _rule_of_thumb(asked, time)))
        inside += time.low <= measured <= time.high
    by = groups(ours, GROUPS)
    return {
        **summary(ours),
        "coverage": inside / len(ours) if ours else None,
        "agreement": None,
        "macro": macro(by["source"]),
        "skipped": counted(skipped),
        "groups": by,
        "peers": {"6ND/(0.45 peak)": {**summary(peer), "macro": macro(groups(peer, ["source"])["source"])}},
        "worst": worst(ours, lambda s: {"id": s.id, **s.fields, "measured": s.measured, "predicted": s.predicted}),
        "assumed": counted(assumed),
    }


def _refuse(row: Mapping[str, str]) -> None:
    if row["method"] not in METHODS:
        raise Skip(f"method {row['method']}")
    if row["dtype"] not in DTYPES:
        raise Skip(f"precision {row['dtype'] or 'not stated'}")
    if row["params_total_b"] != row["params_active_b"]:
        raise Skip("mixture of experts")
    if row["grad_ckpt"] not in ("full", "none", "none?"):
        raise Skip("checkpointing selective" if "selective" in row["grad_ckpt"] else "checkpointing not stated")
    if row["offload"]:
        raise Skip("offload")
    if (
        any(row.get(axis, "") not in ("", "1") for axis in ("tp", "pp", "cp", "ep"))
        or "device_map" in row["interconnect"]
    ):
        raise Skip("model parallel")
    if row["zero"] not in SHARDING:
        raise Skip("sharding not stated or hybrid")
    if not row["micro_batch"] or not row["tokens_per_microbatch"]:
        raise Skip("tokens a micro-batch not stated")
    if "non-pad" in row["packing"]:
        raise Skip("padded length not stated")


def _kernels(text: str) -> tuple[bool, bool]:
    """Whether elementwise kernels are compiled (or hand-written: TransformerEngine, CUDA), or fused by hand."""
    compiled = "no torch.compile" not in text and ("compile" in text or text.startswith("te") or "cuda c++" in text)
    return compiled, not compiled and any(word in text for word in ("liger", "unsloth", "fused (un", "composer"))


def _targets(text: str, model: Model, assumed: list[str]) -> tuple[str, ...]:
    names = [SHORT.get(name.strip(), name.strip()) for name in text.split(" ")[0].split(",")]
    try:
        return lora_targets(model, names)
    except FinefitError:
        assumed.append("LoRA targets: all linear")
        return linear_modules(model)


def _measured(row: Mapping[str, str], time: StepTime) -> float:
    try:
        rate = float(row["tok_s_gpu"])
    except ValueError:
        raise Skip("no measured throughput") from None
    if not rate > 0:
        raise Skip("no measured throughput")
    return time.tokens / rate


def _rule_of_thumb(asked: Question, time: StepTime) -> float:
    peak = asked.cluster.gpu.bf16_flops or asked.cluster.gpu.fp16_flops or 1.0
    return 6 * parameter_count(asked.model) * time.tokens / (0.45 * peak)


def _fields(row: Mapping[str, str], asked: Question) -> dict[str, str]:
    tokens = asked.recipe.micro_batch * asked.recipe.seq_len
    return {
        "source": row.get("source", "") or "unnamed",
        "model": row["model"],
        "method": asked.recipe.method_label,
        "gpu": row["gpu"],
        "gpus": str(asked.cluster.count),
        "tokens": next(
            name
            for limit, name in ((1024, "< 1k"), (4096, "1-4k"), (16384, "4-16k"), (1e99, "16k +"))
            if tokens < limit
        ),
    }


def read(path: Path) -> list[dict[str, str]]:
    """Rows of the table.

    Raises:
        InputError: the file cannot be read or lacks a needed column.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            missing = NEEDED - set(reader.fieldnames or ())
            if missing:
                raise InputError(f"no column {', '.join(sorted(missing))}", where=str(path))
            names = [*(reader.fieldnames or ()), *OPTIONAL]
            return [{name: (row.get(name) or "").strip() for name in names} for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"cannot read the table: {error}", where=str(path), fix="give a CSV file") from error


OPTIONAL = (
    "params_total_b",
    "params_active_b",
    "rank",
    "lora_targets",
    "quant",
    "grad_accum",
    "packing",
    "grad_ckpt",
    "attn_impl",
    "kernels",
    "n_gpus",
    "n_nodes",
    "zero",
    "offload",
    "interconnect",
)


def page(result: dict[str, Any]) -> str:
    """The result as Markdown tables."""
    mine = {name: result[name] for name in ("scored", "median_abs_error", "p90_abs_error", "bias", "under_share")}
    return "\n\n".join(
        [
            summaries("estimator", {"finefit": mine} | result["peers"]),
            f"Inside the 90 % interval: {percent(result['coverage'])}. "
            f"Every source counted once: median {percent(result['macro']['median_abs_error'])}.",
            *(summaries(field, result["groups"][field]) for field in GROUPS),
            "Rows with the largest error:",
            table(
                ["row", "source", "model", "method", "measured s", "predicted s", "error"],
                [
                    [
                        w["id"],
                        w["source"],
                        w["model"],
                        w["method"],
                        f"{w['measured']:.3f}",
                        f"{w['predicted']:.3f}",
                        percent(w["error"]),
                    ]
                    for w in result["worst"]
                ],
            ),
            "Rows left out:",
            table(["reason", "rows"], [[reason, str(n)] for reason, n in result["skipped"].items()]),
            "What the table leaves open and was assumed:",
            table(["assumption", "rows"], [[what, str(n)] for what, n in result["assumed"].items()]),
        ]
    )


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.throughput", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(argv)
    try:
        result = run(read(options.file))
    except InputError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(json.dumps(result, indent=1, ensure_ascii=False) if options.json else page(result))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
