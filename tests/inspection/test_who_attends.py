"""Every head's weight on a word while another is said: the sums by hand, which tokens a word is, and what ablation says."""

import re

import numpy as np
import pytest

from attention_by_hand import encoder_decoder, gpt
from npformer.inspection import inspect_arrays, record

RNG = np.random.default_rng(0)
SENTENCE = "我喜欢北京的春天和上海的秋天"
ANSWER = "北京的春天和上海的春天"


def softmax(scores):
    P = np.exp(scores - scores.max(-1, keepdims=True))
    return P / P.sum(-1, keepdims=True)


def cross(queries=ANSWER, keys=SENTENCE, **options):
    queries, keys = list(queries), list(keys)
    weights = softmax(2 * RNG.standard_normal((2, 3, len(queries), len(keys))))
    return weights, inspect_arrays(weights, queries, keys, kind="cross", named_by="produces", **options)


def test_the_numbers_by_hand():
    weights, inspection = cross()
    found = inspection.who_attends("春天", "上海", against="北京")
    rows, keys, others = [3, 4, 9, 10], [9, 10], [3, 4]
    assert (found.query, found.key, found.against, found.kind) == ("春天", "上海", "北京", "cross")
    assert found.probability is None
    assert [row.weight for row in found.rows] == sorted((row.weight for row in found.rows), reverse=True)
    assert {(row.layer, row.head) for row in found.rows} == {(i, h) for i in range(2) for h in range(3)}
    for row in found.rows:
        P = weights[row.layer, row.head]
        assert row.weight == pytest.approx(sum(P[q, k] for q in rows for k in keys) / 4, rel=1e-12)
        assert row.against == pytest.approx(sum(P[q, k] for q in rows for k in others) / 4, rel=1e-12)
        mean = [sum(P[q, k] for q in rows) / 4 for k in range(len(SENTENCE))]
        assert row.rank == 1 + sum(x > max(mean[k] for k in keys) for x in mean)
        assert row.n_visible == len(SENTENCE)
        assert row.uniform == pytest.approx(2 / len(SENTENCE))
        assert row.probability is None
    text = str(found)
    assert "on 上海" in text
    assert "on 北京" in text
    assert f"{found.rows[0].weight:.4f}" in text
    assert f"{found.rows[0].against:.4f}" in text
    assert f"{found.rows[0].rank} of {len(SENTENCE)}" in text
    assert "春天 is row 3–4, 9–10" in found.note
    assert "上海 is key 9–10" in found.note
    assert "a row is named by the token that the query produces" in found.note
    assert cross()[1].who_attends("春", "上").rows[0].against is None


def test_keys_that_cannot_be_seen_do_not_count_as_choices():
    keys, queries = list("abcdefg"), list("vwxyz")
    keep = np.ones((5, 7), bool)
    keep[2, 3:] = False
    keep[3, :3] = False
    weights = softmax(np.where(keep, RNG.standard_normal((1, 1, 5, 7)), -np.inf))
    inspection = inspect_arrays(weights, queries, keys, keep=keep)
    (row,) = inspection.who_attends("x", "ab").rows
    assert (row.n_visible, row.uniform) == (3, pytest.approx(2 / 3))
    (row,) = inspection.who_attends("xy", "ab").rows
    assert (row.n_visible, row.uniform) == (7, pytest.approx(1 / 3))  # each key is seen by one of the rows
    (row,) = inspection.who_attends("y", "ab").rows
    assert (row.weight, row.uniform) == (0, 0)


# Which tokens a word is.


CASES = [
    (SENTENCE, "北京", "3–4"),
    (SENTENCE, "的", "5, 11"),
    (SENTENCE, "的₂", "11"),
    (SENTENCE, "天₂", "13"),
    (ANSWER, "春天", "3–4, 9–10"),
    (ANSWER, "春天₂", "9–10"),
    (ANSWER, "春天₁", "3–4"),
    (ANSWER, "春", "3, 9"),
    (["北京", "的", "北", "京"], "北京", "0, 2–3"),
    (["北京", "的", "北", "京"], "北京₂", "2–3"),
    (["the", " cat", " the", "cat"], "the", "0, 2"),
    (["the", " cat", " the", "cat"], "cat", "1, 3"),
    (["a", " ", "b", " ", "\n"], "␣", "1, 3"),
    (["a", " ", "b", " ", "\n"], "␣₂", "3"),
    (["a", " ", "b", " ", "\n"], "⏎", "4"),
    ([bytes([byte]) for byte in "春的春".encode()], "春", "0–2, 6–8"),
    ([bytes([byte]) for byte in "春的春".encode()], "春₂", "6–8"),
    ([b"\xe6\x98", b"\xa5", b"x", b"\xff"], "春", "0–1"),
    ([b"\xe6\x98", b"\xa5", b"x", b"\xff"], "x", "2"),
    ([b"\xe6\x98", b"\xa5", b"x", b"\xff"], "\\xff", "3"),
    (["x₂", "x", "x"], "x₂", "0"),
    (["aa", "a"], "aaa", "0–1"),
    (["a", "a", "a"], "aa", "0–1"),
]


@pytest.mark.parametrize(("tokens", "word", "places"), CASES)
def test_which_tokens_a_word_is(tokens, word, places):
    P = softmax(RNG.standard_normal((1, 1, 1, len(tokens))))
    spans = [re.findall(r"\d+", span) for span in places.split(", ")]
    expected = sum(P[0, 0, 0, int(span[0]) : int(span[-1]) + 1].sum() for span in spans)
    found = inspect_arrays(P, ["q"], list(tokens), kind="cross").who_attends("q", word)
    assert found.rows[0].weight == pytest.approx(expected, rel=1e-12)
    assert found.note.startswith(f"q is row 0; {word} is key {places};")
    found = inspect_arrays(np.ones((1, 1, len(tokens), 1)), list(tokens), ["k"], kind="cross").who_attends(word, "k")
    assert found.note.startswith(f"{word} is row {places}; k is key 0;")


@pytest.mark.parametrize("word", ["春天₃", "上京", "的₃", "的₀", "冬", "", " ", "₂"])
def test_a_word_that_is_not_there(word):
    _, inspection = cross()
    with pytest.raises(ValueError, match=f"^who_attends: {re.escape(repr(word))} is not among the rows of cross attention"):
        inspection.who_attends(word, "北京")
    with pytest.raises(ValueError, match=f"^who_attends: {re.escape(repr(word))} is not among the keys of cross attention"):
        inspection.who_attends("春天", word)
    with pytest.raises(ValueError, match=f"^who_attends: {re.escape(repr(word))} is not among the keys of cross attention"):
        inspection.who_attends("春天", "北京", against=word)


# Which kind answers.


def spoken():
    names = sorted(set(SENTENCE + "。"))
    model = encoder_decoder(vocab_size=len(names), source_vocab_size=None, max_len=20)
    ids = [np.array([[names.index(c) for c in text]]) for text in (SENTENCE, "。" + ANSWER)]
    with record(model, names) as recording:
        model(*ids)
    return model, recording, ids


def test_the_kind_is_that_in_which_both_are_found():
    _, recording, _ = spoken()
    assert recording.who_attends("春天", "上海").kind == "cross"
    assert recording.who_attends("春天", "。").kind == "decoder"
    assert recording.who_attends("秋天", "上海").kind == "encoder"
    assert recording.who_attends("春天", "上海", kind="decoder").kind == "decoder"
    assert recording.who_attends("春天", "上海", against="。").kind == "decoder"
    with pytest.raises(ValueError, match="no kind of attention has '秋天' among its rows and the keys asked for"):
        recording.who_attends("秋天", "。")
    with pytest.raises(ValueError, match="'秋天' is not among the rows of cross attention"):
        recording.who_attends("秋天", "上海", kind="cross")
    with pytest.raises(ValueError, match="kind must be one of encoder, decoder, cross, got 'self'"):
        recording.who_attends("春天", "上海", kind="self")


@pytest.mark.parametrize("kind", ["cross", "decoder"])
@pytest.mark.parametrize(("query", "rows"), [("春", [3, 9]), ("春₂", [9]), ("上海", [6, 7])])
def test_its_probabilities_are_those_of_ablation(kind, query, rows):
    _, recording, _ = spoken()
    found = recording.who_attends(query, "上海" if kind == "cross" else "。", kind=kind)
    for row in found.rows:
        ablation = recording.ablate(kind, row.layer, row.head)
        before, after = ablation.probabilities
        assert found.probability == pytest.approx(np.prod(before[rows]), rel=1e-11)
        assert row.probability == pytest.approx(np.prod(after[rows]), rel=1e-11)
        assert f"{row.probability:.4f}" in str(found)
    assert f"P({query}) without it" in str(found)
    assert "a clue, and ablation the evidence" in found.note
    assert ("the product over the rows" in found.note) == (len(rows) > 1)


def test_an_encoder_says_nothing_so_nothing_is_lost():
    _, recording, _ = spoken()
    found = recording.who_attends("秋天", "上海")
    assert found.probability is None
    assert "a row is named by the token that the query reads" in found.note
    assert "ablation" not in found.note


def test_the_last_row_of_which_nobody_knows_what_it_produces():
    _, recording, _ = spoken()
    found = recording.who_attends("(next)", "上海")
    assert found.probability is None
    assert found.rows[0].weight > 0


def test_padding_is_no_word():
    """Hidden places hold ids too, and those may be a word's."""
    model = gpt(vocab_size=3)
    ids, keep = np.array([[2, 0, 1, 2, 0, 1]]), np.array([[False, False, True, True, True, True]])
    with record(model, list("abc")) as padded:
        model(ids, keep=keep)
    with record(model, list("abc")) as plain:
        model(ids[:, 2:])
    for query, key in (("c", "b"), ("a", "b"), ("a", "c"), ("b", "a")):
        found, expected = (each.who_attends(query, key) for each in (padded, plain))
        assert found.probability == pytest.approx(expected.probability, rel=1e-11)
        for mine, other in zip(found.rows, expected.rows, strict=True):
            assert mine._replace(against=0) == pytest.approx(other._replace(against=0), rel=1e-11)
