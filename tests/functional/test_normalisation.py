"""Layer norm and RMS norm: what they do not see, and rows on which a careless one loses all digits."""

import math

import numpy as np
import pytest

from npformer.functional import layer_norm, rms_norm

both = pytest.mark.parametrize("operation", [layer_norm, rms_norm])
EPS = {layer_norm: 1e-5, rms_norm: 1e-6}


def draw_arrays(rng, operation, shape=(3, 5, 7), dtype=np.float64):
    """x and the gains and offsets, none of them ones or zeros, and dy."""
    D = shape[-1:]
    shapes = (shape, D, D, shape) if operation is layer_norm else (shape, D, shape)
    return [rng.standard_normal(each).astype(dtype) for each in shapes]


def run(operation, *arrays, **options):
    """y, then the gradients; dy comes last."""
    *given, dy = arrays
    y, backward = operation(*given, **options)
    return y, *backward(dy)


def assert_close(actual, expected, tolerance=1e-13):
    for got, known in zip(actual, expected, strict=True):
        assert got.shape == known.shape
        np.testing.assert_allclose(got, known, rtol=0, atol=tolerance * np.abs(known).max(initial=0))


def unit_norm(x, eps=1e-5):
    """Layer norm without gain and offset."""
    D = np.shape(x)[-1]
    return layer_norm(x, np.ones(D, x.dtype), np.zeros(D, x.dtype), eps)[0]


# Values known by hand


def test_known_rows():
    """The biased variance, with eps inside the root."""
    np.testing.assert_array_equal(unit_norm(np.array([0.0, 2.0]), eps=3), [-0.5, 0.5])  # ±1 / √(1 + 3)
    np.testing.assert_allclose(unit_norm(np.array([1.0, 3.0]), eps=1e-12), [-1, 1], rtol=1e-12)
    y = layer_norm(np.array([0.0, 2.0]), np.array([10.0, 20.0]), np.array([0.25, 0.5]), eps=3)[0]
    np.testing.assert_array_equal(y, [-4.75, 10.5])
    np.testing.assert_allclose(rms_norm(np.array([3.0, 4.0]), np.array([1.0, 10.0]), eps=12.5)[0], [0.6, 8.0], rtol=1e-15)


def test_the_defaults_of_eps():
    y = unit_norm(np.array([0.0, 2e-3]))
    np.testing.assert_allclose(y[1], 1e-3 / math.sqrt(1e-6 + 1e-5), rtol=1e-14)
    y = rms_norm(np.array([1e-3]), np.ones(1))[0]
    np.testing.assert_allclose(y[0], 1e-3 / math.sqrt(1e-6 + 1e-6), rtol=1e-14)


# Rows with a large mean


def test_four_neighbours_at_forty_thousand():
    """E[x²] − E[x]² is 1.6e9 − 1.6e9 in float32."""
    x = np.array([40000, 40001, 40002, 40003], np.float32)
    y = unit_norm(x)
    np.testing.assert_allclose(y, [-1.342, -0.447, 0.447, 1.342], atol=5e-4)
    assert y.dtype == np.float32


def test_sixteen_values_a_thousandth_apart_at_one_hundred_in_float32():
    x = (100 + 0.001 * np.arange(16)).astype(np.float32)
    rng = np.random.default_rng(0)
    gamma, beta, dy = rng.standard_normal((3, 16)).astype(np.float32)
    expected = run(layer_norm, *(array.astype(np.float64) for array in (x, gamma, beta, dy)))
    assert_close(run(layer_norm, x, gamma, beta, dy), expected, 2e-6)


@pytest.mark.parametrize("c", [1.0, 1e3, -1e6])
def test_layer_norm_does_not_see_a_number_added_to_a_row(c):
    """Multiples of 1/1024, which stay exact when c is added."""
    rng = np.random.default_rng(0)
    x, gamma, beta, dy = draw_arrays(rng, layer_norm)
    x = np.round(1024 * x) / 1024
    shift = c * np.arange(1, 6)[:, None]
    assert_close(run(layer_norm, x + shift, gamma, beta, dy), run(layer_norm, x, gamma, beta, dy))


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 2e-6), (np.float64, 1e-13)])
def test_rows_with_a_mean_of_a_million_are_right_forward_and_backward(dtype, tolerance):
    rng = np.random.default_rng(0)
    x, gamma, beta, dy = draw_arrays(rng, layer_norm, (5, 64), dtype)
    x = np.round(8 * x) / 8
    expected = run(layer_norm, *(array.astype(np.float64) for array in (x, gamma, beta, dy)))
    assert_close(run(layer_norm, x + dtype(1e6), gamma, beta, dy), expected, tolerance)


# Scale


@both
@pytest.mark.parametrize("a", [2.0**-7, 0.5, 2.0**9])
def test_a_row_and_its_eps_may_be_scaled_together(operation, a):
    """By a power of two to the last bit; dx shrinks as x grows."""
    rng = np.random.default_rng(0)
    x, *rest = draw_arrays(rng, operation)
    y, dx, *others = run(operation, a * x, *rest, eps=a * a * 1e-3)
    expected_y, expected_dx, *expected_others = run(operation, x, *rest, eps=1e-3)
    for got, known in zip((y, a * dx, *others), (expected_y, expected_dx, *expected_others), strict=True):
        np.testing.assert_array_equal(got, known)


@both
def test_turning_the_sign_of_a_row_and_of_its_gain_changes_not_one_bit(operation):
    x, gamma, *rest = draw_arrays(np.random.default_rng(0), operation)
    y, dx, dgamma, *others = run(operation, x, gamma, *rest)
    turned = run(operation, -x, -gamma, *rest)
    for got, known in zip(turned, (y, -dx, -dgamma, *others), strict=True):
        np.testing.assert_array_equal(got, known)


@both
@pytest.mark.parametrize("dtype, size", [(np.float32, 1e30), (np.float64, 1e200)])
def test_rows_whose_squares_overflow_are_normalised_all_the_same(operation, dtype, size):
    rng = np.random.default_rng(0)
    x, *rest = draw_arrays(rng, operation, dtype=dtype)
    size = dtype(2.0 ** round(math.log2(size)))
    y, dx, *others = run(operation, size * x, *rest)
    expected_y, expected_dx, *expected_others = run(operation, x, *rest, eps=1e-30)  # beside 1e60 eps is nothing
    tolerance = 10 * np.finfo(dtype).eps
    assert_close((y, dx * size, *others), (expected_y, expected_dx, *expected_others), tolerance)


def test_half_precision_statistics_do_not_overflow():
    """400² is more than float16 can hold."""
    x = np.array([-400, 400, -390, 390], np.float16)
    one, zero = np.ones(4, np.float16), np.zeros(4, np.float16)
    y, dx, *_ = run(layer_norm, x, one, zero, np.array([1, 2, -1, 3], np.float16))
    np.testing.assert_allclose(y, [-1.013, 1.013, -0.987, 0.987], atol=1e-3)
    assert y.dtype == np.float16
    assert np.isfinite(dx).all()
    y = rms_norm(np.array([-400, 400, -390, 390], np.float16), one)[0]
    np.testing.assert_allclose(y, [-1.013, 1.013, -0.987, 0.987], atol=1e-3)
    largest = np.array([65504, -65504, 65504, -65504], np.float16)
    np.testing.assert_allclose(layer_norm(largest, one, zero)[0], [1, -1, 1, -1], rtol=1e-3)
    np.testing.assert_allclose(rms_norm(largest, one)[0], [1, -1, 1, -1], rtol=1e-3)


# Rows without variance


@pytest.mark.parametrize("value", [1.0, 0.1, -1e6])
def test_a_constant_row_is_its_offset_and_its_gradient_is_finite(value):
    """r = 1/√eps forward and backward; n = 0, so only the mean of g is taken off."""
    gamma, beta = np.array([2.0, -3.0, 5.0]), np.array([0.25, 0.5, 0.75])
    dy = np.random.default_rng(0).standard_normal((3, 3))
    y, dx, dgamma, dbeta = run(layer_norm, np.full((3, 3), value), gamma, beta, dy)
    np.testing.assert_array_equal(y, np.tile(beta, (3, 1)))
    g = gamma * dy
    assert_close((dx, dbeta), ((g - g.mean(-1, keepdims=True)) / math.sqrt(1e-5), dy.sum(0)))
    assert not dgamma.any()


def test_a_row_of_zeros_is_zero_under_rms_norm_and_its_gradient_is_finite():
    gamma, dy = np.array([2.0, -3.0, 5.0]), np.random.default_rng(0).standard_normal((2, 3))
    y, dx, dgamma = run(rms_norm, np.zeros((2, 3)), gamma, dy)
    assert not y.any()
    assert not dgamma.any()
    assert_close([dx], [gamma * dy * 1e3])


def test_a_row_of_one_entry_is_its_offset():
    y, dx, dgamma, dbeta = run(layer_norm, *(np.array(x) for x in ([[7.0], [9.0]], [3.0], [0.5], [[1.0], [2.0]])))
    assert y.tolist() == [[0.5], [0.5]]
    assert not dx.any()
    assert dgamma.tolist() == [0]
    assert dbeta.tolist() == [3]


# The shape of the backward


@both
def test_the_gain_stands_inside_the_reductions_of_the_backward(operation):
    """The gradient of x for gamma and dy is that for a gain of ones and gamma·dy; gamma = 1 would hide it."""
    rng = np.random.default_rng(0)
    x, gamma, *beta, dy = draw_arrays(rng, operation)
    inside = run(operation, x, np.ones(7), *beta, gamma * dy)[1]
    np.testing.assert_array_equal(run(operation, x, gamma, *beta, dy)[1], inside)
    outside = gamma * run(operation, x, np.ones(7), *beta, dy)[1]
    assert np.abs(outside - inside).max() > 0.1


def test_the_gradient_of_a_row_is_orthogonal_to_what_layer_norm_does_not_see():
    rng = np.random.default_rng(0)
    x, gamma, beta, dy = draw_arrays(rng, layer_norm)
    dx = run(layer_norm, x, gamma, beta, dy, eps=1e-30)[1]
    assert np.abs(dx.sum(-1)).max() < 1e-13
    assert np.abs((dx * (x - x.mean(-1, keepdims=True))).sum(-1)).max() < 1e-13
    dx = run(rms_norm, x, gamma, dy, eps=1e-30)[1]
    assert np.abs((dx * x).sum(-1)).max() < 1e-13
    assert np.abs(dx.sum(-1)).max() > 0.1


def test_layer_norm_is_rms_norm_of_the_centred_row_and_an_offset():
    rng = np.random.default_rng(0)
    x, gamma, beta, dy = draw_arrays(rng, layer_norm)
    y, dx, dgamma, dbeta = run(layer_norm, x, gamma, beta, dy)
    centred = x - x.mean(-1, keepdims=True)
    rms_y, rms_dx, rms_dgamma = run(rms_norm, centred, gamma, dy, eps=1e-5)
    assert_close((y, dx, dgamma), (rms_y + beta, rms_dx - rms_dx.mean(-1, keepdims=True), rms_dgamma))
    assert_close([dbeta], [dy.sum((0, 1))])


@both
@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 4), (2, 3, 4, 5)])
def test_the_last_axis_is_normalised_and_no_other(operation, shape):
    rng = np.random.default_rng(0)
    x, *parameters, dy = draw_arrays(rng, operation, shape)
    y, dx, *others = run(operation, x, *parameters, dy)
    n = (y - parameters[1] if operation is layer_norm else y) / parameters[0]
    np.testing.assert_allclose((n * n).mean(-1), 1, atol=1e-2)
    if operation is layer_norm:
        assert np.abs(n.mean(-1)).max() < 1e-13
    pairs = zip(x.reshape(-1, shape[-1]), dy.reshape(-1, shape[-1]), strict=True)
    rows = [run(operation, row, *parameters, d) for row, d in pairs]
    assert_close((y, dx), [np.reshape([row[i] for row in rows], shape) for i in (0, 1)])
    assert_close(others, [sum(row[i] for row in rows) for i in range(2, 2 + len(others))])


@both
@pytest.mark.parametrize("mate", [1e200, np.inf, np.nan, 1e6, 0.0])
def test_batch_mates_change_not_one_bit(operation, mate):
    """Not even one whose squares overflow, or that is no number."""
    rng = np.random.default_rng(0)
    x, *rest = draw_arrays(rng, operation, (37, 7))
    y, dx, *_ = run(operation, x, *rest)
    x[5, 3] = mate
    other_y, other_dx, *_ = run(operation, x, *rest)
    rows = np.arange(37) != 5
    np.testing.assert_array_equal(other_y[rows], y[rows])
    np.testing.assert_array_equal(other_dx[rows], dx[rows])
    assert np.isfinite(other_y[5]).all() == np.isfinite(mate)


@both
def test_gradients_of_gain_and_offset_over_micro_batches_add_up_to_those_of_the_batch(operation):
    rng = np.random.default_rng(0)
    x, *parameters, dy = draw_arrays(rng, operation, (11, 5, 7))
    whole = run(operation, x, *parameters, dy)[2:]
    parts = [run(operation, x[part], *parameters, dy[part])[2:] for part in (slice(0, 2), slice(2, 9), slice(9, 11))]
    assert_close([sum(each) for each in zip(*parts, strict=True)], whole)


@both
@pytest.mark.parametrize("sign", [1, -1])
def test_a_huge_row_of_one_sign_beside_an_ordinary_one_is_that_row_scaled(operation, sign):
    """Its unit is the size of its largest entry, whatever the sign; the ordinary row keeps a unit of 1."""
    rng = np.random.default_rng(0)
    x = sign * rng.uniform(1, 2, (2, 5))
    x[0] *= 2.0**600
    parameters = [rng.standard_normal(5) for _ in range(2 if operation is layer_norm else 1)]
    small = x * [[2.0**-600], [1.0]]
    dy = rng.standard_normal(x.shape)
    (y, backward), (known, known_backward) = operation(x, *parameters, 1e-300), operation(small, *parameters, 1e-300)
    np.testing.assert_allclose(y, known, rtol=1e-14)
    dx, known_dx = backward(dy)[0], known_backward(dy)[0]
    np.testing.assert_allclose(dx * [[2.0**600], [1.0]], known_dx, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_an_eps_that_the_dtype_cannot_hold_is_not_zero(dtype):
    x, ones = np.zeros((2, 3), dtype), np.ones(3, dtype)
    for y, backward in (rms_norm(x, ones, eps=1e-60), layer_norm(x, ones, 0 * ones, eps=1e-60)):
        assert (y == 0).all()
        assert np.isfinite(backward(0 * x)[0]).all()
