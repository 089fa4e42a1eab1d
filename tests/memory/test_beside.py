"""Models beside the trained one, and a copy of a model cut over GPUs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from finefit.catalog.models import find
from finefit.errors import InputError
from finefit.memory.estimate import dims_of, estimate, timeline
from finefit.planner.engine import usable_bytes
from finefit.resolve.gpus import on_gpus
from finefit.units import GIB
from finefit.workload import DType, Experts, Lora, Optimizer, Recipe, Sharding
from finefit.workload.lora import lora_targets
from finefit.workload.on_rank import model_on_rank
from finefit.workload.parameters import parameter_count
from finefit.workload.recipe import Beside, Parallel

MODEL = find("Qwen/Qwen2.5-0.5B")
FULL = Recipe(
    "full",
    DType.BF16,
    Optimizer("adamw"),
    seq_len=1024,
    micro_batch=2,
    checkpointing="full",
    loss="full",
    task="dpo",
    padded=True,
)
WEIGHTS = 2 * parameter_count(MODEL)


def peak(recipe: Recipe) -> int:
    return estimate(MODEL, recipe).allocated


def test_a_frozen_copy_adds_its_weights_and_adapters_off_add_nothing() -> None:
    """Both are compared with alone, when the step's peak (backward) is past the reference's pass."""
    alone = estimate(MODEL, replace(FULL, loss="chunked"))
    copy = estimate(MODEL, replace(FULL, loss="chunked", beside=Beside("copy")))
    assert copy.allocated - alone.allocated == pytest.approx(WEIGHTS, rel=1e-3)
    adapters = Lora(8, 16, targets=lora_targets(MODEL, "all-linear"))
    lora = replace(FULL, method="lora", lora=adapters, loss="chunked")
    assert peak(replace(lora, beside=Beside("self"))) == peak(lora)
    assert estimate(MODEL, replace(lora, beside=Beside("self"))).phases["reference"] > 0


def test_whole_logits_of_the_reference_meet_those_of_the_policy() -> None:
    """LLaMA-Factory holds the fp32 logits and log_softmax of the policy while the reference makes its own.

    train/dpo/trainer.py get_batch_loss_metrics: per token of the vocabulary 8 bytes wait, and the reference's pass
    adds fp32 logits, their contiguous slice and log_softmax: 12.
    """
    found = estimate(MODEL, replace(FULL, beside=Beside("copy")))
    tokens = 2 * FULL.micro_batch * FULL.seq_len
    waits = found.phases["load"]
    assert found.phases["reference"] - waits == pytest.approx(20 * tokens * MODEL.vocab, rel=0.03)


def test_a_pair_is_two_rows_and_a_score_needs_no_logits() -> None:
    assert dims_of(FULL).b == 4 and dims_of(replace(FULL, task="kto")).b == 2
    scored = estimate(MODEL, replace(FULL, task="rm", loss="score"))
    assert scored.parts["logits"] < 2**20 and scored.allocated < peak(replace(FULL, task="rm"))


def test_a_value_model_is_a_second_model_with_states() -> None:
    """PPO in bf16: a critic's weights and two moments, 6 bytes a parameter; a reward model's weights, 2."""
    ppo = replace(FULL, task="ppo", loss="inplace")
    untied = parameter_count(MODEL)  # embedding and layers; the one score counts for nothing
    assert peak(replace(ppo, beside=Beside(critic=True))) - peak(ppo) == pytest.approx(6 * untied, rel=1e-3)
    assert peak(replace(ppo, beside=Beside(reward=True))) - peak(ppo) == pytest.approx(2 * untied, rel=1e-3)


def test_generation_holds_keys_and_values_of_all_rows() -> None:
    """2 tensors of K·D in 16 bits, a token and layer, and one layer's twice while its cache grows."""
    grpo = replace(FULL, task="grpo", loss="chunked", grad_accum=8, beside=Beside(generated=8))
    found = timeline(MODEL, grpo)
    caches = [t.size.raw(dims_of(grpo)) for t in found.tensors if t.op == "kv_cache"]
    each = 2 * 2 * MODEL.kv_width * 8 * grpo.micro_batch * grpo.seq_len
    assert set(caches) == {each} and len(caches) == 2 * MODEL.layers  # of two steps


def test_an_engine_leaves_what_it_does_not_take() -> None:
    awake, asleep = Beside(engine_share=0.3), Beside(engine_share=0.9, engine_sleeps=True)
    card, need = 80 * GIB, 10 * GIB
    assert usable_bytes(MODEL, FULL, card, need) == card
    assert usable_bytes(MODEL, replace(FULL, beside=awake), card, need) == int(card * 0.7)
    # asleep: the step may take the card, but 3 copies of the weights (bf16 AdamW) must leave 90 % of it free
    left = usable_bytes(MODEL, replace(FULL, beside=asleep), card, need)
    assert left == pytest.approx(card * 0.1 + need - 3 * WEIGHTS, rel=1e-3)
    gone = replace(asleep, states_leave=True)
    assert usable_bytes(MODEL, replace(FULL, beside=gone), card, need) == card


def test_megatron_keeps_6_bytes_and_shares_12() -> None:
    """Megatron-LM theoretical_memory_usage.py: 6 + 12 / DP bytes a parameter with the distributed optimizer."""
    recipe = replace(FULL, task="sft", master_weights=True, sharding=Sharding("megatron", 4))
    held = estimate(MODEL, recipe).phases["load"]
    assert held == pytest.approx((6 + 12 / 4) * parameter_count(MODEL), rel=1e-3)


def test_ranks_divide_a_model_exactly() -> None:
    model = find("meta-llama/Llama-3.1-8B")
    part = model_on_rank(model, Parallel(tensor=4, pipeline=2, vocabulary=True))
    norms = (2 * 16 + 1) * model.hidden
    matrices = parameter_count(model) - (2 * model.layers + 1) * model.hidden - 2 * model.vocab * model.hidden
    assert parameter_count(part) == matrices // 8 + 2 * model.vocab // 4 * model.hidden + norms
    with pytest.raises(InputError, match="32 heads"):
        model_on_rank(model, Parallel(tensor=3))
    mixture = replace(model, experts=Experts(64, 2, 1024))
    assert model_on_rank(mixture, Parallel(expert=8)).experts.count == 8
    with pytest.raises(InputError, match="64 experts"):
        model_on_rank(mixture, Parallel(expert=5))


def test_experts_of_other_ranks_are_no_shards_of_one_s_own() -> None:
    """Sharded over n ranks of which e hold other experts: the same bytes at rest as without expert parallelism."""
    mixture = replace(MODEL, family="qwen3_moe", qkv_bias=False, qk_norm="head", experts=Experts(8, 2, 512))
    recipe = replace(FULL, task="sft", sharding=Sharding("fsdp", 8))
    cut = replace(recipe, parallel=Parallel(expert=4))
    whole, part = (estimate(mixture, r).phases["load"] for r in (recipe, cut))
    assert part == pytest.approx(whole, rel=0.02)
    assert estimate(mixture, cut).allocated < estimate(mixture, recipe).allocated


@settings(max_examples=25, deadline=None)
@given(degree=st.sampled_from([1, 2, 4]), stages=st.sampled_from([1, 2, 3]), context=st.sampled_from([1, 2, 8]))
def test_the_replayed_list_has_the_compiled_peak(degree: int, stages: int, context: int) -> None:
    model = find("Qwen/Qwen3-0.6B")
    cut = Parallel(tensor=degree, pipeline=stages, context=context)
    recipe = replace(FULL, task="sft", grad_accum=4, parallel=cut, beside=Beside("copy"))
    direct = max(timeline(model, recipe, workspace=0).live_bytes(dims_of(recipe)))
    assert direct == pytest.approx(estimate(model, recipe).allocated, abs=2**25)
    assert estimate(model, recipe).allocated <= estimate(model, replace(recipe, parallel=Parallel())).allocated + (
        2**25 if stages == 1 else 2**31
    )


def test_gpus_of_a_copy_are_no_data_parallel_ranks() -> None:
    recipe = replace(FULL, task="sft", sharding=Sharding("fsdp"), parallel=Parallel(tensor=2, context=2))
    assert on_gpus(recipe, 8).sharding.ranks == 4  # context ranks share shards, tensor ranks do not
    assert on_gpus(recipe, 1).parallel == Parallel()
    assert on_gpus(replace(recipe, sharding=Sharding()), 4).sharding.kind == "ddp"
