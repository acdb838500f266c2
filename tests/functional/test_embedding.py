"""Embedding: repeated ids, the padding row, and ids that are not in the table."""

import numpy as np
import pytest

from npformer.functional import embedding, linear


def run(ids, table, dy, **options):
    y, backward = embedding(ids, table, **options)
    return y, backward(dy)


def test_the_gradients_of_a_repeated_id_are_added():
    table = np.arange(12.0).reshape(4, 3)
    y, dtable = run(np.array([1, 1, 2]), table, np.ones((3, 3)))
    np.testing.assert_array_equal(y, table[[1, 1, 2]])
    np.testing.assert_array_equal(dtable, [[0] * 3, [2] * 3, [1] * 3, [0] * 3])


def test_it_is_the_product_with_one_hot_rows_in_values_and_gradients():
    rng = np.random.default_rng(0)
    ids, table, dy = rng.integers(5, size=(2, 3, 7)), rng.standard_normal((5, 11)), rng.standard_normal((2, 3, 7, 11))
    y, dtable = run(ids, table, dy)
    expected, backward = linear(np.eye(5)[ids], table)
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_allclose(dtable, backward(dy)[1], rtol=0, atol=1e-13)


def test_the_gradient_of_the_padding_row_is_exactly_zero():
    """769 times the id 0, each of whose gradients would count."""
    rng = np.random.default_rng(0)
    ids = np.concatenate([np.zeros(769, np.int64), [3, 1, 3]])
    table, dy = rng.standard_normal((5, 7)), rng.standard_normal((772, 7))
    y, dtable = run(ids, table, dy, padding_id=0)
    expected_y, expected = run(ids, table, dy)
    np.testing.assert_array_equal(y, expected_y)  # it is looked up like any other
    assert not dtable[0].any()
    np.testing.assert_array_equal(dtable[1:], expected[1:])
    assert np.abs(expected[0]).min() > 0.1


@pytest.mark.parametrize("poison", [np.nan, np.inf, 1e30])
def test_what_arrives_at_the_padding_row_is_not_read(poison):
    ids, dy = np.array([[0, 2], [4, 0]]), np.ones((2, 2, 3))
    dy[ids == 0] = poison
    dtable = run(ids, np.zeros((5, 3)), dy, padding_id=0)[1]
    np.testing.assert_array_equal(dtable, np.array([0, 0, 1, 0, 1])[:, None] * np.ones(3))


def test_the_padding_row_may_be_any_row():
    ids, dy = np.array([0, 4, 4]), np.ones((3, 2))
    np.testing.assert_array_equal(run(ids, np.zeros((5, 2)), dy, padding_id=4)[1][:, 0], [1, 0, 0, 0, 0])


def test_rows_that_are_not_looked_up_are_not_read_and_have_no_gradient():
    table = np.full((5, 3), np.nan)
    table[[1, 2]] = 7
    y, dtable = run(np.array([2, 1, 2]), table, np.ones((3, 3)))
    assert np.isfinite(y).all()
    np.testing.assert_array_equal(dtable[:, 0], [0, 1, 2, 0, 0])


def test_a_nan_in_a_row_goes_to_the_places_that_look_it_up():
    table = np.zeros((5, 3))
    table[2, 1] = np.nan
    y, _ = embedding(np.array([2, 1, 2]), table)
    np.testing.assert_array_equal(np.isnan(y), [[False, True, False], [False] * 3, [False, True, False]])


def test_three_thousand_gradients_in_half_precision_are_all_counted():
    """Added in float16, the sum of ones stops at 2048."""
    dtable = run(np.zeros(3000, np.int64), np.zeros((2, 3), np.float16), np.ones((3000, 3), np.float16))[1]
    assert dtable.dtype == np.float16
    np.testing.assert_array_equal(dtable, [[3000] * 3, [0] * 3])


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int32, np.uint64])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 3, 5)])
def test_ids_of_any_width_and_any_number_of_axes(dtype, shape):
    rng = np.random.default_rng(0)
    ids, table, dy = rng.integers(5, size=shape), rng.standard_normal((5, 7)), rng.standard_normal((*shape, 7))
    for got, known in zip(run(np.asarray(ids, dtype), table, dy), run(np.asarray(ids), table, dy), strict=True):
        np.testing.assert_array_equal(got, known)
        assert got.shape in ((*shape, 7), (5, 7))


def test_an_id_outside_the_table_is_refused_with_its_place_and_the_limit():
    """NumPy would wrap −1, others clip or return zeros."""
    table = np.zeros((8, 3))
    with pytest.raises(ValueError, match=r"^embedding: ids\[2\] is 100.*7"):
        embedding(np.array([1, 7, 100, -1]), table)
    with pytest.raises(ValueError, match=r"^embedding: ids\[1, 0\] is -1.*7"):
        embedding(np.array([[1, 7], [-1, 8]]), table)
    with pytest.raises(ValueError, match=r"^embedding: ids is 8.*7"):
        embedding(np.array(8), table)
    with pytest.raises(ValueError, match=r"^embedding: ids\[0\] is 0"):
        embedding(np.array([0]), np.zeros((0, 3)))


def test_the_position_after_the_last_of_a_table_is_refused_with_both_numbers():
    table = np.zeros((1024, 2))
    assert embedding(np.arange(1024), table)[0].shape == (1024, 2)
    with pytest.raises(ValueError, match=r"^embedding: ids\[1024\] is 1024.*1023"):
        embedding(np.arange(1025), table)
