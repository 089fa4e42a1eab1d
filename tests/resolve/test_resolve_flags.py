"""A model and flags as a recipe on transformers 5.24.0 and peft 0.21.2."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest

from finefit.errors import InputError, NotModelled, UnknownModel
from finefit.resolve import resolve_flags
from finefit.resolve.defaults import defaults
from finefit.workload import DType, Optimizer, Origin, Quant
from finefit.workload.lora import linear_modules


def test_missing_method_or_length_is_reported_not_guessed():
    assert resolve_flags("Llama-3-8B").missing == {"method", "seq"}
    assert resolve_flags("Llama-3-8B", method="full").missing == {"seq"}
    found = resolve_flags("Llama-3-8B", seq=2048)
    assert (found.missing, found.recipe) == ({"method"}, None)
    with pytest.raises(InputError, match="method not stated"):
        found.workload()


def test_full_training_keeps_the_checkpoints_dtype():
    """transformers >= 5 loads dtype="auto" and TrainingArguments has bf16 False: weights, gradients, states in bf16."""
    recipe = resolve_flags("Llama-3-8B", method="full", seq=2048).recipe
    assert (recipe.weight_dtype, recipe.autocast, recipe.master_weights) == (DType.BF16, None, False)
    assert recipe.optimizer == Optimizer("adamw", "fused")
    assert (recipe.micro_batch, recipe.grad_accum, recipe.checkpointing) == (8, 1, "none")
    assert (recipe.attention, recipe.loss, recipe.lora, recipe.quant) == ("sdpa", "full", None, None)


def test_lora():
    recipe = resolve_flags("Llama-3-8B", method="lora", rank=16, batch=2, seq=2048).recipe
    assert (recipe.lora.rank, recipe.lora.targets, recipe.lora.dtype) == (16, ("q_proj", "v_proj"), DType.FP32)
    assert recipe.padded and recipe.micro_batch == 2
    found = resolve_flags("Llama-3-8B", method="lora", seq=512, targets="all-linear", batch=1)
    assert found.recipe.lora.rank == 8
    assert found.recipe.lora.targets == linear_modules(found.model)
    assert not found.recipe.padded


def test_qlora():
    found = resolve_flags("Llama-3-8B", method="qlora", seq=2048)
    assert found.recipe.quant == Quant("nf4", double=True, compute_dtype=DType.BF16)
    assert any("arXiv 2305.14314" in sentence for sentence in found.assumptions)
    eight = resolve_flags("Llama-3-8B", method="lora", quant_bits=8, seq=2048, kbit_prepare=True).recipe
    assert eight.quant == Quant("int8", kbit_prepare=True, compute_dtype=DType.BF16)


@pytest.mark.parametrize(
    ("precision", "weights", "autocast"),
    [
        ("bf16", DType.BF16, None),
        ("fp32", DType.FP32, None),
        ("bf16-mixed", DType.FP32, DType.BF16),
        ("fp16-mixed", DType.FP32, DType.FP16),
    ],
)
def test_precision(precision, weights, autocast):
    recipe = resolve_flags("gpt2", method="full", seq=128, precision=precision).recipe
    assert (recipe.weight_dtype, recipe.autocast) == (weights, autocast)


def test_sharding():
    recipe = resolve_flags("Llama-3-8B", method="lora", seq=128, sharding="zero3").recipe
    assert (recipe.sharding.kind, recipe.master_weights, recipe.lora.dtype) == ("zero3", True, DType.BF16)
    assert recipe.optimizer.state_dtype is DType.FP32
    with pytest.raises(NotModelled, match="DeepSpeed"):
        resolve_flags("gpt2", method="full", seq=128, sharding="zero2", precision="fp32")
    with pytest.raises(NotModelled, match="quantised base"):
        resolve_flags("Llama-3-8B", method="qlora", seq=128, sharding="zero3")


def test_words():
    recipe = resolve_flags(
        "Llama-3-8B",
        method="full",
        seq=128,
        checkpointing="reentrant",
        attention="flash2",
        loss="fused_linear",
        optimizer="paged_adamw_8bit",
        accum=4,
        padded=True,
        epochs=1,
    ).recipe
    assert (recipe.checkpointing, recipe.reentrant, recipe.attention) == ("full", True, "flash2")
    assert (recipe.loss, recipe.fused_kernels, recipe.grad_accum, recipe.epochs) == ("fused_linear", True, 4, 1.0)
    assert recipe.optimizer == Optimizer("adamw_8bit", "loop", DType.UINT8, paged=True)


@pytest.mark.parametrize(
    ("flags", "where"),
    [
        ({"method": "lora2"}, "--method"),
        ({"seq": 0}, "--seq"),
        ({"batch": 0}, "--batch"),
        ({"accum": -1}, "--accum"),
        ({"rank": 0}, "--rank"),
        ({"precision": "int3"}, "--precision"),
        ({"attention": "ring"}, "--attention"),
        ({"checkpointing": "some"}, "--checkpointing"),
        ({"loss": "dpo"}, "--loss"),
        ({"optimizer": "adamwx"}, "--optimizer"),
        ({"sharding": "tp"}, "--sharding"),
        ({"quant_bits": 5}, "--quant-bits"),
        ({"seq": 10**23}, "--seq"),
        ({"method": "full", "quant_bits": 4}, "--quant-bits"),
        ({"method": "full", "rank": 8}, "--rank"),
        ({"method": "full", "targets": "q_proj"}, "--targets"),
        ({"targets": "nothing_proj"}, "--targets"),
        ({"epochs": 0}, "--epochs"),
    ],
)
def test_wrong_flags_are_named(flags, where):
    with pytest.raises(InputError) as caught:
        resolve_flags("Llama-3-8B", **{"method": "lora", "seq": 128, **flags})
    assert caught.value.where == where and caught.value.fix


def test_unknown_model():
    with pytest.raises(UnknownModel):
        resolve_flags("nobody/nothing-9b", method="full", seq=128)


def _leaves(value, prefix=""):
    for field in dataclasses.fields(value):
        inner = getattr(value, field.name)
        if dataclasses.is_dataclass(inner):
            yield from _leaves(inner, f"{prefix}{field.name}.")
        elif field.name != "sources":
            yield f"{prefix}{field.name}"


@pytest.mark.parametrize("method", ["full", "lora", "qlora"])
@pytest.mark.parametrize("sharding", [None, "zero2"])
def test_every_field_has_a_source(method, sharding):
    recipe = resolve_flags("Llama-3-8B", method=method, seq=128, sharding=sharding).recipe
    assert [name for name in _leaves(recipe) if name not in recipe.sources] == []
    assert recipe.sources["seq_len"].origin is Origin.STATED
    assert str(recipe.sources["micro_batch"]) == "default (transformers@5.24.0)"


def test_table_of_defaults():
    """Values as the libraries print them: TrainingArguments("x") of 5.6.0 and 5.24.0, LoraConfig() of peft 0.21.2."""
    llama, plain = defaults("llamafactory", "0.9.5"), defaults("transformers", "5.24.0")
    for table in (llama, plain):
        assert (table["per_device_train_batch_size"].value, table["num_train_epochs"].value) == (8, 3.0)
        assert (table["optim"].value, table["max_steps"].value) == ("adamw_torch_fused", -1)
    assert (plain["r"].value, plain["lora_alpha"].value, plain["bnb_4bit_quant_type"].value) == (8, 8, "fp4")
    assert (llama["cutoff_len"].value, llama["lora_target"].value, llama["flash_attn"].value) == (2048, "all", "auto")
    assert llama["cutoff_len"].library == "llamafactory@0.9.5"
    assert llama["optim"].library == "transformers@5.6.0"
    assert "activation_checkpointing" in plain and "activation_checkpointing" not in llama  # renamed in 5.23


def test_flags_alone_load_no_yaml():
    code = "import sys; from finefit.resolve import resolve_flags; resolve_flags('gpt2', method='full', seq=8); "
    code += "print([m for m in ('yaml', 'pydantic', 'rich', 'torch') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("model", "flags", "where"),
    [
        ("Qwen/Qwen2.5-0.5B", {"method": "freeze", "train_modules": "mlp,zzz"}, "--train-modules"),
        ("Qwen/Qwen2.5-0.5B", {"method": "freeze", "train_modules": "layers"}, "--train-modules"),
        ("Qwen/Qwen2.5-0.5B", {"method": "freeze", "train_modules": "embed", "train_layers": 2}, "--train-modules"),
        ("Qwen/Qwen2.5-0.5B", {"method": "full", "images": 2}, "--images"),
        ("Qwen/Qwen2.5-0.5B", {"method": "full", "freeze": "tower"}, "--freeze"),
        ("Qwen/Qwen2-VL-2B-Instruct", {"method": "full", "freeze": "tower,projector,language"}, "--freeze"),
    ],
)
def test_flags_that_would_do_nothing_or_leave_nothing_are_refused(model, flags, where):
    with pytest.raises(InputError) as refused:
        resolve_flags(model, seq=128, **flags)
    assert refused.value.where == where
