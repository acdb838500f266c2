"""Batches: windows side by side, every one once in a pass, and the same whenever they are asked for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npformer.training import Batches

lengths = st.integers(1, 17)
seeds = st.integers(0, 2**64)


def windows_of_pass(batches, number):
    """Where the windows of a pass start, for tokens 0, 1, 2, …"""
    n = batches.n_windows
    return [int(batches.batch(i)[0][0, 0]) for i in range(number * n, (number + 1) * n)]


@given(length=lengths, more=st.integers(1, 100), batch_size=st.integers(1, 9), i=st.integers(0, 50), seed=seeds)
def test_targets_are_the_tokens_that_come_next(length, more, batch_size, i, seed):
    tokens = np.arange(length + more)
    ids, targets = Batches(tokens, length, batch_size, seed).batch(i)
    assert ids.shape == targets.shape == (batch_size, length)
    np.testing.assert_array_equal(targets, ids + 1)
    np.testing.assert_array_equal(ids, ids[:, :1] + np.arange(length))
    assert 0 <= ids.min() and targets.max() <= tokens[-1]


@given(length=lengths, more=st.integers(1, 200), number=st.integers(0, 20), seed=seeds)
def test_in_a_pass_the_windows_lie_side_by_side_and_each_comes_once(length, more, number, seed):
    n_tokens = length + more
    batches = Batches(np.arange(n_tokens), length, 1, seed)
    starts = sorted(windows_of_pass(batches, number))
    assert np.diff(starts).tolist() == (batches.n_windows - 1) * [length]
    assert n_tokens - 1 - batches.n_windows * length < 2 * length


@given(length=lengths, more=st.integers(1, 60), batch_size=st.integers(1, 9), seed=seeds, data=st.data())
def test_a_batch_is_the_same_in_any_order_of_calls(length, more, batch_size, seed, data):
    tokens = np.arange(length + more)
    asked = data.draw(st.lists(st.integers(0, 40), min_size=1, max_size=12))
    batches = Batches(tokens, length, batch_size, seed)
    for i in asked:
        fresh = Batches(tokens.copy(), length, batch_size, seed)
        for one, other in zip(batches.batch(i), fresh.batch(i), strict=True):
            np.testing.assert_array_equal(one, other)


@given(length=lengths, more=st.integers(1, 60), size=st.integers(2, 5), i=st.integers(0, 9), seed=seeds)
def test_a_larger_batch_is_several_small_ones(length, more, size, i, seed):
    tokens = np.arange(length + more)
    one, many = Batches(tokens, length, 1, seed), Batches(tokens, length, size, seed)
    rows = [one.batch(size * i + row)[0][0] for row in range(size)]
    np.testing.assert_array_equal(many.batch(i)[0], rows)


@pytest.mark.parametrize("n_tokens", [11, 12, 13, 14, 17, 24, 40])
def test_in_time_every_token_is_a_target_in_every_place(n_tokens):
    length = 5
    batches = Batches(np.arange(n_tokens), length, 1, seed=1)
    seen = np.zeros((n_tokens, length), int)
    for i in range(300 * batches.n_windows):
        seen[batches.batch(i)[1][0], np.arange(length)] += 1
    possible = np.arange(1, n_tokens)[:, None] - np.arange(length)
    possible = (1 <= possible) & (possible <= n_tokens - length)
    np.testing.assert_array_equal(seen[1:] > 0, possible)
    assert not seen[0].any()


@pytest.mark.parametrize("length", [1, 2, 7])
def test_a_text_of_one_window_and_a_token_is_enough(length):
    tokens = np.arange(length + 1)
    ids, targets = Batches(tokens, length, 3).batch(4)
    np.testing.assert_array_equal(ids, np.tile(tokens[:-1], (3, 1)))
    np.testing.assert_array_equal(targets, np.tile(tokens[1:], (3, 1)))


@pytest.mark.parametrize("shape", [(7,), (0,), (), (3, 8), (30, 1)])
def test_a_text_that_is_too_short_is_refused_with_both_numbers(shape):
    with pytest.raises(ValueError) as error:
        Batches(np.zeros(shape, int), 7, 2)
    assert str(error.value).startswith("Batches: tokens must be at least 8 ")
    assert str(shape) in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (([1, 2, 3], 2, 1), TypeError, "tokens must be an array of integers, got list"),
        ((np.zeros(9), 2, 1), TypeError, "tokens must be an array of integers, got float64"),
        ((np.arange(9), 0, 1), ValueError, "length must be at least 1, got 0"),
        ((np.arange(9), 2, 0), ValueError, "batch_size must be at least 1, got 0"),
        ((np.arange(9), 2, 1, -1), ValueError, "seed must be in 0"),
    ],
)
def test_other_bad_arguments_are_refused(arguments, error, text):
    with pytest.raises(error, match=f"Batches: {text}"):
        Batches(*arguments)


def test_there_is_no_batch_before_the_first():
    with pytest.raises(ValueError, match="Batches: i must be at least 0, got -1"):
        Batches(np.arange(9), 2, 1).batch(-1)


def test_another_seed_is_another_order():
    tokens = np.arange(400)
    orders = {tuple(windows_of_pass(Batches(tokens, 4, 1, seed), 0)) for seed in range(20)}
    assert len(orders) == 20


def test_another_pass_is_another_order():
    batches = Batches(np.arange(400), 4, 1)
    assert len({tuple(windows_of_pass(batches, number)) for number in range(20)}) == 20


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.uint64])
def test_tokens_keep_their_dtype_and_are_not_written_to(dtype):
    tokens = np.arange(50, dtype=dtype)
    tokens.flags.writeable = False
    ids, targets = Batches(tokens[::2], 3, 2).batch(0)
    assert ids.dtype == targets.dtype == dtype
    np.testing.assert_array_equal(targets, ids + 2)
    ids[...] = 0  # a copy, the caller's own
