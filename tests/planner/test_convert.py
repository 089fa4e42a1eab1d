"""A config in another tool's words: by that tool's rules it asks for the same run, or a line says what differs."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from finefit.app.cli import main
from finefit.errors import InputError
from finefit.planner.convert import convert
from finefit.planner.levers import changed_fields
from finefit.resolve.any_config import resolve_any

EXAMPLE = Path(__file__).parents[2] / "src" / "finefit" / "examples" / "llama3_8b_qlora.yaml"
TOOLS = ("llamafactory", "axolotl", "trl", "ms-swift")
DPO = """base_model: Qwen/Qwen2.5-7B-Instruct
rl: dpo
adapter: lora
lora_r: 16
lora_alpha: 32
lora_target_modules: [q_proj, v_proj]
sequence_len: 1024
micro_batch_size: 2
gradient_accumulation_steps: 4
optimizer: paged_adamw_8bit
learning_rate: 5e-6
warmup_ratio: 0.1
bf16: auto
gradient_checkpointing: true
wandb_project: mine
datasets:
  - path: x/y
    type: chatml.intel
"""

TUNE = """model:
  _component_: torchtune.models.qwen2_5.lora_qwen2_5_7b_instruct
  lora_attn_modules: [q_proj, v_proj]
  lora_rank: 8
  lora_alpha: 16
tokenizer: {max_seq_len: 1024}
checkpointer: {checkpoint_dir: /tmp/Qwen2.5-7B-Instruct}
optimizer: {_component_: bitsandbytes.optim.PagedAdamW8bit, lr: 3e-4}
loss: {_component_: torchtune.modules.loss.LinearCrossEntropyLoss}
batch_size: 2
gradient_accumulation_steps: 4
epochs: 1
dtype: bf16
enable_activation_checkpointing: True
"""


@pytest.mark.parametrize("to", TOOLS)
def test_the_example_asks_for_the_same_run(tmp_path, to):
    found = convert(EXAMPLE, to)
    file = tmp_path / "new.yaml"
    file.write_text(found.text)
    before, after = resolve_any(EXAMPLE).recipe, resolve_any(file, tool=to).recipe
    differs = changed_fields(before, after)
    # trl 1.16.0: no whole logits, adapters on a quantised base in bf16; ms-swift 4.6.0 and axolotl 0.19.0 call
    # prepare_model_for_kbit_training of PEFT, which LLaMA-Factory does not
    assert set(differs) <= {"loss", "lora.dtype", "quant.kbit_prepare", "quant.recast"}
    for name in differs:
        assert any(note.startswith(f"{name} is ") for note in found.notes)
    assert yaml.safe_load(found.text).get("learning_rate") == 1e-4


@pytest.mark.parametrize("to", TOOLS)
def test_numbers_stay_numbers_and_lost_lines_are_named(tmp_path, to):
    file = tmp_path / "dpo.yaml"
    file.write_text(DPO)
    found = convert(file, to)
    read = yaml.safe_load(found.text)
    assert read["learning_rate"] == 5e-6  # PyYAML takes 5e-6 for text
    assert {"trl": read.get("warmup_steps")}.get(to, read.get("warmup_ratio")) == 0.1
    lost = [note for note in found.notes if "does not carry over" in note]
    assert [note.split(": ")[1].split(" ")[0] for note in lost] == ["wandb_project", "datasets"]
    assert all(note.startswith(f"{file}:") for note in lost)
    again = tmp_path / "again.yaml"
    again.write_text(found.text)
    recipe = resolve_any(again, tool=to).recipe
    assert (recipe.micro_batch, recipe.grad_accum, recipe.seq_len, recipe.lora.rank) == (2, 4, 1024, 16)
    assert recipe.lora.targets == ("q_proj", "v_proj")
    assert (recipe.optimizer.name, recipe.optimizer.paged) == ("adamw_8bit", True)
    assert recipe.task == "dpo" or to == "trl"


def test_torchtune_takes_settings_and_leaves_components(tmp_path):
    found = convert(EXAMPLE, "torchtune")
    read = yaml.safe_load(found.text)
    assert read["optimizer"] == {"_component_": "torch.optim.AdamW", "lr": 1e-4}
    assert (read["tokenizer"]["max_seq_len"], read["batch_size"], read["model"]["lora_rank"]) == (2048, 2, 16)
    assert any("lr_scheduler_type has no key in torchtune" in note for note in found.notes)
    assert any("components" in note for note in found.notes)


def test_a_torchtune_config_becomes_a_trl_one(tmp_path):
    file = tmp_path / "lora_single_device.yaml"
    file.write_text(TUNE)
    read = yaml.safe_load(convert(file, "trl").text)
    assert (read["lora_r"], read["lora_alpha"]) == (8, 16)
    assert (read["per_device_train_batch_size"], read["gradient_accumulation_steps"], read["max_length"]) == (
        2,
        4,
        1024,
    )
    assert (read["learning_rate"], read["optim"], read["num_train_epochs"]) == (3e-4, "paged_adamw_8bit", 1)
    assert read["model_name_or_path"] == "Qwen2.5-7B-Instruct"


def test_the_command_prints_a_config_and_notes_apart(tmp_path, capsys):
    out = tmp_path / "new.yaml"
    assert main(["convert", str(EXAMPLE), "--to", "axolotl", "--lang", "en"]) == 0
    shown = capsys.readouterr()
    assert yaml.safe_load(shown.out)["base_model"] == "meta-llama/Meta-Llama-3-8B-Instruct"
    assert "dataset does not carry over" in shown.err
    assert main(["convert", str(EXAMPLE), "--to", "axolotl", "-o", str(out)]) == 0
    assert out.read_text() == shown.out
    assert main(["convert", str(EXAMPLE), "--to", "axolotl", "-o", str(out)]) == 2
    with pytest.raises(InputError, match="no format to write"):
        convert(EXAMPLE, "verl")
