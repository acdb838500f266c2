"""Dealing features out to heads and laying them side by side again: entries change places, nothing else."""

import numpy as np
import pytest

from npformer.functional import attention, merge_heads, split_heads


def test_head_h_takes_the_columns_from_h_times_k_on():
    x = np.arange(2 * 3 * 10).reshape(2, 3, 10) + 0.5
    y, backward = split_heads(x, 5)
    assert y.shape == (2, 5, 3, 2)
    for b, h, t, k in np.ndindex(y.shape):
        assert y[b, h, t, k] == x[b, t, 2 * h + k]
    np.testing.assert_array_equal(merge_heads(y)[0], x)
    np.testing.assert_array_equal(backward(y), x)


@pytest.mark.parametrize("sizes", [(2, 5, 3, 7), (1, 5, 1, 7), (3, 1, 5, 2), (3, 5, 3, 1), (2, 3, 0, 5), (0, 3, 2, 5)])
def test_each_is_the_backward_of_the_other(sizes):
    B, H, T, K = sizes
    rng = np.random.default_rng(0)
    x, dy = rng.standard_normal((B, T, H * K)), rng.standard_normal((B, H, T, K))
    y, split_backward = split_heads(x, H)
    merged, merge_backward = merge_heads(dy)
    np.testing.assert_array_equal(split_backward(dy), merged)
    np.testing.assert_array_equal(merge_backward(x), y)
    assert merged.shape == x.shape
    assert y.shape == dy.shape


def test_nan_and_signed_zeros_keep_their_bits():
    x = np.array([[[np.nan, -0.0, np.inf, 5e-324, -np.inf, 0.0]]])
    assert merge_heads(split_heads(x, 3)[0])[0].tobytes() == x.tobytes()


def test_one_head_alone_sees_its_own_columns():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 5, 6))
    heads = split_heads(x, 3)[0]
    y = merge_heads(attention(heads, heads, heads, causal=True)[0])[0]
    x[..., 2:4] = rng.standard_normal((2, 5, 2))
    heads = split_heads(x, 3)[0]
    other = merge_heads(attention(heads, heads, heads, causal=True)[0])[0]
    changed = [2, 3]
    np.testing.assert_array_equal(np.delete(other, changed, -1), np.delete(y, changed, -1))
    assert (other[..., changed] != y[..., changed]).all()


def test_what_is_dealt_out_is_a_view_and_nothing_is_copied():
    """As the docstrings say: of x, and of the gradient on the way back from the other."""
    x, dy = np.zeros((2, 3, 10)), np.zeros((2, 3, 10))
    y, _ = split_heads(x, 5)
    _, merge_backward = merge_heads(y)
    assert np.shares_memory(y, x)
    assert np.shares_memory(merge_backward(dy), dy)
