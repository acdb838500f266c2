"""Two runs side by side: how far each head has moved, and which runs are no pair."""

import numpy as np
import pytest

from attention_by_hand import SOURCE_V, V, encoder_decoder
from npformer.inspection import Thresholds, compare, inspect_arrays, record
from npformer.inspection.metrics import METRICS

RNG = np.random.default_rng(0)


def softmax(scores):
    P = np.exp(scores - scores.max(-1, keepdims=True))
    return P / P.sum(-1, keepdims=True)


A, B = softmax(RNG.standard_normal((2, 3, 5, 7))), softmax(2 * RNG.standard_normal((2, 3, 5, 7)))
QUERIES, KEYS = list("abcde"), list("tuvwxyz")


def inspected(P, title, **options):
    return inspect_arrays(P, QUERIES, KEYS, title=title, **options)


def test_by_hand():
    good, bad = inspected(A, "the good one"), inspected(B, "the bad one")
    comparison = compare(good, bad)
    assert (comparison.good, comparison.bad) == (good, bad)
    assert comparison.title == "the good one (A) and the bad one (B)"
    expected = {}
    for layer in range(2):
        for head in range(3):
            moved = [sum(abs(B[layer, head, q, k] - A[layer, head, q, k]) for k in range(7)) / 2 for q in range(5)]
            expected[layer, head] = sum(moved) / 5
    assert [(c.kind, c.layer, c.head) for c in comparison.changes] == [
        ("cross", *place) for place in sorted(expected, key=expected.get, reverse=True)
    ]
    for change in comparison.changes:
        assert change.distance == pytest.approx(expected[change.layer, change.head], rel=1e-12)
        assert list(change.metrics) == list(METRICS)
        for name, pair in change.metrics.items():
            place = ("cross", change.layer, change.head)
            assert pair == (good.metrics(good.find(*place))[name], bad.metrics(bad.find(*place))[name])


def test_the_same_run_has_not_changed():
    comparison = compare(inspected(A, "one"), inspected(A, "one"))
    assert [c.distance for c in comparison.changes] == [0] * 6
    assert [(c.layer, c.head) for c in comparison.changes] == [(i, h) for i in range(2) for h in range(3)]
    assert comparison.diagnose() == []


def test_all_of_the_weight():
    weights = np.eye(4)[None, None]
    good, bad = (inspect_arrays(P, kind="decoder") for P in (weights, np.roll(weights, 1, 2)))
    comparison = compare(good, bad)
    assert comparison.changes[0].distance == 1


def test_queries_that_see_nothing_in_both_do_not_count():
    keep = np.ones((5, 7), bool)
    keep[3:] = False
    hidden_a, hidden_b = A.copy(), B.copy()
    hidden_a[:, :, 3:] = hidden_b[:, :, 3:] = 0
    comparison = compare(inspected(hidden_a, "a", keep=keep), inspected(hidden_b, "b", keep=keep))
    moved = (abs(B - A).sum(-1) / 2)[:, :, :3].mean(-1)
    for change in comparison.changes:
        assert change.distance == pytest.approx(moved[change.layer, change.head], rel=1e-12)
    nothing = inspected(np.zeros_like(A), "none", keep=np.zeros(7, bool))
    assert compare(nothing, nothing).changes[0].distance == 0


def test_what_has_changed_is_said():
    found = compare(inspected(A, "a"), inspected(B, "b")).diagnose()
    distances = [f.number for f in found]
    assert distances == sorted(distances, reverse=True)
    assert {f.label for f in found} == {"changed"}
    assert f"{found[0].number:.4f} of its weight went elsewhere" in found[0].sentence
    assert "entropy" in found[0].sentence
    assert not compare(inspected(A, "a"), inspected(B, "b")).diagnose(Thresholds(changed=1.0))


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (
            inspect_arrays(B, QUERIES, list("tuvwXyz")),
            "cross layer 0 head 0 has other key tokens: number 4 is 'x' in A and 'X' in B",
        ),
        (inspect_arrays(B, list("abCde"), KEYS), "other query tokens: number 2 is 'c' in A and 'C' in B"),
        (inspect_arrays(B, [*"abcd", b"e"], KEYS), "other query tokens: number 4 is 'e' in A and b'e' in B"),
        (inspect_arrays(B[:, :, :4], list("abcd"), KEYS), "other query tokens: 5 and 4 of them"),
        (inspect_arrays(B[:, :2], QUERIES, KEYS), "cross layer 0 head 2 is in A alone"),
        (inspect_arrays(np.concatenate([B, B]), QUERIES, KEYS), "cross layer 2 head 0 is in B alone"),
        (
            inspect_arrays(B[..., :5] / B[..., :5].sum(-1, keepdims=True), kind="encoder"),
            "A has cross attention, and B encoder: inspect",
        ),
    ],
)
def test_what_is_no_pair(other, said):
    with pytest.raises(ValueError, match=f"^compare: .*{said}"):
        compare(inspected(A, "same title"), other)


def test_two_models_on_the_same_tokens():
    source, ids = RNG.integers(SOURCE_V, size=(1, 5)), RNG.integers(V, size=(1, 6))
    found = []
    for seed in (1, 2):
        model = encoder_decoder(seed=seed)
        with record(model, title=f"seed {seed}") as recording:
            model(source, ids)
        found.append(recording)
    comparison = compare(*found)
    assert {c.kind for c in comparison.changes} == {"encoder", "decoder", "cross"}
    assert min(c.distance for c in comparison.changes) > 0
    labels = [f.label for f in found[1].diagnose(reference=found[0])]
    assert labels.count("changed") == sum(c.distance >= 0.1 for c in comparison.changes) > 0
