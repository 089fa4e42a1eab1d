"""The 22 LLaMA-Factory training files of the collection beside the checkout, against its canonical reading."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import pytest

from finefit.errors import FinefitError, InputError, NotModelled
from finefit.resolve import resolve_config

SHARED = Path(__file__).parents[2].parent / "shared" / "configs"
pytestmark = pytest.mark.skipif(
    not SHARED.is_dir(), reason="the collection of real configs is not beside this checkout"
)

# Of the 22, these are dense text models trained in full, with LoRA or QLoRA
PLANNED = {
    "examples/extras/fsdp_qlora/llama3_lora_sft.yaml",
    "examples/extras/pissa/llama3_lora_sft.yaml",
    "examples/train_full/qwen3_full_sft.yaml",
    "examples/train_lora/qwen3_lora_pretrain.yaml",
    "examples/train_lora/qwen3_lora_sft.sh",
    "examples/train_lora/qwen3_lora_sft.yaml",
    "examples/train_lora/qwen3_lora_sft_ds3.yaml",
    "examples/train_lora/qwen3vl_lora_sft.yaml",
    "examples/train_qlora/qwen3_lora_sft_bnb_npu.yaml",
    "examples/train_qlora/qwen3_lora_sft_otfq.yaml",
}
# Planned too, with an optimizer that a key of its own switches on: its name, its rank and whether it steps in backward
OPTIMIZERS = {
    "examples/extras/apollo/llama3_full_sft.yaml": ("apollo_adamw", 128, True),
    "examples/extras/galore/llama3_full_sft.yaml": ("galore_adamw", 128, True),
    "examples/extras/muon/qwen2_full_sft.yaml": ("muon", 0, False),
}
# Planned too, with other adapters or a part of the parameters: what must stand in the recipe
METHODS = {
    "examples/extras/badam/llama3_full_sft.yaml": "full",
    "examples/extras/oft/llama3_oft_sft.yaml": "OFT",
    "examples/train_qlora/llama3_lora_sft_gptq.yaml": "QLoRA",
}
# Planned too: stages besides sft, with the rows of a micro-batch and what the loss compares with
STAGES = {
    "examples/train_lora/qwen3_lora_dpo.yaml": ("dpo", 2, "self"),
    "examples/train_lora/qwen3_lora_kto.yaml": ("kto", 1, "self"),
    "examples/train_lora/qwen3_lora_reward.yaml": ("rm", 2, "none"),
    "examples/extras/fp8/llama3_fp8_fsdp_sft.yaml": ("sft", 1, "none"),
}
# What each of the others must name
REFUSED = {
    "examples/ktransformers/train_lora/qwen3moe_lora_sft_kt.yaml": "KTransformers",
    "examples/v1/train_full/train_full_fsdp2.yaml": "v1 schema",
}


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """The files under their original paths: a__b__c.yaml was a/b/c.yaml, REPO-- names the repository."""
    root = tmp_path_factory.mktemp("LlamaFactory")
    files = [*(SHARED / "llamafactory").iterdir(), *(SHARED / "deepspeed").glob("LlamaFactory--*")]
    for file in files:
        target = root / file.name.rpartition("--")[2].replace("__", "/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
    return root


@pytest.fixture(scope="module")
def manifest():
    with (SHARED / "MANIFEST.csv").open(encoding="utf-8", newline="") as handle:
        rows = [row for row in csv.DictReader(handle) if row["tool"] == "llamafactory" and row["kind"] == "train"]
    return {row["path"]: row for row in rows}


def test_the_collection_is_the_one_these_lists_speak_of(manifest):
    assert set(manifest) == PLANNED | set(OPTIMIZERS) | set(METHODS) | set(STAGES) | set(REFUSED)


@pytest.mark.parametrize("name", sorted(PLANNED))
def test_planned(tree, manifest, name):
    row = manifest[name]
    found = resolve_config(tree / name)
    recipe = found.recipe
    assert found.model_text == row["model"]
    assert recipe.method_label.lower() == row["method"]
    assert recipe.task == row["task"]
    assert (recipe.micro_batch, recipe.grad_accum, recipe.seq_len) == tuple(
        int(row[key]) for key in ("micro_batch", "grad_accum", "seq_len")
    )
    assert (str(recipe.lora.rank) if recipe.lora else "") == row["rank"]
    assert ({"nf4": "4", "int8": "8"}[recipe.quant.kind] if recipe.quant else "") == row["quant_bits"]
    assert ("yes" if recipe.packing else "no") == row["packing"]
    assert (recipe.checkpointing == "full") == (row["grad_ckpt"] == "on")
    assert recipe.epochs == float(row["epochs"])
    assert f"adamw_torch_{recipe.optimizer.impl}" == row["optimizer"]
    assert row["train_dtype"] == ("bf16+fp32 master" if recipe.master_weights else "fp32(upcast)")
    # the launcher's FSDP file of the fsdp_qlora example is named by a shell script, which the config does not mention
    strategy = {"none": "single/ddp"}.get(recipe.sharding.kind, recipe.sharding.kind)
    assert strategy == row["strategy"] or row["strategy"] == "fsdp1"
    assert not [w for w in found.warnings if "no key" in w]


@pytest.mark.parametrize(("name", "optimizer"), sorted(OPTIMIZERS.items()))
def test_optimizers_of_their_own(tree, manifest, name, optimizer):
    found = resolve_config(tree / name)
    made = found.recipe.optimizer
    assert (made.name, made.rank, made.in_backward) == optimizer
    assert found.recipe.method_label.lower() == manifest[name]["method"]


@pytest.mark.parametrize(("name", "label"), sorted(METHODS.items()))
def test_methods_of_their_own(tree, name, label):
    recipe = resolve_config(tree / name).recipe
    assert recipe.method_label == label
    assert (recipe.trained is not None) == ("badam" in name)


@pytest.mark.parametrize(("name", "expected"), sorted(STAGES.items()))
def test_stages(tree, manifest, name, expected):
    found = resolve_config(tree / name)
    recipe = found.recipe
    assert (recipe.task, recipe.rows // recipe.micro_batch, recipe.beside.reference) == expected
    assert recipe.padded == (expected[0] != "sft" or recipe.micro_batch > 1)
    assert ("fp8" in name) == any("fp8" in sentence for sentence in found.assumptions)


def test_zero_3_as_its_file_says(tree):
    """hidden 2560: reduce h², prefetch 0.9 h², persistence 10 h; overlap_comm is false in the file."""
    sharding = resolve_config(tree / "examples/train_full/qwen3_full_sft.yaml").recipe.sharding
    assert (sharding.kind, sharding.reduce_bucket, sharding.prefetch_bucket) == ("zero3", 6553600, 5898240)
    assert (sharding.persistence_threshold, sharding.overlap_comm, sharding.max_live) == (25600, False, 10**9)


@pytest.mark.parametrize(("name", "what"), sorted(REFUSED.items()))
def test_refused_in_one_sentence(tree, name, what):
    with pytest.raises(NotModelled) as caught:
        resolve_config(tree / name)
    assert what in caught.value.what and name in caught.value.where
    assert caught.value.fix and "\n" not in str(caught.value)


def test_flattened_names_still_plan(tree):
    """As the files lie in the collection, the DeepSpeed file is not where it is named: its name states the stage."""
    found = resolve_config(SHARED / "llamafactory" / "examples__train_full__qwen3_full_sft.yaml")
    assert found.recipe.sharding.kind == "zero3"
    assert any("ds_z3_config.json is not here" in sentence for sentence in found.assumptions)


def test_configs_of_other_tools_are_one_sentence():
    """Every YAML and JSON file of the other tools is read to a clear error, never a traceback of another kind."""
    files = [f for f in SHARED.rglob("*") if f.suffix in (".yaml", ".yml", ".json", ".sh", ".py", ".toml")]
    others = [f for f in files if f.parent.name not in ("llamafactory", "licences")]
    assert len(others) > 100
    for file in others:
        with pytest.raises(FinefitError) as caught:
            resolve_config(file)
        assert isinstance(caught.value, InputError) and caught.value.fix
