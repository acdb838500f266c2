"""What text takes in a terminal, and that lines hold what they should and no more."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npformer.inspection.columns import clipped, left, packed, pictures, right, width

FAMILY, HEART, KEYCAP, WAVE, PIRATES, NODS = "👨‍👩‍👧", "❤️", "1️⃣", "👋🏽", "🏴‍☠️", "🙂‍↔️"
TEXTS = st.text(
    st.sampled_from(["a", "春", "\u0301", "\u200d", "\ufe0f", "👨", "🏽", "☠", "é", "ש", "\0", "\ud83d", "한"]), max_size=9
)


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("", 0),
        ("abc", 3),
        ("春天", 4),
        ("ｆ，", 4),  # full width forms
        ("e\u0301", 1),
        ("\u0301", 0),
        ("a\u200bb\ufeff", 2),
        ("\u2068שלום\u2069", 4),
        ("\0\x1b", 0),
        ("\u00ad", 1),
        ("\u1112\u1161\u11ab", 2),  # 한 in its three letters
        (FAMILY, 2),
        (HEART, 2),
        ("❤", 1),
        ("x\ufe0f", 1),
        (KEYCAP, 2),
        (WAVE, 2),
        ("🏽", 2),
        ("a🏽", 3),
        (PIRATES, 2),
        (NODS, 2),
        ("🇨🇳", 2),
        (FAMILY + FAMILY, 4),
        ("a\u200db", 2),
        ("\ud83d", 1),
    ],
)
def test_width(text, columns):
    assert width(text) == columns


def test_text_at_the_left_and_at_the_right():
    assert (left("春", 4), right("春", 4)) == ("春  ", "  春")
    assert (left("春天", 3), right(FAMILY, 3)) == ("春天", " " + FAMILY)


@pytest.mark.parametrize(
    ("text", "columns", "said"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "ab…"),
        ("我喜欢北京", 6, "我喜…"),  # the third would take the column of the mark
        ("我喜欢北京", 5, "我喜…"),
        ("ab" + FAMILY, 3, "ab…"),
        ("ae\u0301b", 2, "a…"),
        ("e\u0301bc", 2, "e\u0301…"),
        ("abcd", 1, "…"),
        ("abcd", 0, ""),
        ("abcd", -2, ""),
    ],
)
def test_clipped(text, columns, said):
    assert clipped(text, columns) == said


def test_clipped_with_the_mark_of_ascii():
    assert [clipped("abcdef", n, "...") for n in (6, 5, 3, 2, 0)] == ["abcdef", "ab...", "...", "..", ""]


@given(TEXTS, st.integers(0, 9))
def test_no_text_is_too_wide_once_clipped(text, columns):
    assert "".join(piece for piece, _ in pictures(text)) == text
    assert width(clipped(text, columns)) <= columns
    assert (clipped(text, columns) == text) == (width(text) <= columns)


def test_packed():
    assert packed(["a", "bb", "ccc"], 4) == ["a bb", "ccc"]
    assert packed(["a", "bb", "ccc"], 8, first="x: ", indent="   ", gap="  ") == ["x: a  bb", "   ccc"]
    assert packed(["春天春天"], 5) == ["春天", "春天"]
    assert packed(["a", "春天春天"], 5, indent=" ") == ["a 春", " 天春", " 天"]
    assert packed([], 5, first="x") == ["x"]
    assert packed(["春天"], 1) == ["春", "天"]  # a column too few


@given(st.lists(TEXTS, max_size=5), st.integers(4, 9), st.sampled_from(["", " ", "春"]))
def test_what_is_packed_is_all_there_and_fits(pieces, columns, indent):
    lines = packed(pieces, columns, indent=indent, gap=" ")
    assert all(width(line) <= columns for line in lines)
    assert "".join("".join(lines).split()).replace(indent.strip(), "") == "".join("".join(pieces).split()).replace(
        indent.strip(), ""
    )
