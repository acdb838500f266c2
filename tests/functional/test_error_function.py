"""erf and erfc to the last digits, against the standard library's, which are right to about one unit there."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest

from npformer.functional.error_function import erf, erf_slope, erfc
from npformer.oracle.reference import elementary

BORDERS = [27 / 32, 5 / 4, 1 / 0.35, 6.0, 28.0, 0.25]
INF, NAN = np.inf, np.nan


def points(rng, low, high, n=20_000):
    """Both signs, evenly spread and by magnitude, and the neighbours of every border between two formulas."""
    even, small = rng.uniform(low, high, n), rng.choice([-1, 1], n) * 10.0 ** rng.uniform(-20, 0, n)
    steps = np.arange(-40, 41)
    near = [sign * border * (1 + steps * 2.0**-53) for border in BORDERS for sign in (-1, 1)]
    at = [0.0, -0.0, 5e-324, -5e-324, 1e-310, -1e-310, 2.0**-1022, 1.0, -1.0, 0.5]
    return np.concatenate([even, small, *near, at])


def each(function, x):
    return np.array([function(float(each)) for each in x])


def units(actual, expected):
    """By how many units in the last place of the expected number they differ, at most."""
    return (np.abs(actual - expected) / np.spacing(np.abs(expected))).max()


def test_erf_is_within_two_units_in_the_last_place():
    x = points(np.random.default_rng(0), -7, 7)
    assert units(erf(x), each(math.erf, x)) <= 2


def test_erfc_is_within_four_units_in_the_last_place_down_to_the_underflow():
    """At 26.5 it leaves the normal numbers, at 27.3 all numbers."""
    x = points(np.random.default_rng(1), -7, 28)
    expected = each(math.erfc, x)
    assert (expected == 0).any()
    assert ((0 < expected) & (expected < 2.0**-1022)).any()
    assert units(erfc(x), expected) <= 4


@pytest.mark.parametrize("function, bound", [(erf, 1), (erfc, 2.5)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_against_forty_digits_erf_is_within_one_unit_and_erfc_within_two_and_a_half(function, bound, dtype):
    """The standard library's own error, which differs from system to system, plays no part."""
    rng = np.random.default_rng(8)
    x = np.concatenate([rng.uniform(low, high, 300) for low, high in ((-7, 9), (0.2, 0.8), (0.8, 27 / 32), (0.84, 1.3))])
    for each, y in zip(x.astype(dtype), function(x.astype(dtype)), strict=True):
        with localcontext() as context:
            context.prec = 40
            truth = getattr(elementary, function.__name__)(Decimal(float(each)))
            assert abs(Decimal(float(y)) - truth) <= Decimal(bound) * Decimal(float(np.spacing(dtype(abs(truth)))))


def test_erf_in_float32_is_within_two_units_of_the_correctly_rounded_value():
    x = points(np.random.default_rng(2), -5, 5).astype(np.float32)
    x = np.concatenate([x, *(np.nextafter(x[-200:], np.float32(s)) for s in (-9, 9))])
    y = erf(x)
    assert y.dtype == np.float32
    assert units(y, each(math.erf, x).astype(np.float32)) <= 2


def test_erfc_in_float32_is_within_four_units_down_to_the_underflow():
    x = points(np.random.default_rng(3), -5, 11).astype(np.float32)
    y = erfc(x)
    assert y.dtype == np.float32
    assert units(y, each(math.erfc, x).astype(np.float32)) <= 4


def test_the_ends_of_the_line():
    x = np.array([-INF, -1e300, -30.0, 30.0, 1e300, INF])
    assert erf(x).tolist() == [-1, -1, -1, 1, 1, 1]
    assert erfc(x).tolist() == [2, 2, 2, 0, 0, 0]
    for function in (erf, erfc):
        y = function(np.array([0.5, NAN, -2.0, NAN], np.float32))
        assert np.isnan(y).tolist() == [False, True, False, True]


def test_zero_keeps_its_sign_and_denormals_their_digits():
    y = erf(np.array([0.0, -0.0]))
    assert y.tolist() == [0, 0]
    assert np.signbit(y).tolist() == [False, True]
    assert erfc(np.array([0.0, -0.0, 5e-324, -5e-324])).tolist() == [1, 1, 1, 1]
    x = 2.0**-1070 * np.array([8.0, -1000.0, 56789.0])
    assert units(erf(x), each(math.erf, x)) <= 1


def test_erf_is_odd_and_erfc_its_complement():
    x = points(np.random.default_rng(4), -7, 7)
    np.testing.assert_array_equal(erf(-x), -erf(x))
    np.testing.assert_allclose(erfc(x), 1 - erf(x), rtol=0, atol=2.0**-51)
    np.testing.assert_allclose(erfc(x) + erfc(-x), 2, rtol=2.0**-51)


def test_erf_rises_and_erfc_falls():
    """Within the parts and across their borders, two units aside."""
    x = np.sort(points(np.random.default_rng(5), -7, 28))
    assert (np.diff(erf(x)) >= -(2.0**-52)).all()
    y = erfc(x)
    assert (np.diff(y) <= 4 * np.spacing(y[1:])).all()


@pytest.mark.parametrize("function, sign", [(erf, 1), (erfc, -1)])
def test_the_imaginary_part_carries_the_derivative(function, sign):
    x = points(np.random.default_rng(6), -12, 12, 500)
    y = function(x + 1e-30j)
    slope = sign * 2 / math.sqrt(math.pi) * each(lambda a: math.exp(-a * a), x)
    np.testing.assert_array_equal(y.real, function(x))
    np.testing.assert_allclose(y.imag / 1e-30, slope, rtol=1e-13, atol=1e-270)
    assert (sign * erf_slope(x) * slope >= 0).all()


def test_the_derivative_is_that_of_the_values():
    """By a central difference of the fourth order, which knows nothing of the slope's formula."""
    x, h = np.random.default_rng(7).uniform(-3, 3, 500), 1e-3
    difference = (8 * (erf(x + h) - erf(x - h)) - (erf(x + 2 * h) - erf(x - 2 * h))) / (12 * h)
    np.testing.assert_allclose(erf_slope(x), difference, rtol=0, atol=1e-11)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 5), (2, 3, 5)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
def test_shape_and_dtype_are_kept(shape, dtype):
    x = np.random.default_rng(8).standard_normal(shape).astype(dtype)
    for function in (erf, erfc):
        y = function(x)
        assert y.shape == shape
        assert y.dtype == dtype
