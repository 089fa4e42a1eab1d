"""One mapping from a row of ``throughput.csv`` to a question; it never reads what was measured."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from benchmarks.throughput_core import Skip, kind_of, low_precision, mixture, whole
from finefit.catalog.gpus import find_gpu
from finefit.catalog.models import find
from finefit.errors import FinefitError, UnknownGpu
from finefit.speed.traits import Traits, traits
from finefit.workload import Cluster, DType, Gpu, Lora, Model, Optimizer, Quant, Recipe, Sharding
from finefit.workload.families import PEFT_DEFAULT_TARGETS
from finefit.workload.lora import adapter_shapes, linear_modules, lora_targets
from finefit.workload.parameters import parameter_count
from finefit.workload.recipe import Parallel

VALUE_COLUMNS = ("value", "tok_s_gpu", "step_s", "notes")  # what was measured, never an input of a prediction
FULL = (
    "full",
    "full(pretrain)",
    "pretrain",
    "osf",
)  # OSF trains every weight inside a subspace (peft 0.21.2 tuners/osf)
# Their layers multiply W + dW, formed in forward (peft 0.21.2 tuners/*/layer.py, ``get_delta_weight``)
FORMING = ("loha", "lokr", "fourierft", "waveft", "frod", "randlora", "hira", "boft", "peanut", "vblora", "adamss")
# fms-acceleration's FOAK keeps adapters out of FSDP's wrapping; FSDP2 shards whole layers
UNWRAPPED = ("foak", "fsdp2")
NO_ADAPTER = ("prefixtuning", "prompt_tuning", "ptuning", "trainable_tokens", "ln_tuning", "beft", "adaptionprompt")
SHORT = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "o_proj"}
# Rows of "non-pad" tokens come from batches of four sorted by length inside buckets of 80 (peft
# method_comparison/MetaMathQA/utils.py ``BucketIterator``): lengths that deviate by half their mean are padded by 6 %.
PADDING = 1.06
# Widths of llm-foundry's scripts/train/yamls/pretrain/mpt-*.yaml: (d_model, n_heads, n_layers)
MPT = {
    "125m": (768, 12, 12),
    "350m": (1024, 16, 24),
    "760m": (1536, 12, 24),
    "1b": (2048, 16, 24),
    "3b": (2560, 20, 32),
    "7b": (4096, 32, 32),
    "13b": (5120, 40, 40),
    "30b": (7168, 56, 48),
    "70b": (8192, 64, 80),
}
# One of each size, for models that only a number of parameters describes
LADDER = (
    *("meta-llama/Llama-3.2-1B", "meta-llama/Llama-3.2-3B", "meta-llama/Llama-2-7b-hf", "meta-llama/Llama-2-13b-hf"),
    *("codellama/CodeLlama-34b-hf", "meta-llama/Llama-2-70b-hf", "meta-llama/Llama-3.1-405B"),
)
SPECIALS = {"tinyllama-1.1b": "TinyLlama/TinyLlama_v1.1", "chatglm3-6b": "THUDM/chatglm3-6b"}


@dataclass(frozen=True, slots=True)
class Question:
    """What a row asks, and which of its fields had to be assumed.

    Attributes:
        padding: padded tokens of a counted one.
        kind: "dense 16-bit", "fp8", "moe" or "offload": rows that are scored together.
    """

    model: Model
    recipe: Recipe
    cluster: Cluster
    habits: Traits
    padding: float
    kind: str
    assumed: tuple[str, ...]


def question(row: Mapping[str, str]) -> Question:
    """The recipe that a row's columns describe.

    Raises:
        Skip: something is not modelled, or a column that decides the time is empty.
    """
    assumed: list[str] = []
    kind = kind_of(row)
    model, gpu = _model(row, assumed), _gpu(row["gpu"])
    if not re.match(r"\d", row["micro_batch"]) or not re.fullmatch(r"\d+(\.\d+)?", row["tokens_per_microbatch"]):
        raise Skip("tokens a micro-batch not stated")
    count, nodes = whole(row, "n_gpus"), whole(row, "n_nodes")
    parallel = Parallel(
        whole(row, "tp"),
        whole(row, "pp"),
        whole(row, "cp"),
        _expert_ranks(row),
        vocabulary="megatron" in _stack(row),
    )
    padding = PADDING if "non-pad" in row["packing"] else 1.0
    if padding > 1:
        assumed.append(f"padded tokens: {PADDING} of a counted one")
    recipe = _recipe(row, model, parallel, count, padding, assumed)
    cluster = Cluster(gpu, count, nodes, _network(row["interconnect"]))
    return Question(
        model, recipe, cluster, _habits(row, model, recipe, cluster, assumed), padding, kind, tuple(assumed)
    )


def _model(row: Mapping[str, str], assumed: list[str]) -> Model:
    name = row["model"]
    layers = re.search(r"\((\d+) layers\)", name)
    bare = re.sub(r"\s*\(.*?\)", "", name).strip()
    size = re.fullmatch(r"mosaicml/mpt-(\d+[mb])", bare)
    if size and size[1] in MPT:
        hidden, heads, depth = MPT[size[1]]
        return replace(find("mosaicml/mpt-7b"), name=bare, hidden=hidden, layers=depth, heads=heads, kv_heads=heads,
                       head_dim=hidden // heads, ffn=4 * hidden, vocab=50368)  # fmt: skip
    key = row.get("arch_key", "")
    for candidate in (
        bare,
        SPECIALS.get(key, key),
        re.sub(r"^[^/]+/", "", bare),
        re.sub(r"[-_](GPTQ|AWQ).*", "", bare),
    ):
        try:
            model = find(candidate) if candidate else None
        except FinefitError:
            continue
        if model is not None:
            return replace(model, layers=int(layers[1]), layer_types=()) if layers else model
    if not row.get("params_total_b") or mixture(row):
        raise Skip("model not in the catalogue")
    return _alike(float(row["params_total_b"]) * 1e9, assumed)


def _alike(parameters: float, assumed: list[str]) -> Model:
    """The Llama nearest in size; its depth is taken to the stated parameters."""
    model = min(map(find, LADDER), key=lambda each: abs(parameter_count(each) / parameters - 1))
    assumed.append("architecture: the Llama nearest in size")
    return replace(model, layers=max(1, round(model.layers * parameters / parameter_count(model))))


def _gpu(text: str) -> Gpu:
    throttled = "500w" in text.lower()
    name = re.sub(r"^\d+x\s*", "", re.sub(r"\s*\(.*?\)", "", text))
    for candidate in (text, name, re.sub(r"SXM-96GB", "SXM-80GB", name), re.sub(r"(RTX|RTXA|A)(\d)", r"\1 \2", name)):
        try:
            gpu = find_gpu(candidate).gpu
        except UnknownGpu:
            continue
        # Meta's H100 with HBM2e, 2.4 TB/s, limited to 500 W (pytorch/torchtitan docs/performance.md)
        return replace(gpu, id="h100-500w", bandwidth=2.4e12) if throttled else gpu
    raise Skip("GPU not known")


def _expert_ranks(row: Mapping[str, str]) -> int:
    """Of the column, or of fms-acceleration's name of the run ("moe-scattermoe-granite-ep2")."""
    named = re.search(r"-ep(\d+)", _stack(row))
    return int(named[1]) if named else whole(row, "ep")


def _stack(row: Mapping[str, str]) -> str:
    return row.get("framework", "").lower()


def _recipe(
    row: Mapping[str, str], model: Model, parallel: Parallel, count: int, padding: float, assumed: list[str]
) -> Recipe:
    lora = None
    if row["method"] not in FULL:
        lora = _lora(row, model, assumed)
    if not row["grad_accum"]:
        assumed.append("accumulation: 1")
    half = DType.FP16 if re.match(r"f(loat|p)16", row["dtype"]) else DType.BF16
    batch = whole(row, "micro_batch")
    return Recipe(
        method="lora" if lora else "full",
        weight_dtype=DType.FP32 if "fp32 master" in row["dtype"] else half,
        autocast=half,
        optimizer=Optimizer("adamw"),
        micro_batch=batch,
        seq_len=max(1, round(padding * float(row["tokens_per_microbatch"]) / batch)),
        grad_accum=whole(row, "grad_accum"),
        lora=lora,
        quant=_quant(row["quant"]),
        checkpointing="full" if row["grad_ckpt"] == "full" else "none",
        attention="eager" if row["attn_impl"] == "eager" else "flash2",
        fused_kernels=_fused(row),
        compiled=_compiled(row),
        sharding=_sharding(row, count, parallel, assumed),
        parallel=parallel,
    )


def _quant(text: str) -> Quant | None:
    if not text:
        return None
    return Quant("gptq" if "gptq" in text or "awq" in text else "int8" if "int8" in text else "nf4")


def _lora(row: Mapping[str, str], model: Model, assumed: list[str]) -> Lora:
    if not row["rank"]:
        assumed.append("rank: 8")
    if not re.search("lora", row["method"]):
        assumed.append("other adapters than LoRA: time of LoRA of that rank")
    rank = min(whole(row, "rank") if row["rank"] else 8, 256)
    saved = ("wte", "embed_tokens", "lm_head") if row["method"] == "lora+emb" else ()
    return Lora(rank, 16, targets=_targets(row["lora_targets"], model, assumed), modules_to_save=saved)


def _targets(text: str, model: Model, assumed: list[str]) -> tuple[str, ...]:
    names = [SHORT.get(name.strip(), name.strip()) for name in text.split(" ")[0].split(",")]
    if text in ("", "DEFAULT"):
        names = list(PEFT_DEFAULT_TARGETS.get(model.family, ()))
        assumed.append("LoRA targets: PEFT's default")
    try:
        return lora_targets(model, names)
    except FinefitError:
        assumed.append("LoRA targets: all linear")
        return linear_modules(model)


def _sharding(row: Mapping[str, str], count: int, parallel: Parallel, assumed: list[str]) -> Sharding:
    """ZeRO stage by its number; "HSDP" shards inside a machine; unclear: what the framework's name says."""
    sharding = _states(row, count, parallel, assumed)
    cpu = "cpu" in row["offload"]
    return replace(sharding, offload_optimizer=cpu, offload_params=cpu and "param" in row["offload"])


def _states(row: Mapping[str, str], count: int, parallel: Parallel, assumed: list[str]) -> Sharding:
    text = row["zero"]
    ranks = count // (parallel.tensor * parallel.pipeline)
    if count == 1 and text != "3":
        return Sharding("none", 1)
    if "hsdp" in text.lower() or text.startswith("3"):
        return Sharding("fsdp" if "fsdp" in _stack(row) or "deepspeed" not in _stack(row) else "zero3", ranks)
    if text[:1] in ("1", "2"):
        return Sharding(f"zero{text[0]}", ranks)
    if text:
        assumed.append("sharding: replicas")
    return Sharding("fsdp" if "fsdp" in _stack(row) else "ddp", ranks)


def _compiled(row: Mapping[str, str]) -> bool:
    """Whether elementwise kernels are compiled, or hand-written for the whole layer (TransformerEngine, CUDA).

    Megatron, and what trains in 8 or 4 bits, runs TransformerEngine where nothing else is said.
    """
    text = row["kernels"].lower()
    return "no torch.compile" not in text and (
        "compile" in text or text.startswith("te") or "cuda c++" in text
        or (not text and ("megatron" in _stack(row) or low_precision(row["dtype"]) is not None))
    )  # fmt: skip


def _fused(row: Mapping[str, str]) -> bool:
    text = row["kernels"].lower()
    named = any(word in text for word in ("liger", "unsloth", "composer", "triton"))
    return not _compiled(row) and (named or text.startswith("fused"))


def _habits(row: Mapping[str, str], model: Model, recipe: Recipe, cluster: Cluster, assumed: list[str]) -> Traits:
    implied = traits(model, recipe)
    host = "captured" if "cuda graphs" in row["kernels"].lower() else implied.host
    unwrapped = any(word in _stack(row) for word in UNWRAPPED)
    shards = cluster.count // cluster.nodes if "hsdp" in row["zero"].lower() else 0
    if not row["kernels"]:
        assumed.append(f"kernels: {implied.kernels}")
    liger = "liger" in row["kernels"].lower() and "foak" not in row["kernels"].lower()
    liger = liger or "-liger" in _stack(row)
    return replace(
        implied,
        loss="fused_linear" if liger and not recipe.compiled else implied.loss,
        host=host,
        experts="grouped" if "scattermoe" in _stack(row) else implied.experts,
        recomputed=_recomputed(row["grad_ckpt"], model, assumed),
        adapters=0 if row["method"] in NO_ADAPTER else implied.adapters,
        wrapped_adapters=0 if unwrapped else implied.wrapped_adapters,
        formed=_formed(model, recipe) if row["method"] in FORMING else 0,
        streamed=bool(row["offload"]) and "cpu" not in row["offload"],
        virtual_stages=whole(row, "vpp"),
        shard_ranks=shards,
        precision=low_precision(row["dtype"]) or "16bit",
    )


def _formed(model: Model, recipe: Recipe) -> int:
    shapes = adapter_shapes(model, recipe.lora.targets) if recipe.lora else ()
    return model.layers * sum(rows * columns for _, rows, columns in shapes)


def _recomputed(text: str, model: Model, assumed: list[str]) -> float:
    """Share of the layers' forward that backward computes again."""
    if text == "full":
        return 1.0
    if text in ("", "none"):
        return 0.0
    if "selective" not in text or "unstated" in text:
        assumed.append(f"checkpointing {text}: none")
        return 0.0
    inside = text.partition("(")[2].rstrip(")")
    every = re.search(r"[1-9]\d*", inside)
    if every or "layer" in inside:  # one layer in so many
        if not every:
            assumed.append("selective checkpointing: every second layer")
        return 1 / int(every[0]) if every else 0.5
    if re.search(r"\bops?\b", inside):  # torchtitan keeps every second matrix product and attention
        return 0.35
    # LLMQ names what it recomputes: the MLP's first products, those of queries, keys and values; the rest is no product
    mlp = (2 if model.gated_mlp else 1) * model.hidden * model.ffn
    heads = model.hidden * (model.q_width + 2 * model.kv_width)
    whole = mlp + heads + model.hidden * (model.ffn + model.q_width)
    return (mlp * ("ffn" in inside or "swiglu" in inside) + heads * ("qkv" in inside)) / whole


def _network(text: str) -> float | None:
    """Bytes a second of a machine's network cards together, where the row states Gb/s: "NVSwitch + IB 8x400"."""
    outside = text.rpartition("+")[2] if "+" in text else text.rpartition("|")[2]
    rates = [int(rate) for rate in re.findall(r"(?<!\d)(\d{2,4})\s*(?:Gb|G\b|$)", outside)]
    cards = re.search(r"(\d)\s*x", outside)
    if not rates or "NVL" in outside.upper():
        return None
    return max(rates) * (int(cards[1]) if cards else 1) * 1e9 / 8


def measured_seconds(row: Mapping[str, str], asked: Question) -> float:
    """Seconds of a step from the published tokens a second of one GPU.

    Raises:
        Skip: no rate.
    """
    try:
        rate = float(row["tok_s_gpu"])
    except ValueError:
        raise Skip("no measured throughput") from None
    if not rate > 0:
        raise Skip("no measured throughput")
    recipe, copies = asked.recipe, asked.cluster.count / asked.recipe.parallel.gpus
    counted = recipe.grad_accum * float(row["tokens_per_microbatch"])
    return counted * copies / asked.cluster.count / rate
