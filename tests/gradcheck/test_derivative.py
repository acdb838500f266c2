"""gradcheck.derivative: the value, its bar, the method, and what is refused."""

import math
from fractions import Fraction

import numpy as np
import pytest

from gradcheck import derivative


def log_sum_exp(x):
    top = x.real.max()
    return top + np.log(np.exp(x - top).sum())


X = np.random.default_rng(0).normal(size=(3, 5))
V = np.random.default_rng(1).normal(size=(3, 5))
SOFTMAX = np.exp(X) / np.exp(X).sum()


def test_by_complex_step():
    found = derivative(log_sum_exp, X, V)
    assert found.method == "complex step"
    truth = (SOFTMAX * V).sum()
    assert abs(found.value - truth) <= found.error_bar < 1e-12


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e10])
@pytest.mark.parametrize("length", [1e-6, 1.0, 1e3])
def test_by_differences(scale, length):
    found = derivative(lambda x: scale * log_sum_exp(x / scale), scale * X, length * V, truth="difference")
    assert found.method == "differences"
    truth = length * (SOFTMAX * V).sum()
    assert abs(found.value - truth) <= found.error_bar < 1e-9 * abs(truth)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: float((x * x).sum().real),
        lambda x: (abs(x) ** 2).sum(),
        lambda x: math.fsum((x * x).reshape(-1)),
        lambda x: (x * np.conj(x)).sum(),
    ],
    ids=["cast", "abs", "math", "conj"],
)
def test_what_is_not_complex_safe_is_found_out(f):
    found = derivative(f, X, V)
    assert found.method == "differences"
    assert abs(found.value - 2 * (X * V).sum()) <= found.error_bar < 1e-10
    with pytest.raises(ValueError, match="f cannot be differentiated by complex step"):
        derivative(f, X, V, truth="complex")


def test_the_slopes_of_a_kink_lie_within_the_bar():
    found = derivative(lambda x: np.abs(x).sum(), np.zeros(1), np.ones(1))
    assert found.value == pytest.approx(0, abs=1e-12)
    assert found.error_bar == pytest.approx(1)


def test_a_jump_has_no_derivative():
    found = derivative(lambda x: float(x[0].real >= 1), np.ones(1), np.ones(1), truth="difference")
    assert np.isnan(found.value) and found.error_bar == np.inf


def test_a_noisy_function_has_a_wide_bar():
    def noisy(x):
        return float(np.float32(np.sin(np.float32(x[0]))))

    found = derivative(noisy, np.ones(1), np.ones(1), truth="difference")
    assert abs(found.value - math.cos(1)) <= found.error_bar
    assert 1e-6 < found.error_bar < 1e-2


def test_the_bar_against_an_exact_value():
    """x⁵ at 1.25, whose slope is a fraction."""
    truth = 5 * Fraction(5, 4) ** 4
    for method in ("complex", "difference"):
        found = derivative(lambda x: x[0] ** 5, np.array([1.25]), np.ones(1), truth=method)
        assert abs(Fraction(found.value) - truth) <= Fraction(found.error_bar) <= Fraction(1, 10**10)


def test_beside_the_end_of_a_domain():
    found = derivative(lambda x: math.sqrt(x[0]), np.array([1e-3]), np.ones(1))
    assert abs(found.value - 1 / (2 * math.sqrt(1e-3))) <= found.error_bar < 1e-8


@pytest.mark.parametrize(
    "bad", [[1.0, 2.0], np.array([1, 2]), np.ones(2, np.float32), np.ma.masked_array([1.0, 2.0]), True, None]
)
def test_what_is_no_float64_array_is_a_type_error(bad):
    with pytest.raises(TypeError, match="x must be a float64 array"):
        derivative(lambda x: x.sum(), bad, np.ones(2))
    with pytest.raises(TypeError, match="direction must be a float64 array"):
        derivative(lambda x: x.sum(), np.ones(2), bad)


@pytest.mark.parametrize("f", [np.log, lambda x: x * np.nan, lambda x: x + np.inf])
def test_where_f_is_no_number_there_is_no_derivative(f):
    for truth in ("auto", "complex", "difference"):
        found = derivative(f, np.array(-1.0), np.array(1.0), truth=truth)
        assert np.isnan(found.value) and found.error_bar == np.inf


def test_at_the_end_of_a_domain_there_is_no_derivative():
    found = derivative(np.sqrt, np.array(0.0), np.array(1.0))
    assert np.isnan(found.value) and found.error_bar == np.inf


@pytest.mark.parametrize("f", [lambda x: np.maximum(x, 0), lambda x: np.where(x.real > 0, x, 0), np.abs])
def test_at_a_kink_the_bar_reaches_both_slopes(f):
    found = derivative(f, np.array(0.0), np.array(1.0))
    assert found.method == "differences"
    low, high = (-1, 1) if f is np.abs else (0, 1)
    assert found.value - found.error_bar <= low + 1e-9 and found.value + found.error_bar >= high - 1e-9


def test_numbers_are_taken_for_arrays():
    assert derivative(math.sin, 1.0, 1).value == pytest.approx(math.cos(1), rel=1e-9)
    assert derivative(np.sin, 1.0, 1.0).method == "complex step"


def test_other_refusals():
    with pytest.raises(ValueError, match=r"direction must have the shape of x, \(2,\), got \(3,\)"):
        derivative(lambda x: x.sum(), np.ones(2), np.ones(3))
    with pytest.raises(TypeError, match=r"f must return one floating number, got float64 \(2,\)"):
        derivative(lambda x: x, np.ones(2), np.ones(2))
    with pytest.raises(ValueError, match="truth must be"):
        derivative(lambda x: x.sum(), np.ones(2), np.ones(2), truth="numeric")
    with pytest.raises(ZeroDivisionError):
        derivative(lambda x: 1 / 0, np.ones(2), np.ones(2))
