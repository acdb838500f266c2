"""Attention: who may see whom, what a hidden pair contributes (nothing), and what the heads of a group share.

`brute_force` gathers for each query the keys that it sees and forgets the others, so that in it nothing can leak.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npformer.functional import alibi_bias, attention, attention_weights, dropout
from npformer.functional.visibility import visible_positions

POISONS = [np.nan, np.inf, -np.inf, 1e30]


def draw_arrays(rng, B=2, H=6, G=3, T=5, S=7, K=11, V=13, dtype=np.float64):
    """query, key, value, dy."""
    shapes = (B, H, T, K), (B, G, S, K), (B, G, S, V), (B, H, T, V)
    return tuple(rng.standard_normal(shape).astype(dtype) for shape in shapes)


def run(arrays, **options):
    """y, then the gradients."""
    query, key, value, dy = arrays
    y, backward = attention(query, key, value, **options)
    return y, *backward(dy)


def assert_close(actual, expected, tolerance=1e-13):
    """Infinities and NaN at the same places, and elsewhere within `tolerance` of the largest entry."""
    for got, known in zip(actual, expected, strict=True):
        assert got.shape == known.shape
        numbers = np.isfinite(known)
        np.testing.assert_array_equal(got[~numbers], known[~numbers])
        bar = tolerance * np.abs(known[numbers]).max(initial=0)
        np.testing.assert_allclose(got[numbers], known[numbers], rtol=0, atol=bar)


def assert_equal(actual, expected):
    for got, known in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(got, known)
        assert got.dtype == known.dtype


def brute_force(arrays, seen, bias=0.0, scale=None, softcap=None, factor=1.0):
    """y and the gradients of query, key, value and of a bias of four full axes; `factor` is that of dropout."""
    query, key, value, dy = arrays
    B, H, T, K = query.shape
    shape = (B, H, T, key.shape[2])
    group = H // key.shape[1]
    scale = K**-0.5 if scale is None else scale
    seen, bias, factor = (np.broadcast_to(array, shape) for array in (seen, bias, factor))
    y, dq, dk, dv, dbias = (np.zeros_like(array) for array in (dy, query, key, value, bias))
    with np.errstate(all="ignore"):
        for b, h, i in np.ndindex(B, H, T):
            g = h // group
            j = np.flatnonzero(seen[b, h, i])
            q, k, v, m = query[b, h, i], key[b, g, j], value[b, g, j], factor[b, h, i, j]
            raw = scale * (k @ q)
            capped = raw if softcap is None else softcap * np.tanh(raw / softcap)
            s = capped + bias[b, h, i, j]
            e = np.exp(s - s.max(initial=-np.inf))
            P = e / e.sum()
            y[b, h, i] = (P * m) @ v
            dP = (v @ dy[b, h, i]) * m
            ds = P * (dP - P @ dP)
            dbias[b, h, i, j] = ds
            draw = ds if softcap is None else ds / np.cosh(raw / softcap) ** 2
            dq[b, h, i] = scale * (draw @ k)
            dk[b, g, j] += np.outer(draw, scale * q)
            dv[b, g, j] += np.outer(P * m, dy[b, h, i])
    return y, dq, dk, dv, dbias


def at_most(c, T, S):
    """(T,S): j ≤ i + c, by loops."""
    return np.array([[j <= i + c for j in range(S)] for i in range(T)], bool).reshape(T, S)


def within(left, right, c, T, S):
    """(T,S): i + c − left ≤ j ≤ i + c + right, by loops."""
    return np.array([[i + c - left <= j <= i + c + right for j in range(S)] for i in range(T)], bool).reshape(T, S)


# Against the brute force


@given(
    seed=st.integers(0, 2**32 - 1),
    groups=st.sampled_from([(1, 1), (1, 3), (2, 1), (2, 2), (3, 2)]),
    T=st.integers(1, 5),
    S=st.integers(1, 6),
    causal=st.sampled_from([None, -2, 0, 1, 3]),
    window=st.sampled_from([None, 2, (1, 0), (1, 2)]),
    density=st.sampled_from([0.3, 0.7, 1.0]),
    softcap=st.sampled_from([None, 0.7]),
    dropped=st.booleans(),
    bias=st.booleans(),
    poison=st.sampled_from([None, np.nan, np.inf, -np.inf]),
)
def test_a_query_gets_what_it_sees_as_ieee_has_it_and_nothing_else(
    seed, groups, T, S, causal, window, density, softcap, dropped, bias, poison
):
    """With numbers that are none at random places, seen by some queries and hidden from others."""
    rng = np.random.default_rng(seed)
    G, R = groups
    B, H = 2, G * R
    arrays = draw_arrays(rng, B, H, G, T, S, K=3, V=2)
    keep = rng.random((B, H, T, S)) < density
    added = rng.standard_normal((B, H, T, S)) if bias else None
    if poison is not None:
        for i, array in enumerate(arrays if added is None else (*arrays, added)):
            for _ in range(rng.integers(3)):  # infinite queries or keys might make all scores of a row −inf
                array.reshape(-1)[rng.integers(array.size)] = np.nan if i < 2 else poison
    seen = keep.copy()
    c = causal or 0
    if causal is not None:
        seen &= at_most(c, T, S)
    if window is not None:
        seen &= within(*((window - 1, 0) if isinstance(window, int) else window), c, T, S)
    options = {"keep": keep, "causal": causal, "window": window, "softcap": softcap, "bias": added}
    factor = 1.0
    if dropped:
        options |= {"dropout": 0.4, "rng": np.random.default_rng(seed)}
        factor = dropout(np.ones((B, H, T, S)), 0.4, np.random.default_rng(seed))[0]
    if bias:
        seen &= added != -np.inf
    expected = brute_force(arrays, seen, 0.0 if added is None else added, softcap=softcap, factor=factor)
    assert_close(run(arrays, **options), expected if bias else expected[:4], 1e-12)


def test_three_queries_of_one_hundred_and_twenty_eight_keys():
    """Sizes at which a mask of the wrong corner, shared by a code and its verifier, once went unseen."""
    T, S = 3, 128
    arrays = draw_arrays(np.random.default_rng(0), H=2, G=1, T=T, S=S)
    for c, numbers in ((0, [1, 2, 3]), (S - T, [126, 127, 128])):
        seen = np.array([[j <= i + c for j in range(S)] for i in range(T)])
        assert seen.sum(1).tolist() == numbers
        assert_close(run(arrays, causal=c), brute_force(arrays, seen)[:4])


def test_the_scale_is_one_over_the_root_of_the_key_width():
    arrays = draw_arrays(np.random.default_rng(0), K=11, V=13)
    assert_equal(run(arrays), run(arrays, scale=1 / np.sqrt(11)))
    assert_close(run(arrays, scale=-0.7), brute_force(arrays, True, scale=-0.7)[:4])


def test_the_soft_cap_comes_after_the_scale_and_before_the_bias():
    rng = np.random.default_rng(0)
    arrays, bias = draw_arrays(rng), 9 * rng.standard_normal((5, 7))
    query, key, *_ = arrays
    options = {"scale": 3.0, "softcap": 1.3, "bias": bias}
    assert_close(run(arrays, **options)[:4], brute_force(arrays, True, bias, 3.0, 1.3)[:4])
    scores = np.log(attention_weights(query, key, scale=3.0, softcap=1.3)[0])
    assert np.ptp(scores, axis=-1).max() <= 2 * 1.3  # scores within ±1.3
    assert np.ptp(np.log(attention_weights(query, key, **options)[0]), axis=-1).min() > 2 * 1.3


def test_the_soft_cap_does_not_lift_a_mask():
    """Capped after the mask, −inf would become −c, and the future would be seen."""
    arrays = draw_arrays(np.random.default_rng(0), T=7)
    query, key, *_ = arrays
    P = attention_weights(query, key, causal=True, softcap=0.5)[0]
    assert not P[..., ~at_most(0, 7, 7)].any()


def test_a_number_added_to_all_scores_of_a_query_changes_nothing():
    rng = np.random.default_rng(0)
    arrays, bias = draw_arrays(rng), rng.standard_normal((2, 6, 5, 7))
    row = 100 * rng.standard_normal((2, 6, 5, 1))
    assert_close(run(arrays, bias=bias + row, causal=2), run(arrays, bias=bias, causal=2), 1e-12)
    dbias = run(arrays, bias=row)[4]
    assert dbias.shape == row.shape
    assert np.abs(dbias).max() < 1e-13


def test_attention_to_the_unit_vectors_shows_the_weights():
    """With the identity for values y is P, and dy is dP."""
    rng = np.random.default_rng(0)
    query, key, *_ = draw_arrays(rng)
    bias, dP = rng.standard_normal((1, 6, 1, 7)), rng.standard_normal((2, 6, 5, 7))
    options = {"bias": bias, "causal": 1, "softcap": 2.0, "window": (3, 0)}
    y, dq, dk, _, dbias = run((query, key, np.tile(np.eye(7), (2, 3, 1, 1)), dP), **options)
    P, backward = attention_weights(query, key, **options)
    assert_close((y, dq, dk, dbias), (P, *backward(dP)))
    np.testing.assert_allclose(P.sum(-1), 1, rtol=1e-14)


# Alignment and windows


@pytest.mark.parametrize("T, S", [(5, 7), (7, 5), (6, 6), (1, 4)])
def test_causal_c_is_the_mask_j_up_to_i_plus_c(T, S):
    arrays = draw_arrays(np.random.default_rng(0), T=T, S=S)
    for c in range(-T - 1, S + 2):
        assert_equal(run(arrays, causal=c), run(arrays, keep=at_most(c, T, S)))


@pytest.mark.parametrize("T, S", [(5, 7), (7, 5), (6, 6)])
def test_no_output_depends_on_later_tokens_and_no_later_token_on_its_gradient(T, S):
    """To the last bit, for every alignment."""
    rng = np.random.default_rng(0)
    arrays = draw_arrays(rng, T=T, S=S)
    query, key, value, dy = arrays
    for c in sorted({-2, 0, 1, S - T}):
        y = run(arrays, causal=c)[0]
        for t in range(T):
            others = draw_arrays(rng, T=T, S=S)
            first = max(0, t + c + 1)  # the first key that query t must not see
            changed = (
                np.concatenate([query[:, :, : t + 1], others[0][:, :, t + 1 :]], axis=2),
                *(
                    np.concatenate([a[:, :, :first], b[:, :, first:]], axis=2)
                    for a, b in zip((key, value), others[1:3], strict=True)
                ),
                np.concatenate([dy[:, :, : t + 1], np.zeros_like(dy[:, :, t + 1 :])], axis=2),
            )
            changed_y, dq, dk, dv = run(changed, causal=c)
            np.testing.assert_array_equal(changed_y[:, :, : t + 1], y[:, :, : t + 1])
            assert not dq[:, :, t + 1 :].any()
            assert not dk[:, :, first:].any()
            assert not dv[:, :, first:].any()
            if first < S and t + 1 < T and c >= 0:
                assert not np.array_equal(changed_y[:, :, t + 1 :], y[:, :, t + 1 :])


def test_a_prefix_alone_gives_what_it_gives_in_the_whole():
    arrays = draw_arrays(np.random.default_rng(0), T=7, S=7)
    y, dq, dk, dv = run((*arrays[:3], np.where(np.arange(7)[:, None] < 4, arrays[3], 0)), causal=True)
    short = run(tuple(array[:, :, :4] for array in arrays), causal=True)
    assert_close(short, [array[:, :, :4] for array in (y, dq, dk, dv)])


def test_a_lower_triangular_mask_hides_the_future():
    """True means that a query may attend; with the polarity inverted the future would be all that is seen."""
    arrays = draw_arrays(np.random.default_rng(0), T=7, S=7)
    assert_equal(run(arrays, keep=np.tri(7, dtype=bool)), run(arrays, causal=True))
    P = attention_weights(*arrays[:2], keep=np.tri(7, dtype=bool).T)[0]
    np.testing.assert_array_equal(P != 0, np.broadcast_to(np.tri(7, dtype=bool).T, P.shape))


def test_one_query_of_sixteen_keys_sees_one_top_left_and_sixteen_bottom_right():
    query, key, value, _ = draw_arrays(np.random.default_rng(0), B=1, H=4, G=4, T=1, S=16, K=64)
    for c, number in ((0, 1), (15, 16), (-1, 0)):
        P = attention_weights(query, key, causal=c)[0]
        assert np.count_nonzero(P) == 4 * number
    for call in (attention_weights, lambda q, k, **options: attention(q, k, value, **options)):
        with pytest.raises(ValueError, match=r"T = 1 and S = 16.*causal=0.*causal=15"):
            call(query, key, causal=True)


def test_true_is_no_offset_of_one():
    arrays = draw_arrays(np.random.default_rng(0), T=7)
    assert_equal(run(arrays, causal=True), run(arrays, causal=0))
    assert_equal(run(arrays, causal=np.bool_(True)), run(arrays, causal=0))
    assert_equal(run(arrays, causal=False), run(arrays))
    assert not np.array_equal(run(arrays, causal=True)[0], run(arrays, causal=1)[0])


def test_swapped_query_and_memory_are_an_error_or_another_shape():
    """A decoder of 5 and a memory of 7: the memory's values belong to 7 keys, and 7 rows would come out."""
    memory_query, decoder_key, decoder_value, _ = draw_arrays(np.random.default_rng(0), H=3, T=7, S=5)
    assert attention(memory_query, decoder_key, decoder_value)[0].shape[2] == 7
    with pytest.raises(ValueError, match=r"attention: value .*S = 7.*S = 5"):
        attention(decoder_key, decoder_key, memory_query)
    with pytest.raises(ValueError, match="causal"):
        attention(memory_query, decoder_key, decoder_value, causal=True)


def test_a_window_of_w_is_w_keys_the_current_one_included():
    arrays = draw_arrays(np.random.default_rng(0), T=7)
    for W in range(1, 9):
        assert_equal(run(arrays, window=W), run(arrays, window=(W - 1, 0)))
        assert_equal(run(arrays, window=W), run(arrays, keep=within(W - 1, 0, 0, 7, 7)))
    P = attention_weights(*arrays[:2], window=3)[0]
    assert (P != 0).sum(-1)[0, 0].tolist() == [1, 2, 3, 3, 3, 3, 3]


@pytest.mark.parametrize("T, S", [(5, 7), (7, 5)])
def test_a_window_moves_with_the_alignment(T, S):
    arrays = draw_arrays(np.random.default_rng(0), T=T, S=S)
    for c in (-2, 0, 1, S - T, S):
        for sides in ((0, 0), (2, 0), (0, 2), (1, 3)):
            seen = within(*sides, c, T, S) & at_most(c, T, S)
            assert_equal(run(arrays, window=sides, causal=c), run(arrays, keep=seen))
    for sides in ((0, 0), (2, 0), (0, 2), (1, 3)):
        assert_equal(run(arrays, window=sides), run(arrays, keep=within(*sides, 0, T, S)))
        assert_equal(run(arrays, window=sides, causal=False), run(arrays, window=sides))


def test_a_window_of_the_whole_length_is_full_attention():
    arrays = draw_arrays(np.random.default_rng(0))
    assert_equal(run(arrays, window=(4, 6)), run(arrays))
    assert_equal(run(arrays, window=(10**30, 10**30)), run(arrays))
    assert_equal(run(arrays, window=7, causal=2), run(arrays, causal=2))


# Masks


@pytest.mark.parametrize(
    "shape", [(2, 6, 5, 7), (1, 1, 5, 7), (2, 1, 1, 7), (2, 1, 5, 7), (1, 6, 5, 1), (1, 1, 1, 1), (5, 7)]
)
def test_a_mask_broadcasts_over_batch_heads_queries_and_keys(shape):
    rng = np.random.default_rng(0)
    arrays, keep, bias = draw_arrays(rng), rng.random(shape) < 0.6, rng.standard_normal(shape)
    expected = brute_force(arrays, keep, bias)
    assert_close(run(arrays, keep=keep, bias=bias)[:4], expected[:4])
    bias[rng.random(shape) < 0.2] = -np.inf
    assert_close(run(arrays, keep=keep, bias=bias)[:4], brute_force(arrays, keep & (bias != -np.inf), bias)[:4])


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.float64])
def test_a_mask_of_integers_or_floats_is_refused(dtype):
    with pytest.raises(TypeError, match=rf"attention: keep .*boolean.*{np.dtype(dtype)}"):
        run(draw_arrays(np.random.default_rng(0)), keep=np.ones((5, 7), dtype))


@pytest.mark.parametrize("shape", [(2, 7), (7, 5), (1, 7), (7,), (2, 5, 7), (2, 3, 5, 7), (6, 2, 5, 7), (2, 6, 5, 7, 1), ()])
def test_a_mask_or_bias_of_another_shape_is_refused(shape):
    """Padding of (B,S) must not pass for (T,S), nor three axes for four."""
    arrays = draw_arrays(np.random.default_rng(0))
    for mask in ({"keep": np.ones(shape, bool)}, {"bias": np.zeros(shape)}):
        with pytest.raises(ValueError, match=r"attention: (keep|bias) .*\(5, 7\)"):
            run(arrays, **mask)


def test_a_bias_of_minus_infinity_hides_as_a_mask_does():
    rng = np.random.default_rng(0)
    arrays, keep, bias = draw_arrays(rng), rng.random((2, 6, 5, 7)) < 0.5, rng.standard_normal((2, 6, 5, 7))
    keep[0, 0, 3] = False
    by_keep = run(arrays, keep=keep, bias=bias, softcap=2.0)
    by_bias = run(arrays, bias=np.where(keep, bias, -np.inf), softcap=2.0)
    assert_equal(by_bias, by_keep)
    assert not by_bias[4][~keep].any()


def test_a_column_of_minus_infinity_has_a_gradient_of_zero():
    arrays, bias = draw_arrays(np.random.default_rng(0)), np.zeros((1, 1, 1, 7))
    bias[..., 2] = -np.inf
    y, _, dk, dv, dbias = run(arrays, bias=bias)
    assert dbias[0, 0, 0, 2] == 0
    assert not dk[:, :, 2].any()
    assert not dv[:, :, 2].any()
    assert_close([y], [run(arrays, keep=bias > -1)[0]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_huge_negative_bias_is_no_mask_and_averages_uniformly(dtype):
    arrays = draw_arrays(np.random.default_rng(0), dtype=dtype)
    lowest = np.finfo(dtype).min
    tolerance = 10 * np.finfo(dtype).eps
    bias = np.full((5, 7), lowest)
    y, dq, dk, dv, _ = run(arrays, bias=bias)
    value, dy = np.repeat(arrays[2], 2, axis=1), arrays[3]
    assert_close([y], [np.broadcast_to(value.mean(2, keepdims=True), y.shape)], tolerance)
    uniform = dy.sum(2).reshape(2, 3, 2, 13).sum(2) / 7  # each value is a seventh of every query of its group
    assert_close([dv], [np.broadcast_to(uniform[:, :, None], dv.shape)], tolerance)
    assert dq.any()
    assert dk.any()
    P = attention_weights(*arrays[:2], bias=bias)[0]
    assert_close([P], [np.full(P.shape, 1 / 7)], tolerance)
    keep = np.arange(7) < 4  # with a mask beside it, the visible ones share
    y = run(arrays, bias=bias, keep=np.broadcast_to(keep, (5, 7)))[0]
    assert_close([y], [np.broadcast_to(value[:, :, :4].mean(2, keepdims=True), y.shape)], tolerance)


def test_a_key_with_a_huge_negative_bias_has_no_weight_but_is_seen():
    """Zero times NaN is NaN; behind −inf the NaN would be hidden."""
    query, key, value, _ = draw_arrays(np.random.default_rng(0))
    bias = np.zeros((1, 1, 1, 7))
    value[:, :, 3] = np.nan
    bias[..., 3] = -1e300
    assert not attention_weights(query, key, bias=bias)[0][..., 3].any()
    assert np.isnan(attention(query, key, value, bias=bias)[0]).all()
    bias[..., 3] = -np.inf
    assert np.isfinite(attention(query, key, value, bias=bias)[0]).all()


def test_masks_meet_as_booleans_in_half_precision():
    """Added as numbers, two masks of −65504 and scores of −17 overflow to −inf, and rows of −inf have no softmax."""
    query = np.full((1, 1, 4, 1), -17, np.float16)
    key, value = np.ones((1, 1, 4, 1), np.float16), np.arange(4, dtype=np.float16).reshape(1, 1, 4, 1)
    keep = np.array([[True, True, False, False]] * 4)
    bias = np.full((4, 4), np.finfo(np.float16).min)
    dy = np.ones((1, 1, 4, 1), np.float16)
    y, *gradients = run((query, key, value, dy), keep=keep, causal=True, bias=bias)
    assert y.ravel().tolist() == [0, 0.5, 0.5, 0.5]
    assert all(np.isfinite(gradient).all() for gradient in gradients)
    assert gradients[2].ravel().tolist() == [2.5, 1.5, 0, 0]


# Queries that see nothing


def test_a_query_without_keys_gets_zero_and_gives_zero():
    rng = np.random.default_rng(0)
    arrays = draw_arrays(rng, B=1, H=1, G=1, T=4, S=4, K=2, V=2)
    keep = np.ones((4, 4), bool)
    keep[1] = False
    y, dq, dk, dv = run(arrays, keep=keep)
    assert not y[0, 0, 1].any()
    assert not dq[0, 0, 1].any()
    rest = [0, 2, 3]
    query, key, value, dy = arrays
    without = run((query[:, :, rest], key, value, dy[:, :, rest]))
    assert_close((y[:, :, rest], dq[:, :, rest], dk, dv), without)
    P, backward = attention_weights(query, key, keep=keep)
    assert not P[0, 0, 1].any()
    dq, dk = backward(rng.standard_normal(P.shape))
    assert not dq[0, 0, 1].any()
    assert np.isfinite(dk).all()


def test_padding_and_a_band_may_leave_one_query_alone():
    """Batch 1 has 3 keys, and a band of two keys each; queries 4 on see none."""
    arrays = draw_arrays(np.random.default_rng(0), T=7)
    keep = np.ones((2, 1, 1, 7), bool)
    keep[1, ..., 3:] = False
    results = run(arrays, keep=keep, window=2, causal=True)
    assert all(np.isfinite(each).all() for each in results)
    y, dq, *_ = results
    assert not y[1, :, 4:].any()
    assert not dq[1, :, 4:].any()
    assert y[1, :, :4].all()
    assert_close(results, brute_force(arrays, keep & within(1, 0, 0, 7, 7))[:4])


def test_no_keys_at_all_is_a_row_of_zeros():
    arrays = draw_arrays(np.random.default_rng(0), S=0)
    y, dq, dk, dv = run(arrays)
    assert y.shape == (2, 6, 5, 13)
    assert not y.any()
    assert not dq.any()
    assert dk.shape == (2, 3, 0, 11)
    assert dv.shape == (2, 3, 0, 13)


def test_one_query_of_one_key_takes_its_value():
    arrays = draw_arrays(np.random.default_rng(0), T=1, S=1)
    y, dq, dk, dv = run(arrays, causal=True, window=1)
    np.testing.assert_array_equal(y, np.repeat(arrays[2], 2, axis=1))
    np.testing.assert_array_equal(dv, arrays[3].reshape(2, 3, 2, 1, 13).sum(2))
    assert max(np.abs(dq).max(), np.abs(dk).max()) < 1e-14


# Poison


def mask_and_what_it_hides(rng, B=2, H=6, G=3, T=5, S=7):
    """A mask under which some keys of some groups are hidden from all, and some queries are blind."""
    keep = rng.random((B, H, T, S)) < 0.6
    keep[0, :, :, 3] = False
    keep[1, :2, :, 0] = False
    keep[0, 4:, :, 6] = False
    keep[1, 3, 2] = False
    keep[0, :, 1] = False
    unseen = ~keep.reshape(B, G, H // G, T, S).any(axis=(2, 3))
    blind = ~keep.any(-1)
    assert 3 <= unseen.sum() <= 15
    assert 3 <= blind.sum() <= 15
    return keep, unseen, blind


@pytest.mark.parametrize("poison", POISONS)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("options", [{}, {"softcap": 1.5}, {"dropout": 0.3}, {"causal": 3, "window": (6, 0)}], ids=str)
def test_poison_that_nobody_sees_changes_not_one_bit(poison, dtype, options):
    """In hidden keys and values, in hidden entries of a bias, in blind queries and in their dy; forward and backward."""
    rng = np.random.default_rng(0)
    keep, unseen, blind = mask_and_what_it_hides(rng)
    arrays = draw_arrays(rng, dtype=dtype)
    bias = rng.standard_normal(keep.shape).astype(dtype)
    with np.errstate(over="ignore"):
        poison = dtype(poison)
    poisoned = [array.copy() for array in arrays]
    for array, hidden in zip(poisoned, (blind, unseen, unseen, blind), strict=True):
        array[hidden] = poison
    poisoned_bias = np.where(keep, bias, poison)

    def results(arrays, bias):
        rng = np.random.default_rng(1) if "dropout" in options else None
        P, backward = attention_weights(*arrays[:2], keep=keep, bias=bias, **options)
        dP = np.broadcast_to(arrays[3][..., :1], P.shape)
        return *run(arrays, keep=keep, bias=bias, rng=rng, **options), P, *backward(dP)

    ordinary = results(arrays, bias)
    assert all(np.isfinite(each).all() for each in ordinary)
    assert_equal(results(poisoned, poisoned_bias), ordinary)


@pytest.mark.parametrize("poison", POISONS)
def test_poison_in_single_entries_and_in_a_bias_that_is_repeated_changes_not_one_bit(poison):
    rng = np.random.default_rng(0)
    arrays = draw_arrays(rng)
    keep = np.ones((2, 1, 1, 7), bool)
    keep[0, ..., 2] = keep[1, ..., 5] = False
    bias = rng.standard_normal((2, 1, 1, 7))
    query, key, value, dy = (array.copy() for array in arrays)
    key[0, 1, 2, 4] = value[1, 2, 5, 3] = bias[0, 0, 0, 2] = poison
    ordinary = run(arrays, keep=keep, bias=np.where(keep, bias, 0))
    assert_equal(run((query, key, value, dy), keep=keep, bias=bias), ordinary)
    assert ordinary[4][0, 0, 0, 2] == 0


LAYOUTS = {
    "contiguous": np.array,
    "every second entry": lambda array: np.repeat(array, 2, axis=-1)[..., ::2],
    "reversed": lambda array: np.flip(np.flip(array).copy()),
    "heads after queries": lambda array: np.ascontiguousarray(array.swapaxes(1, 2)).swapaxes(1, 2),
    "transposed": lambda array: np.ascontiguousarray(array.swapaxes(2, 3)).swapaxes(2, 3),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("sizes", [(37, 101, 32, 64), (1, 139, 32, 5), (61, 167, 1, 1)], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_poison_changes_not_one_bit_in_arrays_of_any_layout(layout, sizes, dtype):
    """Products of arrays of another layout, or with one row or one column, may go to routines that round otherwise."""
    rng = np.random.default_rng(0)
    T, S, K, V = sizes
    keep = np.ones((2, 6, T, S), bool)
    keep[0, ..., : S // 3] = False
    keep[1, 5, T // 2] = False
    clean = draw_arrays(rng, T=T, S=S, K=K, V=V, dtype=dtype)
    query, key, value, dy = poisoned = [array.copy() for array in clean]
    key[0, :, : S // 3] = value[0, :, : S // 3] = query[1, 5, T // 2] = dy[1, 5, T // 2] = np.nan
    poisoned, clean = (list(map(LAYOUTS[layout], arrays)) for arrays in (poisoned, clean))
    assert_equal(run(poisoned, keep=keep), run(clean, keep=keep))


def test_one_nan_in_one_masked_key():
    """The least case: k[0, 0, 1, 0] = NaN, column 1 masked."""
    arrays = draw_arrays(np.random.default_rng(0), B=1, H=1, G=1, T=4, S=4, K=2, V=2)
    keep = np.ones((4, 4), bool)
    keep[:, 1] = False
    expected = run(arrays, keep=keep)
    for i in (1, 2):
        poisoned = [array.copy() for array in arrays]
        poisoned[i][0, 0, 1, 0] = np.nan
        assert_equal(run(poisoned, keep=keep), expected)


@pytest.mark.parametrize("poison", POISONS)
@pytest.mark.parametrize("place", ["key", "value", "bias", "query", "dy"])
def test_poison_that_some_see_does_not_leak_to_the_others(place, poison):
    """Rows of queries that do not see it, and keys that no query sees which sees it, are as they were to the last bit."""
    rng = np.random.default_rng(0)
    query, key, value, dy = draw_arrays(rng)
    keep, bias = rng.random((2, 6, 5, 7)) < 0.5, rng.standard_normal((2, 6, 5, 7))
    keep[0, 2, 3] = [True, False, True, False, False, True, False]
    clean = run((query, key, value, dy), keep=keep, bias=bias)
    struck = np.zeros((2, 6, 5), bool)  # the queries that see the poison
    if place in ("key", "value"):
        {"key": key, "value": value}[place][0, 1, 2, 3] = poison
        struck[0, 2:4] = keep[0, 2:4, :, 2]  # heads 2 and 3 share group 1
    else:
        {"bias": bias, "query": query, "dy": dy}[place][0, 2, 3, 2] = poison
        struck[0, 2, 3] = True
    expected = brute_force((query, key, value, dy), keep & (bias != -np.inf), bias)
    y, dq, dk, dv, dbias = poisoned = run((query, key, value, dy), keep=keep, bias=bias)
    assert_close(poisoned, expected)
    touched = (keep & struck[..., None]).reshape(2, 3, 2, 5, 7).any(axis=(2, 3))  # (B,G,S): the keys of those queries
    for got, known, changed in zip(poisoned, clean, (struck, struck, touched, touched, struck), strict=True):
        np.testing.assert_array_equal(got[~changed], known[~changed])
    assert not dbias[~keep].any()
    assert 3 <= touched.sum() <= 7
    assert not all(np.array_equal(got, known) for got, known in zip(poisoned, clean, strict=True))


# Padding, batch mates, groups of heads


def test_padding_changes_nothing():
    """Keys that are masked may as well not be there, and have gradients of exactly 0."""
    rng = np.random.default_rng(0)
    arrays = query, key, value, dy = draw_arrays(rng)
    bias = rng.standard_normal((1, 6, 5, 7))
    padding = [rng.standard_normal((2, 3, 4, width)) for width in (11, 13)]
    long = query, np.concatenate([key, padding[0]], 2), np.concatenate([value, padding[1]], 2), dy
    keep = np.broadcast_to(np.arange(11) < 7, (2, 1, 1, 11))
    y, dq, dk, dv, dbias = run(long, keep=keep, bias=np.pad(bias, [(0, 0)] * 3 + [(0, 4)]))
    assert_close((y, dq, dk[:, :, :7], dv[:, :, :7], dbias[..., :7]), run(arrays, bias=bias))
    assert not any(each.any() for each in (dk[:, :, 7:], dv[:, :, 7:], dbias[..., 7:]))


def test_padding_on_the_left_changes_nothing_either():
    rng = np.random.default_rng(0)
    arrays = draw_arrays(rng, T=5, S=5)
    short = run(tuple(array[:, :, 2:] for array in arrays), causal=True)
    keep = np.broadcast_to(np.arange(5) >= 2, (2, 1, 1, 5))
    y, dq, dk, dv = run(arrays, causal=True, keep=keep)
    assert not y[:, :, :2].any()
    assert_close([array[:, :, 2:] for array in (y, dq, dk, dv)], short)


def test_batch_mates_change_nothing():
    rng = np.random.default_rng(0)
    arrays, keep = draw_arrays(rng, B=3), rng.random((3, 1, 5, 7)) < 0.7
    together = run(arrays, keep=keep)
    for b in range(3):
        alone = run(tuple(array[b : b + 1] for array in arrays), keep=keep[b : b + 1])
        assert_close(alone, [each[b : b + 1] for each in together])
    poisoned = tuple(array.copy() for array in arrays)
    for array in poisoned:
        array[1] = np.nan
    for each, other in zip(run(poisoned, keep=keep), together, strict=True):
        np.testing.assert_array_equal(each[[0, 2]], other[[0, 2]])


@pytest.mark.parametrize("G", [1, 2, 3, 6])
def test_grouped_heads_are_repeated_heads_in_values_and_gradients(G):
    """Repeated 0 0 1 1, not tiled 0 1 0 1; with B ≠ H ≠ T ≠ S and heads that are distinct."""
    rng = np.random.default_rng(0)
    arrays = query, key, value, dy = draw_arrays(rng, G=G)
    options = {"bias": rng.standard_normal((1, 6, 5, 7)), "causal": 1, "softcap": 3.0}
    R = 6 // G
    y, dq, dk, dv, dbias = run((query, np.repeat(key, R, axis=1), np.repeat(value, R, axis=1), dy), **options)
    dk, dv = (each.reshape(2, G, R, 7, -1).sum(2) for each in (dk, dv))
    assert_close(run(arrays, **options), (y, dq, dk, dv, dbias))
    for h in range(6):
        g = h // R
        alone = query[:, h : h + 1], key[:, g : g + 1], value[:, g : g + 1], dy[:, h : h + 1]
        assert_close(run(alone, causal=1, softcap=3.0)[:1], [run(arrays, causal=1, softcap=3.0)[0][:, h : h + 1]])


def test_two_groups_serve_four_heads_in_pairs():
    """Values that name their group."""
    query, key = np.zeros((3, 4, 5, 2)), np.zeros((3, 2, 7, 2))
    value = np.broadcast_to(np.array([10.0, 20.0])[:, None, None], (3, 2, 7, 1))
    y = attention(query, key, value)[0]
    np.testing.assert_allclose(y[0, :, 0, 0], [10, 10, 20, 20], rtol=1e-15)


@pytest.mark.parametrize("H, G", [(8, 3), (2, 4), (12, 8), (6, 0)])
def test_groups_that_do_not_divide_the_heads_are_refused(H, G):
    query, key, value, _ = draw_arrays(np.random.default_rng(0), H=H, G=G)
    with pytest.raises(ValueError, match=f"^attention: .*{G} .*{H}"):
        attention(query, key, value)
    with pytest.raises(ValueError, match=f"^attention_weights: .*{G} .*{H}"):
        attention_weights(query, key)


# Dropout


def test_dropout_drops_weights_after_the_softmax_with_the_mask_replayed():
    """The values' gradient uses the weights after dropout, the scores' the derivative of those before."""
    rng = np.random.default_rng(0)
    arrays = draw_arrays(rng)
    factor = dropout(np.ones((2, 6, 5, 7)), 0.4, np.random.default_rng(5))[0]
    assert set(np.unique(factor)) == {0, 1 / 0.6}
    bias = rng.standard_normal((2, 6, 5, 7))
    expected = brute_force(arrays, at_most(2, 5, 7), bias, factor=factor)
    actual = run(arrays, bias=bias, causal=2, dropout=0.4, rng=np.random.default_rng(5))
    assert_close(actual, expected)
    without = run(arrays, bias=bias, causal=2)
    assert not any(np.array_equal(one, other) for one, other in zip(actual, without, strict=True))


def test_dropout_acts_only_where_a_generator_is_given():
    arrays = draw_arrays(np.random.default_rng(0))
    assert_equal(run(arrays, dropout=0.4), run(arrays))
    assert_equal(run(arrays, dropout=0.4, rng=None), run(arrays, dropout=0.4))
    assert_equal(run(arrays, dropout=0.0, rng=np.random.default_rng(5)), run(arrays))


def test_dropout_of_one_generator_differs_from_call_to_call_and_can_be_replayed():
    arrays = query, key, value, dy = draw_arrays(np.random.default_rng(0))

    def three_calls():
        rng = np.random.default_rng(5)
        calls = [attention(query, key, value, dropout=0.4, rng=rng) for _ in range(3)]
        return [(y, *backward(dy)) for y, backward in reversed(calls)]  # each backward with its own mask

    first, second = three_calls(), three_calls()
    for one, other in zip(first, second, strict=True):
        assert_equal(one, other)
    assert not np.array_equal(first[0][0], first[1][0])
    masks, rng = [], np.random.default_rng(5)
    for _ in range(3):
        masks.append(dropout(np.ones((2, 6, 5, 7)), 0.4, rng)[0])
    for one, factor in zip(first, reversed(masks), strict=True):
        assert_close(one, brute_force(arrays, True, factor=factor)[:4])


def test_the_mask_of_dropout_is_the_same_for_every_dtype():
    for dtype in (np.float16, np.float32, np.float64):
        query, key, *_ = draw_arrays(np.random.default_rng(0), dtype=dtype)
        value = np.tile(np.eye(7, dtype=dtype), (2, 3, 1, 1))
        weights, _ = attention(query, key, value, dropout=0.4, rng=np.random.default_rng(5))
        kept = dropout(np.ones((2, 6, 5, 7)), 0.4, np.random.default_rng(5))[0] != 0
        np.testing.assert_array_equal(weights != 0, kept)


def test_the_weights_are_those_before_dropout_and_leave_the_generator_alone():
    rng = np.random.default_rng(0)
    query, key, *_ = draw_arrays(rng)
    generator = np.random.default_rng(5)
    P, backward = attention_weights(query, key, dropout=0.4, rng=generator)
    expected, expected_backward = attention_weights(query, key)
    dP = rng.standard_normal(P.shape)
    assert_equal((P, *backward(dP)), (expected, *expected_backward(dP)))
    assert generator.random() == np.random.default_rng(5).random()


def test_dropout_keeps_the_mean():
    """Over many draws, within five standard deviations of the mean."""
    arrays = draw_arrays(np.random.default_rng(0), B=1, H=2, G=1, T=2, S=3, K=5, V=1)
    rng, p, n = np.random.default_rng(1), 0.3, 2000
    mean = np.mean([attention(*arrays[:3], dropout=p, rng=rng)[0] for _ in range(n)], axis=0)
    P = attention_weights(*arrays[:2])[0]
    deviation = np.sqrt(P**2 @ arrays[2] ** 2 * p / (1 - p) / n)
    assert (np.abs(mean - attention(*arrays[:3])[0]) < 5 * deviation).all()


# With positions


@pytest.mark.parametrize("causal", [None, False, True])
@pytest.mark.parametrize("window", [None, 3, (2, 1), (0, 4)])
@pytest.mark.parametrize("rows", ["none", "queries", "keys", "both"])
def test_who_sees_whom_by_position_pair_by_pair(causal, window, rows):
    rng = np.random.default_rng(0)
    i = rng.integers(-1, 9, size=(2, 5) if rows in ("queries", "both") else 5)
    j = rng.integers(-1, 9, size=(2, 7) if rows in ("keys", "both") else 7)
    j[..., 4] = -1
    visible = visible_positions("attention", i, j, causal, window)
    assert visible.shape == (1 if rows == "none" else 2, 1, 5, 7)
    assert visible.any() and not visible.all()
    left, right = (window - 1, 0) if isinstance(window, int) else window or (99, 99)
    for b, _, t, s in np.ndindex(visible.shape):
        query, key = (each[b, n] if each.ndim == 2 else each[n] for each, n in ((i, t), (j, s)))
        sees = key >= 0 and (not causal or key <= query) and query - left <= key <= query + right
        assert visible[b, 0, t, s] == sees


@pytest.mark.parametrize("T, S", [(0, 3), (3, 0), (0, 0)])
def test_no_positions_see_nothing(T, S):
    assert visible_positions("attention", np.arange(T), np.arange(S), True, 2).shape == (1, 1, T, S)
    rows = np.zeros((2, T), int)
    assert visible_positions("attention", rows, np.arange(S), True, 2).shape == (2, 1, T, S)


@pytest.mark.parametrize("causal", [0, 1, "yes", 1.0])
def test_by_position_causal_is_on_or_off(causal):
    with pytest.raises(TypeError, match="attention: causal must be True or False where tokens have positions"):
        visible_positions("attention", np.arange(3), np.arange(3), causal, None)


def test_alibi_may_count_from_the_key_or_from_the_first_position_where_the_future_is_hidden():
    """−m(i − j) and m·j differ by a number that all keys of a query share."""
    arrays = draw_arrays(np.random.default_rng(0), T=5, S=7)
    bias = alibi_bias(6, 5, 7, offset=2)
    slopes = -bias[:, :, :1, 1:2] / np.abs(2 - 1)
    by_key = slopes * np.arange(7)
    assert_close(run(arrays, bias=bias, causal=2)[:4], run(arrays, bias=by_key, causal=2)[:4])
