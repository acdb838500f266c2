"""Names of tokens that a reader can tell apart, and bytes and characters merged."""

import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npformer.inspection.attention_map import AttentionMap
from npformer.inspection.tokens import characters_of, display_names, in_characters, merged, words_of

FAMILY = "👨‍👩‍👧"
SPRING = [bytes([byte]) for byte in "春".encode()]
TOKENS = st.one_of(
    st.text(st.characters(), max_size=4),
    st.text(
        st.sampled_from([" ", "\n", "春", "₂", "U", "\u0301", "\u200d", "\ud83d", "\u202e", "\ufe0f", "\0"]), max_size=3
    ),
    st.binary(max_size=3),
)


@pytest.mark.parametrize(
    ("token", "name"),
    [
        (" ", "␣"),
        ("\n", "⏎"),
        ("\t", "⇥"),
        ("", "∅"),
        (b"", "∅"),
        (" the", "␣the"),
        ("\x07", "U+0007"),
        ("a\0b", "aU+0000b"),
        ("\x7f", "U+007F"),
        ("\u3000", "U+3000"),
        ("\u2028", "U+2028"),
        ("\u200b", "U+200B"),
        ("\u202eabc", "U+202Eabc"),
        ("\ufeff", "U+FEFF"),
        ("\ud83d", "U+D83D"),
        ("\U0010fffd", "U+10FFFD"),
        ("\u0301", "◌\u0301"),
        (" \u0301", "␣◌\u0301"),
        ("e\u0301\u0323", "e\u0301\u0323"),
        ("\ufe0f", "U+FE0F"),
        ("❤\ufe0f", "❤\ufe0f"),
        (FAMILY, FAMILY),
        ("\u200d", "U+200D"),
        ("👨\u200d", "👨U+200D"),  # joined to nothing
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("🏴\U000e0067\U000e0062\U000e007f", "🏴\U000e0067\U000e0062\U000e007f"),
        ("שלום", "שלום"),
        ("</script>", "</script>"),
        ("<pad>", "<pad>"),
        ("x" * 500, "x" * 500),
        (b"the", "the"),
        ("春".encode(), "春"),
        (b"\xe6", "\\xe6"),
        (b" \xff", "␣\\xff"),
    ],
)
def test_the_name_of_a_token(token, name):
    assert display_names([token]) == (name,)


def test_repeats_are_told_apart():
    assert display_names(["春", "天", "春", "春"]) == ("春", "天", "春₂", "春₃")
    assert display_names(["x"] * 11)[-2:] == ("x₁₀", "x₁₁")
    assert display_names(["\n", "⏎", b"\n"]) == ("⏎", "⏎₂", "⏎₃")


def test_a_number_is_not_given_where_a_token_has_that_name():
    assert display_names(["春", "春", "春₂", "春"]) == ("春", "春₃", "春₂", "春₄")
    assert display_names(["x₁", "x₁", *["x"] * 12])[-2:] == ("x₁₁", "x₁₃")  # x₁₂ is the second x₁


@given(st.lists(TOKENS, max_size=9))
def test_every_token_has_a_name_of_its_own_that_can_be_read(tokens):
    names = display_names(tokens)
    assert len(names) == len(tokens) == len(set(names))
    assert all(names)
    "".join(names).encode()  # no lone surrogate
    for name in names:
        assert not {unicodedata.category(sign) for sign in name} & {"Cc", "Cs", "Co", "Zs", "Zl", "Zp"}
        assert not unicodedata.category(name[0]).startswith(("M", "Cf"))


def test_bytes_of_one_character():
    assert characters_of([b"a", *SPRING, b"b"]) == [(0, 1), (1, 4), (4, 5)]
    assert characters_of(["x", *SPRING, *SPRING]) == [(0, 1), (1, 4), (4, 7)]
    assert characters_of([b" \xe6", b"\x98\xa5\xe6", b"\x98\xa5"]) == [(0, 3)]  # merges of bytes, as byte-pair encoding has
    assert characters_of([*SPRING[:2], b"a", *SPRING]) == [(0, 1), (1, 2), (2, 3), (3, 6)]
    assert characters_of([*SPRING, b"\xff"]) == [(0, 3), (3, 4)]


@pytest.mark.parametrize(
    "tokens", [[], ["a", "b"], [b"a", b"b"], [b"\xe6", "春"], [b"\xff", b"\xfe"], [b"\xe6", b"\x98"], [b""]]
)
def test_nothing_to_merge(tokens):
    assert characters_of(tokens) is None


def test_tokens_of_a_word():
    tokens = list("我喜欢北京的春天和北京")
    assert words_of(tokens, ["北京", "春天", "上海"]) == [(3, 5), (6, 8), (9, 11)]
    assert words_of(tokens, ["我", "喜欢"]) == [(0, 1), (1, 3)]
    assert words_of(tokens, ["北", "北京的", "京"]) == [(3, 6), (9, 10), (10, 11)]  # the longest
    assert words_of(tokens, ["海"]) == words_of(tokens, []) == words_of(tokens, [""]) == words_of([], ["北京"]) == []


def test_words_of_pieces_and_of_bytes():
    assert words_of(["I", " love", " New", " York", " ", "love"], ["New York", "love"]) == [(1, 2), (2, 4), (5, 6)]
    assert words_of(["北京"], [" 北京\n"]) == [(0, 1)]
    assert words_of(["北京", "的"], ["京的"]) == []  # a word ends where tokens end
    assert words_of([b"a", *SPRING, "天"], ["春天"]) == [(1, 5)]


def head(weights, keep=None, queries=None, keys=None, kind="cross"):
    T, S = weights.shape
    keep = np.ones((T, S), bool) if keep is None else keep
    return AttentionMap(kind, 2, 3, weights, queries or tuple("abc"[:T]), keys or tuple("vwxyz"[:S]), keep, weights * 2)


def test_weights_are_summed_over_keys_and_averaged_over_queries():
    P = np.random.default_rng(0).dirichlet(np.ones(5), 3)
    map = merged(head(P), ([(1, 3)], [(0, 2), (3, 5)]))
    assert (map.query_tokens, map.key_tokens) == (("a", "bc"), ("vw", "x", "yz"))
    by_hand = [
        [P[rows, :2].sum(1).mean(), P[rows, 2].mean(), P[rows, 3:].sum(1).mean()] for rows in (slice(0, 1), slice(1, 3))
    ]
    np.testing.assert_allclose(map.weights, by_hand, rtol=1e-14)
    np.testing.assert_allclose(map.weights.sum(1), 1, rtol=1e-14)
    assert map.keep.all()
    assert map.gradient is None
    assert (map.kind, map.layer, map.head) == ("cross", 2, 3)


def test_a_query_that_sees_nothing_is_no_part_of_the_mean():
    keep = np.array([[True, True, False], [False, False, False], [False, True, False]])
    P = np.array([[0.25, 0.75, 0], [0, 0, 0], [0, 1, 0]])
    map = merged(head(P, keep), ([(0, 2)], [(1, 3)]))
    np.testing.assert_array_equal(map.weights, [[0.25, 0.75], [0, 1]])
    np.testing.assert_array_equal(map.keep, [[True, True], [False, True]])
    nobody = merged(head(P[1:2], keep[1:2]), ([], [(0, 3)]))
    np.testing.assert_array_equal(nobody.weights, [[0]])
    assert not nobody.keep.any()


def test_a_map_without_queries_or_keys_stays():
    for shape in ((0, 5), (3, 0)):
        map = head(np.zeros(shape))
        assert merged(map, ([], [])) is map


def test_a_map_in_characters():
    P = np.random.default_rng(1).dirichlet(np.ones(5), 3)
    map = in_characters(head(P, keys=(b"a", *SPRING, "x")))
    assert map.query_tokens == ("a", "b", "c")
    assert map.key_tokens == (b"a", "春".encode(), "x")
    np.testing.assert_allclose(map.weights[:, 1], P[:, 1:4].sum(1), rtol=1e-14)
    whole = head(P)
    assert in_characters(whole) is whole


def test_bytes_and_text_merged_are_text():
    map = merged(head(np.full((1, 3), 1 / 3), keys=(b"\xe6", b"a", "x")), ([], [(0, 3)]))
    assert map.key_tokens == ("\\xe6ax",)
