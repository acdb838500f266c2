"""Kinds of operations that a check has once got wrong: wrong ones that passed, and right ones that were accused."""

import numpy as np
import pytest

from gradcheck import check, check_layer


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


# Wrong, and must fail.


def order_of_x_for_dy(x):
    """Right as long as dy lies in memory as x does."""
    y = np.tanh(x)
    order = "F" if y.flags.f_contiguous and not y.flags.c_contiguous else "C"
    return y, lambda dy: ((1 - y.ravel("K") ** 2) * dy.ravel("K")).reshape(x.shape, order=order)


def wrong_where_dy_is_zero(x):
    return np.sin(x), lambda dy: np.where(dy == 0, 1.0, np.cos(x) * dy)


def wrong_for_positive_dy(x):
    return np.sin(x), lambda dy: np.cos(x) * dy * (1 + (dy > 0).all())


def wrong_for_a_dy_without_strides(x):
    return np.sin(x), lambda dy: np.cos(x) * dy * (2 if dy.strides == (0, 0) else 1)


@pytest.mark.parametrize(
    "op", [order_of_x_for_dy, wrong_where_dy_is_zero, wrong_for_positive_dy, wrong_for_a_dy_without_strides]
)
def test_a_backward_that_is_wrong_for_some_dy_only_fails(op):
    assert check(op, normal(3, 5)).verdict == "fail"


def single(wrong):
    """A square that is right in float64 and, in float32, what `wrong` makes of it."""

    def op(x):
        y, dx = x * x, lambda dy: 2 * x * dy
        return (y, dx) if x.dtype != np.float32 else wrong(y, dx)

    return op


@pytest.mark.parametrize(
    "wrong",
    [
        lambda y, dx: (np.zeros_like(y), dx),
        lambda y, dx: (y, lambda dy: dx(dy) * (2 if np.abs(dy).max() > 3 else 1)),
        lambda y, dx: (y, lambda dy: dx(dy) * (2 if np.abs(dy).max() < 0.01 else 1)),
    ],
    ids=["the output", "a large dy", "a small dy"],
)
def test_what_is_wrong_in_float32_only_fails(wrong):
    assert check(single(wrong), normal(3, 5).astype(np.float32)).verdict == "fail"


class Parameter:
    def __init__(self, value):
        self.value, self.grad = value, np.zeros_like(value)


class Scale:
    def __init__(self):
        self.weight = Parameter(normal(5, seed=1))

    def parameters(self):
        return {"weight": self.weight}

    def forward(self, x):
        weight = self.weight.value

        def backward(dy):
            self.weight.grad = self.weight.grad + (dy * x).sum(0)
            self.after()
            return dy * weight

        return x * weight, backward

    def after(self):
        pass


class Stepping(Scale):
    def after(self):
        self.weight.value = self.weight.value - 0.1 * self.weight.grad


def test_a_layer_that_replaces_its_own_values_fails():
    assert check_layer(Scale(), normal(3, 5)).ok
    report = check_layer(Stepping(), normal(3, 5))
    assert report.verdict == "fail"
    assert "replaces the value of weight" in str(report)


# Right, and must not fail.


def centred_sum(x):
    return (x - x.mean()).sum(), lambda dy: np.zeros_like(x)


def centred_columns(x):
    return (x - x.mean(0)).sum(0), lambda dy: np.broadcast_to(dy, x.shape) - np.broadcast_to(dy, x.shape).mean(0)


def tenths(x):
    return 0.1 * x + 0.2 * x - 0.3 * x, lambda dy: np.zeros_like(x)


@pytest.mark.parametrize("op", [centred_sum, centred_columns, tenths])
def test_what_cancels_to_nothing_is_not_accused(op):
    for seed in range(40):
        report = check(op, normal(5, 7, seed=seed), seed=seed)
        assert report.verdict != "fail", report


def test_a_gradient_that_is_zero_in_float32_is_not_accused():
    def summed_softmax(x):
        e = np.exp(x - x.real.max(-1, keepdims=True))
        y = e / e.sum(-1, keepdims=True)
        return y.sum(-1), lambda dy: y * (dy[:, None] - (y * dy[:, None]).sum(-1, keepdims=True))

    for seed in range(40):
        report = check(summed_softmax, (1e3 + normal(3, 4, seed=seed)).astype(np.float32), seed=seed)
        assert report.verdict != "fail", report


@pytest.mark.parametrize(
    ("op", "x"),
    [
        (lambda x: (1e306 * np.sin(x), lambda dy: 1e306 * np.cos(x) * dy), [0.1, 0.2]),
        (lambda x: (1e307 * x, lambda dy: 1e307 * dy), [0.1, 0.2]),
        (lambda x: (1 / x, lambda dy: -dy / (x * x)), [1e-153, 1.0]),
        (lambda x: (np.exp(x), lambda dy: np.exp(x) * dy), [705.0, 1.0]),
    ],
    ids=["1e306 sin", "1e307 x", "1/x", "exp"],
)
def test_what_only_a_large_dy_makes_overflow_is_not_accused(op, x):
    report = check(op, np.array(x))
    assert report.verdict != "fail", report
