"""Any file as written: tool by content, values by the tool's own YAML rules, nested keys with their lines."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from finefit.errors import FinefitError, InputError
from finefit.formats import config, json_file, python_file, toml_file, yaml11
from finefit.formats.tools import TOOLS, recognise


def said(tmp_path, name, text, tool=None):
    path = tmp_path / name
    path.write_text(text, "utf-8")
    return config.read(path, tool)


@pytest.mark.parametrize(
    ("name", "text", "tool"),
    [
        ("a.yml", "base_model: a/b\nadapter: lora\n", "axolotl"),
        ("a.yaml", "model_name_or_path: a/b\nmax_length: 1024\n", "trl"),
        ("a.yaml", "model_name_or_path: a/b\ncutoff_len: 1024\nbf16: true\n", "llamafactory"),
        ("a.yaml", "model: a/b\ntrain_dataset: d\n", "llamafactory-v1"),
        ("a.yaml", "model: a/b\ntuner_type: lora\n", "ms-swift"),
        ("a.yaml", "distributed_type: FSDP\n", "accelerate"),
        ("a.json", '{"zero_optimization": {"stage": 2}}', "deepspeed"),
        ("a.yaml", "model:\n  _component_: torchtune.models.llama3.llama3_8b\n", "torchtune"),
        ("a.yaml", "checkpoint_dir: checkpoints/a/b\ntrain:\n  epochs: 1\n", "litgpt"),
        ("a.toml", "[job]\n[training]\nseq_len = 8\n", "torchtitan"),
        ("a.yaml", "step_scheduler:\n  local_batch_size: 1\n", "nemo-automodel"),
        ("a.yaml", "policy:\n  model_name: a/b\n", "nemo-rl"),
        ("a.yaml", "train:\n  train_iters: 10\n", "megatron-bridge"),
        ("a.yaml", "actor_rollout_ref:\n  model:\n    path: a/b\n", "verl"),
        ("a.yaml", "resources:\n  accelerators: H100:8\nrun: echo\n", "skypilot"),
        ("a.yaml", "type: task\ncommands:\n  - echo\n", "dstack"),
        ("a.py", "import unsloth\nFastModel.from_pretrained(model_name='a/b')\n", "unsloth"),
        ("a.py", "pretrained_model_name_or_path = 'a/b'\n", "xtuner"),
        ("a.sh", "swift sft --model a/b\n", "ms-swift"),
        ("a.sh", "python train.py --model_name_or_path a/b --use_peft --lora_r 4\n", "trl"),
    ],
)  # fmt: skip
def test_the_tool_is_told_by_content(tmp_path, name, text, tool):
    assert said(tmp_path, name, text).tool == tool


def test_the_users_word_wins(tmp_path):
    assert said(tmp_path, "a.yaml", "learning_rate: 1\n", "axolotl").tool == "axolotl"
    with pytest.raises(InputError, match="is no format"):
        said(tmp_path, "a.yaml", "learning_rate: 1\n", "axolotol")
    assert recognise(["learning_rate"]) is None


@pytest.mark.parametrize(
    ("tool", "rate"), [("axolotl", "2e-5"), ("trl", "2e-5"), ("torchtune", 2e-5), ("litgpt", 2e-5)]
)
def test_a_number_without_a_dot_is_what_the_tool_makes_of_it(tmp_path, tool, rate):
    """yaml.safe_load reads 2e-5 as text, OmegaConf and jsonargparse as a number."""
    assert said(tmp_path, "a.yaml", "lr: 2e-5\n", tool).entries["lr"].value == rate


def test_yaml_1_1(tmp_path):
    """PyYAML 6.0: ``on`` is true, ``010`` is 8, ``500_000`` a number, ``1:30`` base sixty."""
    text = "base_model: a/b\na: on\nb: 010\nc: 500_000\nd: 1:30\ne: 'no'\n"
    read = said(tmp_path, "a.yaml", text)
    assert [read.entries[key].value for key in "abcde"] == [True, 8, 500_000, 90, "no"]


def test_nested_keys_have_their_own_lines(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("base_model: a/b\nfsdp_config:\n  x: 1\n\n  deep:\n    y: 2\nlist:\n  - z: 3\n", "utf-8")
    read = config.read(path)
    places = {key: entry.place for key, entry in read.entries.items()}
    assert places["fsdp_config.deep.y"] == f"{path}:6" and places["fsdp_config.x"] == f"{path}:3"
    assert "list.z" not in places and read.entries["list"].value == [{"z": 3}]


def test_toml_and_json_lines():
    text = 'a = 1\n[x]\n# a = 3\n"b" = 2\n[x.y]\nb = 3\n'
    assert toml_file.load_tree(text, "f").items == (
        ("a", 1, 1), ("x", {"b": 2, "y": {"b": 3}}, 2), ("x.b", 2, 4), ("x.y", {"b": 3}, 5), ("x.y.b", 3, 6),
    )  # fmt: skip
    found = {key: line for key, _, line in json_file.load_tree('{\n"a": {\n"b": 1},\n"c": 2}', "f").items}
    assert found == {"a": 2, "a.b": 3, "c": 4}


def test_anchors_and_merges_keep_the_lines_they_stand_on():
    text = "base: &b\n  x: 1\nuse:\n  <<: *b\n  y: 2\n"
    found = {key: (value, line) for key, value, line in yaml11.load_tree(text, "f").items}
    assert found["use.x"] == (1, 2) and found["use.y"] == (2, 5)


def test_keys_with_a_dot_keep_a_line():
    """Found by mutating real files: a key that YAML itself writes with a dot, around a section."""
    found = {key: line for key, _, line in yaml11.load_tree("x: 1\na.b:\n  c: 2\n", "f").items}
    assert found == {"x": 1, "a.b": 2, "a.b.c": 3}
    odd = {
        key: line for key, _, line in yaml11.load_tree("s:\n  1.5:\n    c: 2\n  t:\n    ? null\n    : 4\n", "f").items
    }
    assert odd["s"] == 1 and odd["s.t"] == 4


def test_alias_bombs_and_self_reference_are_refused():
    bomb = "a0: &a0 {k: 1}\n" + "".join(f"a{n}: &a{n} {{x: *a{n - 1}, y: *a{n - 1}}}\n" for n in range(1, 60))
    for text in (bomb, "a: &a\n  b: *a\n"):
        with pytest.raises(InputError):
            yaml11.load_tree(text, "f")


def test_two_runs_in_one_script(tmp_path):
    read = said(tmp_path, "a.sh", "swift sft --model a/b\necho\nswift rlhf --model c/d\nswift sft --model e/f\n")
    assert read.entries["model"].value == "a/b"
    assert any("starts 3 runs" in sentence and "line 3, 4" in sentence for sentence in read.warnings)


def test_a_script_with_the_config_it_names(tmp_path):
    """``llamafactory-cli train x.yaml key=value``: the file's keys, and what the line puts over them."""
    (tmp_path / "x.yaml").write_text("model_name_or_path: a/b\ncutoff_len: 512\n", "utf-8")
    read = said(tmp_path, "run.sh", "llamafactory-cli train x.yaml cutoff_len=1024\n")
    assert (read.entries["model_name_or_path"].value, read.entries["cutoff_len"].value) == ("a/b", 1024)
    assert read.entries["model_name_or_path"].place.endswith("x.yaml:1")


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        ("axolotl train x.yaml --launcher torchrun -- --nproc_per_node=8", "nproc_per_node", 8),
        ("trl sft --config x.yaml --accelerate_config zero3 --num_processes 4", "num_processes", 4),
        ("accelerate launch --num_processes 2 -m axolotl.cli.train x.yaml", "num_processes", 2),
    ],
)
def test_launchers_inside_a_tools_own_command(tmp_path, line, key, value):
    (tmp_path / "x.yaml").write_text("base_model: a/b\nmodel_name_or_path: a/b\n", "utf-8")
    read = said(tmp_path, "run.sh", line + "\n")
    assert read.launch[key].value == value and read.entries["base_model"].value == "a/b"


def test_slurm_headers_are_facts(tmp_path):
    read = said(tmp_path, "a.sh", "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gres=gpu:8\nsrun swift sft --model a/b\n")
    assert (read.launch["slurm.nodes"].value, read.launch["slurm.gres"].value) == ("2", "gpu:8")


def test_python_is_read_and_never_run(tmp_path):
    text = (
        "import os\nos.abort()\nlength = 1024 * 2\n"
        "m, t = FastLanguageModel.from_pretrained('ignored', model_name=NAME, max_seq_length=length)\n"
        "NAME = 'late'\nx = dict(a=dict(b=[1, -2]), c=open('/etc/passwd'))\n"
    )
    found = {key: value for key, value, _ in python_file.load_tree(text, "f").items}
    assert found["from_pretrained.max_seq_length"] == 2048 and found["from_pretrained.model_name"] is None
    assert found["x.a.b"] == [1, -2] and "x.c" not in found


def test_a_script_without_training_is_one_sentence(tmp_path):
    with pytest.raises(InputError, match="no command of this script") as caught:
        said(tmp_path, "a.sh", "pip install trl\n")
    assert caught.value.fix and str(tmp_path) in (caught.value.where or "")


@settings(max_examples=120, deadline=None)
@given(st.sampled_from([".yaml", ".json", ".toml", ".sh", ".py", ".slurm"]), st.text(max_size=120))
def test_any_text_in_any_file_gives_only_our_errors(tmp_path_factory, suffix, text):
    path = tmp_path_factory.mktemp("fuzz") / f"x{suffix}"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with suppress(FinefitError):
        assert config.read(path).tool in TOOLS
