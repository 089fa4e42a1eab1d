"""The rows of the parity matrix: architectures × method × checkpointing × optimizer × attention × lengths.

Dimensions are those of the published models with fewer layers: layers repeat, and three show the first, the
last and one between. Sources: config.json of the model named in each entry.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from finefit.step.decoder import EAGER_ONLY
from finefit.workload import DType, Experts, Lora, Model, Optimizer, Quant, Recipe, Trained
from finefit.workload.families import EXPERT_TARGETS, layout
from finefit.workload.lora import linear_modules, lora_targets

LAYERS = 3


@dataclass(frozen=True, slots=True)
class Row:
    """One recipe on one model."""

    name: str
    model: Model
    recipe: Recipe
    config: Mapping[str, Any] | None = None  # the config.json to trace, where the model was read from one


def _model(name: str, family: str, h: int, a: int, k: int, d: int, f: int, v: int, **more: object) -> Model:
    return Model(name, family, h, LAYERS, a, k, d, f, v, **{"tied": False, **more})  # type: ignore[arg-type]


_GEMMA = {"tied": True, "activation": "gelu_pytorch_tanh"}
_LAYER_NORM = {"norm": "layer", "gated_mlp": False, "qkv_bias": True, "o_bias": True, "mlp_bias": True}
MODELS = {
    m.name: m
    for m in (
        _model("llama-7b", "llama", 4096, 32, 32, 128, 11008, 32000),
        _model("llama-8b", "llama", 4096, 32, 8, 128, 14336, 128256),
        _model("llama-1b", "llama", 2048, 32, 8, 64, 8192, 128256, tied=True),
        _model("mistral-7b", "mistral", 4096, 32, 8, 128, 14336, 32000),
        _model("qwen2.5-7b", "qwen2", 3584, 28, 4, 128, 18944, 152064, qkv_bias=True),
        _model("qwen2.5-0.5b", "qwen2", 896, 14, 2, 64, 4864, 151936, qkv_bias=True, tied=True),
        _model("qwen3-8b", "qwen3", 4096, 32, 8, 128, 12288, 151936, qk_norm="head"),
        _model("gemma-2b", "gemma", 2048, 8, 1, 256, 16384, 256000, **_GEMMA),
        _model(
            "gemma2-2b",
            "gemma2",
            2304,
            8,
            4,
            256,
            9216,
            256000,
            sandwich_norms=True,
            attention_softcap=True,
            final_softcap=True,
            sliding_window=4096,
            layer_types=("sliding", "full", "sliding"),
            **_GEMMA,
        ),
        _model(
            "gemma3-1b",
            "gemma3_text",
            1152,
            4,
            1,
            256,
            6912,
            262144,
            sandwich_norms=True,
            qk_norm="head",
            sliding_window=512,
            layer_types=("sliding", "sliding", "full"),
            **_GEMMA,
        ),
        _model(
            "phi-2",
            "phi",
            2560,
            32,
            32,
            80,
            10240,
            51200,
            activation="gelu_new",
            parallel_block=True,
            shared_norm=True,
            head_bias=True,
            rotary_fraction=0.4,
            residual_dropout=0.1,
            max_position=2048,
            **_LAYER_NORM,
        ),
        _model(
            "phi3-mini",
            "phi3",
            3072,
            32,
            32,
            96,
            8192,
            32064,
            fused_qkv=True,
            fused_gate_up=True,
            sliding_window=2047,
            layer_types=("sliding", "sliding", "sliding"),
            max_position=4096,
        ),
        _model(
            "gpt2",
            "gpt2",
            768,
            12,
            12,
            64,
            3072,
            50257,
            tied=True,
            activation="gelu_new",
            position="learned",
            max_position=1024,
            fused_qkv=True,
            attention_dropout=0.1,
            residual_dropout=0.1,
            embedding_dropout=0.1,
            **_LAYER_NORM,
        ),
        _model(
            "pythia-1b",
            "gpt_neox",
            2048,
            8,
            8,
            256,
            8192,
            50304,
            activation="gelu",
            parallel_block=True,
            fused_qkv=True,
            rotary_fraction=0.25,
            max_position=2048,
            **_LAYER_NORM,
        ),
        _model("mixtral-8x7b", "mixtral", 4096, 32, 8, 128, 14336, 32000, experts=Experts(8, 2, 14336)),
        _model(
            "qwen3-30b-a3b",
            "qwen3_moe",
            2048,
            32,
            4,
            128,
            6144,
            151936,
            qk_norm="head",
            experts=Experts(128, 8, 768, dense_layers=(0,)),  # the published model has experts in every layer
        ),
        _model(
            "qwen1.5-moe",
            "qwen2_moe",
            2048,
            16,
            16,
            128,
            5632,
            151936,
            qkv_bias=True,
            experts=Experts(60, 4, 1408, shared=5632, shared_gate=True, normalised=False),
        ),
        _model(
            "olmoe-1b-7b",
            "olmoe",
            2048,
            16,
            16,
            128,
            1024,
            50304,
            qk_norm="full",
            experts=Experts(64, 8, 1024, normalised=False),
        ),
        _model(
            "granite-1b-a400m",
            "granitemoe",
            1024,
            16,
            8,
            64,
            512,
            49155,
            tied=True,
            experts=Experts(32, 8, 512, normalised=False),
        ),
        _model(
            "phi3.5-moe",
            "phimoe",
            4096,
            32,
            8,
            128,
            6400,
            32064,
            norm="layer",
            qkv_bias=True,
            o_bias=True,
            head_bias=True,
            experts=Experts(16, 2, 6400),
        ),
        _model(
            "glm-4.5-air",
            "glm4_moe",
            4096,
            96,
            8,
            128,
            10944,
            151552,
            qkv_bias=True,
            rotary_fraction=0.5,
            experts=Experts(128, 8, 1408, shared=1408, dense_layers=(0,)),
        ),
        _model(
            "dots1",
            "dots1",
            4096,
            32,
            32,
            128,
            10944,
            152064,
            qk_norm="head",
            experts=Experts(128, 6, 1408, shared=2816, dense_layers=(0,)),
        ),
        _model(
            "ernie-21b-a3b",
            "ernie4_5_moe",
            2560,
            20,
            4,
            128,
            12288,
            103424,
            tied=True,
            experts=Experts(64, 6, 1536, shared=3072, dense_layers=(0,)),
        ),
        _model("ernie-0.3b", "ernie4_5", 1024, 16, 2, 128, 3072, 103424, tied=True),
    )
}

FUSED, FOREACH = Optimizer("adamw", "fused"), Optimizer("adamw", "foreach")
FULL = Recipe("full", DType.BF16, FUSED, 512, 2)


def _lora(model: Model, *, everything: bool = True, rank: int = 16, dtype: DType = DType.FP32) -> Lora:
    """Adapters on every linear module, or on those that make queries and values."""
    names = layout(model.family)
    every = lora_targets(model, "all")
    few = tuple(name for name in every if name in (names.qkv, names.q, names.v)) or every[:1]
    converted = EXPERT_TARGETS.get(model.family, frozenset())
    every = tuple(name for name in every if name not in converted)
    return Lora(rank, 2 * rank, targets=every if everything else few, dtype=dtype)


def _methods(model: Model) -> dict[str, Recipe]:
    # transformers refuses SDPA for Gemma 2, whose scores have a soft cap, and for families that never had it.
    eager = model.attention_softcap or model.family in EAGER_ONLY
    full = replace(FULL, attention="eager") if eager else FULL
    lora = replace(full, method="lora", lora=_lora(model))
    methods = {
        "full": full,
        "lora": lora,
        "lora-qv": replace(full, method="lora", lora=_lora(model, everything=False, rank=8, dtype=DType.BF16)),
    }
    if model.family != "gpt2":  # bitsandbytes 4-bit of Conv1D transposes; not in this matrix
        methods["qlora"] = replace(lora, quant=Quant("nf4", double=True, kbit_prepare=True))
    return methods


CHECKPOINTING = {
    "none": {"checkpointing": "none"},
    "nonre": {"checkpointing": "full", "reentrant": False},
    "re": {"checkpointing": "full", "reentrant": True},
}
BATCHES = ((2, 512), (1, 2048), (4, 1000))


def _name(*parts: object) -> str:
    return "/".join(str(p) for p in parts)


def core(model: Model) -> Iterator[Row]:
    """Method × checkpointing of one model."""
    for method, recipe in _methods(model).items():
        for mode, fields in CHECKPOINTING.items():
            yield Row(_name(model.name, method, mode), model, replace(recipe, **fields))


def variants(model: Model) -> Iterator[Row]:
    """One change at a time from full fine-tuning and from LoRA with checkpointing."""
    full, lora = _methods(model)["full"], replace(_methods(model)["lora"], **CHECKPOINTING["nonre"])
    fp32 = replace(full, weight_dtype=DType.FP32)
    amp = replace(fp32, autocast=DType.BF16)
    changes = {
        "full/foreach": replace(full, optimizer=FOREACH),
        "full/loop": replace(full, optimizer=Optimizer("adamw", "loop")),
        "full/8bit": replace(full, optimizer=Optimizer("adamw_8bit")),
        "full/sgd": replace(full, optimizer=Optimizer("sgd", "foreach")),
        "full/eager": replace(full, attention="eager"),
        "full/eager/nonre": replace(full, attention="eager", **CHECKPOINTING["nonre"]),
        "full/padded": replace(full, padded=True),
        "full/padded/nonre": replace(full, padded=True, **CHECKPOINTING["nonre"]),
        "full/flash2": replace(full, attention="flash2"),
        "full/chunked": replace(full, loss="chunked"),
        "full/chunked/nonre": replace(full, loss="chunked", **CHECKPOINTING["nonre"]),
        "lora/flash2": replace(lora, attention="flash2"),
        "lora/chunked": replace(lora, loss="chunked"),
        "full/outputs": replace(full, keeps_outputs=True),
        "full/evaluation": replace(full, eval_batch=8),
        "lora/evaluation": replace(lora, eval_batch=8),
        "lora/chunked/evaluation": replace(lora, loss="chunked", eval_batch=8),
        "full/cache": replace(full, returns_cache=True),
        "full/accumulate": replace(full, grad_accum=4),
        "full/fp32": fp32,
        "full/amp": amp,
        "full/amp/nonre": replace(amp, **CHECKPOINTING["nonre"]),
        "full/amp/outputs": replace(amp, keeps_outputs=True),
        "full/amp/evaluation": replace(amp, eval_batch=8, **CHECKPOINTING["nonre"]),
        "lora/amp": replace(_methods(model)["lora"], autocast=DType.BF16),
        "lora/amp/nonre": replace(lora, autocast=DType.BF16),
        "lora/foreach": replace(lora, optimizer=FOREACH),
        "lora/eager": replace(lora, attention="eager"),
        "lora/padded": replace(lora, padded=True),
        "lora/accumulate": replace(lora, grad_accum=4),
        "lora/outputs": replace(lora, keeps_outputs=True),
    }
    assert lora.lora is not None
    for word in ("dropout",):
        changes[f"lora/{word}"] = replace(lora, lora=replace(lora.lora, dropout=0.05))
        changes[f"lora/{word}/none"] = replace(lora, lora=replace(lora.lora, dropout=0.05), checkpointing="none")
    if "qlora" in _methods(model):
        qlora = _methods(model)["qlora"]
        assert qlora.quant is not None
        changes["qlora/amp/re"] = replace(qlora, autocast=DType.BF16, **CHECKPOINTING["re"])
        changes["qlora/plain"] = replace(qlora, quant=replace(qlora.quant, double=False))
        changes["qlora/evaluation/re"] = replace(qlora, eval_batch=8, **CHECKPOINTING["re"])
        changes["qlora/unprepared/re"] = replace(
            qlora, quant=replace(qlora.quant, kbit_prepare=False), **CHECKPOINTING["re"]
        )
        for mode, fields in CHECKPOINTING.items():
            changes[f"qlora/int8/{mode}"] = replace(qlora, quant=Quant("int8", kbit_prepare=True), **fields)
        changes["qlora/bf16-adapters/re"] = replace(
            qlora, lora=replace(lora.lora, dtype=DType.BF16), **CHECKPOINTING["re"]
        )
    for name, recipe in changes.items():
        yield Row(_name(model.name, name), model, recipe)


def lengths(model: Model) -> Iterator[Row]:
    """Other batches than 2 × 512: one row, many tokens, a length that is no multiple of anything."""
    for b, s in BATCHES[1:]:
        for method in ("full", "lora"):
            for mode in ("none", "nonre"):
                recipe = replace(_methods(model)[method], micro_batch=b, seq_len=s, **CHECKPOINTING[mode])
                yield Row(_name(model.name, method, mode, f"b{b}s{s}"), model, recipe)


def adapters(model: Model) -> Iterator[Row]:
    """Adapters other than LoRA, and parts of the parameters."""
    lora = _methods(model)["lora"]
    assert lora.lora is not None
    for kind in ("dora", "lora_fa", "adalora", "vera", "oft", "ia3"):
        made = replace(
            lora.lora,
            kind=kind,
            block=32 if kind == "oft" else 0,
            feedforward=("down_proj",) if kind == "ia3" else (),
        )
        for mode in ("none", "re"):
            yield Row(_name(model.name, kind, mode), model, replace(lora, lora=made, **CHECKPOINTING[mode]))
        yield Row(_name(model.name, kind, "amp"), model, replace(lora, lora=made, autocast=DType.BF16))
        if "qlora" in _methods(model):
            quantised = replace(_methods(model)["qlora"], lora=made, **CHECKPOINTING["re"])
            yield Row(_name(model.name, f"q{kind}", "re"), model, quantised)
    dropped = replace(lora.lora, kind="dora", dropout=0.05)
    yield Row(_name(model.name, "dora", "dropout", "re"), model, replace(lora, lora=dropped, **CHECKPOINTING["re"]))


def parts(model: Model) -> Iterator[Row]:
    """Some layers or modules trained; "selective" as LLaMA-Factory checkpoints them."""
    chosen = {
        "last": (Trained((LAYERS - 1,)), "none"),
        "first": (Trained((0,)), "nonre"),
        "middle": (Trained((1,), outside=("lm_head",)), "none"),
        "norms": (Trained(None, ("norm",), ("norm",)), "nonre"),
        "mlp": (Trained(None, ("mlp",)), "none"),
        "last/selective": (Trained((LAYERS - 1,), dtype=DType.FP32, selective=True), "re"),
        "first/selective": (Trained((0,), dtype=DType.FP32, selective=True), "re"),
    }
    for word, (trained, mode) in chosen.items():
        recipe = replace(_methods(model)["full"], method="freeze", trained=trained, **CHECKPOINTING[mode])
        yield Row(_name(model.name, "freeze", word), model, recipe)


# Optimizers besides AdamW and SGD: of torch, transformers and bitsandbytes, then those whose packages tracing needs
# (galore-torch, apollo-torch, lomo-optim, schedulefree, came-pytorch, adam-mini, grokadamw). A few tokens, so that the
# optimizer makes the peak.
_OPTIMIZERS = (
    Optimizer("adagrad", "foreach"),
    Optimizer("rmsprop", "foreach"),
    Optimizer("adafactor", "loop"),
    Optimizer("adamw_32bit", "loop"),
    Optimizer("lion_8bit", "loop", DType.UINT8),
    Optimizer("ademamix_8bit", "loop", DType.UINT8),
    Optimizer("galore_adamw", "loop", rank=128),
    Optimizer("galore_adafactor", "loop", rank=128),
    Optimizer("galore_adamw", "loop", rank=128, in_backward=True),
    Optimizer("apollo_adamw", "loop", rank=128),
    Optimizer("lomo", "loop", in_backward=True),
    Optimizer("adalomo", "loop", in_backward=True),
    Optimizer("schedule_free_adamw", "foreach"),
    Optimizer("came", "loop"),
    Optimizer("adam_mini", "loop"),
    Optimizer("grokadamw", "loop"),
)


def optimizers(model: Model) -> Iterator[Row]:
    """Full fine-tuning with each optimizer, in bf16 and fp32."""
    for one in _OPTIMIZERS:
        optimizer = replace(one, targets=linear_modules(model)) if one.rank else one
        name = f"{one.name}{'/layerwise' if one.rank and one.in_backward else ''}"
        recipe = replace(_methods(model)["full"], optimizer=optimizer, micro_batch=1, seq_len=64)
        for dtype in (DType.BF16, DType.FP32):
            yield Row(_name(model.name, "full", name, dtype), model, replace(recipe, weight_dtype=dtype))


def rows(quick: bool) -> list[Row]:
    """The matrix. Quick: every architecture once a method, variants and lengths on one."""
    out: list[Row] = []
    for model in MODELS.values():
        found = list(core(model))
        if quick and model.name != "llama-8b":
            found = [row for row in found if row.name.split("/", 1)[1] in ("full/none", "lora/nonre", "qlora/re")]
        out += found
        if not quick or model.name == "llama-8b":
            out += variants(model)
            out += lengths(model)
        if model.name == "llama-8b":
            others = [*optimizers(model), *parts(model), *adapters(model)]
            out += [row for row in others if not quick or not row.name.endswith(("/fp32", "/amp", "/dropout/re"))]
        if model.name == "qwen2.5-0.5b" and not quick:
            out += adapters(model)
    return out
