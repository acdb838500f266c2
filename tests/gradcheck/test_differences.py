"""Differences: what they say of functions of every kind, and that each of their devices is needed."""

from fractions import Fraction
from functools import partial

import numpy as np
import pytest

from gradcheck import check, differences
from gradcheck.differences import slopes_along

MOST_EVALUATIONS = 130


def slopes_of(f, x, v, dy=None):
    """Of Σ dy·f(x + tv)."""
    x, v = np.asarray(x, float), np.asarray(v, float)
    with np.errstate(all="ignore"):
        dy = np.ones(np.shape(f(x))) if dy is None else dy
        (found,) = slopes_along(lambda arrays: ((np.asarray(f(arrays[0])),), None), [x], [v], [[dy]])
    return found


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


# Smooth ones.


@pytest.mark.parametrize("degree", range(8))
def test_polynomials_against_fractions(degree):
    coefficients = [3, -5, 7, 11, -13, 17, 19, -23][: degree + 1]
    found = slopes_of(lambda x: sum(c * x**k for k, c in enumerate(coefficients)) + 0 * x, [1.375], [0.625])
    x, v = Fraction(11, 8), Fraction(5, 8)
    truth = v * sum(k * c * x ** (k - 1) for k, c in enumerate(coefficients) if k)
    assert not found.differ
    assert abs(Fraction(found.left) - truth) <= Fraction(found.doubt)
    assert found.doubt < 1e-10 * sum(map(abs, coefficients))


@pytest.mark.parametrize("exponent", [-1000, -700, -300, 0, 300, 700, 990])
def test_outputs_of_every_size(exponent):
    x, v, dy = normal(7), normal(7, seed=1), normal(7, seed=2)
    found = slopes_of(lambda x: np.ldexp(np.sin(x), exponent), x, v, dy)
    truth = np.ldexp(dy * v, exponent) @ np.cos(x)
    assert abs(found.left - truth) <= found.doubt < 1e-10 * abs(truth)


def test_outputs_that_are_denormal():
    x, v, dy = normal(7), normal(7, seed=1), normal(7, seed=2)
    found = slopes_of(lambda x: 1e-310 * np.sin(x), x, v, dy)
    truth = 1e-310 * (dy * v) @ np.cos(x)
    assert abs(found.left - truth) <= found.doubt < 1e-6 * abs(truth)


@pytest.mark.parametrize("frequency", [1e2, 1e4, 1e6])
def test_a_frequency_beyond_the_coarse_steps(frequency):
    for seed in range(20):
        x = normal(1, seed=seed)
        found = slopes_of(lambda x: np.sin(frequency * x), x, [1.0])
        assert abs(found.left - frequency * np.cos(frequency * x[0])) <= found.doubt < 0.1 * frequency


def test_small_numbers_beside_a_large_offset():
    found = slopes_of(lambda x: 1e8 + np.sin(x), [0.7], [1.0])
    assert abs(found.left - np.cos(0.7)) <= found.doubt < 1e-3


# Noise: what computes with fewer digits than it is given.


def softmax(x, dtype=float):
    x = x.astype(dtype)
    e = np.exp(x - x.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True)).astype(float)


def low_precision(dtype, n=200):
    """How many of n bars are too small, and of how many nothing is said; and the bars over the derivatives."""
    too_small, nothing, bars = 0, 0, []
    for seed in range(n):
        rng = np.random.default_rng(seed)
        x, dy = rng.normal(size=(3, 5)), rng.normal(size=(3, 5))
        entry = rng.integers(15)
        v = x * rng.normal(size=x.shape) if seed % 2 else np.where(np.arange(15).reshape(3, 5) == entry, np.abs(x), 0)
        found = slopes_of(partial(softmax, dtype=dtype), x, v, dy)
        p = softmax(x)
        truth = (dy * p * (v - (p * v).sum(-1, keepdims=True))).sum()
        nothing += found is None
        if found is not None:
            too_small += not found.allow(truth)
            bars.append(found.doubt / abs(truth))
    return too_small, nothing, np.array(bars)


def test_the_noise_of_float32_is_found():
    too_small, nothing, bars = low_precision(np.float32)
    assert too_small == nothing == 0
    assert 1e-6 < np.median(bars) < 1e-3


def test_the_noise_of_float16_is_found():
    too_small, nothing, bars = low_precision(np.float16)
    assert too_small <= 4  # of 200: with three digits in all, a table of seven values may miss it
    assert nothing < 120  # half of the time the doubt is as large as the slope
    assert 1e-2 < np.median(bars) < 0.6


@pytest.mark.parametrize("distance", [1e-6, 1e-5, 1e-4, 1e-3])
def test_an_entry_of_float32_that_is_small_beside_the_step(distance):
    """At the ends of the step its noise is larger than at the entry."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        x = np.array([distance * rng.uniform(0.5, 2), rng.normal()])
        found = slopes_of(lambda x: np.sin(x.astype(np.float32).astype(float)), x, [abs(x[1]), 0.0])
        assert found is None or found.allow(abs(x[1]) * np.cos(x[0])), (seed, found)


# A part that moves by steps of its own beside one that is smooth: what settles last is the slope of the smooth part alone.


def staircases(seeds):
    """Of how many staircases, each beside a parabola, a wrong slope is given."""
    wrong = 0
    for seed in seeds:
        x = normal(3, 5, seed=seed)
        for entry in range(15):
            v = np.where(np.arange(15).reshape(3, 5) == entry, np.maximum(abs(x), np.median(abs(x))), 0)
            found = slopes_of(lambda x: (x + 1e8) - 1e8 + x * x, x, v)
            wrong += found is not None and not found.allow(((1 + 2 * x) * v).sum())
    return wrong


STEEPEST = (6, 8)  # the seeds for which most hangs on looking closely


def test_a_staircase_beside_a_slope():
    assert staircases((*range(4), *STEEPEST)) == 0


def few_digits(bits, n=12):
    """Of how many results that are rounded to multiples of 2^−bits a wrong slope is given."""

    def rounded(x):
        return np.round(np.sin(x) * 2.0**bits) / 2.0**bits

    wrong = 0
    for seed in range(n):
        rng = np.random.default_rng(seed)
        x = rng.uniform(0.5, 2, (3, 5))
        for v in (x * rng.normal(size=(3, 5)), np.where(np.arange(15).reshape(3, 5) == seed, x, 0)):
            found = slopes_of(rounded, x, v)
            wrong += found is not None and not found.allow((np.cos(x) * v).sum())
    return wrong


def test_a_result_with_few_digits():
    """Where a step is by chance so many units that the result moves as a line does, its noise is not seen."""
    wrong = [few_digits(bits) for bits in range(20, 45, 2)]
    assert sum(wrong) <= 0.01 * len(wrong) * 24, wrong


# Plateaus.


def test_a_plateau_has_the_slope_0():
    found = slopes_of(lambda x: np.floor(x), [0.5], [1.0])
    assert found is None or found.allow(0.0)
    found = slopes_of(softmax, 1e9 * normal(3, 5), 1e9 * normal(3, 5, seed=1), normal(3, 5, seed=2))
    assert found is None or found.allow(0.0)


def test_a_function_of_nothing():
    found = slopes_of(lambda x: np.full(3, 7.0), [1.0], [1.0])
    assert found.left == found.right == 0
    assert 0 < found.doubt < 1e-13  # it may move by less than its last digit


# Kinks.


@pytest.mark.parametrize("offset", [0.0, 1.0, -1e3])
def test_at_a_kink_both_slopes_are_given(offset):
    found = slopes_of(lambda x: np.maximum(2 * x, -3 * x) + offset, [0.0], [1.0])
    assert found.differ
    assert abs(found.left + 3) <= found.doubt and abs(found.right - 2) <= found.doubt < 1e-3


def test_at_several_kinks_that_meet_the_slopes_are_those_of_the_line():
    found = slopes_of(np.abs, np.zeros(3), [1.0, -2.0, 3.0], np.array([1.0, 1.0, -1.0]))
    assert found.left == pytest.approx(0, abs=1e-9) and found.right == pytest.approx(0, abs=1e-9)
    found = slopes_of(np.abs, np.zeros(2), [1.0, -2.0])
    assert (found.left, found.right) == (pytest.approx(-3), pytest.approx(3))


NEAR_KINKS = {
    "relu": (lambda x: np.maximum(x, 0), 0.0, (0, 1)),
    "relu beside 1": (lambda x: np.maximum(x, 0) + 1, 0.0, (0, 1)),
    "leaky relu": (lambda x: np.maximum(x, 0.01 * x) + 1, 0.0, (0.01, 1)),
    "clip at 1": (lambda x: np.clip(x, -1, 1), 1.0, (1, 0)),
    "the larger of two": (lambda x: np.maximum(3 * x, x + 2) - 5, 1.0, (1, 3)),
    "abs": (np.abs, 0.0, (-1, 1)),
}


def confident_beside(kink):
    """The distances at which a wrong slope is given, and how often none is."""
    f, at, slopes = NEAR_KINKS[kink]
    wrong, nothing = [], 0
    for distance in np.logspace(-13, -0.5, 40):
        for side in (-1, 1):
            x = np.array([at + side * distance, 1.3])
            found = slopes_of(f, x, [1.0, 0.0])
            nothing += found is None
            if found and not found.allow(slopes[int(x[0] > at)]):
                wrong.append((side * distance, found))
    return wrong, nothing


@pytest.mark.parametrize("kink", NEAR_KINKS)
def test_beside_a_kink_no_wrong_slope_is_given(kink):
    wrong, nothing = confident_beside(kink)
    assert wrong == []
    assert nothing <= 16


# No number, no slope.


@pytest.mark.parametrize("height", [1.0, 1e-3, 1e3])
def test_of_a_jump_nothing_is_said_or_next_to_nothing(height):
    for f, x in ((lambda x: height * (x >= 1) + np.sin(x), 1.0), (lambda x: height * np.sign(x), 0.0)):
        found = slopes_of(f, [x], [1.0])
        assert found is None or found.doubt > 0.1 * abs(found.left), found


def test_at_the_end_of_a_domain_nothing_is_said():
    def root(x):
        if (x < 0).any():
            raise ValueError("x must not be negative")
        return np.sqrt(x)

    assert slopes_of(root, [0.0], [1.0]) is None
    found = slopes_of(root, [1e-3, 0.25], [1.0, 0.0])
    assert abs(found.left - 0.5 / np.sqrt(1e-3)) <= found.doubt < 1e-7


def test_a_function_that_raises_at_the_point_itself_raises():
    with pytest.raises(ZeroDivisionError):
        slopes_of(lambda x: 1 // 0, [1.0], [1.0], np.ones(1))


def test_an_output_that_is_no_number_does_not_count():
    found = slopes_of(lambda x: np.array([np.nan, np.inf, x[0] ** 2]), [3.0], [1.0], np.ones(3))
    assert abs(found.left - 6) <= found.doubt < 1e-10


def test_an_output_that_is_a_number_here_alone():
    f = partial(np.where, [True, True])
    x = np.array([3.0, 2.0])
    assert slopes_of(lambda at: f(at * at, 0) + np.where(at == x, 0, [np.nan, 0]), x, [1.0, 1.0]) is None
    found = slopes_of(lambda at: at * at + np.where(at == x, 0, [np.nan, 0]), x, [1.0, 1.0], np.array([0.0, 1.0]))
    assert abs(found.left - 4) <= found.doubt < 1e-10


# The price, and nothing by chance.


SMOOTH = {
    "sin": np.sin,
    "softmax": softmax,
    "log": np.log,
    "cube": lambda x: x**3,
    "norm": lambda x: x / np.sqrt((x * x).mean(-1, keepdims=True)),
}
ROUGH = {
    "abs": np.abs,
    "float32": lambda x: np.sin(x.astype(np.float32)).astype(float),
    "float16": lambda x: np.sin(x.astype(np.float16)).astype(float),
    "floor": np.floor,
    "sin of 1e6": lambda x: np.sin(1e6 * x),
    "beside 1e8": lambda x: 1e8 + np.sin(x),
    "spike": lambda x: 1 / (1e-9 + (x - 1) ** 2),
}


def evaluations_of(f, seed):
    calls = []

    def counted(x):
        calls.append(1)
        return f(x)

    x = np.random.default_rng(seed).uniform(0.5, 2, (3, 5))
    slopes_of(counted, x, x * normal(3, 5, seed=seed), normal(3, 5, seed=seed + 1))
    return len(calls) - 1  # one is slopes_of's own


def counts(functions):
    return [evaluations_of(f, seed) for f in functions.values() for seed in range(10)]


def test_the_number_of_evaluations():
    assert np.median(counts(SMOOTH)) <= 66
    assert max(counts({**SMOOTH, **ROUGH})) < MOST_EVALUATIONS


def test_several_cotangents_cost_one_line():
    calls = []
    rng = np.random.default_rng(0)
    x, v = rng.normal(size=7), rng.normal(size=7)

    def run(arrays):
        calls.append(1)
        return (np.sin(arrays[0]),), None

    dys = [[size * rng.normal(size=7)] for size in (1.0, -3.0, 1e3, 1e-6, 0.0)]
    found = slopes_along(run, [x], [v], dys)
    assert len(calls) < MOST_EVALUATIONS
    for slopes, (dy,) in zip(found, dys, strict=True):
        assert slopes.allow(dy * v @ np.cos(x))
        assert slopes.doubt <= 1e-11 * np.abs(dy).sum()
    assert slopes_along(run, [x], [v], dys) == found


@pytest.mark.parametrize(("truth", "most"), [("complex", 510), ("difference", 6600)])
def test_a_check_of_more_entries_costs_hardly_more(truth, most):
    counts = []
    for n in (101, 1009, 10007):
        report = check(lambda x: (x * x, lambda dy: 2 * x * dy), normal(n), truth=truth)
        assert report.ok and report.n_entries == n
        counts.append(report.n_evaluations)
    assert max(counts) < most, counts
    assert counts[2] < 1.1 * counts[1], counts


# Every device is needed: without it something here goes wrong.


def too_small_and_wide():
    """Of sines of several frequencies: bars that are too small, and bars that are needlessly wide."""
    too_small, wide = 0, 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        x, frequency = rng.normal(size=1), 10 ** rng.uniform(-1, 2)
        found = slopes_of(lambda x, f=frequency: np.sin(f * x) + 1, x, [1.0])
        truth = frequency * np.cos(frequency * x[0])
        too_small += not (found and found.allow(truth))
        wide += found is not None and found.doubt > 1e-9 * max(1.0, frequency)
    return too_small, wide


def test_ten_times_the_bound_is_enough_and_not_too_much():
    too_small, wide = too_small_and_wide()
    assert too_small == 0
    assert wide <= 1  # a steep sine is not quite silent in the table of noise


def test_without_caution_bars_are_too_small(monkeypatch):
    monkeypatch.setattr(differences, "CAUTION", 0.1)
    assert too_small_and_wide()[0] > 3


def test_with_a_thousandfold_bound_bars_are_too_wide(monkeypatch):
    monkeypatch.setattr(differences, "CAUTION", 1000.0)
    assert too_small_and_wide()[1] > 3


def test_without_a_probe_at_finer_steps_a_staircase_is_overlooked(monkeypatch):
    monkeypatch.setattr(differences, "PROBE_NOISE", 0.0)
    assert staircases(STEEPEST) > 0


def test_without_a_look_at_what_goes_back_and_forth_a_staircase_is_overlooked(monkeypatch):
    monkeypatch.setattr(differences, "restless", lambda values, errors: np.zeros(values.shape[1], bool))
    assert staircases(STEEPEST) > 0


def test_without_noise_the_bars_of_low_precision_are_too_small(monkeypatch):
    monkeypatch.setattr(differences, "deviation", lambda table: np.zeros(table.shape[1]))
    too_small, _, _ = low_precision(np.float32, n=20)
    assert too_small > 3


def test_without_the_slopes_of_the_sides_a_kink_has_one(monkeypatch):
    settled = differences.settled
    middles = []

    def middle_alone(values, errors):
        if len(middles) % 3 == 0:
            middles.append(settled(values, errors))
        else:
            middles.append(middles[-1])
        return middles[-1]

    slopes_at = differences.Line.slopes_at

    def without_sides(line, steps, noise):
        middles.clear()
        with monkeypatch.context() as patch:
            patch.setattr(differences, "settled", middle_alone)
            return slopes_at(line, steps, noise)

    monkeypatch.setattr(differences.Line, "slopes_at", without_sides)
    found = slopes_of(np.abs, [0.0], [1.0])
    assert not found.differ and not found.allow(1.0)


def test_without_a_look_at_both_sides_of_the_widest_steps_a_kink_is_taken_for_noise(monkeypatch):
    monkeypatch.setattr(differences, "WIDE_NOISE_STEPS", (*differences.WIDE_NOISE_STEPS, (2.0**-60,)))
    assert confident_beside("relu beside 1")[0]


def test_a_rounding_on_one_side_alone_is_no_kink():
    """φ stands still but for a last digit here and there."""
    for seed in range(40):
        offset = np.random.default_rng(seed).normal()
        found = slopes_of(lambda x, c=offset: c + 1e-15 * np.sin(x), [1.0], [1.0])
        assert found is not None and found.allow(1e-15 * np.cos(1.0))
