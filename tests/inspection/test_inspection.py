"""What an inspection makes of its maps as a whole: judged over several texts, merged to words, summed up in sentences."""

import numpy as np
import pytest

from npformer.inspection import inspect_arrays
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
