"""Dropout: the mask of this very call, in both directions, and chance only from the generator that is given."""

import numpy as np
import pytest

from npformer.functional import dropout


def factor(shape, p, seed):
    """The mask with its scale, read off ones."""
    return dropout(np.ones(shape), p, np.random.default_rng(seed))[0]


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_the_kept_entries_are_scaled_and_the_others_zero(p):
    x = np.random.default_rng(0).standard_normal((37, 53))
    y, _ = dropout(x, p, np.random.default_rng(1))
    m = factor(x.shape, p, 1)
    np.testing.assert_array_equal(y, x * m)
    assert set(np.unique(m)) == {0, 1 / (1 - p)}


def test_the_backward_uses_the_mask_of_the_forward_also_where_x_is_zero():
    """Read off y/x the mask would be unknown there."""
    rng = np.random.default_rng(0)
    x, dy = np.where(rng.random((37, 53)) < 0.5, 0, 1.0), rng.standard_normal((37, 53))
    m = factor(x.shape, 0.5, 1)
    _, backward = dropout(x, 0.5, np.random.default_rng(1))
    np.testing.assert_array_equal(backward(dy), dy * m)
    assert ((x == 0) & (m != 0)).any()


def test_each_of_three_calls_in_a_row_has_a_mask_of_its_own_and_keeps_it():
    rng, generator = np.random.default_rng(0), np.random.default_rng(1)
    x, dys = rng.standard_normal((7, 11)), rng.standard_normal((3, 7, 11))
    calls = [dropout(x, 0.5, generator) for _ in range(3)]
    again = np.random.default_rng(1)
    masks = [dropout(np.ones(x.shape), 0.5, again)[0] for _ in range(3)]
    for i in (2, 0, 1, 0):  # in any order, and twice
        y, backward = calls[i]
        np.testing.assert_array_equal(y, x * masks[i])
        np.testing.assert_array_equal(backward(dys[i]), dys[i] * masks[i])
    assert not np.array_equal(masks[0], masks[1])
    assert not np.array_equal(masks[1], masks[2])


def test_a_run_can_be_replayed():
    x = np.random.default_rng(0).standard_normal((7, 11))
    first, second = (dropout(x, 0.3, np.random.default_rng(5))[0] for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, dropout(x, 0.3, np.random.default_rng(6))[0])


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_so_many_are_dropped_and_the_mean_stays(p):
    """Within five standard deviations."""
    n = 200_000
    m = factor((n,), p, 0)
    assert abs((m == 0).mean() - p) < 5 * np.sqrt(p * (1 - p) / n)
    assert abs(m.mean() - 1) < 5 * np.sqrt(p / (1 - p) / n)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.complex128])
def test_the_mask_is_the_same_for_every_dtype_and_layout(dtype):
    m = factor((37, 53), 0.3, 1)
    y, _ = dropout(np.ones((37, 53), dtype), 0.3, np.random.default_rng(1))
    np.testing.assert_array_equal(y != 0, m != 0)
    assert y.dtype == dtype
    y, _ = dropout(np.ones((37, 53), dtype, order="F"), 0.3, np.random.default_rng(1))
    np.testing.assert_array_equal(y != 0, m != 0)


@pytest.mark.parametrize("p, seed", [(0.0, 1), (0.5, None), (0.0, None)])
def test_without_chance_it_is_the_identity_exactly(p, seed):
    x = np.array([[1.5, -0.0, 5e-324], [np.inf, -1e308, np.nan]])
    y, backward = dropout(x, p, None if seed is None else np.random.default_rng(seed))
    assert y.tobytes() == x.tobytes()
    assert backward(x).tobytes() == x.tobytes()


def test_two_evaluations_are_equal():
    x = np.random.default_rng(0).standard_normal((7, 11))
    np.testing.assert_array_equal(dropout(x, 0.5, None)[0], dropout(x, 0.5, None)[0])


def test_p_of_zero_draws_nothing():
    generator = np.random.default_rng(1)
    dropout(np.ones((3, 5)), 0.0, generator)
    assert generator.random() == np.random.default_rng(1).random()
