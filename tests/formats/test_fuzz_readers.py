"""Every reader under pieces of real files joined at random: an answer, or one of our errors with its cure."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from finefit.errors import FinefitError
from finefit.formats import dataset_info, python_file, toml_file
from finefit.formats.config import read
from finefit.resolve.any_config import resolve_any
from finefit.resolve.readings import reading_of

# Beginnings by which each tool is told, and pieces that change how what follows is read
HEADS = {
    "yaml": [
        "model_name_or_path: gpt2\nstage: sft\n", "base_model: gpt2\n", "model_name_or_path: gpt2\nuse_peft: true\n",
        "model:\n  _component_: torchtune.models.llama3.lora_llama3_8b\n", "checkpoint_dir: x\ntrain:\n  epochs: 1\n",
        "actor_rollout_ref: {model: {path: gpt2}}\n", "step_scheduler: {}\n", "policy: {model_name: gpt2}\n",
        "distributed_type: FSDP\n", "type: task\ncommands:\n  - swift sft --model gpt2\n",
        "tuner_type: lora\nmodel: gpt2\n",
        "resources: {accelerators: H100:8}\nrun: |\n  swift sft --model gpt2\n",
    ],
    "sh": ["swift sft --model gpt2", "llamafactory-cli train x.yaml", "torchrun --nproc_per_node 8 -m verl.trainer.x"],
    "toml": ["[job]\n[training]\n", "[model]\nname = 'llama3'\n[training]\nseq_len = 9\n"],
    "py": ["from unsloth import FastModel\nFastModel.from_pretrained(model_name='gpt2')\n", "from xtuner import x\n"],
    "json": ['{"zero_optimization": {"stage": 2}', '{"model_name_or_path": "gpt2", "stage": "sft"'],
}  # fmt: skip
PIECES = {
    "yaml": [
        "micro_batch_size: ", "cutoff_len: ", "deepspeed: ", "fsdp_config: ", "lora_target: ", "optimizer: ",
        "quantization_bit: ", "per_device_train_batch_size: ", "bf16: ", "2e-5\n", "1e9\n", "auto\n", "null\n",
        "[a, 1]\n",
        "{stage: 9}\n", "&a 4\n", "*a\n", "010\n", "-1\n", "on\n", "'x'\n", ".inf\n", "2026-11-31\n", "<<: ", "\n",
        "  ",
    ],
    "sh": [
        " --max_length", " --train_type", " 4", "=", " \\\n", "\n", " ${A:-8}", " $((8 / 0))", " $(expr 8 / 2)",
        " '", '"',
        " #x", " ;", "A=(", ")", " ${A[@]}", " nan", " 1e400", " -1", "if [ 1 ]; then", " fi", " <<E\n",
        "#SBATCH -N x\n",
    ],
    "toml": [
        "seq_len = ", "local_batch_size = ", "1e9\n", "nan\n", "'x'\n", "[parallelism]\n", "a.b = ", "[[x]]\n", '"""',
    ],
    "py": [
        "x = ", "1\n", "2 * 3\n", "1 // 0\n", "dict(", ")\n", "[", "]\n", "SFTConfig(", "max_length=", ",", "**x",
        "\n ",
    ],
    "json": [
        ', "bf16": {"enabled": ', ', "stage": ', "1", "null", "1e999", "NaN", '"auto"', "[]", "{", "}", ', "stage": 2}',
    ],
}  # fmt: skip


@st.composite
def files(draw: st.DrawFn) -> tuple[str, str]:
    ending = draw(st.sampled_from(sorted(HEADS)))
    pieces = st.sampled_from(PIECES[ending]) | st.text(max_size=2)
    return ending, draw(st.sampled_from(HEADS[ending])) + "".join(draw(st.lists(pieces, max_size=12)))


@settings(max_examples=400, deadline=None)
@given(files())
def test_a_reader_answers_or_refuses(tmp_path_factory, file):
    ending, text = file
    path = tmp_path_factory.getbasetemp() / f"fuzzed.{ending}"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    for reader in (lambda p: reading_of(read(p)), resolve_any):
        try:
            reader(path)
        except FinefitError as error:
            assert error.what and error.fix


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@given(st.dictionaries(st.sampled_from(["file_name", "num_samples", "hf_hub_url", "columns"]), _JSON) | _JSON)
def test_an_entry_of_dataset_info_is_read_or_refused(tmp_path_factory, value):
    path = tmp_path_factory.getbasetemp() / "dataset_info.json"
    path.write_text(json.dumps({"a": value}))
    for name, (entry, where) in dataset_info.read(path).items():
        with suppress(FinefitError):
            dataset_info.entry(name, entry, where)


@pytest.mark.parametrize("reader", [toml_file.load_tree, python_file.load_tree])
@given(st.text(max_size=80))
def test_any_text_is_read_or_refused(reader, text):
    try:
        document = reader(text, "f")
    except FinefitError as error:
        assert error.fix
    else:
        assert all(line >= 1 for _, _, line in document.items)


@pytest.mark.parametrize("reader", [toml_file.load_tree, python_file.load_tree])
@pytest.mark.parametrize("bracket", ["[", "(", "{", "-", "a."])
def test_deep_nesting_is_refused(reader, bracket):
    with pytest.raises(FinefitError):
        reader(f"x = {bracket * 100_000}", "f")
