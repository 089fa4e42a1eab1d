"""Samples and lengths: from flags, from files, from the data sets a config names."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from finefit.errors import FinefitError, InputError
from finefit.resolve import file_lengths, resolve_config, stated_lengths
from finefit.resolve.notes import Notes
from finefit.resolve.samples import count, tokens_in
from finefit.workload import Lengths, Origin


def test_two_of_three_give_the_third():
    assert stated_lengths(samples=1000, mean_length=512).tokens == 512_000
    assert stated_lengths(samples=1000, tokens=512_000).mean == 512
    assert stated_lengths(tokens=512_000, mean_length=512).samples == 1000
    assert stated_lengths(tokens=10**6) == Lengths(tokens=10**6, source="--tokens")


@pytest.mark.parametrize(
    ("values", "flag"),
    [
        ({"samples": 0}, "--samples"),
        ({"mean_length": -3}, "--mean-length"),
        ({"mean_length": float("nan")}, "--mean-length"),
        ({"tokens": 0}, "--tokens"),
        ({"tokens": 100, "samples": 1000}, "--tokens"),
        ({"samples": 10**400}, "--samples"),
        ({"samples": 1000, "mean_length": 1e300}, "--mean-length"),
        ({"samples": True}, "--samples"),
        ({"samples": "1000"}, "--samples"),
        ({"samples": 1.5}, "--samples"),
        ({"samples": 10, "mean_length": 10, "tokens": 10**6}, "--tokens"),
        ({"mean_length": 500, "longest": 100}, "--mean-length"),
    ],
)
def test_wrong_lengths_name_the_flag(values, flag):
    with pytest.raises(InputError) as caught:
        stated_lengths(**values)
    assert caught.value.where == flag and caught.value.fix


def test_tokens_by_the_rule_of_thumb():
    """DeepSeek's documentation: 0.3 tokens an English character, 0.6 a Chinese one."""
    assert tokens_in("a" * 100) == pytest.approx(30)
    assert tokens_in("微调" * 50) == pytest.approx(60)


def _records(n):
    return [{"instruction": "a" * 100, "input": "", "output": "好" * 50, "id": i} for i in range(n)]


def test_every_kind_of_file_counts_the_same(tmp_path):
    records = _records(7)
    (tmp_path / "a.json").write_text(json.dumps(records, ensure_ascii=False), "utf-8")
    (tmp_path / "b.jsonl").write_text("\n\n".join(json.dumps(r, ensure_ascii=False) for r in records), "utf-8")
    (tmp_path / "c.json").write_text("\n".join(json.dumps(r) for r in records), "utf-8")  # lines under another name
    (tmp_path / "d.csv").write_text("instruction,output\n" + f"{'a' * 100},{'好' * 50}\n" * 7, "utf-8")
    for name in ("a.json", "b.jsonl", "c.json", "d.csv"):
        found = count(tmp_path / name)
        assert found.samples == 7
        assert found.mean == pytest.approx(60)
        assert found.longest == 60


def test_quoted_newlines_in_csv_are_one_sample(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('q,a\n"two\nlines","b"\n', "utf-8")
    assert count(path).samples == 1


def test_only_the_first_records_are_measured_and_all_are_counted(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "aaaaaaaaaa"}\n' * 2_000 + "{not json, never parsed\n" * 500 + "3\n" * 9, "utf-8")
    found = count(path)
    assert (found.samples, found.longest) == (2_500, 3)


def test_data_flag(tmp_path):
    path = tmp_path / "数据.jsonl"
    path.write_text("\n".join(json.dumps(r) for r in _records(4)), "utf-8")
    notes = Notes()
    found = file_lengths(path, notes)
    assert (found.samples, found.tokens, found.longest) == (4, 240, None)
    assert notes.sources["lengths.tokens"].origin is Origin.ASSUMED
    assert any("rule of thumb" in sentence for sentence in notes.assumptions)


@pytest.mark.parametrize(
    ("name", "text", "where"),
    [
        ("a.jsonl", '{"a": 1}\n{"a": \n', ":2"),
        ("a.json", "[1, 2", ""),
        ("a.json", "", ""),
        ("a.csv", "q,a\n", ""),
        ("a.parquet", "PAR1", ""),
        ("a.json", '[{"text": 1', ""),
    ],
)
def test_data_that_cannot_be_counted_is_named(tmp_path, name, text, where):
    path = tmp_path / name
    path.write_text(text, "utf-8")
    with pytest.raises(InputError) as caught:
        file_lengths(path, Notes())
    assert caught.value.where == f"{path}{where}" and caught.value.fix


def test_missing_data(tmp_path):
    for path in (tmp_path, tmp_path / "none.jsonl", tmp_path / "none.bin"):
        with pytest.raises(InputError):
            file_lengths(path, Notes())


@pytest.fixture
def project(tmp_path):
    """A project with two counted data sets, one on a hub and one whose file is missing."""
    data = tmp_path / "data"
    data.mkdir()
    info = {
        "small": {"file_name": "small.json"},
        "drawn": {"file_name": "big.jsonl", "num_samples": 30},
        "big": {"file_name": "big.jsonl"},
        "hub": {"hf_hub_url": "someone/something"},
        "gone": {"file_name": "gone.json"},
    }
    (data / "dataset_info.json").write_text(json.dumps(info), "utf-8")
    (data / "small.json").write_text(json.dumps(_records(10)), "utf-8")
    (data / "big.jsonl").write_text("\n".join(json.dumps(r) for r in _records(100)), "utf-8")
    (tmp_path / "examples").mkdir()

    def run(**keys):
        path = tmp_path / "examples" / "c.yaml"
        lines = {"model_name_or_path": "Qwen/Qwen3-0.6B", "do_train": "true", **keys}
        path.write_text("".join(f"{k}: {v}\n" for k, v in lines.items()), "utf-8")
        return resolve_config(path)

    return run


@pytest.mark.parametrize(
    ("keys", "samples"),
    [
        ({"dataset": "small"}, 10),
        ({"dataset": "small, big"}, 110),
        ({"dataset": "small,big", "max_samples": 20}, 30),  # of each data set
        ({"dataset": "drawn"}, 30),
        ({"dataset": "big", "val_size": 0.1}, 90),
        ({"dataset": "big", "val_size": 25}, 75),
        ({"dataset": "big#40"}, 40),
        ({"dataset": "hub"}, None),
        ({"dataset": "gone"}, None),
        ({"dataset": "small", "streaming": "true"}, None),
        ({"dataset": "small", "dataset_dir": "elsewhere"}, None),
        ({}, None),
    ],
)
def test_data_sets_of_a_config(project, keys, samples):
    found = project(**keys)
    assert found.lengths.samples == samples
    assert found.recipe.seq_len == 2048  # the rule of thumb never lowers the length memory is planned at
    if samples is None and keys:
        assert any("unknown" in warning for warning in found.warnings)


def test_a_name_that_dataset_info_lacks(project):
    with pytest.raises(InputError, match="smal") as caught:
        project(dataset="smal")
    assert caught.value.where.endswith("c.yaml:3: dataset")


def test_stated_lengths_win_and_may_lower_the_row(project, tmp_path):
    project(dataset="small")
    lengths = stated_lengths(samples=5, mean_length=100, longest=1001)
    found = resolve_config(tmp_path / "examples" / "c.yaml", lengths=lengths)
    assert found.lengths == lengths
    assert (found.recipe.seq_len, found.recipe.padded) == (1008, True)
    data = tmp_path / "data" / "big.jsonl"
    assert resolve_config(tmp_path / "examples" / "c.yaml", data=data).lengths.samples == 100


@given(st.binary(max_size=300), st.sampled_from([".json", ".jsonl", ".csv"]))
def test_any_bytes_are_counted_or_refused(tmp_path_factory, content, suffix):
    path = tmp_path_factory.getbasetemp() / f"fuzz{suffix}"
    path.write_bytes(content)
    try:
        found = file_lengths(path, Notes())
    except FinefitError as error:
        assert error.where and error.where.startswith(str(path))
    else:
        assert found.samples >= 1
