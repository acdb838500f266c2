"""AdamW: the papers' algorithm, number by number in plain Python, is what the vector does."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npformer.training import AdamW


def by_hand(x, gradients, learning_rates, *, beta1, beta2, eps, decay):
    """One number through all steps: Kingma and Ba's algorithm 1, with line 12 of Loshchilov and Hutter's algorithm 2."""
    m = v = 0.0
    for t, (g, learning_rate) in enumerate(zip(gradients, learning_rates, strict=True), start=1):
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g**2
        m_hat = m / (1 - beta1**t)
        v_hat = v / (1 - beta2**t)
        x = x - learning_rate * (m_hat / (math.sqrt(v_hat) + eps) + decay * x)
    return x, m, v


@given(
    n=st.integers(0, 13),
    n_decayed=st.integers(0, 13),
    n_steps=st.integers(1, 9),
    size=st.integers(-6, 3),
    beta1=st.sampled_from([0.0, 0.5, 0.9, 0.99]),
    beta2=st.sampled_from([0.0, 0.9, 0.95, 0.999]),
    eps=st.sampled_from([1e-8, 1e-3, 1.0]),
    decay=st.sampled_from([0.0, 0.1, 2.0]),
    seed=st.integers(0, 2**32),
)
def test_it_is_the_papers_algorithm(n, n_decayed, n_steps, size, beta1, beta2, eps, decay, seed):
    rng = np.random.default_rng(seed)
    options = {"beta1": beta1, "beta2": beta2, "eps": eps}
    n_decayed = min(n, n_decayed)
    values = rng.standard_normal(n)
    gradients = 10.0**size * rng.standard_normal((n_steps, n))
    learning_rates = rng.random(n_steps) / 10
    expected = [
        by_hand(x, g, learning_rates, **options, decay=decay if i < n_decayed else 0.0)
        for i, (x, g) in enumerate(zip(values.tolist(), gradients.T.tolist(), strict=True))
    ]
    optimiser = AdamW(values, n_decayed, **options, decay=decay)
    for t, (g, learning_rate) in enumerate(zip(gradients, learning_rates, strict=True), start=1):
        optimiser.step(values, g, float(learning_rate), t)
    for vector, numbers in zip(
        (values, optimiser.first_moment, optimiser.second_moment), zip(*expected, strict=True), strict=False
    ):
        np.testing.assert_allclose(vector, numbers, rtol=0, atol=1e-14 * np.abs(numbers).max())


def test_the_first_step_is_the_learning_rate_long_whatever_the_gradient():
    values = np.zeros(4)
    AdamW(values, 0).step(values, np.array([1e-3, -1e-3, 10.0, -1e4]), 0.1, 1)
    np.testing.assert_allclose(values, [-0.1, 0.1, -0.1, 0.1], rtol=1e-4)


def test_without_a_gradient_only_matrices_shrink():
    values = np.ones(5)
    AdamW(values, 3, decay=0.5).step(values, np.zeros(5), 0.1, 1)
    np.testing.assert_allclose(values, [0.95, 0.95, 0.95, 1, 1], rtol=1e-15)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_everything_is_changed_in_place_and_keeps_its_dtype(dtype):
    rng = np.random.default_rng(2)
    values, gradients = rng.standard_normal((2, 7)).astype(dtype)
    optimiser = AdamW(values, 3)
    given_gradients = gradients.copy()
    vectors = values, optimiser.first_moment, optimiser.second_moment
    before = [vector.copy() for vector in vectors]
    for t in range(1, 4):
        optimiser.step(values, gradients, 0.01, t)
    assert vectors[1] is optimiser.first_moment and vectors[2] is optimiser.second_moment
    assert [vector.dtype for vector in vectors] == 3 * [dtype]
    assert all((vector != old).all() for vector, old in zip(vectors, before, strict=True))
    np.testing.assert_array_equal(gradients, given_gradients)
