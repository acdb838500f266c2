"""Scoring a text that is there: one pass says what step after step said."""

import numpy as np
import pytest

from npformer.generation import generate, log_probabilities
from toy_models import ToyEncoderDecoder, ToyGPT, padded


@pytest.mark.parametrize("translates", [False, True])
def test_the_scores_are_those_that_generation_gave(translates):
    rng = np.random.default_rng(0)
    model = ToyEncoderDecoder() if translates else ToyGPT()
    rows = [rng.integers(0, 5, size) for size in (2, 5, 1, 3)]
    ids, keep = padded(rows, 6, rng)
    sources = [rng.integers(0, 7, size) for size in (2, 3, 4, 1)]
    source, source_keep = padded(sources, 5, rng)
    given = {"source": source, "source_keep": source_keep} if translates else {}
    new, P = generate(model, ids, 8, keep=keep, end_id=3, probabilities=True, seed=4, **given)
    expected = np.log(np.take_along_axis(P, new[..., None], -1)[..., 0])
    assert (new[:, :-1] == 3).any()  # some row is filled up
    model.calls.clear()
    scores = log_probabilities(model, ids, new, keep=keep, end_id=3, **given)
    assert model.calls == [("full", (4, 5 + new.shape[1] - 1))]
    np.testing.assert_allclose(scores, expected, rtol=1e-13, atol=1e-15)
    for r, row in enumerate(rows):
        alone = {"source": sources[r]} if translates else {}
        np.testing.assert_array_equal(log_probabilities(model, row, new[r], end_id=3, **alone), scores[r])


def test_without_an_end_every_id_counts():
    model, ids, new = ToyGPT(), np.array([1, 2]), np.array([3, 3, 0], np.uint8)
    logits = model(np.array([[1, 2, 3, 3]]))[0, 1:]
    expected = [x[i] - np.log(np.exp(x).sum()) for x, i in zip(logits, new, strict=True)]
    np.testing.assert_allclose(log_probabilities(model, ids, new), expected, rtol=1e-13)
    np.testing.assert_allclose(log_probabilities(model, ids, new, end_id=3), [expected[0], 0, 0], rtol=1e-13)


def test_the_constraints_act():
    model, ids, new = ToyGPT(), np.array([1, 2]), np.array([3, 2, 0])
    logits = model(np.array([[1, 2, 3, 2]]))[0, 1:]
    expected = []
    for t, x in enumerate(logits):
        for i in {1, 2, *new[:t].tolist()}:
            x[i] = x[i] / 1.5 if x[i] > 0 else x[i] * 1.5
        if t < 2:
            x[0] = -np.inf
        expected.append(x[new[t]] - np.log(np.exp(x).sum()))
    given = {"repetition_penalty": 1.5, "end_id": 0}
    np.testing.assert_allclose(log_probabilities(model, ids, new, min_length=2, **given), expected, rtol=1e-13)
    assert log_probabilities(model, ids, new, min_length=3, **given)[2] == -np.inf


@pytest.mark.parametrize("shape", [(2,), (3, 2), (0, 2)])
def test_no_new_ids_have_no_scores(shape):
    model = ToyGPT()
    assert log_probabilities(model, np.ones(shape, int), np.ones((*shape[:-1], 0), int)).shape == (*shape[:-1], 0)
    assert log_probabilities(model, np.ones(shape, int), np.ones(shape, int)).shape == shape


def test_what_follows_the_end_is_not_looked_at():
    model, ids = ToyGPT(), np.array([1, 2])
    state = 0
    for i in (1, 2, 4):
        state = (7 * state + i + 1) % len(model.table)
    model.table[state] = np.nan
    scores = log_probabilities(model, ids, np.array([4, 4, 4]), end_id=4)
    assert scores[0] < 0 and scores[1:].tolist() == [0, 0]
    with pytest.raises(ValueError) as caught:
        log_probabilities(model, ids, np.array([4, 4, 4]))
    assert str(caught.value) == "log_probabilities: logits hold nan at [1, 0]"
    with pytest.raises(ValueError, match=r"^log_probabilities: logits hold nan at \[1, 1, 0\]"):
        log_probabilities(model, np.array([[0, 0], [1, 2]]), np.array([[1, 1], [4, 4]]))


@pytest.mark.parametrize(
    ("changes", "error", "sentence"),
    [
        ({"ids": np.array([5])}, ValueError, "ids[0] is 5, outside 0 … 4"),
        ({"new": [1]}, TypeError, "new must be an array of integers, got list"),
        ({"new": np.array([1, -1])}, ValueError, "new[1] is -1, outside 0 … 4"),
        ({"new": np.array([[1]])}, ValueError, "new must have the shape (m,), as ids has (3,), got (1, 1)"),
        ({"new": np.zeros(12, int)}, ValueError, "3 ids and new = 12 more need a context of 14, but max_len is 13"),
        ({"end_id": 5}, ValueError, "end_id must be in 0 … 4, got 5"),
        ({"min_length": 1}, ValueError, "min_length = 1 says when the text may end, so it needs end_id"),
    ],
)
def test_a_bad_argument_is_refused_by_name(changes, error, sentence):
    with pytest.raises(error) as caught:
        log_probabilities(ToyGPT(), **{"ids": np.array([1, 2, 3]), "new": np.array([1]), **changes})
    assert str(caught.value) == f"log_probabilities: {sentence}"
