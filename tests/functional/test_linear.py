"""The linear map: its layout, its sums over rows, and its shapes."""

import numpy as np
import pytest

from npformer.functional import linear


def draw_arrays(rng, more=(2, 3), dtype=np.float64):
    """x, weight, bias, dy."""
    return [rng.standard_normal(shape).astype(dtype) for shape in ((*more, 5), (5, 7), (7,), (*more, 7))]


def assert_close(actual, expected, tolerance=1e-13):
    for got, known in zip(actual, expected, strict=True):
        assert got.shape == known.shape
        np.testing.assert_allclose(got, known, rtol=0, atol=tolerance * np.abs(known).max(initial=0))


def run(x, weight, bias, dy):
    y, backward = linear(x, weight, bias)
    return y, *backward(dy)


def test_the_weight_is_stored_in_by_out():
    x, weight = np.array([[4.0, 5.0]]), np.array([[1.0, 2.0, 3.0], [10.0, 20.0, 30.0]])
    y, dx, dweight, dbias = run(x, weight, np.array([0.5, 0.25, 0.125]), np.array([[1.0, 2.0, 4.0]]))
    assert y.tolist() == [[54.5, 108.25, 162.125]]
    assert dx.tolist() == [[17, 170]]
    assert dweight.tolist() == [[4, 8, 16], [5, 10, 20]]
    assert dbias.tolist() == [1, 2, 4]
    with pytest.raises(ValueError, match=r"^linear: weight .*3.*2"):
        linear(x, weight.T.copy())


@pytest.mark.parametrize("more", [(), (1,), (3,), (2, 3), (2, 1, 3), (2, 3, 4, 1)])
def test_rows_of_any_number_of_axes_are_mapped_and_their_gradients_added(more):
    x, weight, bias, dy = draw_arrays(np.random.default_rng(0), more)
    y, dx, dweight, dbias = run(x, weight, bias, dy)
    assert_close((y, dx), (np.einsum("...i,io->...o", x, weight) + bias, np.einsum("...o,io->...i", dy, weight)))
    places = range(len(more))
    assert_close((dweight, dbias), (np.tensordot(x, dy, (places, places)), dy.sum(tuple(places))))


def test_without_a_bias_there_is_no_gradient_of_one():
    x, weight, bias, dy = draw_arrays(np.random.default_rng(0))
    y, backward = linear(x, weight)
    assert_close([y], [linear(x, weight, np.zeros(7))[0]])
    gradients = backward(dy)
    assert len(gradients) == 2
    for got, known in zip(gradients, run(x, weight, bias, dy)[1:3], strict=True):
        np.testing.assert_array_equal(got, known)


def test_micro_batches_add_up_to_the_batch():
    x, weight, bias, dy = draw_arrays(np.random.default_rng(0), (11, 3))
    whole = run(x, weight, bias, dy)[2:]
    parts = [run(x[part], weight, bias, dy[part])[2:] for part in (slice(0, 2), slice(2, 3), slice(3, 11))]
    assert_close([sum(each) for each in zip(*parts, strict=True)], whole)


def test_batch_mates_change_nothing():
    x, weight, bias, dy = draw_arrays(np.random.default_rng(0), (3, 11))
    y, dx, *_ = run(x, weight, bias, dy)
    for b in range(3):
        assert_close(run(x[b : b + 1], weight, bias, dy[b : b + 1])[:2], (y[b : b + 1], dx[b : b + 1]))
    x[1], dy[1] = np.nan, np.inf
    other_y, other_dx, *_ = run(x, weight, bias, dy)
    np.testing.assert_array_equal(other_y[[0, 2]], y[[0, 2]])
    np.testing.assert_array_equal(other_dx[[0, 2]], dx[[0, 2]])


def test_a_product_of_two_maps_is_one_map():
    rng = np.random.default_rng(0)
    x, first, second, dy = (rng.standard_normal(shape) for shape in ((3, 5), (5, 11), (11, 7), (3, 7)))
    h, first_backward = linear(x, first)
    y, second_backward = linear(h, second)
    dh, dsecond = second_backward(dy)
    dx, dfirst = first_backward(dh)
    one_y, one_dx, dproduct = run(x, first @ second, None, dy)
    assert_close((y, dx, dfirst, dsecond), (one_y, one_dx, dproduct @ second.T, first.T @ dproduct))


@pytest.mark.parametrize("bias", [(1,), (1, 7), (3, 7), (5,), ()])
def test_a_bias_that_would_have_to_be_repeated_is_refused(bias):
    x, weight, *_ = draw_arrays(np.random.default_rng(0))
    with pytest.raises(ValueError, match=r"^linear: bias"):
        linear(x, weight, np.zeros(bias))
