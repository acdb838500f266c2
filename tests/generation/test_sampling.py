"""Sampling: which ids may be drawn, how often, and what is refused."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npformer.generation import sample
from npformer.generation.sampling import check_choice, restrict

INF, NAN = np.inf, np.nan


def draws(logits, n, seed=0, **options):
    """How often each id is drawn in n rows that are all the same."""
    ids = sample(np.broadcast_to(logits, (n, len(logits))), rng=np.random.default_rng(seed), **options)
    return np.bincount(ids, minlength=len(logits))


def assert_frequencies(counts, probabilities):
    """Within five standard deviations, and never what has no probability."""
    n = counts.sum()
    assert not counts[probabilities == 0].any()
    assert (np.abs(counts - n * probabilities) <= 5 * np.sqrt(n * probabilities * (1 - probabilities)) + 1e-9 * n).all()


def brute_force(logits, temperature, top_k, top_p):
    """The probabilities by trying every set of ids; None where rounding may decide."""
    top = max(logits)
    weights = [math.exp((logit - top) / temperature) for logit in logits]
    ids = sorted(range(len(logits)), key=lambda i: (-logits[i], i))[:top_k]
    total = math.fsum(weights[i] for i in ids)
    if top_p is not None:
        sets = [kept for size in range(1, len(ids) + 1) for kept in itertools.combinations(sorted(ids), size)]
        mass = {kept: math.fsum(weights[i] for i in kept) / total for kept in sets}
        if any(abs(mass[kept] - top_p) < 1e-9 for kept in sets) and top_p < 1:
            return None
        size = min(len(kept) for kept in sets if mass[kept] >= top_p - 1e-9)
        # Of that size, the most probable; of equals, by the lower ids.
        ids = min((kept for kept in sets if len(kept) == size), key=lambda kept: (sorted(-logits[i] for i in kept), kept))
    total = math.fsum(weights[i] for i in ids)
    return np.array([weights[i] / total if i in ids else 0.0 for i in range(len(logits))])


@given(
    logits=st.lists(st.integers(-3, 3), min_size=1, max_size=6),
    temperature=st.sampled_from([0.5, 1.0, 2.7]),
    top_k=st.none() | st.integers(1, 7),
    top_p=st.none() | st.floats(1e-3, 1) | st.just(1.0),
    seed=st.integers(0, 2**32),
)
def test_it_draws_what_brute_force_over_all_sets_of_ids_allows(logits, temperature, top_k, top_p, seed):
    expected = brute_force(logits, temperature, top_k, top_p)
    if expected is None:
        return
    x = np.array(logits, float)
    weights = np.exp((x - x.max()) / temperature)
    restricted = restrict(weights, np.argsort(-x, kind="stable"), check_choice("", temperature, top_k, top_p))
    np.testing.assert_allclose(restricted / restricted.sum(), expected, rtol=1e-12)
    counts = draws(x, 300, seed, temperature=temperature, top_k=top_k, top_p=top_p)
    assert not counts[expected == 0].any()


@pytest.mark.parametrize(
    "options", [{}, {"temperature": 0.5}, {"temperature": 3}, {"top_k": 3}, {"top_p": 0.8}, {"top_k": 4, "top_p": 0.6}]
)
def test_the_frequencies_are_the_probabilities(options):
    logits = np.array([0.3, -1.2, 1.7, 0.9, -0.1, -INF, 1.1])
    expected = brute_force(logits, options.get("temperature", 1.0), options.get("top_k"), options.get("top_p"))
    counts = draws(logits, 200_000, **options)
    assert_frequencies(counts, expected)
    if not options:  # the bounds are tight enough to tell a temperature of 1.05 from 1
        with pytest.raises(AssertionError):
            assert_frequencies(counts, brute_force(logits, 1.05, None, None))


def test_the_temperature_comes_first_then_top_k_then_top_p():
    """Probabilities 8/15, 4/15, 2/15, 1/15: after top_k = 2, 2/3 reaches 0.6, which 8/15 would not."""
    logits = np.log([8.0, 4.0, 2.0, 1.0])
    assert (draws(logits, 1000, top_p=0.6)[:3] > 0).tolist() == [True, True, False]
    assert draws(logits, 1000, top_k=2, top_p=0.6)[0] == 1000
    assert (draws(logits, 1000, temperature=10, top_k=2, top_p=0.6) > 0).tolist() == [True, True, False, False]


def test_of_equals_at_the_kth_place_the_lower_ids_are_kept():
    logits = np.array([1.0, 2.0, 1.0, 2.0, 1.0])
    for k, kept in ((1, [1]), (2, [1, 3]), (3, [0, 1, 3]), (4, [0, 1, 2, 3]), (5, [0, 1, 2, 3, 4]), (99, [0, 1, 2, 3, 4])):
        assert np.flatnonzero(draws(logits, 2000, top_k=k)).tolist() == kept
    assert np.flatnonzero(draws(np.zeros(7), 2000, top_p=0.5)).tolist() == [0, 1, 2, 3]
    many = np.arange(1000) % 2.0  # more than an unstable sort leaves in their order
    assert np.flatnonzero(draws(many, 2000, top_k=50)).tolist() == [*range(1, 100, 2)]


def test_top_p_keeps_the_id_that_reaches_it_and_at_least_one():
    logits = np.log([4.0, 2.0, 1.0, 1.0])
    for p, kept in ((5e-324, 1), (0.49, 1), (0.51, 2), (0.74, 2), (0.76, 3), (0.88, 4), (1.0, 4)):
        assert np.count_nonzero(draws(logits, 2000, top_p=p)) == kept
    for p, kept in ((0.25, 1), (0.5, 2), (0.75, 3)):  # reached exactly
        assert np.count_nonzero(draws(np.zeros(4), 2000, top_p=p)) == kept


class Fixed(np.random.Generator):
    """A generator that draws one number for ever."""

    def __init__(self, u):
        super().__init__(np.random.PCG64(0))
        self.u = u

    def random(self, size=None, *_):
        return np.full(size, self.u)


@pytest.mark.parametrize("u", [0.0, 5e-324, 0.5, 1 - 2.0**-53])
def test_no_number_draws_an_id_without_probability(u):
    """The first and the last number that a generator can draw, at the ends of the row."""
    rng = np.random.default_rng(0)
    for logits in (rng.normal(size=(500, 11)), rng.normal(0, 300, (500, 11)), np.zeros((500, 11))):
        possible = rng.random(logits.shape) < 0.4
        possible[np.arange(500), rng.integers(11, size=500)] = True
        for options in ({}, {"top_k": 3}, {"top_p": 0.9}, {"top_k": 11, "top_p": 0.5}, {"temperature": 1e-30}):
            ids = sample(np.where(possible, logits, -INF), rng=Fixed(u), **options)
            assert possible[np.arange(500), ids].all()


def test_the_draw_is_the_inverse_of_the_cumulative_sum():
    logits = np.log([1.0, 2.0, 1.0])
    for u, expected in ((0.0, 0), (0.2499, 0), (0.2501, 1), (0.7499, 1), (0.7501, 2), (0.9999, 2)):
        assert sample(logits, rng=Fixed(u)) == expected


def test_top_p_of_one_leaves_nothing_out():
    """Not even an id so rare that rounding swallows it: 1 + exp(−40) is 1."""
    assert sample(np.array([-40.0, 0.0]), top_p=1.0, rng=Fixed(0.0)) == 0
    logits = np.random.default_rng(0).normal(0, 20, (1000, 7))
    one, none = (sample(logits, top_p=p, rng=np.random.default_rng(1)) for p in (1.0, None))
    np.testing.assert_array_equal(one, none)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.longdouble, ">f4"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0,), (2, 0, 3)])
def test_the_result_has_the_shape_of_the_rows_and_is_int64(dtype, shape):
    logits = np.random.default_rng(0).standard_normal((*shape, 5)).astype(dtype)
    for options in ({}, {"temperature": 0}, {"top_k": 2}, {"top_p": 0.5}):
        ids = sample(logits, rng=np.random.default_rng(0), **options)
        assert type(ids) is np.ndarray
        assert ids.shape == shape
        assert ids.dtype == np.int64


def test_rows_in_any_layout_are_drawn_as_one_after_the_other():
    logits = np.random.default_rng(0).standard_normal((3, 5, 7))
    options = {"temperature": 0.7, "top_k": 5, "top_p": 0.9}
    expected = sample(logits.reshape(15, 7), rng=np.random.default_rng(1), **options)
    fortran, reverse = np.asfortranarray(logits), logits[..., ::-1].copy()[..., ::-1]
    for same in (logits, fortran, reverse):
        np.testing.assert_array_equal(sample(same, rng=np.random.default_rng(1), **options).ravel(), expected)
    rng = np.random.default_rng(1)
    assert [int(sample(row, rng=rng, **options)) for row in logits.reshape(15, 7)] == expected.tolist()


def test_the_logits_are_not_written_to():
    logits = np.random.default_rng(0).standard_normal((3, 7))
    before = logits.copy()
    logits.flags.writeable = False
    sample(logits, temperature=0.5, top_k=3, top_p=0.5, rng=np.random.default_rng(0))
    np.testing.assert_array_equal(logits, before)


def test_a_temperature_of_zero_takes_the_first_of_the_largest():
    logits = np.array([[1.0, 3.0, 3.0], [5.0, -INF, 5.0], [-INF, -INF, -1e300]])
    rng = np.random.default_rng(0)
    assert sample(logits, temperature=0, rng=None).tolist() == [1, 0, 2]
    assert sample(logits, temperature=0, top_k=1, top_p=0.1, rng=rng).tolist() == [1, 0, 2]
    assert rng.random() == np.random.default_rng(0).random()  # nothing was drawn


@pytest.mark.parametrize("temperature", [1e-30, 5e-324])
@pytest.mark.parametrize("options", [{}, {"top_k": 2}, {"top_p": 0.5}])
def test_a_temperature_near_zero_is_greedy(temperature, options):
    logits = np.array([[1e30, -1e30, 0], [0, 1e-9, -1], [-1e30, -2e30, -INF]])
    ids = sample(logits, temperature=temperature, rng=np.random.default_rng(0), **options)
    assert ids.tolist() == [0, 1, 0]


def test_huge_logits_and_huge_temperatures():
    largest = np.finfo(float).max
    assert draws(np.array([-1e30, 1e30, 1e30]), 1000)[0] == 0
    assert draws(np.array([largest, -largest]), 1000)[0] == 1000
    assert_frequencies(draws(np.array([1e4, -1e4, 0.0]), 10_000, temperature=1e300), np.full(3, 1 / 3))
    assert_frequencies(draws(np.array([1e30, -INF, -1e30]), 10_000, temperature=largest), np.array([0.5, 0, 0.5]))


def test_one_number_is_taken_for_each_row():
    rng, known = np.random.default_rng(0), np.random.default_rng(0)
    sample(np.zeros((3, 5, 7)), rng=rng)
    known.random(15)
    assert rng.random() == known.random()


RNG = np.random.default_rng(0)
ROWS = np.zeros((3, 6))


def rows(place, value):
    logits = np.zeros((3, 6))
    logits[place] = value
    return logits


@pytest.mark.parametrize(
    ("logits", "options", "error", "sentence"),
    [
        (rows((2, 5), NAN), {}, ValueError, "logits hold nan at [2, 5]"),
        (rows((1, 0), INF), {}, ValueError, "logits hold inf at [1, 0]"),
        (rows((1, 0), INF), {"temperature": 0}, ValueError, "logits hold inf at [1, 0]"),
        (rows(1, -INF), {}, ValueError, "logits hold nothing but -inf at [1]"),
        (rows(1, -INF), {"temperature": 0}, ValueError, "logits hold nothing but -inf at [1]"),
        (np.full(6, -INF), {}, ValueError, "logits hold nothing but -inf"),
        (np.array([0, NAN]), {}, ValueError, "logits hold nan at [1]"),
        ([0.0, 1.0], {}, TypeError, "logits must be an array of floating numbers, got list"),
        (np.zeros(3, int), {}, TypeError, "logits must be an array of floating numbers, got int64"),
        (np.zeros(3, complex), {}, TypeError, "logits must be an array of floating numbers, got complex128"),
        (np.array(1.0), {}, ValueError, "logits must have the axes (..., V), got the shape ()"),
        (np.zeros((3, 0)), {}, ValueError, "logits's last axis must not be empty, got the shape (3, 0)"),
        (ROWS, {"temperature": -1e-9}, ValueError, "temperature must be at least 0, got -1e-09"),
        (ROWS, {"temperature": NAN}, ValueError, "temperature must be finite, got nan"),
        (ROWS, {"temperature": INF}, ValueError, "temperature must be finite, got inf"),
        (ROWS, {"temperature": "1"}, TypeError, "temperature must be a number, got '1'"),
        (ROWS, {"top_k": 0}, ValueError, "top_k must be at least 1, got 0"),
        (ROWS, {"top_k": 2.0}, TypeError, "top_k must be an integer, got 2.0"),
        (ROWS, {"top_k": True}, TypeError, "top_k must be an integer, got True"),
        (ROWS, {"top_p": 0}, ValueError, "top_p must be in (0, 1], got 0.0"),
        (ROWS, {"top_p": 1.001}, ValueError, "top_p must be in (0, 1], got 1.001"),
        (ROWS, {"top_p": NAN}, ValueError, "top_p must be finite, got nan"),
        (ROWS, {"top_p": "0.9"}, TypeError, "top_p must be a number, got '0.9'"),
        (ROWS, {"rng": None}, TypeError, "rng must be a numpy.random.Generator where the temperature is above 0, got None"),
        (ROWS, {"rng": 0}, TypeError, "rng must be a numpy.random.Generator or None, got int"),
        (ROWS, {"rng": 0, "temperature": 0}, TypeError, "rng must be a numpy.random.Generator or None, got int"),
    ],
)
def test_a_bad_argument_is_refused_by_name(logits, options, error, sentence):
    with pytest.raises(error) as caught:
        sample(logits, **{"rng": RNG, **options})
    assert str(caught.value) == f"sample: {sentence}"


@pytest.mark.skipif(np.finfo(np.longdouble).max == np.finfo(float).max, reason="a long double is a double here")
def test_a_long_double_beyond_float64_is_refused():
    with pytest.raises(ValueError, match=r"^sample: logits hold inf at \[1\]"):
        sample(np.array([0, np.finfo(np.longdouble).max]), rng=RNG)
