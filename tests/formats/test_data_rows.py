"""Rows of data files of every kind, good and bad."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from finefit.errors import FinefitError, InputError
from finefit.formats import data_rows
from finefit.formats.data_rows import read_rows
from finefit.formats.data_shapes import SHAPES, BadRow, sample_of, shape_of

_ROWS = [{"text": f"row {i} 微调"} for i in range(5)]


def _values(path):
    return [row.value for row in read_rows(path)]


def test_every_kind_of_file_gives_the_same_rows(tmp_path):
    pa = pytest.importorskip("pyarrow", reason="needs finefit[data]")
    from pyarrow import ipc, parquet

    table = pa.Table.from_pylist(_ROWS)
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, _ROWS)), "utf-8-sig")
    (tmp_path / "a.json").write_text(json.dumps(_ROWS, indent=1), "utf-8")
    (tmp_path / "a.csv").write_text("text\n" + "".join(f"{row['text']}\n" for row in _ROWS), "utf-8")
    parquet.write_table(table, tmp_path / "a.parquet")
    for name, writer in (("a.arrow", ipc.new_stream), ("b.arrow", ipc.new_file)):  # datasets writes streams
        with writer(tmp_path / name, table.schema) as sink:
            sink.write_table(table)
    for path in tmp_path.iterdir():
        assert _values(path) == _ROWS, path.name


def test_a_json_list_longer_than_the_window(tmp_path, monkeypatch):
    monkeypatch.setattr(data_rows, "_WINDOW", 7)
    path = tmp_path / "a.json"
    path.write_text(json.dumps([*_ROWS, 3, 12345678901234567890, "]"]), "utf-8")
    rows = list(read_rows(path))
    assert [row.value for row in rows] == [*_ROWS, None, None, None]
    assert [row.error for row in rows[5:]] == ["not an object"] * 3


def test_bad_rows_are_named_by_line_and_the_others_read(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "a"}\n\nnot json\n3\n\xff\xfe\n{"text": "b"}\n')
    assert [(row.place, row.error) for row in read_rows(path)] == [
        (1, ""),
        (3, "not JSON"),
        (4, "not an object"),
        (5, "not JSON"),
        (6, ""),
    ]


def test_a_damaged_list_keeps_what_stands_before(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('[{"text": "a"}, {"text": ', "utf-8")
    assert [(row.place, row.error) for row in read_rows(path)] == [(1, ""), (2, "not JSON from here on")]


@settings(max_examples=60)
@given(
    st.binary(max_size=80),
    st.sampled_from(["a.jsonl", "a.json", "a.csv", "a.parquet"]),
    st.sampled_from([b"", b"[", b"PAR1", b"ARROW1", b"\xff\xff\xff\xff"]),
)
def test_any_bytes_give_rows_or_our_error(tmp_path_factory, data, name, head):
    path = tmp_path_factory.mktemp("fuzz") / name
    path.write_bytes(head + data)
    try:
        list(read_rows(path))
    except FinefitError as error:
        assert error.fix


_SHAREGPT = [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]
_CHAT = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]


@pytest.mark.parametrize(
    ("row", "shape", "texts"),
    [
        ({"conversations": _SHAREGPT, "system": "s"}, "sharegpt", "sqa"),
        ({"messages": _CHAT}, "messages", "qa"),
        ({"instruction": "q", "input": "i", "output": "a", "history": [["h", "g"]]}, "alpaca", ["h", "g", "q\ni", "a"]),
        ({"prompt": "q", "completion": "a"}, "alpaca", "qa"),
        ({"prompt": _CHAT[:1], "completion": _CHAT[1:]}, "alpaca", "qa"),
        ({"prompt": "q", "chosen": "a", "rejected": "b"}, "preference", "q"),
        ({"chosen": _CHAT, "rejected": _CHAT}, "preference", ""),
    ],
)  # fmt: skip
def test_shapes_are_told_by_their_keys(row, shape, texts):
    assert shape_of(row, "x") == shape
    assert [turn.text for turn in sample_of(row, shape).turns] == list(texts)


def test_a_pair_that_repeats_its_question_answers_once():
    sample = sample_of({"prompt": _CHAT[:1], "chosen": _CHAT, "rejected": "b"}, "preference")
    assert [[turn.text for turn in answer] for answer in sample.answers] == [["a"], ["b"]]


def test_unknown_columns_ask_for_the_shape():
    with pytest.raises(InputError, match="columns a, b are none"):
        shape_of({"a": 1, "b": 2}, "f:1")


_JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=3), lambda x: st.lists(x, max_size=2))
_KEYS = "conversations messages system history instruction prompt input output chosen rejected text from value role"


@given(st.dictionaries(st.sampled_from(_KEYS.split()), _JSON | st.just(_CHAT)), st.sampled_from(sorted(SHAPES)))
def test_any_row_is_a_sample_or_bad(row, shape):
    try:
        sample_of(row, shape)
    except BadRow as error:
        assert str(error)
