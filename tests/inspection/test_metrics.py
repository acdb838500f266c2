"""Each metric against loops written from its formula, and on maps whose numbers are known."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npformer.inspection import inspect_arrays
from npformer.inspection.metrics import METRICS

LETTERS = "abcdefghijklm"


def mean(values):
    return sum(values) / len(values) if values else None


def brute_force(P, keep, kind, tokens, gradient, mates):
    """One pair after the other; queries that see no key count nowhere."""
    T, S = len(P), len(P[0]) if len(P) else 0
    shift = 0 if kind == "cross" else S - T
    queries = [q for q in range(T) if any(keep[q])]
    n_seen = {q: sum(bool(seen) for seen in keep[q]) for q in queries}
    choosing = [q for q in queries if n_seen[q] > 1]

    def beside(step):
        pairs = [(q, q + shift + step) for q in choosing]
        return mean([P[q][k] for q, k in pairs if 0 <= k < S and keep[q][k]]) if kind != "cross" else None

    entropies, distances, dependences, future, padding, induced = [], [], [], [0.0], [0.0], []
    for q in queries:
        if n_seen[q] > 1 and sum(P[q]) > 0 and sum(P[q][k] for k in range(S) if not keep[q][k]) <= 1e-6:
            entropies.append(-sum(p * math.log(p) for p in P[q] if p > 0) / math.log(n_seen[q]))
        distances.append(sum(P[q][k] * abs(q + shift - k) for k in range(S)))
        dependences.append(sum(abs(P[q][k] - (1 / n_seen[q] if keep[q][k] else 0)) for k in range(S)) / 2)
        hidden = [k for k in range(S) if not keep[q][k]]
        future.append(sum(P[q][k] for k in hidden if kind == "decoder" and k > q + shift))
        padding.append(sum(P[q][k] for k in hidden if not (kind == "decoder" and k > q + shift)))
        if kind != "cross":
            after = [j + 1 for j in range(q + shift) if tokens[j] == tokens[q + shift] and keep[q][j + 1]]
            if after:
                induced.append(sum(P[q][k] for k in after))

    def distance(P, Q):
        each = []
        for q in queries:
            total = 0.0
            for p, r in zip(P[q], Q[q], strict=True):
                middle = (p + r) / 2
                total += sum(x * math.log2(x / middle) for x in (p, r) if x > 0) / 2
            each.append(math.sqrt(max(total, 0)))
        return mean(each)

    return {
        "entropy": mean(entropies),
        "confidence": mean([max(P[q]) for q in queries]),
        "query_dependence": mean(dependences),
        "previous": beside(-1),
        "next": beside(1),
        "self": beside(0),
        "sink": max(mean([P[q][k] for q in choosing]) for k in range(S)) if choosing else None,
        "induction": mean(induced),
        "distance": mean(distances),
        "future_mass": max(future) if kind == "decoder" else None,
        "padding_mass": max(padding),
        "importance": None if gradient is None else abs(sum(map(sum, P * gradient))),
        "ablation": None,
        "redundancy": min((distance(P, mate) for mate in mates), default=None) if queries else None,
    }


@st.composite
def maps(draw):
    kind = draw(st.sampled_from(["encoder", "decoder", "cross"]))
    T, S = draw(st.integers(1, 7)), draw(st.integers(1, 7))
    if kind != "cross":
        S = max(S, T) if draw(st.booleans()) else T
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    H = draw(st.integers(1, 3))
    keep = rng.random((T, S)) < 0.8 if draw(st.booleans()) else None
    seen = np.ones((T, S), bool) if keep is None else keep
    if kind == "decoder":
        seen = seen & np.tri(T, S, S - T, dtype=bool)
    P = rng.random((H, T, S)) ** draw(st.sampled_from([0, 1, 9])) * (rng.random((H, T, S)) < 0.9)
    if not draw(st.booleans()):  # or there is a leak
        P *= seen
    sums = P.sum(-1, keepdims=True)
    P = np.divide(P, sums, out=np.zeros_like(P), where=sums > 0)
    tokens = ["ab"[i] for i in rng.integers(2, size=S)]
    gradient = rng.standard_normal((H, T, S)) if draw(st.booleans()) else None
    return kind, P, keep, seen, tokens, gradient


@given(maps())
def test_against_loops(drawn):
    kind, P, keep, seen, tokens, gradient = drawn
    T, S = P.shape[1:]
    inspection = inspect_arrays(
        [P], ["q"] * T, tokens, kind=kind, keep=keep, gradient=None if gradient is None else [gradient]
    )
    for map in inspection.maps:
        others = [P[h] for h in range(len(P)) if h != map.head]
        sees = seen & (P[map.head].sum(1, keepdims=True) > 0)  # a row of 0 is fully masked
        expected = brute_force(P[map.head], sees, kind, tokens, None if gradient is None else gradient[map.head], others)
        measured = inspection.metrics(map)
        assert list(measured) == list(METRICS) == list(expected)
        for name, value in expected.items():
            if value is None:
                assert measured[name] is None, name
            else:
                assert type(measured[name]) is float
                assert measured[name] == pytest.approx(value, rel=1e-12, abs=1e-7 if name == "redundancy" else 1e-14), name


def numbers(P, tokens=None, **options):
    inspection = inspect_arrays(np.asarray(P, float)[None, None], tokens, **options)
    return inspection.metrics(inspection.maps[0])


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_uniform(kind):
    keep = np.ones((5, 5)) if kind == "encoder" else np.tri(5)
    found = numbers(keep / keep.sum(1, keepdims=True), kind=kind)
    assert found["entropy"] == pytest.approx(1, abs=1e-15)
    assert found["query_dependence"] == pytest.approx(0, abs=1e-15)


def test_every_query_at_one_key():
    P = np.zeros((5, 7))
    P[:, 2] = 1
    found = numbers(P)
    assert found["entropy"] == 0
    assert found["confidence"] == found["sink"] == 1
    assert found["query_dependence"] == pytest.approx(6 / 7)
    assert found["distance"] == np.mean([2, 1, 0, 1, 2])
    assert found["previous"] is found["next"] is found["self"] is found["induction"] is found["future_mass"] is None


@pytest.mark.parametrize(("name", "step"), [("previous", -1), ("next", 1), ("self", 0)])
def test_a_shifted_identity(name, step):
    P = np.eye(7, k=step)
    P[P.sum(1) == 0, 3] = 1
    found = numbers(P, kind="encoder")
    assert found[name] == 1
    assert all(found[other] < 0.5 for other in {"previous", "next", "self"} - {name})
    assert found["sink"] < 0.5


def test_a_piece_of_the_queries_stands_at_the_end_of_the_keys():
    P = np.eye(7, k=-1)[4:]
    found = numbers(P, list("xyz"), key_tokens=list("abcdefg"), kind="decoder")
    assert (found["previous"], found["distance"], found["future_mass"]) == (1, 1, 0)


def test_induction_on_a_repeated_sequence():
    tokens = "bdacebdace"
    P = np.zeros((10, 10))
    P[:5, 0] = 1
    for q in range(5, 10):
        P[q, q - 4] = 1
    assert numbers(P, tokens=list(tokens), kind="decoder")["induction"] == 1
    assert numbers(np.eye(10), tokens=list(tokens), kind="decoder")["induction"] == 0
    assert numbers(np.eye(5), tokens=list(LETTERS[:5]), kind="decoder")["induction"] is None


def test_leaks():
    P = np.tri(5) / np.tri(5).sum(1, keepdims=True)
    assert numbers(P, kind="decoder")["future_mass"] == 0
    P[2] = [0.25, 0.25, 0.25, 0.125, 0.125]
    found = numbers(P, kind="decoder", keep=np.array([False, True, True, True, True]))
    assert found["future_mass"] == 0.25
    assert found["padding_mass"] == 0.5  # of query 1; query 0 sees nothing
    assert numbers(P, kind="encoder")["future_mass"] is None
    assert numbers(P, kind="encoder")["padding_mass"] == 0


def test_redundancy():
    one, other = np.eye(3), np.roll(np.eye(3), 1, 0)
    inspection = inspect_arrays(np.stack([one, other, (one + other) / 2])[None], kind="encoder")
    half = (math.log2(1 / 0.75) + 0.5 * math.log2(0.5 / 0.75) + 0.5 * math.log2(0.5 / 0.25)) / 2  # of (1, 0) and (½, ½)
    found = [inspection.metrics(map)["redundancy"] for map in inspection.maps]
    assert found == pytest.approx([math.sqrt(half)] * 3)
    pair = inspect_arrays(np.stack([one, other])[None], kind="encoder")
    assert [pair.metrics(map)["redundancy"] for map in pair.maps] == [1, 1]
    alike = inspect_arrays(np.stack([one, one])[None], kind="encoder")
    assert [alike.metrics(map)["redundancy"] for map in alike.maps] == [0, 0]


def test_one_token():
    found = numbers([[1.0]], kind="decoder")
    assert found["entropy"] is found["sink"] is found["previous"] is found["self"] is found["induction"] is None
    assert (found["confidence"], found["distance"], found["query_dependence"]) == (1, 0, 0)


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
def test_a_head_that_sees_nothing(kind):
    found = numbers(np.zeros((3, 3)), kind=kind, keep=np.zeros(3, bool))
    assert {name for name, value in found.items() if value is not None} <= {"future_mass", "padding_mass"}
    assert found["padding_mass"] == 0


def test_rollout_by_hand():
    rng = np.random.default_rng(0)
    P = rng.random((2, 3, 5, 5))
    P /= P.sum(-1, keepdims=True)
    expected = np.eye(5)
    for layer in P:
        mixed = np.zeros((5, 5))
        for q in range(5):
            row = [sum(head[q, k] for head in layer) / 3 + (q == k) for k in range(5)]
            mixed[q] = [x / sum(row) for x in row]
        expected = mixed @ expected
    inspection = inspect_arrays(P, kind="encoder")
    np.testing.assert_allclose(inspection.rollout("encoder"), expected, rtol=1e-12)
    with pytest.raises(ValueError, match="kind must be one of encoder, got 'cross'"):
        inspection.rollout("cross")
    with pytest.raises(ValueError, match="cross attention does not lead from the tokens to themselves"):
        inspect_arrays(P, kind="cross").rollout("cross")


def test_every_metric_has_a_title_and_a_formula():
    assert METRICS["entropy"].title == "normalised entropy"
    assert all(metric.title and metric.formula for metric in METRICS.values())
