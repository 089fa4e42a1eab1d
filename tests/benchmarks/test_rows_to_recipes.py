"""From the words of a measured row to the run it describes, one column at a time."""

from __future__ import annotations

import pytest
from benchmarks.lengths import earlier_batches
from benchmarks.recipes import question
from benchmarks.rows import VALUE_COLUMNS, Skip, inputs, scored

from finefit.workload.dtypes import DType
from finefit.workload.parameters import parameter_count
from finefit.workload.recipe import Quant, Recipe

LORA = {
    "id": "x-1",
    "source": "someone/something@abc:README.md",
    "model": "mistralai/Mistral-7B-v0.1",
    "method": "lora",
    "rank": "16",
    "lora_alpha": "32",
    "target_modules": "q_proj k_proj v_proj o_proj",
    "weight_dtype": "bfloat16",
    "compute_dtype": "none (pure bfloat16)",
    "optimizer": "AdamW (torch, HF default adamw_torch)",
    "micro_batch": "4",
    "grad_accum": "1",
    "seq_len": "4096",
    "seq_handling": "packed to fixed 4096",
    "gradient_checkpointing": "yes",
    "gc_class": "full",
    "attention_impl": "flash_attention_2",
    "loss_impl": "HF CE, logits upcast to fp32",
    "framework": "HF Trainer/TRL SFTTrainer",
    "framework_version": "transformers 4.48.1, peft 0.13.2",
    "torch_version": "2.4.1",
    "num_gpus": "1",
    "distributed": "none",
    "metric_class": "torch_allocated",
    "value_gib": "24.871",
    "outcome": "measured",
    "core": "1",
}
FULL = LORA | {"method": "full", "rank": "", "target_modules": "", "lora_alpha": ""}


def recipe(**columns: str) -> Recipe:
    return question(LORA | columns).recipe


def full(**columns: str) -> Recipe:
    return question(FULL | columns).recipe


def test_a_complete_row_needs_no_assumption_but_the_adapters() -> None:
    asked = question(LORA)
    assert asked.assumed == ("adapters in fp32",)
    assert asked.recipe.lora is not None
    assert asked.recipe.lora.targets == ("q_proj", "k_proj", "v_proj", "o_proj")
    assert (asked.recipe.lora.rank, asked.recipe.lora.alpha, asked.recipe.lora.dtype) == (16, 32, DType.FP32)
    assert (asked.recipe.weight_dtype, asked.recipe.autocast) == (DType.BF16, None)
    assert (asked.recipe.micro_batch, asked.recipe.seq_len, asked.recipe.checkpointing) == (4, 4096, "full")
    assert dict(asked.recipe.stack) == {"transformers": "4.48", "torch": "2.4"}
    assert (asked.lengths, asked.summed_over) == ((), 1)


@pytest.mark.parametrize(
    ("weights", "compute", "dtype", "autocast"),
    [
        ("bf16", "autocast bf16 (HF Trainer bf16=True)", DType.BF16, DType.BF16),
        ("fp32", "autocast fp16 (AMP, GradScaler)", DType.FP32, DType.FP16),
        ("fp32", "fp32/tf32", DType.FP32, None),
        ("fp32", "bf16", DType.FP32, DType.BF16),
        ("bf16", "bf16", DType.BF16, None),
        ("bf16", "autocast (fp16/bf16 not stated)", DType.BF16, DType.BF16),
        ("float16", "none (pure float16)", DType.FP16, None),
        ("", "pure bf16", DType.BF16, None),
    ],
)
def test_precision(weights: str, compute: str, dtype: DType, autocast: DType | None) -> None:
    got = full(weight_dtype=weights, compute_dtype=compute)
    assert (got.weight_dtype, got.autocast) == (dtype, autocast)


@pytest.mark.parametrize(
    ("words", "torch", "name", "impl", "momentum", "paged"),
    [
        ("AdamW (torch, HF default adamw_torch)", "2.4.1", "adamw", "foreach", False, False),
        ("adamw_torch", "2.8.0", "adamw", "fused", False, False),
        ("torch AdamW fused", "2.4.1", "adamw", "fused", False, False),
        ("bnb AdamW 8-bit", "2.4.1", "adamw_8bit", "fused", False, False),
        ("bnb PagedAdamW8bit", "2.4.1", "adamw_8bit", "fused", False, True),
        ("torch SGD (no momentum)", "2.4.1", "sgd", "foreach", False, False),
        ("SGD, momentum 0.9", "2.4.1", "sgd", "foreach", True, False),
        ("AdamW (HF adamw_hf)", "1.12", "adamw", "loop", False, False),
    ],
)
def test_optimizer(words: str, torch: str, name: str, impl: str, momentum: bool, paged: bool) -> None:
    got = full(optimizer=words, torch_version=torch).optimizer
    assert (got.name, got.impl, got.momentum, got.paged) == (name, impl, momentum, paged)


def test_paged_32_bit_states_are_fp32_whatever_the_weights() -> None:
    assert full(optimizer="bnb PagedAdamW").optimizer.state_dtype is DType.FP32  # bitsandbytes keeps fp32 states


@pytest.mark.parametrize(
    ("distributed", "gpus", "kind", "ranks"),
    [
        ("none", "1", "none", 1),
        ("", "4", "ddp", 4),
        ("DDP x2", "2", "ddp", 2),
        ("FSDP FULL_SHARD x2 (TRANSFORMER_BASED_WRAP, BACKWARD_PRE)", "2", "fsdp", 2),
        ("FSDP2 8 x CP 1", "8", "fsdp", 8),
        ("DeepSpeed ZeRO-3", "8", "zero3", 8),
        ("DeepSpeed ZeRO-2, world 1", "1", "zero2", 1),
    ],
)
def test_sharding(distributed: str, gpus: str, kind: str, ranks: int) -> None:
    got = full(distributed=distributed, num_gpus=gpus).sharding
    assert (got.kind, got.ranks) == (kind, ranks)


def test_deepspeed_keeps_fp32_masters_and_runs_no_autocast() -> None:
    got = full(distributed="DeepSpeed ZeRO-3", num_gpus="8", weight_dtype="fp32", compute_dtype="autocast bf16")
    assert (got.master_weights, got.weight_dtype, got.autocast) == (True, DType.BF16, None)


def test_accelerate_upcasts_trained_weights_under_fsdp() -> None:
    mixed = {"compute_dtype": "bf16 mixed precision", "distributed": "FSDP1 full_shard x4", "num_gpus": "4"}
    assert full(**mixed).weight_dtype is DType.FP32
    assert recipe(**mixed).weight_dtype is DType.BF16
    assert full(**mixed, framework="PyTorch script").weight_dtype is DType.BF16


@pytest.mark.parametrize(
    ("words", "attention"),
    [
        ("flash_attn 2.3.4", "flash2"),
        ("sdpa flash", "sdpa"),
        ("transformers default (sdpa)", "sdpa"),
        ("custom eager MHA", "eager"),
        ("", "sdpa"),
    ],
)
def test_attention(words: str, attention: str) -> None:
    assert recipe(attention_impl=words).attention == attention


def test_padding_needs_more_than_one_row_and_a_loop_that_passes_the_mask() -> None:
    longest = {"seq_handling": "padded to longest in batch", "micro_batch": "4"}
    assert recipe(**longest).padded
    assert not recipe(**longest | {"micro_batch": "1"}).padded
    assert not recipe(**longest, framework="torchtune").padded
    assert not recipe(seq_handling="padding-free (flattened batch)").padded


def test_unseen_framework_is_a_plain_loop_over_transformers() -> None:
    asked = question(LORA | {"framework": "somebody's trainer", "framework_version": "2026-11"})
    assert asked.recipe.keeps_outputs
    assert not asked.recipe.reentrant
    assert any("plain PyTorch loop" in words for words in asked.assumed)


def test_torchtune_held_the_logits_until_july_2024() -> None:
    assert full(framework="torchtune", framework_version="torchtune Mar-Apr 2024").keeps_outputs
    assert not full(framework="torchtune", framework_version="torchtune Nov 2024").keeps_outputs


def test_qlora_goes_through_kbit_preparation_on_hugging_face_only() -> None:
    nf4 = {"method": "qlora", "quant": "bnb-nf4", "compute_dtype": "autocast bf16"}
    assert recipe(**nf4).quant == Quant(kind="nf4", kbit_prepare=True, recast=True)  # TRL casts embeddings back
    assert recipe(**nf4, framework="ms-swift").quant == Quant(kind="nf4", kbit_prepare=True)
    assert recipe(**nf4 | {"quant": "bnb-nf4-double-quant"}).quant.double  # type: ignore[union-attr]
    torchtune = recipe(**nf4 | {"quant": "torchao nf4"}, framework="torchtune")
    assert torchtune.quant == Quant(kind="nf4", double=True)


def test_targets_in_words() -> None:
    def targets(words: str, **columns: str) -> tuple[str, ...]:
        lora = recipe(target_modules=words, **columns).lora
        assert lora is not None
        return lora.targets

    everything = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    assert targets("all-linear") == everything
    assert targets("q k v output_proj + mlp") == everything
    assert targets("q_proj v_proj output_proj + all mlp") == ("q_proj", "v_proj", "o_proj", *everything[4:])
    assert targets("q_proj k_proj c_attn") == ("q_proj", "k_proj")  # PEFT ignores names the model lacks
    assert targets("") == ("q_proj", "v_proj")  # PEFT's default for Mistral


def test_shape_in_words() -> None:
    words = (
        "GPT-2 124M shape from scratch (12 layers, 768, 12 heads, ctx 1024, vocab 50257, "
        "untied head => 163M params, qkv_bias False, dropout 0.1)"
    )
    asked = question(FULL | {"model": words, "seq_len": "1024", "framework": "plain PyTorch script"})
    model = asked.model
    assert (model.layers, model.hidden, model.heads, model.vocab, model.ffn) == (12, 768, 12, 50257, 3072)
    assert (model.tied, model.qkv_bias, model.attention_dropout) == (False, False, 0.1)
    longer = question(FULL | {"model": words, "seq_len": "4096"})
    assert longer.recipe.seq_len == 1024  # no row is longer than the table of positions


def test_a_truncated_shape_has_the_layers_it_names() -> None:
    # Llama 3's paper (arXiv 2407.21783), table 3: 8192 wide, 28672 in the feed-forward, 8 key-value heads of 128
    layer = 2 * 8192 * 8192 + 2 * 8192 * 1024 + 3 * 8192 * 28672 + 2 * 8192
    model = question(FULL | {"model": "Llama-3 70B shape truncated to 12 layers (h 8192)"}).model
    assert parameter_count(model) == 12 * layer + 2 * 128256 * 8192 + 8192
    large = question(FULL | {"model": "Llama-3 405B shape truncated to 4 layers (h 16384)"}).model
    assert (large.layers, large.hidden, large.ffn, large.heads) == (4, 16384, 53248, 128)


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"method": "boft"}, "method boft"),
        ({"gc_class": "selective"}, "selective checkpointing"),
        ({"memory_options": "torch.compile"}, "torch.compile"),
        ({"distributed": "FSDP2 4 x TP 2", "num_gpus": "8"}, "TP parallelism"),
        ({"distributed": "TP1 PP2 DP4 CP1", "num_gpus": "8"}, "PP parallelism"),
        ({"optimizer": "Lion"}, "optimizer lion"),
        ({"method": "qlora", "quant": "hqq-int4"}, "hqq weights"),
        ({"loss_impl": "CEWithChunkedOutputLoss (8 chunks)"}, "cross-entropy in chunks"),
        ({"model": "nobody/nothing-at-all-7b"}, "model not known"),
        ({"micro_batch": ""}, "micro_batch not stated"),
    ],
)
def test_what_cannot_be_said_is_left_out_with_a_reason(columns: dict[str, str], reason: str) -> None:
    with pytest.raises(Skip, match=reason):
        question(LORA | columns)


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"core": "0"}, "not core"),
        ({"outcome": "oom"}, "not a measurement"),
        ({"flags": "near_capacity"}, "capacity"),
        ({"metric_class": "unknown"}, "metric not stated"),
    ],
)
def test_rows_that_are_not_scored(columns: dict[str, str], reason: str) -> None:
    with pytest.raises(Skip, match=reason):
        scored(LORA | columns)


def test_the_mapping_never_sees_what_was_measured() -> None:
    row = scored(LORA | {"notes": "reads 24.9 GiB", "value": "26705000000", "value2": "30"})
    assert row.measured == pytest.approx(24.871 * 2**30)
    assert not VALUE_COLUMNS & set(row.inputs)
    assert question(row.inputs) == question(inputs(LORA | dict.fromkeys(VALUE_COLUMNS, "")))


def test_earlier_batches() -> None:
    assumed: list[str] = []
    dynamic = {"seq_handling": "padded to longest in batch"}
    assert earlier_batches(dynamic, 800, assumed) == (400, 200, 600, 100, 500, 300, 700)
    with_mean = {"seq_handling": "padded to longest in batch (mean 1000 tokens before the cut)"}
    # the median of an exponential with mean 1000 cut far above it is 1000·ln 2
    assert earlier_batches(with_mean, 1_000_000, assumed)[0] == 693
    assert earlier_batches({"seq_handling": "packed to fixed 4096"}, 4096, assumed) == ()
    assert earlier_batches(dynamic | {"metric2": "reserved (empty_cache every 10 steps)"}, 800, assumed) == ()
    assert len(assumed) == 2
