"""Beam search: a beam that holds every prefix finds what trying every text finds, and no score is claimed in vain."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npformer.functional import log_softmax
from npformer.generation import beam_search, generate, log_probabilities
from npformer.generation.beam_search import Hypothesis, largest, length_divisors, search
from npformer.generation.constraints import Constraints
from npformer.generation.prompt import check_prompt
from toy_models import ToyEncoderDecoder, ToyGPT, padded

INF = np.inf


def every_text(expected, prompt, n, end_id, min_length, theta, alpha):
    """Every text that may follow, as (−score, log P, new ids, ended), the best first; expected(ids) → V logits."""
    found = []

    def follow(new, log_P):
        if len(new) == n or (new and new[-1] == end_id):
            if log_P > -INF:
                found.append((-log_P / ((5 + len(new)) / 6) ** alpha, log_P, new, bool(new) and new[-1] == end_id))
            return
        logits = [float(x) for x in expected([*prompt, *new])]
        for i in {*prompt, *new}:
            logits[i] = logits[i] / theta if logits[i] > 0 else logits[i] * theta
        if len(new) < min_length:
            logits[end_id] = -INF
        top = max(logits)
        if top > -INF:
            total = top + math.log(math.fsum(math.exp(x - top) for x in logits))
            for i, x in enumerate(logits):
                follow([*new, i], log_P + x - total)

    follow([], 0.0)
    return sorted(found)


def last_logits(model, ids, source=None):
    return (model(np.array([ids])) if source is None else model(np.array([source]), np.array([ids])))[0, -1]


def assert_found(hypotheses, expected):
    assert [h.ids.tolist() for h in hypotheses] == [new for _, _, new, _ in expected]
    assert [h.ended for h in hypotheses] == [ended for *_, ended in expected]
    np.testing.assert_allclose([h.score for h in hypotheses], [-least for least, *_ in expected], rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose([h.log_probability for h in hypotheses], [P for _, P, *_ in expected], rtol=1e-12, atol=1e-13)


SETTINGS = {
    "V": st.integers(1, 4),
    "n": st.integers(0, 4),
    "ends": st.booleans(),
    "min_length": st.integers(0, 3),
    "theta": st.sampled_from([1.0, 1.5, 0.6]),
    "alpha": st.sampled_from([0.0, 0.6, 1.0, 3.0]),
    "scale": st.sampled_from([0.3, 3.0]),
    "seed": st.integers(0, 2**32),
}


def constraints(V, n, ends, min_length, theta, rng):
    end_id = int(rng.integers(V)) if ends else None
    return Constraints(end_id, min(min_length, n) if ends else 0, theta)


@given(forbidden=st.sampled_from([0.0, 0.3]), translates=st.booleans(), **SETTINGS)
def test_a_beam_that_holds_every_prefix_finds_what_trying_every_text_finds(
    V, n, ends, min_length, theta, alpha, scale, seed, forbidden, translates
):
    rng = np.random.default_rng(seed)
    given = constraints(V, n, ends, min_length, theta, rng)
    model = ToyEncoderDecoder(V, seed=seed) if translates else ToyGPT(V, seed=seed, scale=scale)
    impossible = rng.random(model.table.shape) < forbidden
    impossible[np.arange(len(impossible)), rng.integers(V, size=len(impossible))] = False
    model.table[impossible] = -INF
    prompt = rng.integers(0, V, 3)
    source = rng.integers(0, 7, 2) if translates else None
    expected = every_text(lambda ids: last_logits(model, ids, source), prompt, n, *given, alpha)
    options = dict(given._asdict(), length_penalty=alpha, n_beams=V**n, n_best=V**n, source=source)
    assert_found(beam_search(model, prompt, n, **options), expected)
    assert_found(beam_search(model, prompt, n, **{**options, "n_best": 1}), expected[:1])


@given(n_beams=st.integers(1, 5), n_best=st.integers(1, 5), **SETTINGS)
def test_a_narrow_beam_claims_no_score_that_scoring_does_not_confirm(
    V, n, ends, min_length, theta, alpha, scale, seed, n_beams, n_best
):
    rng = np.random.default_rng(seed)
    given = constraints(V, n, ends, min_length, theta, rng)
    model, prompt = ToyGPT(V, seed=seed, scale=scale), rng.integers(0, V, 3)
    n_best = min(n_best, n_beams)
    found = beam_search(model, prompt, n, n_beams=n_beams, n_best=n_best, length_penalty=alpha, **given._asdict())
    assert len(found) <= n_best
    assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)
    assert len({tuple(h.ids) for h in found}) == len(found)
    best = every_text(lambda ids: last_logits(model, ids), prompt, n, *given, alpha)
    for h in found:
        assert h.ids.dtype == np.int64
        assert h.ended == (given.end_id in h.ids.tolist())
        confirmed = log_probabilities(model, prompt, h.ids, **given._asdict())
        np.testing.assert_allclose(h.log_probabilities, confirmed, rtol=1e-12, atol=1e-14)
        assert h.log_probability == pytest.approx(confirmed.sum(), rel=1e-12, abs=1e-14)
        assert h.score == pytest.approx(confirmed.sum() / ((5 + len(h.ids)) / 6) ** alpha, rel=1e-12, abs=1e-14)
        assert h.ids.tolist() in [new for _, _, new, _ in best]
    if found:
        assert found[0].score <= -best[0][0] + 1e-12


def test_a_narrow_beam_may_miss_the_best():
    """So the tests above can tell the two apart."""
    missed = 0
    for seed in range(30):
        narrow, wide = (beam_search(ToyGPT(4, seed=seed), np.array([1]), 5, n_beams=b)[0] for b in (2, 4**5))
        assert narrow.score <= wide.score
        missed += narrow.score < wide.score
    assert 5 < missed < 25


@pytest.mark.parametrize("alpha", [0.0, 0.7, 2.0, 1e-16])
@pytest.mark.parametrize("n_best", [1, 3])
def test_stopping_early_changes_nothing(alpha, n_best):
    """On 400 models, bit for bit; and it does stop early on many."""
    n, saved = 9, 0
    for seed in range(100):
        for scale in (0.0, 0.5, 1.0, 4.0):  # 0: everything ties
            results = []
            for stop_early in (True, False):
                model = ToyGPT(4, seed=seed, scale=scale)
                model.table[:, 2] += seed % 5  # the end, more or less likely
                prompt = check_prompt("", model, np.array([seed % 4, 1]), None, None, None)
                given = Constraints(2, seed % 3, 1.0 + seed % 2)
                found = search("", model, prompt, 3, n_best, length_divisors("", n, alpha), given, stop_early)
                results.append((found, len(model.calls)))
            (one, short), (other, long) = results
            assert_same(one, other)
            saved += short < long
    assert saved > 40


def assert_same(one, other):
    assert len(one) == len(other)
    for h, k in zip(one, other, strict=True):
        assert (h.score, h.log_probability, h.ended) == (k.score, k.log_probability, k.ended)
        np.testing.assert_array_equal(h.ids, k.ids)
        np.testing.assert_array_equal(h.log_probabilities, k.log_probabilities)


def test_a_longer_text_may_still_win_where_the_length_counts():
    """The end is likelier at once, log P −0.1 against −0.35 later; divided by the length's share, the longer text is better,
    and the search must not stop before it."""
    model = ToyGPT(2, max_len=30)
    model.table[:] = np.log([1 - math.exp(-0.3), math.exp(-0.3)])
    text = np.array([0])
    short, long = (beam_search(model, text, 12, n_beams=2, end_id=0, length_penalty=alpha)[0] for alpha in (0.0, 3.0))
    assert (len(short.ids), len(long.ids)) == (1, 12)


def test_one_beam_without_an_end_is_greedy():
    model, prompt = ToyGPT(seed=3), np.array([1, 2])
    (best,) = beam_search(model, prompt, 9, n_beams=1)
    assert best.ids.tolist() == generate(model, prompt, 9, temperature=0).tolist()
    assert not best.ended


def test_a_beam_wider_than_the_vocabulary_holds_what_there_is():
    found = beam_search(ToyGPT(3), np.array([1]), 2, n_beams=1000, n_best=100)
    assert sorted(h.ids.tolist() for h in found) == [[*pair] for pair in itertools.product(range(3), repeat=2)]
    found = beam_search(ToyGPT(3), np.array([1]), 2, n_beams=1000, n_best=100, end_id=2)
    assert sorted(h.ids.tolist() for h in found) == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2], [2]]


def test_ties_have_an_order():
    """Of equals: of prefixes the one whose beginning came first, then the lower id; of texts the one found first."""
    model = ToyGPT(3, scale=0.0)
    found = beam_search(model, np.array([1]), 3, n_beams=4, n_best=4)
    assert [h.ids.tolist() for h in found] == [[0, 0, 0], [0, 0, 1], [0, 0, 2], [0, 1, 0]]
    found = beam_search(model, np.array([1]), 3, n_beams=5, n_best=5, end_id=1)
    assert [h.ids.tolist() for h in found] == [[1], [0, 1], [2, 1], [0, 0, 1], [0, 2, 1]]


def test_what_cannot_be_is_not_found():
    model = ToyGPT(4)
    model.table[:, [0, 3]] = -INF
    found = beam_search(model, np.array([0]), 2, n_beams=50, n_best=50, end_id=3)
    assert sorted(h.ids.tolist() for h in found) == [[1, 1], [1, 2], [2, 1], [2, 2]]
    model.table[:, [1, 2]] = -INF
    model.table[:, 3] = 0
    assert [h.ids.tolist() for h in beam_search(model, np.array([0]), 2, n_beams=5, end_id=3)] == [[3]]
    assert beam_search(model, np.array([0]), 2, n_beams=5, end_id=3, min_length=1) == []


def test_no_new_ids_are_one_text():
    for alpha in (0.0, 1.0):
        (only,) = beam_search(ToyGPT(), np.array([1, 2]), 0, n_beams=3, n_best=2, end_id=0, length_penalty=alpha)
        assert (only.ids.tolist(), only.score, only.log_probability, only.ended) == ([], 0.0, 0.0, False)
        assert only.log_probabilities.shape == (0,)


def test_each_row_is_searched_alone():
    rng = np.random.default_rng(5)
    model, options = ToyGPT(), {"n_beams": 4, "n_best": 3, "end_id": 2, "length_penalty": 0.6, "repetition_penalty": 1.2}
    rows = [rng.integers(0, 5, size) for size in (3, 1, 5)]
    ids, keep = padded(rows, 7, rng)
    for found, row in zip(beam_search(model, ids, 6, keep=keep, **options), rows, strict=True):
        assert_same(found, beam_search(model, row, 6, **options))
    translator = ToyEncoderDecoder()
    sources = [rng.integers(0, 7, size) for size in (2, 6, 1)]
    source, source_keep = padded(sources, 8, rng)
    both = beam_search(translator, ids, 6, keep=keep, source=source, source_keep=source_keep, **options)
    assert len({tuple(found[0].ids) for found in both}) > 1
    for found, row, single in zip(both, rows, sources, strict=True):
        assert_same(found, beam_search(translator, row, 6, source=single, **options))
    assert beam_search(model, np.zeros((0, 3), int), 6, **options) == []


def test_the_cache_is_used_and_changes_nothing():
    model, options = ToyGPT(seed=1), {"n_beams": 3, "n_best": 3}
    found = beam_search(model, np.array([1, 2, 3]), 5, **options)
    assert model.calls == [("decode", (1, 3)), *[("step", (3,))] * 4]

    class Plain:
        config = model.config

        def __call__(self, ids):
            return model(ids)

    assert_same(found, beam_search(Plain(), np.array([1, 2, 3]), 5, **options))


def test_a_hypothesis_shares_no_memory_with_another():
    found = beam_search(ToyGPT(), np.array([1, 2]), 4, n_beams=5, n_best=5, end_id=2)
    before = [(h.ids.copy(), h.log_probabilities.copy()) for h in found]
    for h, (ids, parts) in zip(found, before, strict=True):
        np.testing.assert_array_equal(h.ids, ids)
        np.testing.assert_array_equal(h.log_probabilities, parts)
        h.ids[:], h.log_probabilities[:] = -7, 7
    assert isinstance(found[0], Hypothesis)


def test_a_large_vocabulary():
    """Where only the largest entries are sorted."""
    model = ToyGPT(2003, seed=2)
    model.table = np.round(model.table, 1)  # many ties
    found = beam_search(model, np.array([1]), 2, n_beams=11, n_best=11)
    first = log_softmax(model(np.array([[1]]))[0, -1])[0]
    order = np.argsort(-first, kind="stable")[:11]
    rows = np.stack([first[i] + log_softmax(model(np.array([[1, i]]))[0, -1])[0] for i in order])
    best = np.argsort(-rows.ravel(), kind="stable")[:11]
    assert [h.ids.tolist() for h in found] == [[int(order[i // 2003]), int(i % 2003)] for i in best]


def test_the_largest_are_found_and_sorted():
    rng = np.random.default_rng(0)
    for size in range(1, 40):
        x = rng.choice([-INF, -2.5, -1.0, -0.3], size, p=[0.4, 0.2, 0.2, 0.2])
        for k in (1, 3, size, 50):
            expected = sorted((place for place in range(size) if x[place] > -INF), key=lambda place: (-x[place], place))[:k]
            assert largest(x, k).tolist() == expected


def test_logits_that_are_not_finite_are_named_with_their_step():
    model = ToyGPT()
    model.table[:] = np.nan
    with pytest.raises(ValueError, match=r"^beam_search, step 0: logits hold nan at \[0, 0\]"):
        beam_search(model, np.array([1]), 3, n_beams=2)
    with pytest.raises(ValueError, match=r"^beam_search, row 0, step 0: logits hold nan at \[0, 0\]"):
        beam_search(model, np.array([[1]]), 3, n_beams=2)


@pytest.mark.parametrize(
    ("changes", "error", "sentence"),
    [
        ({"ids": [1]}, TypeError, "ids must be an array of integers, got list"),
        ({"ids": np.array([5])}, ValueError, "ids[0] is 5, outside 0 … 4"),
        ({"ids": np.zeros(0, int)}, ValueError, "ids must hold at least one id to continue from, got the shape (0,)"),
        ({"keep": np.zeros(3, bool)}, ValueError, "keep must leave at least one id to continue from, but hides every id"),
        ({"source": np.array([1])}, TypeError, "source is given, but the model has no encoder"),
        ({"n": -1}, ValueError, "n must be at least 0, got -1"),
        ({"n": 12}, ValueError, "3 ids and n = 12 more need a context of 14, but max_len is 13"),
        ({"n_beams": 0}, ValueError, "n_beams must be at least 1, got 0"),
        ({"n_beams": 2.0}, TypeError, "n_beams must be an integer, got 2.0"),
        ({"n_best": 0}, ValueError, "n_best must be in 1 … 2, got 0"),
        ({"n_best": 3}, ValueError, "n_best must be in 1 … 2, got 3"),
        ({"end_id": -1}, ValueError, "end_id must be in 0 … 4, got -1"),
        ({"length_penalty": -0.1}, ValueError, "length_penalty must be at least 0, got -0.1"),
        ({"length_penalty": INF}, ValueError, "length_penalty must be finite, got inf"),
        ({"length_penalty": 1e9}, ValueError, "length_penalty = 1000000000.0 leaves no finite score for up to 4 ids"),
        ({"length_penalty": "1"}, TypeError, "length_penalty must be a number, got '1'"),
        ({"min_length": 1}, ValueError, "min_length = 1 says when the text may end, so it needs end_id"),
        ({"min_length": 5, "end_id": 1}, ValueError, "min_length must be in 0 … 4, got 5"),
        ({"repetition_penalty": -1}, ValueError, "repetition_penalty must be finite and above 0, got -1"),
    ],
)
def test_a_bad_argument_is_refused_by_name(changes, error, sentence):
    model = ToyGPT()
    with pytest.raises(error) as caught:
        beam_search(model, **{"ids": np.array([1, 2, 3]), "n": 4, "n_beams": 2, **changes})
    assert str(caught.value) == f"beam_search: {sentence}"
    assert model.calls == []


def test_the_context_may_be_filled():
    (best,) = beam_search(ToyGPT(), np.array([1, 2, 3]), 11, n_beams=2)
    assert len(best.ids) == 11
