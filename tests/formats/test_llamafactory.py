"""LLaMA-Factory files as written."""

from __future__ import annotations

import pytest

from finefit.errors import InputError, NotModelled
from finefit.formats import dataset_info, llamafactory


def test_values_and_places(tmp_path):
    path = tmp_path / "训练 配置.yaml"
    path.write_text("### 模型\nmodel_name_or_path: a/b\n\nlearning_rate: 2e-5\ncutoff_len: 1\ncutoff_len: 2\n", "utf-8")
    said = llamafactory.read(path)
    assert (said.tool, said.version) == ("llamafactory", "0.9.5")
    assert said.entries["learning_rate"].value == 2e-5  # OmegaConf's rule; PyYAML alone would read text
    assert said.entries["learning_rate"].place == f"{path}:4"
    assert said.where("model_name_or_path") == f"{path}:2: model_name_or_path"
    (warning,) = said.warnings
    assert "cutoff_len is written twice" in warning and f"{path}:6" in warning


def test_json(tmp_path):
    path = tmp_path / "c.json"
    path.write_text('{\n\t"model_name_or_path": "a/b",\n\t"lora_rank": 8\n}\n', "utf-8")
    said = llamafactory.read(path)
    assert said.entries["lora_rank"].value == 8
    assert said.where("lora_rank") == f"{path}:3: lora_rank"
    path.write_text('{"model_name_or_path": "a/b",\n "lora_rank": }', "utf-8")
    with pytest.raises(InputError) as caught:
        llamafactory.read(path)
    assert caught.value.where == f"{path}:2"


def test_other_files_are_refused_in_one_sentence(tmp_path):
    v1 = tmp_path / "v1.yaml"
    v1.write_text("model: Qwen/Qwen3-0.6B\ntrain_dataset: data.yaml\n", "utf-8")
    with pytest.raises(NotModelled, match="v1 schema"):
        llamafactory.read(v1)
    other = tmp_path / "other.yaml"
    other.write_text("learning_rate: 0.1\n", "utf-8")
    with pytest.raises(InputError, match="no key here tells"):
        llamafactory.read(other)
    with pytest.raises(InputError, match="no model_name_or_path"):
        llamafactory.read(other, "llamafactory")
    other.write_text("model_type: llama\n", "utf-8")
    with pytest.raises(InputError, match=r"config\.json"):
        llamafactory.read(other)


@pytest.mark.parametrize(
    ("text", "tool"),
    [
        ("base_model: a/b\n", "Axolotl"),
        ("model_name_or_path: a/b\nuse_peft: true\nlora_r: 8\n", "TRL"),
        ("model_name_or_path: a/b\nbf16: true\nnum_generations: 8\n", "TRL"),
    ],
)
def test_configs_of_other_tools_are_named(tmp_path, text, tool):
    """TRL shares most keys with LLaMA-Factory: without this its GRPO run would be planned as LoRA in silence."""
    path = tmp_path / "other.yaml"
    path.write_text(text, "utf-8")
    with pytest.raises(NotModelled, match=tool) as caught:
        llamafactory.read(path)
    assert caught.value.where == str(path)
    if tool == "TRL":  # the user's word wins, and so does a key that LLaMA-Factory alone has
        assert llamafactory.read(path, "llamafactory").entries["model_name_or_path"].value == "a/b"
        path.write_text(text + "stage: sft\n", "utf-8")
        assert llamafactory.read(path).entries["stage"].value == "sft"


def test_flags_of_a_script(tmp_path):
    """The flags of llamafactory-cli: a switch alone is true, numbers and texts as argparse reads them."""
    path = tmp_path / "run.sh"
    path.write_text("M=a/b\nllamafactory-cli train \\\n --model_name_or_path ${M} --bf16 \\\n --lora_rank 8\n", "utf-8")
    said = llamafactory.read(path)
    assert {key: entry.value for key, entry in said.entries.items()} == {
        "model_name_or_path": "a/b",
        "bf16": True,
        "lora_rank": 8,
    }
    assert said.where("lora_rank") == f"{path}:4: lora_rank"


def test_overrides_replace_and_extend(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("model_name_or_path: a/b\ncutoff_len: 1\n", "utf-8")
    said = llamafactory.read(path).override({"cutoff_len": 4096, "lora_rank": 4}, "--set")
    assert said.entries["cutoff_len"].value == 4096
    assert said.where("lora_rank") == "--set: lora_rank"


def test_dataset_info(tmp_path):
    path = tmp_path / "dataset_info.json"
    path.write_text(
        '{"a": {"file_name": "a.json"},\n"b": {"hf_hub_url": "x/y", "file_name": "b.json", "num_samples": 9},\n'
        '"c": {"script_url": "s"}}',
        "utf-8",
    )
    found = {name: dataset_info.entry(name, *each) for name, each in dataset_info.read(path).items()}
    assert (found["a"].file, found["a"].num_samples) == ("a.json", None)
    assert (found["b"].file, found["b"].num_samples) == (None, 9)  # a hub wins over a file: data/parser.py
    assert found["c"].file is None


@pytest.mark.parametrize(
    ("text", "place"),
    [('{"a": 1}', ":1"), ('{\n"a": {"file_name": 2}}', ":2"), ('{"a": {"num_samples": 0}}', ":1"), ("[]", "")],
)
def test_dataset_info_names_the_line(tmp_path, text, place):
    path = tmp_path / "dataset_info.json"
    path.write_text(text, "utf-8")
    with pytest.raises(InputError) as caught:
        for name, each in dataset_info.read(path).items():
            dataset_info.entry(name, *each)
    assert caught.value.where == f"{path}{place}"
