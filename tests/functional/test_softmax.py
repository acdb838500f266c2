"""Softmax and its logarithm: what shifts, infinities and ties do to them, forward and backward."""

import math

import numpy as np
import pytest

from npformer.functional import log_softmax, softmax

INF, NAN = np.inf, np.nan
both = pytest.mark.parametrize("operation", [softmax, log_softmax])


def run(operation, x, dy, **options):
    y, backward = operation(x, **options)
    return y, backward(dy)


def assert_close(actual, expected, tolerance=1e-13):
    for got, known in zip(actual, expected, strict=True):
        assert got.shape == known.shape
        np.testing.assert_allclose(got, known, rtol=0, atol=tolerance * np.abs(known).max(initial=0))


def dyadic(rng, shape, unit=2.0**-8):
    """Multiples of a power of two, which stay exact when a whole number is added."""
    return unit * rng.integers(-1000, 1000, shape)


@both
@pytest.mark.parametrize("c", [1.0, -37.0, 1e4, -1e6])
def test_a_number_added_to_a_row_changes_not_one_bit(operation, c):
    rng = np.random.default_rng(0)
    x, dy = dyadic(rng, (3, 7)), rng.standard_normal((3, 7))
    for one, other in zip(run(operation, x + c, dy), run(operation, x, dy), strict=True):
        np.testing.assert_array_equal(one, other)


@both
def test_rows_may_be_shifted_each_by_its_own_number_and_permuted(operation):
    rng = np.random.default_rng(0)
    x, dy, order = dyadic(rng, (3, 7)), rng.standard_normal((3, 7)), rng.permutation(7)
    shift = rng.integers(-1000, 1000, (3, 1))
    expected = [each[:, order] for each in run(operation, x, dy)]
    assert_close(run(operation, (x + shift)[:, order], dy[:, order]), expected)


@both
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_large_logits_are_finite_and_right(operation, dtype):
    """exp(378) overflows in float32, exp(1e4) everywhere."""
    for top in (378.0, 1e4, 6e4):
        x = np.array([[top, top - 1, -top], [top, top, top], [-top, -top, -top - 64]], dtype)
        dy = np.array([[0.5, -2, 1], [3, 1, -1], [1, 2, 3]], dtype)
        with np.errstate(over="ignore"):  # −1.2e5 is too much for float16
            small = (x.astype(np.float64) - x.max(-1, keepdims=True)).astype(dtype)
        for one, other in zip(run(operation, x, dy), run(operation, small, dy), strict=True):
            np.testing.assert_array_equal(one, other)
        assert np.isfinite(run(softmax, x, dy)).all()


def test_the_weights_of_zero_and_log_three_are_a_quarter_and_three_quarters():
    x, dy = np.array([0.0, math.log(3)]), np.array([8.0, 0.0])
    y, dx = run(softmax, x, dy)
    np.testing.assert_allclose(y, [0.25, 0.75], rtol=1e-15)
    np.testing.assert_allclose(dx, [1.5, -1.5], rtol=1e-15)  # 8·¼·(1 − ¼)
    y, dx = run(log_softmax, x, dy)
    np.testing.assert_allclose(y, [-math.log(4), math.log(0.75)], rtol=1e-15)
    np.testing.assert_allclose(dx, [6.0, -6.0], rtol=1e-15)


def test_an_entry_of_minus_infinity_has_no_weight_and_no_gradient():
    x, dy = np.array([-INF, 0.0, 0.0]), np.array([5.0, 1.0, -2.0])
    y, dx = run(softmax, x, dy)
    assert y.tolist() == [0, 0.5, 0.5]
    assert dx.tolist() == [0, 0.75, -0.75]


def test_the_gradient_of_log_softmax_is_finite_where_an_entry_is_minus_infinity():
    """dx = dy − softmax·Σdy"""
    x, dy = np.array([-INF, 0.0, 0.0]), np.array([5.0, 1.0, -2.0])
    y, dx = run(log_softmax, x, dy)
    assert y[0] == -INF
    np.testing.assert_allclose(y[1:], -math.log(2), rtol=1e-15)
    np.testing.assert_allclose(dx, [5.0, -1.0, -4.0], rtol=1e-15)


@both
def test_other_rows_and_entries_do_not_see_an_entry_of_minus_infinity(operation):
    rng = np.random.default_rng(0)
    x, dy = rng.standard_normal((3, 7)), rng.standard_normal((3, 7))
    rest = [0, 1, 2, 4, 5, 6]
    x[1, 3], dy[1, 3] = -INF, 0
    y, dx = run(operation, x, dy)
    expected = run(operation, x[1, rest], dy[1, rest])
    assert_close((y[1, rest], dx[1, rest]), expected)


def test_softmax_of_a_row_of_minus_infinity_is_zero_and_its_dy_is_not_read():
    x, dy = np.full((3, 5), -INF), np.random.default_rng(0).standard_normal((3, 5))
    x[1] = [-INF, 0, -INF, 0, -INF]
    for poison in (0.0, 1e30, INF, -INF, NAN):
        dy[[0, 2]] = poison
        y, dx = run(softmax, x, dy)
        np.testing.assert_array_equal(y, [[0] * 5, [0, 0.5, 0, 0.5, 0], [0] * 5])
        assert not dx[[0, 2]].any()
        assert np.isfinite(dx).all()


def test_log_softmax_of_a_row_of_minus_infinity_is_minus_infinity_with_a_finite_gradient():
    y, dx = run(log_softmax, np.full((2, 3), -INF), np.ones((2, 3)))
    assert (y == -INF).all()
    assert np.isfinite(dx).all()


@both
@pytest.mark.parametrize("poison", [NAN, INF])
@pytest.mark.parametrize("place", [0, 2, 4])
def test_nan_or_infinity_spoils_its_own_row_and_no_other(operation, poison, place):
    rng = np.random.default_rng(0)
    x, dy = rng.standard_normal((3, 5)), rng.standard_normal((3, 5))
    expected = run(operation, x, dy)
    x[1, place] = poison
    for got, known in zip(run(operation, x, dy), expected, strict=True):
        np.testing.assert_array_equal(got[[0, 2]], known[[0, 2]])
        assert np.isnan(got[1]).any()
    assert np.isnan(run(softmax, x, dy)[0][1]).all()


@both
def test_a_nan_beside_minus_infinity_is_not_hidden(operation):
    for row in ([-INF, NAN, -INF], [NAN, -INF, -INF], [NAN, NAN, NAN]):
        assert np.isnan(operation(np.array(row))[0]).any()


@both
@pytest.mark.parametrize("axis", [-3, -2, -1, 0, 1, 2])
def test_along_another_axis_it_is_the_same_on_the_moved_array(operation, axis):
    rng = np.random.default_rng(0)
    x, dy = rng.standard_normal((3, 5, 7)), rng.standard_normal((3, 5, 7))
    expected = run(operation, np.moveaxis(x, axis, -1).copy(), np.moveaxis(dy, axis, -1).copy())
    assert_close(run(operation, x, dy, axis=axis), [np.moveaxis(each, -1, axis) for each in expected])
    assert_close([softmax(x, axis)[0].sum(axis)], [np.ones(np.delete(x.shape, axis))])


def test_the_gradient_of_a_row_adds_up_to_nothing():
    """Since a number added to the whole row would change nothing."""
    rng = np.random.default_rng(0)
    x, dy = 4 * rng.standard_normal((3, 7)), rng.standard_normal((3, 7))
    for operation in (softmax, log_softmax):
        dx = run(operation, x, dy)[1]
        assert np.abs(dx.sum(-1)).max() < 1e-14
        assert np.abs(dx).max() > 0.1


def test_the_exponential_of_the_logarithm_is_softmax_in_values_and_gradients():
    rng = np.random.default_rng(0)
    x, dy = 4 * rng.standard_normal((3, 7)), rng.standard_normal((3, 7))
    y, backward = log_softmax(x)
    assert_close((np.exp(y), backward(dy * np.exp(y))), run(softmax, x, dy))


def test_an_entry_far_below_the_others_keeps_its_digits():
    y, dx = run(log_softmax, np.array([0.0, -1e4, 0.0]), np.array([0.0, 1.0, 0.0]))
    assert y[1] == -1e4 - math.log(2)  # log(softmax) would be log(0)
    assert dx.tolist() == [-0.5, 1, -0.5]
    y = softmax(np.array([0.0, -700.0]))[0]
    np.testing.assert_allclose(y[1], math.exp(-700), rtol=1e-14)


def test_a_probability_of_nearly_one_keeps_the_digits_of_its_logarithm():
    """log softmax = −log(1 + exp(−50)), where 1 + exp(−50) is 1."""
    y = log_softmax(np.array([0.0, -50.0]))[0]
    np.testing.assert_allclose(y[0], -math.exp(-50), rtol=1e-14)
    y = log_softmax(np.array([0.0, -50.0, 0.0]))[0]
    np.testing.assert_allclose(y[::2], -math.log(2), rtol=1e-15)


@both
def test_a_constant_row_is_shared_out_evenly(operation):
    x, dy = np.full((2, 5), 3.0), np.random.default_rng(0).standard_normal((2, 5))
    y, dx = run(operation, x, dy)
    np.testing.assert_allclose(np.exp(y) if operation is log_softmax else y, 0.2, rtol=1e-15)
    mean = dy.mean(-1, keepdims=True)
    assert_close([dx], [dy - mean if operation is log_softmax else (dy - mean) / 5])


@both
def test_one_entry_alone_is_certain(operation):
    y, dx = run(operation, np.array([[7.0], [-1e4]]), np.array([[3.0], [5.0]]))
    assert (y == (1 if operation is softmax else 0)).all()
    assert not dx.any()


@both
def test_a_last_axis_of_any_rank_is_taken_row_by_row(operation):
    rng = np.random.default_rng(0)
    x, dy = rng.standard_normal((2, 3, 5, 7)), rng.standard_normal((2, 3, 5, 7))
    y, dx = run(operation, x, dy)
    for index in ((0, 0, 0), (1, 2, 4)):
        assert_close((y[index], dx[index]), run(operation, x[index], dy[index]))
