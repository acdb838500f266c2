"""Positions: turns that depend on distances alone, at far places too, and tables with known entries."""

import math

import numpy as np
import pytest

from npformer.functional import alibi_bias, alibi_slopes, attention_weights, rotary, sinusoidal_positions

both_layouts = pytest.mark.parametrize("layout", ["half", "interleaved"])


def run(x, positions, dy, **options):
    y, backward = rotary(x, positions, **options)
    return y, backward(dy)


def turned(x, positions, layout, base=10000.0):
    """The same by plain loops over (T,K)."""
    T, K = x.shape
    y = np.empty((T, K))
    for t in range(T):
        for i in range(K // 2):
            a, b = (i, i + K // 2) if layout == "half" else (2 * i, 2 * i + 1)
            angle = int(positions[t]) * base ** (-2 * i / K)
            y[t, a] = x[t, a] * math.cos(angle) - x[t, b] * math.sin(angle)
            y[t, b] = x[t, a] * math.sin(angle) + x[t, b] * math.cos(angle)
    return y


def half_of_interleaved(K):
    """Which interleaved feature stands where in the layout "half"."""
    return np.concatenate([np.arange(0, K, 2), np.arange(1, K, 2)])


# Rotary


def test_one_hot_rows_show_the_pairs_of_each_layout():
    """K = 4: features 0 and 2, 1 and 3 are pairs of "half"; 0 and 1, 2 and 3 of "interleaved"."""
    c, s, slow_c, slow_s = math.cos(1), math.sin(1), math.cos(0.01), math.sin(0.01)
    one = np.ones(4, np.int64)
    y = rotary(np.eye(4), one, layout="half")[0]
    np.testing.assert_allclose(y, [[c, 0, s, 0], [0, slow_c, 0, slow_s], [-s, 0, c, 0], [0, -slow_s, 0, slow_c]], atol=1e-16)
    np.testing.assert_array_equal(rotary(np.eye(4), one)[0], y)
    y = rotary(np.eye(4), one, layout="interleaved")[0]
    np.testing.assert_allclose(y, [[c, s, 0, 0], [-s, c, 0, 0], [0, 0, slow_c, slow_s], [0, 0, -slow_s, slow_c]], atol=1e-16)


def test_a_permutation_leads_from_one_layout_to_the_other_in_values_and_gradients():
    rng = np.random.default_rng(0)
    x, dy, positions = rng.standard_normal((3, 5, 14)), rng.standard_normal((3, 5, 14)), rng.integers(0, 2000, 5)
    order = half_of_interleaved(14)
    interleaved = run(x, positions, dy, layout="interleaved")
    half = run(x[..., order], positions, dy[..., order], layout="half")
    for got, known in zip(half, interleaved, strict=True):
        np.testing.assert_array_equal(got, known[..., order])
    assert np.abs(run(x, positions, dy, layout="half")[0] - interleaved[0]).max() > 0.1


@both_layouts
@pytest.mark.parametrize("dtype, tolerance", [(np.float64, 1e-12), (np.float32, 5e-7), (np.float16, 1e-3)])
def test_at_position_1857_the_angles_are_those_of_float64(layout, dtype, tolerance):
    """In float32 an angle of 1857 is off by 1e-4, in float16 by 1."""
    rng = np.random.default_rng(0)
    x, dy, positions = (
        rng.standard_normal((3, 32)).astype(dtype),
        rng.standard_normal((3, 32)).astype(dtype),
        [1857, 1856, 4001],
    )
    y, dx = run(x, np.array(positions), dy, layout=layout)
    assert y.dtype == dx.dtype == dtype
    np.testing.assert_allclose(y, turned(x, positions, layout), rtol=0, atol=2 * tolerance)
    np.testing.assert_allclose(dx, turned(dy, [-p for p in positions], layout), rtol=0, atol=2 * tolerance)


@both_layouts
@pytest.mark.parametrize("dtype, tolerance", [(np.float64, 1e-12), (np.float32, 2e-6)])
def test_the_product_of_query_and_key_depends_on_their_distance_alone(layout, dtype, tolerance):
    rng = np.random.default_rng(0)
    q, k = rng.standard_normal((2, 1, 32)).astype(dtype)

    def product(m, n):
        return float((rotary(q, np.array([m]), layout=layout)[0] * rotary(k, np.array([n]), layout=layout)[0]).sum())

    size = np.linalg.norm(q) * np.linalg.norm(k)
    for distance in (0, 1, -7, 100):
        products = [product(n + distance, n) for n in (0, 1, 17, 1857 - distance, 4096)]
        np.testing.assert_allclose(products, products[0], rtol=0, atol=tolerance * size)
    assert abs(product(0, 7) - product(7, 0)) > 0.01 * size


@both_layouts
def test_attention_scores_are_the_same_wherever_the_text_begins(layout):
    rng = np.random.default_rng(0)
    query, key, dP = rng.standard_normal((2, 3, 5, 6)), rng.standard_normal((2, 3, 7, 6)), rng.standard_normal((2, 3, 5, 7))

    def from_start(start):
        q, q_backward = rotary(query, start + 2 + np.arange(5), layout=layout)
        k, k_backward = rotary(key, start + np.arange(7), layout=layout)
        P, backward = attention_weights(q, k, causal=2)
        dq, dk = backward(dP)
        return P, q_backward(dq), k_backward(dk)

    for got, known in zip(from_start(1850), from_start(0), strict=True):
        np.testing.assert_allclose(got, known, rtol=0, atol=1e-11 * np.abs(known).max())


@both_layouts
def test_a_turn_keeps_lengths_and_is_undone_by_its_backward(layout):
    rng = np.random.default_rng(0)
    x, positions = rng.standard_normal((3, 5, 14)), rng.integers(-50, 2000, 5)
    y, backward = rotary(x, positions, layout=layout)
    np.testing.assert_allclose((y * y).sum(-1), (x * x).sum(-1), rtol=1e-14)
    np.testing.assert_allclose(backward(y), x, rtol=0, atol=1e-14)
    np.testing.assert_array_equal(rotary(x, np.zeros(5, np.int64), layout=layout)[0], x)


def test_every_row_may_have_positions_of_its_own():
    rng = np.random.default_rng(0)
    x, dy = rng.standard_normal((2, 3, 5, 6)), rng.standard_normal((2, 3, 5, 6))
    for shape in ((5,), (1,), (1, 5), (3, 1), (2, 1, 5), (2, 3, 5), (1, 1, 1)):
        positions = rng.integers(0, 100, shape)
        y, dx = run(x, positions, dy)
        full = np.broadcast_to(positions, (2, 3, 5))
        for b in range(2):
            for h in range(3):
                np.testing.assert_allclose(y[b, h], turned(x[b, h], full[b, h], "half"), rtol=0, atol=1e-13)
                np.testing.assert_allclose(dx[b, h], turned(dy[b, h], -full[b, h], "half"), rtol=0, atol=1e-13)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int32, np.uint64])
def test_positions_of_any_integer_width_are_the_same(dtype):
    x, positions = np.random.default_rng(0).standard_normal((3, 6)), np.array([0, 7, 200])
    np.testing.assert_array_equal(rotary(x, positions.astype(np.uint8).astype(dtype))[0], rotary(x, positions)[0])


def test_a_nan_spoils_its_own_pair_and_no_other():
    x = np.random.default_rng(0).standard_normal((3, 6))
    x[1, 4] = np.nan
    for layout, pair in (("half", [1, 4]), ("interleaved", [4, 5])):
        y = rotary(x, np.arange(3), layout=layout)[0]
        assert np.argwhere(np.isnan(y)).tolist() == [[1, feature] for feature in pair]


# Sinusoids


@pytest.mark.parametrize("d_model", [1, 2, 5, 6, 7])
def test_the_sinusoids_are_those_of_the_paper_for_odd_widths_too(d_model):
    table = sinusoidal_positions(11, d_model)
    assert table.shape == (11, d_model)
    assert table.dtype == np.float64
    for p in range(11):
        for d in range(d_model):
            angle = p / 10000 ** ((d - d % 2) / d_model)
            assert abs(table[p, d] - (math.cos if d % 2 else math.sin)(angle)) < 1e-14


def test_the_product_of_two_rows_of_sinusoids_depends_on_their_distance_alone():
    table = sinusoidal_positions(2000, 6)
    products = table @ table.T
    for distance in (0, 1, 13):
        along = np.diagonal(products, distance)
        np.testing.assert_allclose(along, along[0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(products[0, 0], 3, rtol=1e-15)


def test_a_shift_of_sinusoids_is_one_turn_for_all_positions():
    table, p = sinusoidal_positions(50, 6), 7
    pairs = np.stack([table[:, 1::2], table[:, 0::2]], -1).reshape(50, 6)  # cosine first
    shifted = rotary(pairs, np.full(50, p), layout="interleaved")[0]
    np.testing.assert_allclose(shifted[:-p], pairs[p:], rtol=0, atol=1e-14)


def test_a_longer_table_begins_with_the_shorter_and_bases_differ():
    np.testing.assert_array_equal(sinusoidal_positions(11, 5)[:7], sinusoidal_positions(7, 5))
    np.testing.assert_allclose(
        sinusoidal_positions(2, 4, base=16)[1], [math.sin(1), math.cos(1), math.sin(0.25), math.cos(0.25)]
    )
    assert sinusoidal_positions(0, 5).shape == (0, 5)


# ALiBi


def test_known_slopes():
    """Those of the paper, and for other numbers of heads those of its code."""
    assert alibi_slopes(8).tolist() == [2.0**-n for n in range(1, 9)]
    assert alibi_slopes(1).tolist() == [2.0**-8]
    assert alibi_slopes(2).tolist() == [2.0**-4, 2.0**-8]
    np.testing.assert_allclose(alibi_slopes(16), [2 ** (-n / 2) for n in range(1, 17)], rtol=1e-15)
    assert alibi_slopes(3).tolist() == [2.0**-4, 2.0**-8, 2.0**-2]
    assert alibi_slopes(6).tolist() == [2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8, 2.0**-1, 2.0**-3]
    np.testing.assert_allclose(alibi_slopes(12)[8:], [2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5], rtol=1e-15)


@pytest.mark.parametrize("n_heads", [1, 2, 3, 5, 7, 8, 13, 32])
def test_every_head_has_a_slope_of_its_own_between_zero_and_one(n_heads):
    slopes = alibi_slopes(n_heads)
    assert slopes.shape == (n_heads,)
    assert len(set(slopes.tolist())) == n_heads
    assert ((0 < slopes) & (slopes < 1)).all()


@pytest.mark.parametrize("offset", [0, 2, -3])
def test_a_key_costs_its_distance_times_the_slope(offset):
    bias = alibi_bias(3, 5, 7, offset)
    assert bias.shape == (1, 3, 5, 7)
    for h, slope in enumerate([2.0**-4, 2.0**-8, 2.0**-2]):
        for i in range(5):
            assert bias[0, h, i].tolist() == [-slope * abs(i + offset - j) for j in range(7)]


def test_the_offset_is_the_number_of_keys_seen_before():
    np.testing.assert_array_equal(alibi_bias(3, 2, 7, offset=5), alibi_bias(3, 7, 7)[:, :, 5:])
