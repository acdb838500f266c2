"""The learning rate at its corners, and a gradient that is shortened and not turned."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npformer.training import clip_by_norm, warmup_cosine


def rate(step, n_warmup=10, n_steps=110):
    return warmup_cosine(step, peak=0.5, end=0.02, n_warmup=n_warmup, n_steps=n_steps)


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (0, 0.5 / 11),
        (1, 1.0 / 11),
        (9, 5.0 / 11),
        (10, 0.5),
        (35, 0.02 + 0.48 * (1 + math.sqrt(0.5)) / 2),
        (60, 0.26),
        (85, 0.02 + 0.48 * (1 - math.sqrt(0.5)) / 2),
        (109, 0.02 + 0.24 * (1 + math.cos(0.99 * math.pi))),
        (110, 0.02),
        (10**9, 0.02),
    ],
)
def test_the_rate_at_every_corner(step, expected):
    assert rate(step) == pytest.approx(expected, rel=1e-14)


def test_without_warm_up_it_begins_at_its_peak():
    assert rate(0, n_warmup=0) == 0.5
    assert rate(1, n_warmup=0, n_steps=1) == 0.02


@pytest.mark.parametrize("n_warmup", [5, 9])
def test_a_run_that_is_all_warm_up_never_falls(n_warmup):
    rates = [rate(step, n_warmup=n_warmup, n_steps=5) for step in range(5)]
    np.testing.assert_allclose(rates, [0.5 * (step + 1) / (n_warmup + 1) for step in range(5)], rtol=1e-14)
    assert [rate(step, n_warmup=n_warmup, n_steps=5) for step in (5, 6, 10)] == 3 * [0.02]


@given(n_warmup=st.integers(0, 30), n_steps=st.integers(1, 60))
def test_it_rises_to_the_peak_and_falls_from_there(n_warmup, n_steps):
    rates = [rate(step, n_warmup, n_steps) for step in range(n_steps + 1)]
    top = min(n_warmup, n_steps - 1)
    assert (np.diff(rates[: top + 1]) > 0).all()
    if n_warmup < n_steps:
        assert (np.diff(rates[top:]) < 0).all()


@given(
    n=st.integers(1, 31),
    scale=st.integers(-12, 12),
    limit=st.floats(1e-3, 1e3),
    dtype=st.sampled_from([np.float32, np.float64]),
    seed=st.integers(0, 2**32),
)
def test_a_long_gradient_gets_the_length_and_keeps_its_direction(n, scale, limit, dtype, seed):
    gradients = (10.0**scale * np.random.default_rng(seed).standard_normal(n)).astype(dtype)
    before = gradients.copy()
    length = math.hypot(*map(float, before))
    eps = float(np.finfo(dtype).eps)
    norm = clip_by_norm(gradients, limit)
    assert isinstance(norm, float)
    assert norm == pytest.approx(length, rel=4 * n * eps)
    assert gradients.dtype == dtype
    if norm <= limit:
        assert gradients.tobytes() == before.tobytes()
    else:
        assert math.hypot(*map(float, gradients)) == pytest.approx(limit, rel=4 * n * eps)
        np.testing.assert_allclose(gradients, before.astype(np.float64) * (limit / length), rtol=4 * n * eps)


def test_at_the_limit_nothing_changes():
    gradients = np.array([3.0, -4.0])
    assert clip_by_norm(gradients, 5.0) == 5.0
    assert gradients.tolist() == [3.0, -4.0]
    assert clip_by_norm(gradients, 2.5) == 5.0
    assert gradients.tolist() == [1.5, -2.0]


@pytest.mark.parametrize(("entry", "n"), [(1e30, 7), (1e19, 3), (3e38, 1000), (3e38, 1)])
@pytest.mark.parametrize("limit", [1.0, 1e-3, 1e25])
def test_in_float32_squares_may_overflow(entry, n, limit):
    gradients = np.full(n, entry, np.float32)
    gradients[0] *= -0.5
    before = gradients.astype(np.float64)
    length = math.hypot(*before)
    assert clip_by_norm(gradients, limit) == pytest.approx(length, rel=1e-6)
    np.testing.assert_allclose(gradients, before * min(1, limit / length), rtol=1e-6)


def test_in_float64_squares_may_overflow():
    gradients = np.array([3e200, -4e200])
    assert clip_by_norm(gradients, 1.0) == pytest.approx(5e200)
    np.testing.assert_allclose(gradients, [0.6, -0.8])


def test_a_length_beyond_every_float_is_not_finite_and_the_gradient_is_left():
    gradients = np.full(9, 1e308)
    assert clip_by_norm(gradients, 1.0) == math.inf
    assert gradients.tolist() == 9 * [1e308]


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("beside", [1.0, 1e30, np.nan, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_not_finite_has_no_finite_length_and_is_left(poison, beside, dtype):
    gradients = np.array([beside, 2, poison, 0], dtype)
    before = gradients.copy()
    assert not math.isfinite(clip_by_norm(gradients, 1.0))
    assert gradients.tobytes() == before.tobytes()


@pytest.mark.parametrize("n", [0, 5])
def test_nothing_to_clip(n):
    gradients = np.zeros(n, np.float32)
    assert clip_by_norm(gradients, 1.0) == 0
    assert gradients.tolist() == n * [0]
