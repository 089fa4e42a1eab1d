"""The compiled form against the Timeline it comes from, over structures and dimensions."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from finefit.catalog.models import find
from finefit.errors import InputError, NotModelled
from finefit.memory.compiled import compile_timeline
from finefit.memory.estimate import dims_of, estimate, measure, timeline
from finefit.memory.played import played
from finefit.units import MIB
from finefit.workload import DType, Experts, Lora, Model, Optimizer, Quant, Recipe, Sharding

TARGETS = ("q_proj", "v_proj", "down_proj", "c_attn", "query_key_value", "qkv_proj")
SMALL = {
    "llama": Model("llama", "llama", 256, 7, 4, 2, 64, 512, 1000, tied=False),
    "tied": Model("tied", "qwen3", 256, 7, 4, 2, 64, 512, 1000, tied=True, qk_norm="head"),
    "gemma2": Model(
        "gemma2", "gemma2", 256, 7, 4, 2, 64, 512, 1000, tied=True, activation="gelu_pytorch_tanh",
        sandwich_norms=True, attention_softcap=True, final_softcap=True,
    ),
    "gpt2": Model(
        "gpt2", "gpt2", 256, 7, 4, 4, 64, 512, 1000, tied=True, activation="gelu_new", gated_mlp=False, norm="layer",
        qkv_bias=True, o_bias=True, mlp_bias=True, position="learned", max_position=4096, fused_qkv=True,
        attention_dropout=0.1, residual_dropout=0.1, embedding_dropout=0.1,
    ),
    "mixtral": Model("mixtral", "mixtral", 256, 7, 4, 2, 64, 0, 1000, tied=False, experts=Experts(8, 2, 512)),
    "qwen2_moe": Model(  # six dense layers, seven with experts: both runs fold
        "qwen2_moe", "qwen2_moe", 256, 13, 4, 2, 64, 512, 1000, tied=False, qkv_bias=True,
        experts=Experts(8, 4, 96, shared=128, shared_gate=True, normalised=False, dense_layers=tuple(range(6))),
    ),
    "qwen3_moe": Model(  # kinds in turn: nothing folds
        "qwen3_moe", "qwen3_moe", 256, 6, 4, 2, 64, 512, 1000, tied=True, qk_norm="head",
        experts=Experts(4, 4, 64, dense_layers=(0, 2, 4)),
    ),
    "glm4_moe": Model(
        "glm4_moe", "glm4_moe", 256, 8, 4, 2, 64, 512, 1000, tied=False, qkv_bias=True, rotary_fraction=0.5,
        experts=Experts(8, 2, 64, shared=64, dense_layers=(0,)),
    ),
    "ernie": Model(
        "ernie", "ernie4_5_moe", 256, 8, 4, 2, 64, 512, 1000, tied=True,
        experts=Experts(8, 2, 64, shared=128, dense_layers=(0,)),
    ),
    "granitemoe": Model(
        "granitemoe", "granitemoe", 256, 7, 4, 2, 64, 0, 1000, tied=True, experts=Experts(8, 2, 64, normalised=False)
    ),
}  # fmt: skip

recipes = st.builds(
    Recipe,
    method=st.just("full"),
    weight_dtype=st.sampled_from([DType.BF16, DType.FP32]),
    optimizer=st.builds(
        Optimizer, st.sampled_from(["adamw", "adamw_8bit", "sgd"]), st.sampled_from(["fused", "foreach"])
    ),
    seq_len=st.integers(2, 4096),
    micro_batch=st.integers(1, 8),
    grad_accum=st.integers(1, 3),
    lora=st.none(),
    quant=st.none(),
    autocast=st.sampled_from([None, DType.BF16]),
    padded=st.booleans(),
    checkpointing=st.sampled_from(["none", "full"]),
    reentrant=st.booleans(),
    attention=st.sampled_from(["eager", "sdpa", "flash2"]),
    loss=st.sampled_from(["full", "fused_linear", "chunked"]),
    keeps_outputs=st.booleans(),
    returns_cache=st.booleans(),
    sharding=st.builds(
        Sharding, st.sampled_from(["none", "ddp", "zero1", "zero2", "zero3", "fsdp"]), st.integers(1, 8)
    ),
)
adapters = st.builds(
    Lora, st.integers(1, 64), st.just(16), st.sampled_from([0.0, 0.1]), st.just(TARGETS),
    st.sampled_from([DType.FP32, DType.BF16]),
)  # fmt: skip
quants = st.none() | st.builds(Quant, st.sampled_from(["nf4", "int8"]), st.booleans(), st.booleans())


@st.composite
def questions(draw: st.DrawFn) -> tuple[Model, Recipe]:
    recipe = draw(recipes)
    if draw(st.booleans()):
        recipe = replace(recipe, method="lora", lora=draw(adapters), quant=draw(quants), weight_dtype=DType.BF16)
    return SMALL[draw(st.sampled_from(sorted(SMALL)))], recipe


@settings(max_examples=60, deadline=None)
@given(questions())
def test_compiled_and_folded_is_the_peak_of_every_event(question: tuple[Model, Recipe]) -> None:
    model, recipe = question
    full = timeline(model, recipe)
    assert estimate(model, recipe).allocated == max(full.live_bytes(dims_of(recipe)))


@settings(max_examples=60, deadline=None)
@given(questions())
def test_nothing_is_freed_twice_or_left_behind(question: tuple[Model, Recipe]) -> None:
    model, recipe = question
    events = timeline(model, recipe)
    alive: set[int] = set()
    for event in events.events:
        if event >= 0:
            assert event not in alive
            alive.add(event)
        else:
            alive.remove(~event)
    kinds = {(events.tensors[i].category, events.tensors[i].phase) for i in alive}
    assert {category for category, phase in kinds if phase not in ("load", "optimizer")} <= {"optimizer"}


@settings(max_examples=30, deadline=None)
@given(questions())
def test_parts_sum_to_the_peak_and_phases_hold_it(question: tuple[Model, Recipe]) -> None:
    model, recipe = question
    peak = estimate(model, recipe)
    assert sum(peak.parts.values()) == peak.allocated
    assert max(peak.phases.values()) == peak.allocated == peak.phases[peak.phase]
    assert all(part >= 0 for part in peak.parts.values())


def test_one_structure_serves_all_dimensions() -> None:
    model, recipe = SMALL["llama"], Recipe("full", DType.BF16, Optimizer("adamw"), seq_len=64)
    compiled = compile_timeline(played(model, recipe, folded=True))
    for batch, length in ((1, 64), (3, 777), (8, 4096)):
        other = replace(recipe, micro_batch=batch, seq_len=length)
        direct = max(played(model, other).live_bytes(dims_of(other)))
        assert compiled.evaluate(dims_of(other)).allocated == direct


def test_library_versions_are_part_of_the_structure() -> None:
    """transformers 4.48 copies the shifted logits: 14·T·V in the forward against 12 in the backward."""
    recipe = Recipe(
        "full", DType.BF16, Optimizer("adamw"), seq_len=4096, micro_batch=4, checkpointing="full", attention="flash2"
    )
    model = replace(find("mistralai/Mistral-7B-v0.1"), layers=2)
    new = estimate(model, replace(recipe, stack={"transformers": "5.24.0"}))
    old = estimate(model, replace(recipe, stack={"transformers": "4.48.1"}))
    assert (new.phase, old.phase) == ("backward", "loss")
    assert old.allocated - new.allocated >= 1.9 * 4 * 4096 * 32_000


def test_four_numbers_are_ordered() -> None:
    recipe = Recipe("full", DType.BF16, Optimizer("adamw"), seq_len=1024, checkpointing="full")
    peak = measure(SMALL["llama"], recipe, arch="Ada")
    assert peak.required is not None and peak.reserved is not None and peak.device is not None
    outside = peak.device - peak.reserved
    assert outside > 100 * MIB
    assert peak.allocated + outside <= peak.required <= peak.device


def test_sharding_divides_what_it_says_it_divides() -> None:
    model = find("meta-llama/Llama-3.1-8B")
    recipe = Recipe(
        "full", DType.BF16, Optimizer("adamw"), seq_len=512, checkpointing="full", master_weights=True,
    )  # fmt: skip
    states = 12 * 8_030_261_248  # fp32 master and two moments
    for kind in ("zero1", "zero2", "zero3"):
        parts = estimate(model, replace(recipe, sharding=Sharding(kind, 8))).parts
        assert parts["optimizer"] == pytest.approx(states / 8, rel=1e-4)
        weights = 2 * 8_030_261_248
        assert parts["weights"] == pytest.approx(weights / 8 if kind == "zero3" else weights, rel=1e-4)


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"checkpointing": "selective"}, NotModelled, "selective"),
        ({"compiled": True}, NotModelled, "compile"),
    ],
)
def test_modes_that_are_not_modelled_are_refused(change: dict[str, object], error: type, says: str) -> None:
    recipe = Recipe("full", DType.BF16, Optimizer("adamw"), seq_len=64)
    with pytest.raises(error, match=says):
        estimate(SMALL["llama"], replace(recipe, **change))


def test_a_learned_position_table_bounds_the_length() -> None:
    recipe = Recipe("full", DType.BF16, Optimizer("adamw"), seq_len=4097)
    with pytest.raises(InputError, match="4096"):
        estimate(SMALL["gpt2"], recipe)


def test_experts_stay_in_16_bits_under_qlora_and_become_fp32_with_preparation() -> None:
    """bitsandbytes 0.50.2 replaces nn.Linear alone; peft 0.21.2 prepare_model_for_kbit_training casts the rest."""
    model = find("mistralai/Mixtral-8x7B-v0.1")
    recipe = Recipe(
        "lora", DType.BF16, Optimizer("adamw"), seq_len=512, checkpointing="full",
        lora=Lora(8, 16, targets=("q_proj", "v_proj")), quant=Quant("nf4", double=True, kbit_prepare=False),
    )  # fmt: skip
    experts = 32 * 8 * 3 * 4096 * 14336
    plain = estimate(model, recipe).parts["weights"]
    prepared = estimate(model, replace(recipe, quant=Quant("nf4", double=True, kbit_prepare=True))).parts["weights"]
    rest = 46_702_792_704 - experts
    assert 2 * experts < plain < 2 * experts + rest
    assert 4 * experts < prepared < 4 * experts + 2 * rest


def test_a_layer_keeps_every_copy_of_a_token() -> None:
    """The closed form of the traces, bytes a token and layer: k·(2H + 4I + 2I + 2I + 2H), and the router's."""
    model = find("Qwen/Qwen3-30B-A3B")
    recipe = Recipe("full", DType.BF16, Optimizer("sgd"), seq_len=4096, micro_batch=4)
    assert model.experts is not None

    def forward(layers: int, copies: int) -> int:
        experts = replace(model.experts, per_token=copies)  # type: ignore[type-var]
        return estimate(replace(model, layers=layers, experts=experts), recipe).phases["forward"]

    kept = (forward(5, 9) - forward(4, 9)) - (forward(5, 8) - forward(4, 8))
    assert kept == pytest.approx(16384 * (4 * 2048 + 8 * 768), rel=0.01)


def test_families_without_a_step_are_refused_by_name() -> None:
    with pytest.raises(NotModelled, match="deepseek"):
        estimate(find("deepseek-ai/deepseek-moe-16b-base"), Recipe("full", DType.BF16, Optimizer("adamw"), seq_len=64))
