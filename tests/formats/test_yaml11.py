"""YAML as PyYAML 6.0.4 and omegaconf 2.3.0 read it: expected values are those the two libraries printed."""

from __future__ import annotations

import datetime as dt
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from finefit.errors import InputError
from finefit.formats.yaml11 import MAX_BYTES, Dialect, load_mapping, read_text

# scalar, yaml.safe_load, yaml.load with omegaconf's get_yaml_loader
SCALARS = [
    ("2e-5", "2e-5", 2e-05),
    ("2.0e-5", 2e-05, 2e-05),
    ("1e9", "1e9", 1e9),
    ("500_000", 500000, 500000),
    ("0x10", 16, 16),
    ("1:30", 90, 90),
    ("no", False, False),
    ("on", True, True),
    ("~", None, None),
    ("2020-01-01", dt.date(2020, 1, 1), "2020-01-01"),
    ("1.", 1.0, 1.0),
    ("017", 15, 15),
    ("1_0.5e3", "1_0.5e3", 10500.0),
    ("+3e2", "+3e2", 300.0),
    ("1e5x", "1e5x", "1e5x"),
]


@pytest.mark.parametrize(("text", "pyyaml", "omegaconf"), SCALARS)
def test_scalars(text, pyyaml, omegaconf):
    for dialect, expected in ((Dialect.PYYAML, pyyaml), (Dialect.OMEGACONF, omegaconf)):
        ((key, value, line),) = load_mapping(f"# a comment\nk: {text}\n", "f.yaml", dialect).items
        assert (key, line) == ("k", 2)
        assert value == expected and type(value) is type(expected)


def test_infinity():
    ((_, value, _),) = load_mapping("k: .inf", "f.yaml").items
    assert value == math.inf


def test_lines_duplicates_and_merge():
    text = "a: 1\nbase: &base {c: 3, d: 4}\n<<: *base\nb: |\n  two\n  lines\na: 5\nd: 6\n"
    document = load_mapping(text, "f.yaml")
    found = {key: (value, line) for key, value, line in document.items}
    assert found["a"] == (5, 7)
    assert found["b"] == ("two\nlines\n", 4)
    assert found["c"][0] == 3
    assert found["d"] == (6, 8)
    assert ("a", 7) in document.duplicates


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("", "f.yaml", "empty"),
        ("# only this\n", "f.yaml", "comments"),
        ("- a\n", "f.yaml:1", "list"),
        ("a: 1\n---\nb: 2\n", "f.yaml:2", "more than one document"),
        ("a: 1\nb: [1, 2\n", "f.yaml:3", "not YAML"),
        ("a:\n\tb: 1\n", "f.yaml:2", "not YAML"),
        ("a: 1\n3: 2\n", "f.yaml:2", "not a word"),
        ("a: !!python/object:os.system {}\n", "f.yaml:1", "not YAML"),
        ("a: " + "[" * 3000 + "]" * 3000, "f.yaml:1", "nested"),
        ("a: &a [*a]\n", "f.yaml:1", "recursive"),
    ],
)
def test_refusals_name_the_line(text, where, what):
    with pytest.raises(InputError) as caught:
        load_mapping(text, "f.yaml")
    assert caught.value.where == where
    assert what in caught.value.what
    assert caught.value.fix


def test_aliases_that_would_grow_exponentially_are_refused():
    bomb = "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 40))
    with pytest.raises(InputError, match="aliases"):
        load_mapping(bomb, "f.yaml")


def test_files_that_are_no_text(tmp_path):
    folder, missing = tmp_path, tmp_path / "没有.yaml"
    binary, large = tmp_path / "b.yaml", tmp_path / "l.yaml"
    binary.write_bytes(b"\x00\xff\xfe")
    large.write_bytes(b"a" * (MAX_BYTES + 1))
    for path, what in ((folder, "folder"), (missing, "no such file"), (binary, "UTF-8"), (large, "1 MB")):
        with pytest.raises(InputError, match=what) as caught:
            read_text(path)
        assert caught.value.where == str(path)
    marked = tmp_path / "bom.yaml"
    marked.write_bytes("\ufeffa: 中文\n".encode())
    assert read_text(marked) == "a: 中文\n"


@given(st.text(max_size=200), st.sampled_from(Dialect))
def test_any_text_is_read_or_refused(text, dialect):
    try:
        document = load_mapping(text, "f.yaml", dialect)
    except InputError as error:
        assert error.where is not None and error.where.startswith("f.yaml")
    else:
        lines = (
            text.count("\n") + text.count("\r") + text.count("\u2028") + text.count("\u2029") + text.count("\x85") + 1
        )
        assert all(isinstance(key, str) and 1 <= line <= lines for key, _, line in document.items)


_YAMLISH = st.lists(
    st.sampled_from(
        [*"abc:-?[]{}&*!|>'\"%@`#, \n\t", "<<: ", "*a", "&a ", "a: ", "- ", "\n  ", "---\n", "2e5", "!!int ", "~"]
    ),
    max_size=40,
).map("".join)


@given(_YAMLISH, st.sampled_from(Dialect))
def test_any_yaml_like_text_is_read_or_refused(text, dialect):
    try:
        document = load_mapping(text, "f.yaml", dialect)
    except InputError as error:
        assert error.fix
    else:
        assert all(isinstance(key, str) for key, _, _ in document.items)
