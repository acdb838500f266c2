"""The activations, entry by entry: their far ends, where digits are lost, their slopes, and NaN."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest

from npformer.functional import gelu, gelu_tanh, relu, sigmoid, silu, tanh
from npformer.oracle import reference

ACTIVATIONS = [relu, gelu, gelu_tanh, silu, sigmoid, tanh]
GATED = [gelu, gelu_tanh, silu]
every_activation = pytest.mark.parametrize("activation", ACTIVATIONS)

INF, NAN = np.inf, np.nan


def run(activation, x, dy=None):
    x = np.asarray(x)
    y, backward = activation(x)
    return y, backward(np.ones_like(x) if dy is None else dy)


def precise(activation, x):
    """The value and the slope, by the scalar reference and its central difference in eighty digits."""
    function, h = getattr(reference, activation.__name__), Decimal("1e-20")
    with localcontext() as context:
        context.prec = 80
        z = Decimal(float(x))
        return float(function(z)), float((function(z + h) - function(z - h)) / (2 * h))


def assert_digits(activation, x, units):
    """Values and slopes each relative to itself, to so many units of its dtype in the last place."""
    y, dx = run(activation, x)
    truth = np.array([precise(activation, each) for each in x])
    tolerance = units * np.finfo(y.dtype).eps
    np.testing.assert_allclose(y, truth[:, 0], rtol=tolerance)
    np.testing.assert_allclose(dx, truth[:, 1], rtol=tolerance)


# Relative accuracy


@pytest.mark.parametrize("x", [-5.0, -6.5, -8.3, -9.0, -12.0, -20.0, -30.0, -37.0])
def test_the_left_tail_of_gelu_keeps_its_digits(x):
    """½(1 + erf) would be 0 from −8.3 on. exp(−x²/2) magnifies the last digit of x²/2, hence x² units."""
    assert_digits(gelu, np.array([x, np.nextafter(x, 0)]), 4 + x * x)


@pytest.mark.parametrize("x", [-5.0, -8.0, -12.5])
def test_the_left_tail_of_gelu_keeps_its_digits_in_float32(x):
    assert_digits(gelu, np.array([x], np.float32), 4 + x * x)


@pytest.mark.parametrize("x", [-3.0, -5.0, -9.0, -15.0, -19.0])
def test_the_left_tail_of_gelu_tanh_keeps_its_digits(x):
    """½(1 + tanh) would be 0 from −6 on. Here an exponential of 2u is what magnifies."""
    assert_digits(gelu_tanh, np.array([x]), 8 + 2 * abs(x) ** 3)


@pytest.mark.parametrize("activation", [sigmoid, silu])
def test_the_tails_of_sigmoid_and_silu_keep_their_digits(activation):
    assert_digits(activation, np.array([-700.0, -300.5, -40.0, -10.0, -1.5, 0.25, 3.0]), 8)


def test_the_slopes_keep_their_digits_where_the_functions_have_rounded_to_one():
    """1 − σ and 1 − tanh² would be 0; σ(x)·σ(−x) and 4·σ(2x)·σ(−2x) are exp(−x) and 4·exp(−2x)."""
    for x in (37.5, 40.0, 300.0):
        y, dx = run(sigmoid, [x, -x])
        assert y[0] == 1
        np.testing.assert_allclose(dx, math.exp(-x), rtol=1e-14)
    for x in (10.0, 20.0, 300.0):
        dx = run(tanh, [x, -x])[1]
        np.testing.assert_allclose(dx, 4 * math.exp(-2 * x) / (1 + math.exp(-2 * x)) ** 2, rtol=1e-14)


@pytest.mark.parametrize("activation", [gelu, gelu_tanh, silu, sigmoid, tanh])
def test_small_inputs_keep_their_digits(activation):
    assert_digits(activation, np.array([1e-300, -1e-300, 1e-20, -1e-8, 1e-3]), 4)


# Slopes


@pytest.mark.parametrize("activation", [gelu, gelu_tanh, silu, sigmoid, tanh])
def test_the_slope_is_taken_at_the_input_and_not_at_the_output(activation):
    x = np.random.default_rng(0).uniform(-4, 4, 31)
    truth = np.array([precise(activation, each)[1] for each in x])
    np.testing.assert_allclose(run(activation, x)[1], truth, rtol=0, atol=1e-14)
    at_output = run(activation, run(activation, x)[0])[1]
    assert np.abs(at_output - truth).max() > 0.1


@every_activation
def test_the_gradient_is_the_slope_times_the_cotangent_entry_by_entry(activation):
    rng = np.random.default_rng(0)
    x, dy = 3 * rng.standard_normal((3, 5, 7)), rng.standard_normal((3, 5, 7))
    np.testing.assert_allclose(run(activation, x, dy)[1], dy * run(activation, x)[1], rtol=1e-14)


def test_exact_and_tanh_gelu_are_two_functions():
    """At 2.02 their slopes differ by 8.7e-4: no tolerance above that can tell them apart."""
    (exact,), (approximate,) = run(gelu, [2.02])[1], run(gelu_tanh, [2.02])[1]
    np.testing.assert_allclose(abs(exact - approximate), 8.7e-4, atol=1e-5)
    assert abs(exact - precise(gelu, 2.02)[1]) < 1e-15
    assert abs(approximate - precise(gelu_tanh, 2.02)[1]) < 1e-15
    x = np.linspace(-6, 6, 2401)
    assert 4e-4 < np.abs(run(gelu, x)[0] - run(gelu_tanh, x)[0]).max() < 5e-4


def test_the_slope_of_relu_at_zero_is_zero_on_both_its_sides():
    y, dx = run(relu, [-0.0, 0.0, 5e-324, -5e-324, 2.0])
    assert y.tolist() == [0, 0, 5e-324, 0, 2]
    assert dx.tolist() == [0, 0, 1, 0, 1]


# Symmetries


@pytest.mark.parametrize("activation", GATED)
def test_a_gate_and_its_mirror_image_share_out_the_input(activation):
    """x·g(x) + x·g(−x) = x, since g(x) + g(−x) = 1; and so the slopes add up to 1."""
    x = np.random.default_rng(0).uniform(-6, 6, 101)
    y, dx = run(activation, x)
    mirrored_y, mirrored_dx = run(activation, -x)
    np.testing.assert_allclose(y - mirrored_y, x, rtol=1e-15, atol=1e-15)
    np.testing.assert_allclose(dx + mirrored_dx, 1, rtol=1e-14)


def test_sigmoid_and_its_mirror_image_add_up_to_one_and_tanh_is_odd():
    x = np.random.default_rng(0).uniform(-40, 40, 101)
    y, dx = run(sigmoid, x)
    np.testing.assert_allclose(y + run(sigmoid, -x)[0], 1, rtol=1e-15)
    np.testing.assert_array_equal(run(sigmoid, -x)[1], dx)
    np.testing.assert_array_equal(run(tanh, -x)[0], -run(tanh, x)[0])
    np.testing.assert_array_equal(run(tanh, -x)[1], run(tanh, x)[1])
    np.testing.assert_allclose(run(tanh, x)[0], 2 * run(sigmoid, 2 * x)[0] - 1, rtol=0, atol=1e-15)


def test_relu_and_its_mirror_image_share_out_the_input_exactly():
    x = np.random.default_rng(0).standard_normal(101)
    np.testing.assert_array_equal(run(relu, x)[0] - run(relu, -x)[0], x)
    np.testing.assert_array_equal(run(relu, x)[1] + run(relu, -x)[1], np.ones(101))


# The far ends


@pytest.mark.parametrize(
    "dtype, sizes", [(np.float16, [6e4]), (np.float32, [1e4, 1e10, 1e30, 3e38]), (np.float64, [1e4, 1e30, 1e200, 1e308])]
)
@every_activation
def test_far_from_zero_each_is_its_asymptote_with_a_finite_slope(activation, dtype, sizes):
    x = np.array([sign * size for size in sizes for sign in (-1, 1)], dtype)
    right = (x > 0).astype(dtype)
    y, dx = run(activation, x)
    expected = {"sigmoid": right, "tanh": np.sign(x)}.get(activation.__name__, x * right)
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(dx, 0 if activation in (sigmoid, tanh) else right)


def test_infinity_is_its_limit_where_the_arithmetic_has_one():
    assert run(relu, [-INF, INF])[0].tolist() == [0, INF]
    assert run(relu, [-INF, INF])[1].tolist() == [0, 1]
    assert run(sigmoid, [-INF, INF])[0].tolist() == [0, 1]
    assert run(tanh, [-INF, INF])[0].tolist() == [-1, 1]
    for activation in (sigmoid, tanh):
        assert run(activation, [-INF, INF])[1].tolist() == [0, 0]
    for activation in GATED:
        assert activation(np.array([INF]))[0].tolist() == [INF]


@every_activation
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_nan_goes_through_and_touches_no_other_entry(activation, dtype):
    x = np.random.default_rng(0).standard_normal((3, 5)).astype(dtype)
    clean_y, clean_dx = run(activation, x)
    x[1, 2] = NAN
    y, dx = run(activation, x)
    others = np.ones(x.shape, bool)
    others[1, 2] = False
    assert np.isnan(y[1, 2])
    np.testing.assert_array_equal(y[others], clean_y[others])
    np.testing.assert_array_equal(dx[others], clean_dx[others])


@every_activation
def test_a_nan_in_the_cotangent_goes_through_where_the_slope_is_not_zero(activation):
    x, dy = np.array([0.5, 1.5, 2.0]), np.array([1.0, NAN, 1.0])
    assert np.isnan(run(activation, x, dy)[1]).tolist() == [False, True, False]
