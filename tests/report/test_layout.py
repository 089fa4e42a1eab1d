"""Lines stay within the width, and wrapping loses nothing, with wide characters too."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from finefit.report.layout import Page, columns, pad, width, wrap

WORDS = st.lists(st.text("abcXYZ019-显存梯度检查点，。（）", min_size=1, max_size=30), max_size=20).map(" ".join)


@pytest.mark.parametrize(
    ("text", "cells"),
    [("", 0), ("abc", 3), ("显存", 4), ("12 GiB 显存", 11), ("。", 2), ("±", 1), ("é", 1)],
)
def test_width_in_cells(text: str, cells: int) -> None:
    assert width(text) == cells


def test_english_breaks_at_spaces() -> None:
    assert wrap("one two three", 7) == ["one two", "three"]


def test_chinese_breaks_between_characters() -> None:
    assert wrap("显存不够用", 6) == ["显存不", "够用"]


def test_a_line_never_starts_with_closing_punctuation() -> None:
    assert wrap("显存不，够用", 6) == ["显存", "不，够", "用"]


def test_a_line_never_ends_with_an_opening_bracket() -> None:
    assert wrap("显存（不够）", 6) == ["显存", "（不", "够）"]


def test_long_words_are_cut() -> None:
    assert wrap("abcdefgh", 3) == ["abc", "def", "gh"]


@given(WORDS, st.integers(4, 60))
def test_wrapped_lines_fit_and_lose_nothing(text: str, cells: int) -> None:
    lines = wrap(text, cells)
    assert all(width(line) <= cells for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


@given(st.lists(st.tuples(WORDS, WORDS, WORDS), min_size=1, max_size=5), st.integers(80, 120))
def test_columns_fit_the_width(rows: list[tuple[str, str, str]], cells: int) -> None:
    assert all(width(line) <= cells for line in columns(rows, "lrl", cells))


def test_columns_align_wide_characters() -> None:
    assert columns([("显存", "1"), ("a", "22")], "lr", 40) == ["显存   1", "a     22"]


def test_columns_wrap_the_last_one_under_itself() -> None:
    assert columns([("name", "aaaa bbbb cccc dddd")], "ll", 20) == ["name  aaaa bbbb cccc", "      dddd"]


def test_pad_counts_cells() -> None:
    assert (pad("显", 4), pad("显", 4, right=True)) == ("显  ", "  显")


def test_a_paragraph_hangs() -> None:
    page = Page(12)
    page.line("1. aaa bbb ccc ddd", indent=2, hang=5)
    assert str(page) == "  1. aaa\n     bbb ccc\n     ddd\n"


def test_a_short_last_column_leaves_room_for_the_others() -> None:
    row = ("full fine-tuning", "stabilityai/stablelm-3b-4e1t", "21.27 GiB to 22.66 GiB", "fits")
    assert columns([row], "lllr", 80) == ["  ".join(row)]


def test_the_widest_column_gives_way() -> None:
    lines = columns([("a" * 10, "b b " * 12, "c" * 16)], "lll", 60, most=50)
    assert all(width(line) <= 60 for line in lines)
    assert lines[0].startswith("a" * 10)
