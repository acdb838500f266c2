"""What an inspection makes of its maps as a whole: judged over several texts, merged to words, summed up in sentences."""

from dataclasses import replace

import numpy as np
import pytest

from npformer import GPT, GPTConfig
from npformer.inspection import Inspection, compare, inspect_arrays, record
from npformer.inspection.diagnosis import Finding, summary


def sharp(T, S, seed, strength):
    """(1, 3, T, S), the sharper the stronger."""
    P = np.exp(strength * np.random.default_rng(seed).standard_normal((1, 3, T, S)))
    return P / P.sum(-1, keepdims=True)


def labels(findings):
    return [finding.label for finding in findings]


def test_several_texts_are_judged_by_their_means():
    sharp_text, mild_text = inspect_arrays(sharp(5, 7, 0, 40)), inspect_arrays(sharp(3, 11, 1, 2))
    assert labels(sharp_text.diagnose())[0] == "collapsed"
    assert "collapsed" not in labels(mild_text.diagnose())
    assert "collapsed" not in labels(sharp_text.diagnose(also=[mild_text]))
    found = mild_text.diagnose(also=20 * [sharp_text])[0]
    of_sharp, of_mild = (np.array([text.metrics(map)["entropy"] for map in text.maps]) for text in (sharp_text, mild_text))
    assert found.label == "collapsed"
    assert found.number == pytest.approx(np.median((20 * of_sharp + of_mild) / 21))


def test_a_leak_in_another_text_is_found_and_said_to_be_there():
    tight = np.tril(np.ones((4, 4))) / np.arange(1, 5)[:, None]
    leaky = np.full((5, 5), 0.2)
    here, there = (inspect_arrays([P[None]], kind="decoder") for P in (tight, leaky))
    assert "mask leak" not in labels(here.diagnose())
    [leak] = [finding for finding in here.diagnose(also=[there]) if finding.label == "mask leak"]
    assert leak.number == pytest.approx(0.8)
    assert "a query of another text puts 0.8000" in leak.sentence


def test_other_texts_must_have_the_same_heads():
    with pytest.raises(ValueError, match="cross layer 0 has the heads 0 … 1, not 2"):
        inspect_arrays(sharp(5, 7, 0, 1)).diagnose(also=[inspect_arrays(sharp(5, 7, 0, 1)[:, :2])])


def test_words_are_summed_over_keys_and_averaged_over_queries():
    P = sharp(3, 5, 0, 1)
    tokens = ("北", "京", "好"), ("去", "北", "京", "上", "海")
    words = inspect_arrays(P, *tokens).by_words(["北京", "上海"])
    map = words.find("cross", 0, 1)
    assert map.query_tokens == ("北京", "好")
    assert map.key_tokens == ("去", "北京", "上海")
    by_hand = [[P[0, 1, :2, keys].sum(0).mean() for keys in ([0], [1, 2], [3, 4])]]
    by_hand += [[P[0, 1, 2, keys].sum() for keys in ([0], [1, 2], [3, 4])]]
    np.testing.assert_allclose(map.weights, by_hand, rtol=1e-12)
    assert words.note.startswith("Tokens are merged to words (北京, 上海): weights are summed over keys and averaged")
    with pytest.raises(TypeError, match="words must be a list of strings, got the string '北京'"):
        words.by_words("北京")


def finding(label, layer, head, number):
    return Finding(label, "decoder", layer, head, number, f"evidence {number}")


def test_a_summary_has_a_sentence_for_each_layer_and_label_and_faults_first():
    found = [
        finding("uniform", 0, 1, 0.98),
        finding("uniform", 0, 0, 0.99),
        finding("uniform", 1, 0, 0.97),
        finding("mask leak", 0, 2, 0.5),
        finding("uniform", 0, 4, 0.975),
    ]
    assert [sentence for _, sentence in summary(found)] == [
        "decoder layer 0 head 2, mask leak: evidence 0.5",
        "decoder layer 0 head 0, uniform: evidence 0.99; so also heads 1, 4",
        "decoder layer 1 head 0, uniform: evidence 0.97",
    ]
    assert [most for most, _ in summary(found)] == [found[3], found[1], found[2]]
    assert summary([]) == []
    losses = [finding("no effect", 0, head, change) for head, change in enumerate((2e-4, -9e-4, 5e-4))]
    assert [most for most, _ in summary(losses)] == [losses[1]]


def test_words_of_a_decoder_have_one_name_and_no_places():
    keys = list("the the")
    P = np.tril(np.random.default_rng(0).random((7, 7))) + np.eye(7)
    produced = inspect_arrays(
        [P[None] / P.sum(1, keepdims=True)], [*keys[1:], "n"], keys, kind="decoder", named_by="produces"
    )
    words = produced.by_words(["the"])
    map = words.find("decoder", 0, 0)
    assert map.key_names == ("the", "␣", "the₂")
    assert map.query_names == ("…h", "…e", "␣", "the₂", "…n")
    assert not (map.future & map.keep).any()
    assert map.future.tolist() == [
        [False, True, True],
        [False, True, True],
        [False, True, True],
        3 * [False],  # the last of its queries reads th
        3 * [False],
    ]
    metrics = words.metrics(map)
    names = ("previous", "next", "self", "induction", "distance")
    assert {metrics[name] for name in names} == {None}
    before = produced.metrics(produced.maps[0])
    assert [name for name in names if before[name] is None] == ["next"]
    assert metrics["future_mass"] == 0
    assert words.who_attends("the₂", "␣").rows[0].weight == pytest.approx(map.weights[3, 1])


def test_weights_of_queries_that_see_nothing_are_not_merged():
    words = inspect_arrays(np.full((1, 1, 3, 3), 1 / 3), list("abc"), kind="encoder").find("encoder", 0, 0)
    blind = replace(words, keep=words.keep & np.array([[True], [False], [True]]))
    merged = Inspection("", [blind]).by_words(["ab"]).maps[0]
    np.testing.assert_allclose(merged.weights, [[2 / 3, 1 / 3], [2 / 3, 1 / 3]])


def test_a_comparison_is_of_the_runs_as_they_were():
    config = GPTConfig(vocab_size=7, max_len=8, n_layers=1, n_heads=2, d_model=8)
    good, bad = GPT(config, seed=0), GPT(config, seed=1)
    ids = np.array([[0, 3, 2]])
    with record(good) as a, record(bad) as b:
        good(ids)
        bad(ids)
        comparison = compare(a, b)
        before = [map.weights for map in comparison.bad.maps]
        bad(np.array([[5, 5, 5, 1]]))
        assert len(b.maps[0].key_tokens) == 4
    assert all(map.weights is weights for map, weights in zip(comparison.bad.maps, before, strict=True))
    change = comparison.changes[0]
    mine, other = (run.find(change.kind, change.layer, change.head) for run in (comparison.good, comparison.bad))
    assert change.distance == pytest.approx(0.5 * abs(other.weights - mine.weights).sum(1).mean())


def test_runs_whose_rows_are_named_by_other_tokens_are_not_compared():
    P = np.tril(np.ones((1, 1, 3, 3))) / np.arange(1, 4)[:, None]
    runs = [inspect_arrays(P, list("abc"), named_by=named_by) for named_by in ("reads", "produces")]
    with pytest.raises(ValueError, match="the rows of decoder layer 0 head 0 are what it reads in A, produces in B"):
        compare(*runs)


@pytest.mark.parametrize("tokens", ["aaa", "abab", "a"])
def test_tokens_that_are_read_have_one_name_as_query_and_as_key(tokens):
    T = len(tokens)
    P = np.tril(np.ones((1, 1, T, T))) / np.arange(1, T + 1)[:, None]
    map = inspect_arrays(P, list(tokens), kind="decoder").maps[0]
    assert map.query_names == map.key_names
    last = inspect_arrays(P[:, :, -1:], list(tokens[-1:]), list(tokens), kind="decoder").maps[0]
    assert last.query_names == last.key_names[-1:]


def test_a_word_is_the_same_occurrence_in_rows_and_keys():
    text = list("北京春北京天北京上")
    T = len(text) - 1
    P = np.tril(np.random.default_rng(0).random((T, T)) + 0.1)
    run = inspect_arrays([P[None] / P.sum(1, keepdims=True)], text[1:], text[:-1], kind="decoder", named_by="produces")
    map = run.maps[0]
    for n, start in (("₂", 3), ("₃", 6)):
        answer = run.who_attends(f"北京{n}", "北京")
        by_hand = map.weights[[start - 1, start]][:, [0, 1, 3, 4, 6, 7]].sum(1).mean()
        assert answer.rows[0].weight == pytest.approx(by_hand)
        assert f"北京{n} is row {start - 1}–{start}" in answer.note
    assert "北京 is row 2–3, 5–6" in run.who_attends("北京", "春").note  # the first 北 is not produced


def test_a_row_of_0_is_fully_masked():
    P = np.full((1, 1, 4, 4), 0.25)
    P[0, 0, 1:3] = 0
    run = inspect_arrays(P, kind="encoder")
    assert run.maps[0].keep.tolist() == [[n not in (1, 2)] * 4 for n in range(4)]
    metrics = run.metrics(run.maps[0])
    assert (metrics["entropy"], metrics["confidence"]) == (pytest.approx(1), 0.25)
    assert inspect_arrays(np.zeros((1, 2, 4, 4)), kind="encoder").diagnose() == []


def test_the_rank_is_among_the_keys_that_any_row_sees():
    P = np.tril(np.ones((4, 4))) - np.tril(np.ones((4, 4)), -2)  # a window of two
    P = P / P.sum(1, keepdims=True)
    keep = P > 0
    run = inspect_arrays([P[None]], list("xyxy"), kind="decoder", keep=keep)
    row = run.who_attends("x", "y").rows[0]
    assert (row.rank, row.n_visible) == (2, 3)


def test_a_mask_of_every_head_does_not_undo_what_is_causal():
    P = np.tril(np.ones((2, 3, 4, 4))) / np.arange(1, 5)[:, None]
    for map in inspect_arrays(P, kind="decoder", keep=np.ones(P.shape, bool)).maps:
        assert np.array_equal(map.keep, np.tri(4, dtype=bool))


def test_a_query_that_sees_keys_in_one_run_alone_counts_as_changed():
    P, Q = np.full((1, 1, 2, 2), 0.5), np.full((1, 1, 2, 2), 0.5)
    Q[0, 0, 1] = 0  # fully masked
    changes = compare(inspect_arrays(P, kind="encoder"), inspect_arrays(Q, kind="encoder")).changes
    assert changes[0].distance == pytest.approx((0 + 0.5) / 2)


def test_padding_of_the_same_name_is_no_key():
    keep = np.array([True, True, False])
    P = np.full((1, 1, 2, 3), 0.5) * keep
    P[..., 0] = 0.4
    P[..., 1] = 0.6
    row = inspect_arrays(P, list("pq"), list("aba"), keep=keep).who_attends("p", "a").rows[0]
    assert (row.weight, row.uniform) == (pytest.approx(0.4), pytest.approx(0.5))
    assert "a is key 0;" in inspect_arrays(P, list("pq"), list("aba"), keep=keep).who_attends("p", "a").note
