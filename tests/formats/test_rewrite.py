"""Writing back: the changed value is read back by the format's own parser, every other character stays."""

from __future__ import annotations

import json
import shlex
import tomllib

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from finefit.errors import InputError
from finefit.formats import config, edit_python, edit_shell, edit_toml, edit_tree
from finefit.formats.edits import Edit, How, splice
from finefit.formats.rewrite import original, rewritten

_KEYS = ("alpha", "beta", "gamma", "delta", "micro_batch_size")
_VALUES = ("4", "'4'", '"a b"', "2e-5", "true", "~", "", "[1, 2]", "{x: 1, y: [a]}", "&n 7", "!!int 5", "text # no")
_COMMENTS = ("", "  # eight: 8", " #{[")


def kept(old: str, new: str, value: str) -> bool:
    """Whether the new text is the old one with one piece replaced by another that ends in ``value``."""
    head = next((n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    left = min(len(old), len(new)) - head
    tail = next((n for n in range(left) if old[-1 - n] != new[-1 - n]), left)
    return len(new[head : len(new) - tail]) <= len(value) + 1


@st.composite
def yaml_files(draw: st.DrawFn) -> tuple[str, list[str]]:
    newline = draw(st.sampled_from(["\n", "\r\n"]))
    indent = draw(st.sampled_from(["", "  "]))
    keys = draw(st.lists(st.sampled_from(_KEYS), min_size=1, unique=True))
    rows = ["# head: 1"] if draw(st.booleans()) else []
    if indent:
        rows.append("section:" + draw(st.sampled_from(_COMMENTS)))
    for key in keys:
        quoted = draw(st.sampled_from([key, f'"{key}"', f"'{key}'"]))
        value = draw(st.sampled_from(_VALUES)).replace("&n", f"&{key}")  # an anchor's name is used once
        rows.append(f"{indent}{quoted}: {value}{draw(st.sampled_from(_COMMENTS))}".rstrip(" "))
        rows += draw(st.sampled_from([[], [""], [f"{indent}# between"]]))
    end = draw(st.sampled_from(["", newline, newline * 2]))
    return newline.join(rows) + end, [f"section.{key}" if indent else key for key in keys]


@settings(max_examples=300)
@given(yaml_files(), st.data())
def test_a_value_of_a_yaml_file_is_replaced_alone(file, data):
    text, keys = file
    key = data.draw(st.sampled_from(keys))
    value = data.draw(st.sampled_from([16, True, "adamw_8bit", "two words", "010", "2e-5", [1, "a"]]))
    new = splice(text, edit_tree.changes(text, "f.yaml", [Edit(key, value)]))
    before, after = yaml.safe_load(text), yaml.safe_load(new)
    holder = before["section"] if "." in key else before
    holder[key.rpartition(".")[2]] = value
    assert after == before
    assert kept(text, new, edit_tree.yaml_value(value))


@settings(max_examples=300)
@given(yaml_files(), st.data())
def test_a_new_key_of_a_yaml_file_gets_a_line_of_its_own(file, data):
    text, keys = file
    near = data.draw(st.sampled_from([*keys, ""]))
    prefix = "section." if "." in keys[0] else ""
    edits = [Edit(f"{prefix}fresh", 1, near=near), Edit(f"{prefix}other", "a: b", near=near)]
    new = splice(text, edit_tree.changes(text, "f.yaml", edits))
    before = yaml.safe_load(text)
    holder = before["section"] if prefix else before
    holder |= {"fresh": 1, "other": "a: b"}
    assert yaml.safe_load(new) == before
    newline = "\r\n" if "\r\n" in text else "\n"
    added = [row for row in new.split(newline) if "fresh" in row or "other" in row]
    assert [row for row in new.split(newline) if row not in added] == text.split(newline)
    assert {len(row) - len(row.lstrip()) for row in added} == {2 if prefix else 0}


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=200)
@given(
    st.dictionaries(st.sampled_from(_KEYS), _JSON | st.dictionaries(st.sampled_from(_KEYS), _JSON), min_size=1),
    st.sampled_from([None, 2, "\t"]),
    st.data(),
)
def test_a_json_file_keeps_its_layout(tree, indent, data):
    text = json.dumps(tree, indent=indent)
    key = data.draw(st.sampled_from(sorted(tree)))
    new = splice(text, edit_tree.changes(text, "f.json", [Edit(key, "x"), Edit("fresh", 2, near=key)], json_text=True))
    assert json.loads(new) == {**tree, key: "x", "fresh": 2}
    if indent is not None:
        assert len(new.splitlines()) == len(json.dumps({**tree, key: "x", "fresh": 2}, indent=indent).splitlines())


TOML = '''# a job
[job]
description = """
[training]
seq_len = 1
"""
[training] # here
"seq_len" = 4_096  # tokens
local_batch_size=2
data = [
  1, # one
  "]",
]
[model]
name = 'llama3'
'''


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize(("key", "value"), [("seq_len", 2048), ("local_batch_size", 1), ("global_batch_size", 8)])
def test_a_toml_file_changes_in_one_value(newline, key, value):
    text = TOML.replace("\n", newline)
    new = splice(text, edit_toml.changes(text, "f.toml", [Edit(f"training.{key}", value)]))
    expected = tomllib.loads(text)
    expected["training"][key] = value
    assert tomllib.loads(new) == expected
    assert kept(text, new, f"{key} = {value}{newline}")


SCRIPT = """# --per_device_train_batch_size 99
NPROC=8
LENGTH=4096
ARGS=(
    --attn_impl flash_attn  # fast
    --packing true
)
NPROC_PER_NODE=$NPROC \\
swift sft \\
    --model Qwen/Qwen2.5-7B \\
    --per_device_train_batch_size 4 \\
    --gradient_accumulation_steps $(expr 32 / $NPROC) \\
    --max_length $LENGTH \\
    --target_modules q_proj k_proj \\
    --learning_rate=1e-4 \\
    "${ARGS[@]}"
"""


def shell_edit(tmp_path, edits, text=SCRIPT):
    path = tmp_path / "run.sh"
    path.write_bytes(text.encode())
    return rewritten(config.read(path), original(path), edits)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("edit", "old", "new"),
    [
        (Edit("per_device_train_batch_size", 1), "batch_size 4", "batch_size 1"),
        (Edit("max_length", 2048), "LENGTH=4096", "LENGTH=2048"),
        (Edit("learning_rate", 2), "rate=1e-4", "rate=2"),
        (Edit("packing", False), "--packing true", "--packing false"),
        (Edit("target_modules", "all-linear"), "q_proj k_proj", "all-linear"),
        (
            Edit("use_liger_kernel", True, near="per_device_train_batch_size"),
            "size 4 \\\n",
            "size 4 \\\n    --use_liger_kernel true \\\n",
        ),
        (Edit("optim", "adamw_8bit", near="packing"), "--packing true\n", "--packing true\n    --optim adamw_8bit\n"),
    ],
)
def test_a_script_changes_in_one_word(tmp_path, edit, old, new, newline):
    changed = shell_edit(tmp_path, [edit], SCRIPT.replace("\n", newline))
    assert changed == SCRIPT.replace(old, new, 1).replace("\n", newline)
    assert shlex.split(changed, comments=True)


def test_what_the_shell_computes_is_left_to_its_author(tmp_path):
    with pytest.raises(InputError, match=r"expr 32 / \$NPROC") as caught:
        shell_edit(tmp_path, [Edit("gradient_accumulation_steps", 8)])
    assert caught.value.where.endswith("run.sh:12")
    assert "write 8 there" in caught.value.fix


PYTHON = """from unsloth import FastLanguageModel
max_seq_length = 2048  # 长
model, tokenizer = FastLanguageModel.from_pretrained(
    model_name="unsloth/llama-3-8b", max_seq_length=max_seq_length, load_in_4bit=True
)
trainer = SFTTrainer(model=model, args=SFTConfig(
    per_device_train_batch_size=2,  # 二
    gradient_accumulation_steps=2 * 2,
    max_length=max_seq_length,
))
"""


def test_a_python_file_changes_in_a_literal_or_its_variable():
    edits = [Edit("args.per_device_train_batch_size", 1), Edit("from_pretrained.max_seq_length", 1024)]
    found, touched = edit_python.changes(PYTHON, "t.py", [*edits, Edit("args.optim", "adamw_8bit")])
    expected = PYTHON.replace("size=2", "size=1").replace("= 2048", "= 1024")
    last = "max_length=max_seq_length,\n"
    assert splice(PYTHON, found) == expected.replace(last, f"{last}    optim='adamw_8bit',\n")
    assert touched == {"max_seq_length"}
    with pytest.raises(InputError, match="computed"):
        edit_python.changes(PYTHON, "t.py", [Edit("args.gradient_accumulation_steps", 8)])


AXOLOTL = """base_model: a/b
shared: &n 4
micro_batch_size: *n
sequence_len: &s 2048
eval_sequence_len: *s
plugins:
  - axolotl.integrations.x.Y  # kept
optimizer: adamw
"""


def axolotl_edit(tmp_path, *edits, text=AXOLOTL):
    path = tmp_path / "a.yaml"
    path.write_bytes(text.encode())
    return rewritten(config.read(path), original(path), edits)


def test_an_alias_is_replaced_where_it_stands(tmp_path):
    assert axolotl_edit(tmp_path, Edit("micro_batch_size", 1)) == AXOLOTL.replace("size: *n", "size: 1")


def test_a_value_that_others_repeat_is_refused(tmp_path):
    with pytest.raises(InputError, match="eval_sequence_len would change too") as caught:
        axolotl_edit(tmp_path, Edit("sequence_len", 1024))
    assert "a.yaml:5" in caught.value.where


def test_an_item_joins_a_list_and_a_byte_order_mark_stays(tmp_path):
    text = "\ufeff" + AXOLOTL
    changed = axolotl_edit(tmp_path, Edit("plugins", "z.Z", How.APPEND), Edit("optimizer", how=How.REMOVE), text=text)
    assert changed == text.replace("# kept\n", "# kept\n  - z.Z\n").replace("optimizer: adamw\n", "")


def test_a_key_from_a_merge_is_written_out():
    text = "base: &b {micro_batch_size: 4}\nrun:\n  <<: *b\n  lr: 1\n"
    new = splice(text, edit_tree.changes(text, "f.yaml", [Edit("run.micro_batch_size", 1)]))
    assert yaml.safe_load(new)["run"] == {"micro_batch_size": 1, "lr": 1}
    assert new == text + "  micro_batch_size: 1\n"


_SHELLISH = st.lists(
    st.sampled_from([*"ab=-$\"'\\ \n\t#(){}", "--x 1", "swift sft ", "A=(", "${A[@]}", "\r\n", "max_length"]),
    max_size=30,
).map("".join)


@settings(max_examples=300)
@given(_SHELLISH)
def test_any_script_is_changed_or_refused(text):
    try:
        found = edit_shell.changes(text, "r.sh", [Edit("max_length", 7)], "ms-swift")
    except InputError as error:
        assert error.fix
    else:
        assert "7" in splice(text, found)


@settings(max_examples=300)
@given(st.text(max_size=60), st.sampled_from(["json", "yaml", "toml", "py"]))
def test_any_text_is_changed_or_refused(text, kind):
    run = {
        "json": lambda e: edit_tree.changes(text, "f", e, json_text=True),
        "yaml": lambda e: edit_tree.changes(text, "f", e),
        "toml": lambda e: edit_toml.changes(text, "f", e),
        "py": lambda e: edit_python.changes(text, "f", e)[0],
    }[kind]
    try:
        found = run([Edit("a.b", 7, near="a")])
    except InputError as error:
        assert error.fix
    else:
        assert "7" in splice(text, found)
