"""The two caches of keys and values: what they hold, what they never touch, and what they refuse."""

import copy
import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gradcheck
from npformer.layers import KVCache, MultiHeadAttention, SlidingCache

B, G, K, V = 3, 2, 5, 4
RELATIVE = 1e-13


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def pair(T, *, rows=B, seed=0):
    """Keys and values of T tokens."""
    return normal(rows, G, T, K, seed=seed), normal(rows, G, T, V, seed=seed + 1000)


def filled(cache, *counts):
    """`cache` with so many tokens in turn; and what each append returned."""
    return [cache.append(*pair(T, seed=i)) for i, T in enumerate(counts)]


# What it holds.


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.integers(0, 3))
def test_all_keys_so_far_come_back_and_each_gradient_goes_to_its_own(counts, rows):
    cache, ks, vs = KVCache(sum(counts) or 1), [], []
    for i, T in enumerate(counts):
        k, v = pair(T, rows=rows, seed=i)
        ks.append(k)
        vs.append(v)
        (keys, values), backward = cache.append(k, v)
        assert np.array_equal(keys, np.concatenate(ks, 2))
        assert np.array_equal(values, np.concatenate(vs, 2))
        dkeys, dvalues = pair(sum(counts[: i + 1]), rows=rows, seed=50)
        dkeys_before, dvalues_before, dk, dv = backward(dkeys, dvalues)
        assert dk.shape == k.shape
        assert dv.shape == v.shape
        assert np.array_equal(np.concatenate([dkeys_before, dk], 2), dkeys)
        assert np.array_equal(np.concatenate([dvalues_before, dv], 2), dvalues)
        assert cache.lengths.tolist() == [sum(counts[: i + 1])] * rows
        assert np.array_equal(cache.positions, np.arange(sum(counts[: i + 1])))


def two_appends(k1, v1, k2, v2, right=True):
    """All that two appends return, with a backward that hands what the second owes to the first."""
    cache = KVCache(20)
    first, backward1 = cache.append(k1, v1)
    second, backward2 = cache.append(k2, v2)

    def backward(dkeys1, dvalues1, dkeys2, dvalues2):
        *owed, dk2, dv2 = backward2(dkeys2, dvalues2)
        *_, dk1, dv1 = backward1(dkeys1 + right * owed[0], dvalues1 + owed[1])
        return dk1, dv1, dk2, dv2

    return (*first, *second), backward


def test_gradcheck_passes_two_appends_and_fails_one_that_forgets():
    arrays = (*pair(3), *pair(2, seed=1))
    report = gradcheck.check(two_appends, *arrays)
    assert report.verdict == "pass", report
    assert gradcheck.check(two_appends, *arrays, right=False).verdict == "fail"


def test_a_gradient_of_another_number_of_tokens_is_refused():
    (_, backward1), (_, backward2) = filled(KVCache(9), 3, 2)
    with pytest.raises(
        ValueError, match=r"KVCache: dkeys has the shape \(3, 2, 5, 5\), but what was returned has \(3, 2, 3, 5\)"
    ):
        backward1(*pair(5))
    with pytest.raises(ValueError, match="KVCache: dvalues has the shape"):
        backward2(pair(5)[0], pair(3)[1])


def test_before_the_first_token_there_is_nothing():
    for cache in (KVCache(7), SlidingCache(3)):
        assert cache.lengths is None
        assert cache.nbytes == 0
        assert cache.next_positions(2).tolist() == [0, 1]
        other = cache.fork()
        filled(other, 2)
        assert cache.lengths is None
        (keys, values), _ = cache.append(*pair(0))
        assert keys.shape == (B, G, 0, K)
        assert values.shape == (B, G, 0, V)
        assert cache.lengths.tolist() == [0] * B


# Room.


def test_it_grows_by_doubling_up_to_max_len_and_copies_nothing_in_between():
    cache, returned = KVCache(50), []
    for t in range(50):
        returned.append(cache.append(*pair(1, seed=t))[0])
        slots = next(n for n in (16, 32, 50) if t < n)
        assert cache.nbytes == B * G * slots * (K + V) * 8
    for i in (0, 1):
        copies = [t + 1 for t, (a, b) in enumerate(pairwise(returned)) if not np.shares_memory(a[i], b[i])]
        assert copies == [16, 32]


@pytest.mark.parametrize(
    ("max_len", "counts", "slots"), [(5, [1], 5), (99, [20], 20), (99, [20, 1], 40), (99, [3, 40], 43), (99, [60, 1], 99)]
)
def test_room_is_taken_as_it_is_needed(max_len, counts, slots):
    cache = KVCache(max_len)
    filled(cache, *counts)
    assert cache.nbytes == B * G * slots * (K + V) * 8


def test_float32_takes_half_and_stays():
    cache = KVCache(9)
    k, v = (x.astype(np.float32) for x in pair(2))
    (keys, values), _ = cache.append(k, v)
    assert keys.dtype == values.dtype == np.float32
    assert cache.nbytes == B * G * 9 * (K + V) * 4


@pytest.mark.parametrize("uneven", [False, True])
def test_a_full_cache_stays_as_it_was(uneven):
    cache = KVCache(6)
    filled(cache, 2)
    keep = np.array([[1, 1, 0], [0, 0, 0], [1, 0, 0]], bool) if uneven else None
    cache.append(*pair(3, seed=5), keep=keep)
    n = 4 if uneven else 5
    lengths, slots = cache.lengths.copy(), (cache.key_slots.copy(), cache.value_slots.copy())
    with pytest.raises(ValueError, match=f"KVCache: full: it holds {n} tokens, and {7 - n} more pass max_len = 6"):
        cache.append(*pair(7 - n))
    with pytest.raises(ValueError, match="full"):
        cache.append(*pair(4), keep=np.array([[1, 1, 1, 1], [1, 0, 0, 0], [0, 0, 0, 0]], bool))
    assert np.array_equal(cache.lengths, lengths)
    assert cache.positions.max() == n - 1
    assert np.array_equal(cache.key_slots, slots[0])
    assert np.array_equal(cache.value_slots, slots[1])
    (keys, _), _ = cache.append(*pair(6 - n))
    assert keys.shape == (B, G, 6, K)
    with pytest.raises(ValueError, match="full: it holds 6 tokens, and 1 more"):
        cache.append(*pair(1))
    cache.append(*pair(2), keep=np.zeros((B, 2), bool))  # hidden tokens take no room


# Against lists of tokens, under every operation, in any order.


class Rows:
    """What a cache must hold: for every row its tokens, as numbers."""

    def __init__(self, rows):
        self.rows = rows

    def append(self, tokens, keep):
        for row, new, kept in zip(self.rows, tokens, keep, strict=True):
            row += [int(token) for token, there in zip(new, kept, strict=True) if there]

    def fork(self):
        return Rows([list(row) for row in self.rows])

    def reorder(self, order):
        self.rows = [list(self.rows[r]) for r in order]

    def rewind(self, lengths):
        self.rows = [row[:n] for row, n in zip(self.rows, lengths, strict=True)]


def of_tokens(tokens):
    """A key and a value for each token (B, T): its number, and its negative."""
    b, T = tokens.shape
    return (
        np.broadcast_to(tokens[:, None, :, None], (b, G, T, K)).astype(float),
        -np.broadcast_to(tokens[:, None, :, None], (b, G, T, V)).astype(float),
    )


def held(cache, keys, values):
    """{position: token} for every row, of what `append` returned."""
    positions = np.broadcast_to(cache.positions, (len(keys), keys.shape[2]))
    rows = []
    for b, places in enumerate(positions):
        there = places >= 0
        assert len(set(places[there])) == there.sum()
        assert (keys[b][:, there] == keys[b, 0, there, 0][None, :, None]).all()
        assert (values[b][:, there] == -keys[b, 0, there, 0][None, :, None]).all()
        rows.append(dict(zip(places[there].tolist(), keys[b, 0, there, 0].astype(int).tolist(), strict=True)))
    return rows


MAX_LEN = 40
OPERATIONS = ("append", "append", "append one", "keep", "reorder", "fork", "leave fork", "rewind", "rewind one by one")


def hold_what_they_must(seed, operations, window):
    """Do the operations on a cache and on lists, and compare; what a live backward may read is watched."""
    rng = np.random.default_rng(seed)
    cache = KVCache(MAX_LEN) if window is None else SlidingCache(window)
    rows, n_tokens, watched, left = Rows([[] for _ in range(B)]), 0, [], []
    plain = window is None  # has a backward
    for operation in ("append", *operations):
        b = len(rows.rows)
        if operation in ("append", "append one", "keep"):
            T = 1 if operation == "append one" else int(rng.integers(0, 5))
            keep = rng.random((b, T)) < 0.6 if operation == "keep" else np.ones((b, T), bool)
            if window is None and max([0, *map(len, rows.rows)]) + T > MAX_LEN:
                continue
            tokens = 1 + n_tokens + np.arange(b * T).reshape(b, T)
            n_tokens += b * T
            before = [len(row) for row in rows.rows]
            rows.append(tokens, keep)
            plain &= operation != "keep"
            if operation == "append one":
                k, v = of_tokens(tokens)
                keys, values = cache.append_one(k[:, :, 0], v[:, :, 0])
                cache.positions = cache.slot_positions()
                backward = None
            else:
                (keys, values), backward = cache.append(*of_tokens(tokens), keep=keep if operation == "keep" else None)
            for row, found, start in zip(rows.rows, held(cache, keys, values), before, strict=True):
                if window is None:
                    assert found == dict(enumerate(row))
                else:  # all that the new tokens may see, and none that is older than the ring
                    wanted = {p: row[p] for p in range(max(0, (start if T else len(row)) - window + 1), len(row))}
                    if operation == "append one":
                        wanted = {p: row[p] for p in range(max(0, len(row) - window), len(row))}
                    assert wanted.items() <= found.items() <= dict(enumerate(row)).items()
            if plain:
                watched.append((keys, values, keys.copy(), values.copy()))
                if backward is not None:
                    backward(keys, values)
            elif backward is not None:
                with pytest.raises(ValueError, match="no backward"):
                    backward(keys, values)
        elif operation == "reorder":
            order = rng.integers(b, size=int(rng.integers(1, 5)))
            cache.reorder(order)
            rows.reorder(order)
            plain = False
        elif operation == "fork":
            cache, rows, plain = cache.fork(), rows.fork(), False
        elif operation == "leave fork":
            left.append(cache.fork())
        elif window is None:
            lengths = rng.integers(0, 1 + np.array([len(row) for row in rows.rows]))
            if operation == "rewind":
                lengths[:] = lengths.min()
                cache.rewind(int(lengths[0]))
            else:
                cache.rewind(lengths)
            rows.rewind(lengths)
            plain = False
        for other in left:
            if other.length < MAX_LEN:
                other.append(*of_tokens(np.full((len(other.lengths), 1), -7)))
        assert cache.lengths.tolist() == [len(row) for row in rows.rows]
        assert (cache.next_positions(2) == cache.lengths[:, None] + [0, 1]).all()
        for keys, values, keys_then, values_then in watched:
            assert np.array_equal(keys, keys_then)
            assert np.array_equal(values, values_then)


some_operations = st.lists(st.sampled_from(OPERATIONS), max_size=12)


@settings(max_examples=150)
@given(st.integers(0, 2**32 - 1), some_operations, st.sampled_from([None, None, 1, 2, 5, 40]))
def test_whatever_is_done_each_row_holds_its_tokens_and_nothing_returned_is_overwritten(seed, operations, window):
    hold_what_they_must(seed, operations, window)


def fork_without_copies(self):
    other = copy.copy(self)
    other.no_backward = "is a fork"
    return other


def rewind_in_place(self, lengths):
    self.length = int(np.max(lengths))
    self.row_lengths = None if np.ndim(lengths) == 0 else lengths
    self.no_backward = "was rewound"


def reorder_in_place(self, rows):
    if len(rows) == len(self.key_slots):
        self.key_slots[...], self.value_slots[...] = self.key_slots[rows], self.value_slots[rows]
    else:
        self.key_slots, self.value_slots = self.key_slots[rows], self.value_slots[rows]
    self.row_lengths = None if self.row_lengths is None else self.row_lengths[rows]
    self.no_backward = "was reordered"


def reorder_without_lengths(self, rows):
    self.key_slots, self.value_slots = self.key_slots[rows], self.value_slots[rows]
    self.row_lengths = None if self.row_lengths is None else np.sort(self.row_lengths[rows])
    self.no_backward = "was reordered"


def make_room_without_the_old(self, k, v, length):
    if not self.begun or length > self.key_slots.shape[2]:
        n = min(MAX_LEN, length + 5)
        self.key_slots, self.value_slots = (np.zeros((*x.shape[:2], n, x.shape[-1])) for x in (k, v))


def places_by_length(self, T, keep=None):
    positions = np.broadcast_to(self.length + np.arange(T), (len(self.key_slots), T))
    return positions if keep is None else np.where(keep, self.length + keep.cumsum(1) - 1, -1)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("fork", fork_without_copies),
        ("rewind", rewind_in_place),
        ("reorder", reorder_in_place),
        ("reorder", reorder_without_lengths),
        ("make_room", make_room_without_the_old),
        ("next_positions", places_by_length),
    ],
)
def test_a_cache_that_does_one_thing_wrong_is_found(name, wrong, monkeypatch):
    monkeypatch.setattr(KVCache, name, wrong)
    rng = np.random.default_rng(0)
    with pytest.raises((AssertionError, IndexError, ValueError)):
        for seed in range(100):
            hold_what_they_must(seed, rng.choice(OPERATIONS, 12), None)


def test_next_positions_count_kept_tokens():
    cache, keep = KVCache(9), np.array([[1, 0, 1], [0, 0, 0], [0, 1, 0]], bool)
    assert cache.next_positions(3, keep).tolist() == [[0, -1, 1], [-1, -1, -1], [-1, 0, -1]]
    cache.append(*pair(3), keep=keep)
    assert cache.next_positions(2).tolist() == [[2, 3], [0, 1], [1, 2]]
    assert cache.next_positions(3, keep).tolist() == [[2, -1, 3], [-1, -1, -1], [-1, 1, -1]]
    assert cache.slot_positions().tolist() == [[0, 1], [-1, -1], [0, -1]]


def test_a_backward_of_before_reads_what_it_saw():
    """Slots that a live closure may read stay, whatever is done to the cache afterwards."""
    cache = KVCache(40)
    (keys, values), _ = cache.append(*pair(5))
    then = keys.copy(), values.copy()
    cache.rewind(2)
    cache.append(*pair(9, seed=1))
    cache.reorder(np.array([1, 1, 2, 0]))
    cache.append(*pair(20, rows=4, seed=2))
    fork = cache.fork()
    fork.rewind(0)
    fork.append(*pair(7, rows=4, seed=3))
    assert np.array_equal(keys, then[0])
    assert np.array_equal(values, then[1])


# The ring.


@pytest.mark.parametrize("W", [1, 2, 3, 5, 9])
def test_a_ring_takes_the_same_memory_however_long_the_sequence(W):
    cache = SlidingCache(W)
    for t in range(3 * W + 2):
        cache.append(*pair(1 + t % 3, seed=t))
        assert cache.nbytes == B * G * W * (K + V) * 8
    cache.append(*pair(4 * W))
    assert cache.nbytes == B * G * W * (K + V) * 8
    assert cache.lengths.tolist() == [sum(1 + t % 3 for t in range(3 * W + 2)) + 4 * W] * B


def attention(seed=1):
    layer = MultiHeadAttention(6, 4, d_head=3, n_kv_heads=2, dtype=np.float64, rng=np.random.default_rng(seed))
    for name, parameter in layer.parameters().items():
        parameter.value[...] = normal(*parameter.value.shape, seed=len(name))
    return layer


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=RELATIVE * abs(expected).max(initial=0))


@given(st.sampled_from([1, 2, 3, 4, 8, 9, 20]), st.lists(st.integers(0, 9), max_size=7).map(sorted), st.integers(0, 99))
def test_attention_over_a_ring_is_attention_in_a_window(W, cuts, seed):
    layer, x, cache = attention(), normal(B, 9, 6, seed=seed), SlidingCache(W)
    pieces = [layer(piece, causal=True, window=W, cache=cache) for piece in np.split(x, cuts, axis=1)]
    close(np.concatenate(pieces, 1), layer(x, causal=True, window=W))


@given(st.sampled_from([1, 2, 3, 4, 8, 9, 20]), st.lists(st.integers(0, 9), max_size=7).map(sorted), st.integers(0, 99))
def test_attention_over_a_ring_of_uneven_rows_is_each_row_alone(W, cuts, seed):
    layer, x = attention(), normal(B, 9, 6, seed=seed)
    keep = np.random.default_rng(seed).random((B, 9)) < 0.6
    for cache in (SlidingCache(W), KVCache(9)):
        pieces = []
        for piece, kept in zip(np.split(x, cuts, axis=1), np.split(keep, cuts, axis=1), strict=True):
            positions = cache.next_positions(piece.shape[1], kept)
            pieces.append(layer(piece, causal=True, window=W, positions=positions, cache=cache))
        y = np.concatenate(pieces, 1)
        for b in range(B):
            close(y[b : b + 1, keep[b]], layer(x[b : b + 1, keep[b]], causal=True, window=W))


def test_a_ring_cannot_be_rewound():
    cache = SlidingCache(3)
    filled(cache, 2)
    with pytest.raises(ValueError, match=r"SlidingCache\.rewind: the tokens before those it would forget are no"):
        cache.rewind(1)
    assert cache.lengths.tolist() == [2] * B


# What is hidden.


@pytest.mark.parametrize("cache", [KVCache(9), SlidingCache(4)], ids=["all", "ring"])
def test_keys_and_values_of_hidden_tokens_may_be_nan(cache):
    keep = np.array([[1, 0, 1], [0, 1, 1], [1, 1, 0]], bool)
    other, hidden = cache.fork(), ~keep[:, None, :, None]
    for i in range(3):
        k, v = pair(3, seed=i)
        (keys, values), _ = cache.append(np.where(hidden, np.nan, k), np.where(hidden, np.inf, v), keep=keep)
        (clean_keys, clean_values), _ = other.append(k, v, keep=keep)
        assert np.array_equal(cache.positions, other.positions)
        there = np.broadcast_to(cache.positions[:, None] >= 0, keys.shape[:3])
        assert np.array_equal(keys[there], clean_keys[there])
        assert np.array_equal(values[there], clean_values[there])


# What is refused.

K4, V4 = pair(2)


@pytest.mark.parametrize(
    ("k", "v", "error", "text"),
    [
        (K4.tolist(), V4, TypeError, "KVCache: k must be an array of floating numbers, got list"),
        (K4, V4.astype(int), TypeError, "KVCache: v must be an array of floating numbers, got int64"),
        (K4[0], V4, ValueError, "KVCache: k must have the axes (B, G, T, K), got the shape (2, 2, 5)"),
        (K4, V4[..., 0], ValueError, "KVCache: v must have the axes (B, G, T, K), got the shape (3, 2, 2)"),
        (K4, V4[:, :, :1], ValueError, "KVCache: k is float64 (3, 2, 2, 5), but v is float64 (3, 2, 1, 4)"),
        (K4, V4.astype(np.float32), ValueError, "KVCache: k is float64 (3, 2, 2, 5), but v is float32 (3, 2, 2, 4)"),
        (K4[:2], V4[:2], ValueError, "KVCache: k has 2 rows, but the cache was begun with 3, by another"),
        (
            K4[:, :1],
            V4[:, :1],
            ValueError,
            "KVCache: k has 1 heads, but the cache was begun with 2, by another",
        ),
        (
            K4[..., :1],
            V4,
            ValueError,
            "KVCache: k has 1 features, but the cache was begun with 5, by another",
        ),
        (
            K4,
            V4[..., :1],
            ValueError,
            "KVCache: v has 1 features, but the cache was begun with 4, by another",
        ),
        (K4.astype(np.float32), V4.astype(np.float32), TypeError, "KVCache: k is float32, but the cache holds float64"),
    ],
)
@pytest.mark.parametrize("cache", [KVCache, SlidingCache])
def test_what_does_not_fit_is_refused_and_changes_nothing(cache, k, v, error, text):
    cache = cache(7)
    filled(cache, 3)
    slots = cache.key_slots.copy(), cache.value_slots.copy()
    with pytest.raises(error, match=re.escape(text)):
        cache.append(k, v)
    assert cache.lengths.tolist() == [3] * B
    assert np.array_equal(cache.key_slots, slots[0])
    assert np.array_equal(cache.value_slots, slots[1])


@pytest.mark.parametrize(
    ("keep", "error", "text"),
    [
        (np.ones((B, 2), int), TypeError, "KVCache: keep must be a boolean array, True for a token, got int64"),
        ([[True, True]] * B, TypeError, "KVCache: keep must be a boolean array, True for a token, got list"),
        (np.ones((B, 1), bool), ValueError, "KVCache: keep must have the shape (B, T) = (3, 2), got (3, 1)"),
        (np.ones(2, bool), ValueError, "KVCache: keep must have the shape (B, T) = (3, 2), got (2,)"),
    ],
)
def test_a_wrong_keep_is_refused(keep, error, text):
    for cache in (KVCache(5), SlidingCache(5)):
        with pytest.raises(error, match=re.escape(text)):
            cache.append(K4, V4, keep=keep)
        assert cache.lengths is None


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        (np.array([0, 3]), ValueError),
        (np.array([-1]), ValueError),
        (np.array([[0, 1]]), ValueError),
        (np.array(0), ValueError),
        (np.array([0.0]), TypeError),
        (np.array([True, False, True]), TypeError),
        ([0, 1], TypeError),
    ],
)
def test_rows_that_are_not_there_are_refused(rows, error):
    cache = KVCache(7)
    filled(cache, 2)
    with pytest.raises(error, match=r"KVCache\.reorder: rows must be"):
        cache.reorder(rows)
    assert cache.lengths.tolist() == [2] * B


@pytest.mark.parametrize(
    ("lengths", "error"),
    [
        (4, ValueError),
        (-1, ValueError),
        (np.array([3, 4, 0]), ValueError),
        (np.array([1, 2]), ValueError),
        (np.array([[1, 2, 3]]), ValueError),
        (1.0, TypeError),
        (np.array([True, True, False]), TypeError),
        (None, TypeError),
    ],
)
def test_a_cache_is_not_rewound_beyond_what_it_holds(lengths, error):
    cache = KVCache(7)
    filled(cache, 3)
    with pytest.raises(error, match=r"KVCache\.rewind: lengths must be"):
        cache.rewind(lengths)
    assert cache.lengths.tolist() == [3] * B
    assert not cache.no_backward


def test_uneven_rows_are_rewound_each_by_its_own_length():
    cache = KVCache(7)
    cache.append(*pair(3), keep=np.array([[1, 1, 1], [1, 0, 0], [0, 1, 1]], bool))
    with pytest.raises(ValueError, match=re.escape("lengths must be in 0 … [3, 1, 2], which it holds, got 2")):
        cache.rewind(2)
    cache.rewind(1)
    assert cache.lengths.tolist() == [1, 1, 1]
    assert cache.next_positions(2).tolist() == [1, 2]


@pytest.mark.parametrize("size", [0, -1, 2.0, "3", True, None])
def test_sizes_are_counts(size):
    for cache, name in ((KVCache, "max_len"), (SlidingCache, "window")):
        with pytest.raises(ValueError if size in (0, -1) else TypeError, match=f"{cache.__name__}: {name} must be"):
            cache(size)


def test_the_longest_row_may_be_left_out():
    cache = KVCache(4)
    keep = np.array([[True, True, True], [True, False, False]])
    k = np.ones((2, 1, 3, 2))
    cache.append(k, k, keep)
    cache.reorder(np.array([1]))
    assert (cache.length, cache.lengths.tolist()) == (1, [1])
    cache.append(k[:1], k[:1])
    assert cache.lengths.tolist() == [4]
