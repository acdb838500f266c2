"""Every wrong backward fails: none passes, and none is merely inconclusive."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from gradcheck import check

# Forwards, and right backwards as backward(dy, *arrays). All are complex-safe: branches by the real part, no abs.


def softmax(x):
    e = np.exp(x - x.real.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def softmax_backward(dy, x):
    y = softmax(x)
    return y * (dy - (y * dy).sum(-1, keepdims=True))


EPS = 1e-3


def normalised(x):
    """n and r of layer normalisation."""
    c = x - x.mean(-1, keepdims=True)
    r = 1 / np.sqrt((c * c).mean(-1, keepdims=True) + EPS)
    return c * r, r


def layer_norm(x, gamma, beta):
    return gamma * normalised(x)[0] + beta


def mean(x):
    return x.mean(-1, keepdims=True)


def layer_norm_backward(dy, x, gamma, beta):
    n, r = normalised(x)
    g = gamma * dy
    return r * (g - mean(g) - n * mean(g * n)), (dy * n).sum(0), dy.sum(0)


def rms_norm(x, gamma):
    return gamma * x / np.sqrt(mean(x * x) + EPS)


def rms_norm_backward(dy, x, gamma):
    r = 1 / np.sqrt(mean(x * x) + EPS)
    g = gamma * dy
    return r * (g - r * r * x * mean(g * x)), (dy * x * r).sum(0)


ROOT = np.sqrt(2 / np.pi)


def gelu(x):
    return x / 2 * (1 + np.tanh(ROOT * (x + 0.044715 * x**3)))


def gelu_slope(x, root=ROOT, cubic=0.044715):
    t = np.tanh(root * (x + cubic * x**3))
    return (1 + t) / 2 + x / 2 * (1 - t * t) * root * (1 + 3 * cubic * x * x)


def attention(q, k, v):
    return softmax(q @ k.T / np.sqrt(q.shape[-1])) @ v


def attention_backward(dy, q, k, v):
    root = np.sqrt(q.shape[-1])
    P = softmax(q @ k.T / root)
    ds = softmax_backward(dy @ v.T, q @ k.T / root) / root
    return ds @ k, ds.T @ q, P.T @ dy


def cross_entropy(logits, targets):
    z = logits - logits.real.max(-1, keepdims=True)
    rows = np.arange(len(targets))
    return (np.log(np.exp(z).sum(-1)) - z[rows, targets]).sum()


def cross_entropy_backward(dy, logits, targets):
    d = softmax(logits)
    d[np.arange(len(targets)), targets] -= 1
    return dy * d


def embedding(ids, table):
    return table[ids]


def embedding_backward(dy, ids, table):
    dtable = np.zeros_like(table)
    np.add.at(dtable, ids, dy)
    return dtable


def linear(x, W, b):
    return x @ W + b


def linear_backward(dy, x, W, b):
    return dy @ W.T, x.T @ dy, dy.sum(0)


RNG = np.random.default_rng(0)
IDS = np.array([3, 1, 1, 0])


def normal(*shape):
    return RNG.normal(size=shape)


@dataclass
class Operation:
    forward: Callable[..., Any]
    backward: Callable[..., Any]
    arrays: tuple[Any, ...]


OPERATIONS = {
    "softmax": Operation(softmax, softmax_backward, (normal(3, 5),)),
    "softmax, square": Operation(softmax, softmax_backward, (normal(5, 5),)),
    "layer_norm": Operation(layer_norm, layer_norm_backward, (normal(3, 5), normal(5), normal(5))),
    "layer_norm, square": Operation(layer_norm, layer_norm_backward, (normal(5, 5), normal(5), normal(5))),
    "rms_norm": Operation(rms_norm, rms_norm_backward, (normal(3, 5), normal(5))),
    "gelu": Operation(gelu, lambda dy, x: dy * gelu_slope(x), (normal(3, 5),)),
    "attention": Operation(attention, attention_backward, (normal(3, 5), normal(7, 5), normal(7, 2))),
    "attention, square": Operation(attention, attention_backward, (normal(5, 5), normal(5, 5), normal(5, 5))),
    "cross_entropy": Operation(cross_entropy, cross_entropy_backward, (normal(3, 5), np.array([4, 0, 2]))),
    "embedding": Operation(embedding, embedding_backward, (IDS, normal(5, 3))),
    "linear": Operation(linear, linear_backward, (normal(3, 5), normal(5, 2), normal(2))),
    "linear, square": Operation(linear, linear_backward, (normal(5, 5), normal(5, 5), normal(5))),
}


def operation(forward, backward):
    return lambda *arrays: (forward(*arrays), lambda dy: backward(dy, *arrays))


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("seed", range(3))
def test_the_right_backwards_pass(name, seed):
    of = OPERATIONS[name]
    report = check(operation(of.forward, of.backward), *of.arrays, seed=seed)
    assert report.ok, report
    assert report.power < 1e-8


# Wrong ones of the single operations.


def changed_at(place, backward, change):
    """`backward` with one of its gradients changed."""

    def wrong(dy, *arrays):
        gradients = backward(dy, *arrays)
        if not isinstance(gradients, tuple):
            return change(gradients, dy, *arrays)
        return *gradients[:place], change(gradients[place], dy, *arrays), *gradients[place + 1 :]

    return wrong


def softmax_with(middle):
    return lambda dy, x: softmax(x) * (dy - middle(softmax(x), dy))


def layer_norm_dx(dx):
    return changed_at(0, layer_norm_backward, lambda _, dy, x, gamma, beta: dx(*normalised(x), gamma * dy, gamma, dy))


def assigned(dtable, dy, ids, table):
    dtable = np.zeros_like(table)
    dtable[ids] = dy
    return dtable


def averaged(dtable, dy, ids, table):
    return dtable / np.maximum(np.bincount(ids, minlength=len(table)), 1)[:, None]


def target_by_value(d, dy, logits, targets):
    chosen = logits[np.arange(len(targets)), targets][:, None]
    return dy * (softmax(logits) - (logits >= chosen))


WRONG = {
    # softmax
    ("softmax", "the second term is dropped"): lambda dy, x: softmax(x) * dy,
    ("softmax", "sign turned"): softmax_with(lambda y, dy: -(y * dy).sum(-1, keepdims=True)),
    ("softmax", "sum over the wrong axis"): softmax_with(lambda y, dy: (y * dy).sum(0, keepdims=True)),
    ("softmax", "sum over both axes"): softmax_with(lambda y, dy: (y * dy).sum(keepdims=True)),
    ("softmax", "no sum"): softmax_with(lambda y, dy: y * dy),
    ("softmax", "mean for sum"): softmax_with(lambda y, dy: (y * dy).mean(-1, keepdims=True)),
    ("softmax", "the weights are forgotten in the sum"): softmax_with(lambda y, dy: dy.mean(-1, keepdims=True)),
    ("softmax", "twice"): lambda dy, x: 2 * softmax_backward(dy, x),
    ("softmax", "halved"): lambda dy, x: softmax_backward(dy, x) / 2,
    ("softmax", "negative"): lambda dy, x: -softmax_backward(dy, x),
    ("softmax", "times n"): lambda dy, x: 5 * softmax_backward(dy, x),
    ("softmax", "n-th part"): lambda dy, x: softmax_backward(dy, x) / 5,
    ("softmax, square", "transposed"): lambda dy, x: softmax_backward(dy, x).T,
    ("softmax, square", "of the columns"): lambda dy, x: softmax_backward(dy.T, x.T).T,
    ("softmax", "of the reversed row"): lambda dy, x: softmax_backward(dy, x)[:, ::-1],
    # layer norm
    ("layer_norm", "mean not subtracted"): layer_norm_dx(lambda n, r, g, *_: r * (g - n * mean(g * n))),
    ("layer_norm", "stretching not subtracted"): layer_norm_dx(lambda n, r, g, *_: r * (g - mean(g))),
    ("layer_norm", "sign of the third term"): layer_norm_dx(lambda n, r, g, *_: r * (g - mean(g) + n * mean(g * n))),
    ("layer_norm", "n is forgotten in the third term"): layer_norm_dx(lambda n, r, g, *_: r * (g - mean(g) - mean(g * n))),
    ("layer_norm", "sums for means"): layer_norm_dx(lambda n, r, g, *_: r * (g - 5 * mean(g) - 5 * n * mean(g * n))),
    ("layer_norm", "r is forgotten"): layer_norm_dx(lambda n, r, g, *_: g - mean(g) - n * mean(g * n)),
    ("layer_norm", "r squared"): layer_norm_dx(lambda n, r, g, *_: r * r * (g - mean(g) - n * mean(g * n))),
    ("layer_norm", "gamma is forgotten"): layer_norm_dx(lambda n, r, g, w, dy: r * (dy - mean(dy) - n * mean(dy * n))),
    ("layer_norm", "gamma outside"): layer_norm_dx(lambda n, r, g, w, dy: w * r * (dy - mean(dy) - n * mean(dy * n))),
    ("layer_norm", "unbiased variance"): layer_norm_dx(lambda n, r, g, *_: r * (g - mean(g) - n * mean(g * n) * 5 / 4)),
    ("layer_norm", "eps is forgotten"): layer_norm_dx(
        lambda n, r, g, *_: (r**-2 - EPS) ** -0.5 * (g - mean(g) - n * mean(g * n))
    ),
    ("layer_norm", "dgamma from x"): changed_at(1, layer_norm_backward, lambda _, dy, x, *rest: (dy * x).sum(0)),
    ("layer_norm", "dgamma and dbeta swapped"): lambda *arrays: tuple(layer_norm_backward(*arrays)[i] for i in (0, 2, 1)),
    ("layer_norm", "dbeta is a mean"): changed_at(2, layer_norm_backward, lambda _, dy, *rest: dy.mean(0)),
    ("layer_norm", "dbeta of the last row"): changed_at(2, layer_norm_backward, lambda _, dy, *rest: dy[-1]),
    ("layer_norm", "dbeta is not summed"): changed_at(2, layer_norm_backward, lambda _, dy, *rest: dy),
    ("layer_norm, square", "dbeta is summed over the row"): changed_at(
        2, layer_norm_backward, lambda _, dy, *rest: dy.sum(1)
    ),
    # RMS norm
    ("rms_norm", "the second term is dropped"): changed_at(
        0, rms_norm_backward, lambda _, dy, x, gamma: gamma * dy / np.sqrt(mean(x * x) + EPS)
    ),
    ("rms_norm", "a fixed r"): changed_at(0, rms_norm_backward, lambda dx, dy, x, gamma: dx * np.sqrt(mean(x * x))),
    ("rms_norm", "dgamma without r"): changed_at(1, rms_norm_backward, lambda _, dy, x, gamma: (dy * x).sum(0)),
    # GELU
    ("gelu", "0.044715 is off in the fourth digit"): lambda dy, x: dy * gelu_slope(x, cubic=0.04475),
    ("gelu", "the root is off in the fourth digit"): lambda dy, x: dy * gelu_slope(x, root=0.7976),
    ("gelu", "a constant is rounded to seven digits"): lambda dy, x: dy * gelu_slope(x, root=0.7978846),
    ("gelu", "slope of the output"): lambda dy, x: dy * gelu_slope(gelu(x)),
    ("gelu", "x·φ is forgotten"): lambda dy, x: dy * gelu(x) / x,
    ("gelu", "one for three"): lambda dy, x: dy * (gelu_slope(x) - x**3 * 1e-3),
    # attention
    ("attention", "√K is forgotten in dq"): changed_at(0, attention_backward, lambda dq, *_: dq * np.sqrt(5)),
    ("attention", "√K twice in dk"): changed_at(1, attention_backward, lambda dk, *_: dk / np.sqrt(5)),
    ("attention", "K for √K"): changed_at(0, attention_backward, lambda dq, *_: dq / np.sqrt(5)),
    ("attention", "softmax's second term is dropped"): changed_at(
        0,
        attention_backward,
        lambda _, dy, q, k, v: (softmax(q @ k.T / np.sqrt(5)) * (dy @ v.T)) @ k / np.sqrt(5),
    ),
    ("attention", "dv from the scores"): changed_at(2, attention_backward, lambda _, dy, q, k, v: (q @ k.T).T @ dy),
    ("attention", "dk is zero"): changed_at(1, attention_backward, lambda dk, *_: 0 * dk),
    ("attention, square", "dv from P not transposed"): changed_at(
        2, attention_backward, lambda _, dy, q, k, v: softmax(q @ k.T / np.sqrt(5)) @ dy
    ),
    ("attention, square", "dq and dk swapped"): lambda *arrays: tuple(attention_backward(*arrays)[i] for i in (1, 0, 2)),
    # cross-entropy
    ("cross_entropy", "divided by the number of rows"): changed_at(0, cross_entropy_backward, lambda d, *_: d / 3),
    ("cross_entropy", "the target is forgotten"): lambda dy, logits, targets: dy * softmax(logits),
    ("cross_entropy", "dy is forgotten"): lambda dy, logits, targets: cross_entropy_backward(1.0, logits, targets),
    ("cross_entropy", "the target is subtracted in every row"): changed_at(
        0, cross_entropy_backward, lambda _, dy, logits, targets: dy * (softmax(logits) - np.eye(5)[targets].mean(0))
    ),
    ("cross_entropy", "the target is found by value"): changed_at(0, cross_entropy_backward, target_by_value),
    # embedding
    ("embedding", "= for +="): changed_at(0, embedding_backward, assigned),
    ("embedding", "mean over equal ids"): changed_at(0, embedding_backward, averaged),
    ("embedding", "the next row"): changed_at(0, embedding_backward, lambda d, *_: np.roll(d, 1, 0)),
    ("embedding", "the last dy of all"): changed_at(0, embedding_backward, lambda d, dy, *_: (d != 0) * dy[-1]),
    # linear and bias
    ("linear", "dW is a mean"): changed_at(1, linear_backward, lambda dW, *_: dW / 3),
    ("linear", "db is a mean"): changed_at(2, linear_backward, lambda db, *_: db / 3),
    ("linear", "db is summed over everything"): changed_at(2, linear_backward, lambda db, dy, *_: np.full(2, dy.sum())),
    ("linear", "db keeps the axis"): changed_at(2, linear_backward, lambda db, dy, *_: dy.sum(0, keepdims=True)),
    ("linear", "db is not summed"): changed_at(2, linear_backward, lambda db, dy, *_: dy),
    ("linear, square", "dW transposed"): changed_at(1, linear_backward, lambda dW, *_: dW.T),
    ("linear, square", "W not transposed"): changed_at(0, linear_backward, lambda dx, dy, x, W, b: dy @ W),
    ("linear, square", "db is summed over the wrong axis"): changed_at(2, linear_backward, lambda db, dy, *_: dy.sum(1)),
    ("linear, square", "dx and dW swapped"): lambda *arrays: tuple(linear_backward(*arrays)[i] for i in (1, 0, 2)),
}


@pytest.mark.parametrize(("name", "fault"), WRONG)
def test_a_wrong_gradient_fails(name, fault):
    of = OPERATIONS[name]
    for seed in range(2):
        report = check(operation(of.forward, WRONG[name, fault]), *of.arrays, seed=seed)
        assert report.verdict == "fail", report


# Wrong in a way that any operation can be: the right backward, and something done to it.


def norm_of(x):
    return np.sqrt((x * x).sum())


AROUND = {
    "squares dy": lambda dy, right: right(dy * dy),
    "takes the size of dy": lambda dy, right: right(abs(dy)),
    "rectifies dy": lambda dy, right: right(np.maximum(dy, 0)),
    "clips dy at 1": lambda dy, right: right(np.clip(dy, -1, 1)),
    "clips dy at 100": lambda dy, right: right(np.clip(dy, -100, 100)),
    "clips the gradient's norm": lambda dy, right: right(dy) / np.maximum(1, norm_of(right(dy))),
    "normalises dy": lambda dy, right: right(dy / norm_of(dy)),
    "takes the sign of dy": lambda dy, right: right(np.sign(dy)),
    "saturates dy": lambda dy, right: right(np.tanh(dy)),
    "drops small dy": lambda dy, right: right(np.where(abs(dy) < 1e-3, 0, dy)),
    "drops small gradients": lambda dy, right: np.where(abs(right(dy)) < 1e-4, 0, right(dy)),
    "ignores dy": lambda dy, right: right(np.ones_like(dy)),
    "averages dy": lambda dy, right: right(np.full_like(dy, dy.mean())),
    "adds a constant": lambda dy, right: right(dy) + 1,
    "adds 1e-9": lambda dy, right: right(dy) + 1e-9,
    "adds 1e-300": lambda dy, right: right(dy) + 1e-300,
    "float32 inside": lambda dy, right: right(dy.astype(np.float32).astype(np.float64)),
    "float32 at the end": lambda dy, right: right(dy).astype(np.float32).astype(np.float64),
    "float16 inside": lambda dy, right: right(dy.astype(np.float16).astype(np.float64)),
    "bfloat16's digits": lambda dy, right: np.round(right(dy) * 256) / 256,
    "off by 1e-8 of itself": lambda dy, right: right(dy) * (1 + 1e-8),
    "off by 1e-8 of the largest entry": lambda dy, right: right(dy) + 1e-8 * abs(right(dy)).max(),
    "zero": lambda dy, right: 0 * dy,
    "dy itself": lambda dy, right: dy,
    "cast to float32": lambda dy, right: right(dy).astype(np.float32),
    "cast to float16": lambda dy, right: right(dy).astype(np.float16),
    "cast to complex": lambda dy, right: right(dy).astype(complex),
    "rounded to integers": lambda dy, right: right(dy).astype(int),
    "an object array": lambda dy, right: right(dy).astype(object),
    "None": lambda dy, right: None,
    "no gradient": lambda dy, right: (),
    "two gradients": lambda dy, right: (right(dy), right(dy)),
    "a gradient and None": lambda dy, right: (right(dy), None),
    "a list of rows": lambda dy, right: list(right(dy)),
    "a float": lambda dy, right: float(right(dy).sum()),
    "a string": lambda dy, right: "gradient",
    "a dictionary": lambda dy, right: {"x": right(dy)},
    "summed over an axis": lambda dy, right: right(dy).sum(0),
    "one axis more": lambda dy, right: right(dy)[None],
    "flat": lambda dy, right: right(dy).reshape(-1),
    "one NaN": lambda dy, right: np.where(np.arange(15).reshape(3, 5) == 7, np.nan, right(dy)),
    "all NaN": lambda dy, right: right(dy) * np.nan,
    "one infinity": lambda dy, right: np.where(np.arange(15).reshape(3, 5) == 7, np.inf, right(dy)),
    "only NaN where dy is negative": lambda dy, right: right(dy) * np.sqrt(dy / abs(dy)),
}


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("fault", AROUND)
def test_a_fault_around_a_right_backward_fails(fault):
    def op(x):
        return softmax(x), lambda dy: AROUND[fault](dy, lambda dy: softmax_backward(dy, x))

    for seed in range(2):
        report = check(op, OPERATIONS["softmax"].arrays[0], seed=seed)
        assert report.verdict == "fail", report


# Against differences, all of them as well.

AGAINST_DIFFERENCES = {
    **{
        (name, fault): (operation(OPERATIONS[name].forward, WRONG[name, fault]), OPERATIONS[name].arrays)
        for name, fault in WRONG
    },
    **{
        ("softmax", fault): (
            lambda x, fault=fault: (softmax(x), lambda dy: AROUND[fault](dy, lambda dy: softmax_backward(dy, x))),
            OPERATIONS["softmax"].arrays,
        )
        for fault in AROUND
    },
}


def verdict_by_differences(name, fault, seed):
    op, arrays = AGAINST_DIFFERENCES[name, fault]
    return check(op, *arrays, seed=seed, truth="difference").verdict


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize(("name", "fault"), list(AGAINST_DIFFERENCES)[::3])
def test_a_wrong_backward_fails_by_differences(name, fault):
    assert verdict_by_differences(name, fault, 0) == "fail"


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize(("name", "fault"), AGAINST_DIFFERENCES)
def test_every_wrong_backward_fails_by_differences(name, fault):
    for seed in range(5):
        assert verdict_by_differences(name, fault, seed) == "fail"


@pytest.mark.parametrize("entry", [0, 17, 399])
@pytest.mark.parametrize("factor", [0.0, 1 + 1e-6, -1.0, 2.0])
def test_one_wrong_entry_among_many_fails_and_is_named(entry, factor):
    def op(x):
        def backward(dy):
            dx = 2 * x * dy
            dx.reshape(-1)[entry] *= factor
            return dx

        return x * x, backward

    report = check(op, np.random.default_rng(0).uniform(1, 2, (20, 20)))
    assert report.verdict == "fail"
    assert report.worst.argument == "x"
    assert report.worst.index == divmod(entry, 20)
    assert "1 of 400 entries are wrong" in str(report)


def test_a_gradient_of_the_shape_1_for_an_input_of_the_shape_2_fails():
    report = check(lambda x: (x * x, lambda dy: (2 * x * dy)[:1]), np.array([1.0, 2.0]))
    assert report.verdict == "fail"
    assert "shape (1,)" in str(report)


def test_a_gradient_without_axes_for_an_input_of_the_shape_1_fails():
    assert check(lambda x: (x * x, lambda dy: (2 * x * dy)[0]), np.array([1.5])).verdict == "fail"


# The scale of a function changes nothing.


@pytest.mark.parametrize("scale", [1e-200, 1e-30, 1e-6, 1e6, 1e100])
def test_a_zero_backward_fails_at_every_scale(scale):
    report = check(lambda x: (scale * np.sin(x), lambda dy: 0 * dy), normal(3, 5))
    assert report.verdict == "fail", report


@pytest.mark.parametrize("scale", [1e-200, 1e-30, 1e-6, 1e6, 1e100])
def test_a_relative_error_of_a_millionth_fails_at_every_scale(scale):
    x = normal(3, 5)
    assert check(lambda x: (scale * np.sin(x), lambda dy: scale * np.cos(x) * dy), x).ok
    wrong = 1 + 1e-6
    assert check(lambda x: (scale * np.sin(x), lambda dy: wrong * scale * np.cos(x) * dy), x).verdict == "fail"


def test_a_zero_backward_that_the_smallest_numbers_could_hide_is_not_passed():
    report = check(lambda x: (1e-300 * np.sin(x), lambda dy: 0 * dy), normal(3, 5))
    assert report.verdict == "inconclusive", report


def test_a_zero_backward_that_a_wide_bar_could_hide_is_not_passed():
    """Rows with a spread of 1e-9 around 1e6: their last digits are worth more than the whole gradient."""

    def op(x):
        c = x - x.mean(-1, keepdims=True)
        return c / np.sqrt((c * c).mean(-1, keepdims=True)), lambda dy: 0 * dy

    assert not check(op, 1e6 + 1e-9 * normal(3, 5)).ok


def test_a_gradient_that_vanishes_beside_another_outputs_fails():
    def op(x):
        return (x * x, 1e-13 * np.sin(x)), lambda da, db: 2 * x * da

    assert check(op, normal(3, 5)).verdict == "fail"


def test_the_cotangents_of_two_outputs_exchanged_fail():
    def op(x):
        return (x * x, x * x * x), lambda da, db: 2 * x * db + 3 * x * x * da

    assert check(op, normal(3, 5)).verdict == "fail"


# Nothing is a number.


@pytest.mark.filterwarnings("ignore:invalid value")
def test_nan_on_both_sides_fails():
    x = np.array([1.0, -1.0, 2.0])
    report = check(lambda x: (np.log(x), lambda dy: dy / np.where(x > 0, x, np.nan)), x)
    assert report.verdict == "fail"
    assert report.worst.index == (1,)


def test_infinity_on_both_sides_fails():
    with np.errstate(divide="ignore"):
        report = check(lambda x: (np.sqrt(x), lambda dy: dy / (2 * np.sqrt(x))), np.array([1.0, 0.0]))
    assert report.verdict == "fail"
    assert report.worst.index == (1,)


# What is stopped.


def test_a_nonzero_gradient_where_it_is_stopped_fails():
    ids, table = np.array([0, 2, 2, 1]), normal(4, 3)
    padding = np.zeros((4, 3), bool)
    padding[0] = True

    def op(padding_id):
        def embedding(ids, table):
            def backward(dy):
                dtable = embedding_backward(dy, ids, table)
                dtable[padding_id] = 0
                return dtable

            return table[ids], backward

        return embedding

    assert check(op(0), ids, table, stopped={"table": padding}).ok
    assert check(op(0), ids, table, stopped={1: padding}).ok
    assert check(op(0), ids, table).verdict == "fail"  # it is not the derivative
    wrong = check(op([]), ids, table, stopped={"table": padding})
    assert wrong.verdict == "fail"
    assert "table[0, 0] is not exactly 0 where it is stopped" in str(wrong)
    tiny = check(
        lambda x: (np.array([x[0], 0]), lambda dy: np.array([dy[0], 1e-300])), np.ones(2), stopped={0: [False, True]}
    )
    assert tiny.verdict == "fail"


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("strange", [np.nan, np.inf, -0.5])
def test_a_strange_gradient_where_it_is_stopped_fails(strange):
    def op(x):
        return np.where([True, False], x, 0), lambda dy: np.array([dy[0], strange])

    assert check(op, np.ones(2), stopped={"x": np.array([False, True])}).verdict == "fail"


# State, and other people's arrays. Each is made anew, since it remembers.


def stale_cache():
    cache = {}

    def op(x):
        cache["x"] = x
        return x * x, lambda dy: 2 * cache["x"] * dy

    return op


def cache_of_the_first_call():
    cache = {}

    def op(x):
        first = cache.setdefault(x.dtype, x.real.copy())
        return x * x, lambda dy: 2 * first * dy

    return op


def state_of_the_backward():
    state = {"calls": 0}

    def op(x):
        def backward(dy):
            state["calls"] += 1
            return 2 * x * dy * (1 if state["calls"] < 4 else 1.5)

        return x * x, backward

    return op


def accumulates():
    def op(x):
        dx = np.zeros(x.shape)

        def backward(dy):
            dx[...] += 2 * x * dy
            return dx

        return x * x, backward

    return op


def reuses_the_gradient():
    dx = np.zeros((3, 5))

    def op(x):
        return x * x, lambda dy: np.multiply(2 * x, dy, out=dx)

    return op


def reuses_the_output():
    buffers = {}

    def op(x):
        y = buffers.setdefault(x.dtype, np.zeros(x.shape, x.dtype))
        np.multiply(x, x, out=y)
        return y, lambda dy: 2 * x * dy

    return op


def reuses_the_gradient_of_one_call():
    def op(x):
        dx = np.zeros(x.shape)
        return x * x, lambda dy: np.multiply(2 * x, dy, out=dx)

    return op


def writes_where_it_may(what, when):
    """A read-only array is left alone, and so does not give the op away."""

    def op(x):
        own = x.copy()

        def write(array):
            if array.flags.writeable and not np.iscomplexobj(array):
                array *= 2

        def backward(dy):
            dx = 2 * own * dy
            if when == "backward":
                write({"x": x, "dy": dy}[what])
            return dx

        if when == "forward":
            write(x)
        return own * own, backward

    return op


def raises_for_zero():
    def op(x):
        def backward(dy):
            if not dy.any():
                raise ZeroDivisionError("dy is zero")
            return 2 * x * dy

        return x * x, backward

    return op


def writes_into(what, when, undo=False):
    """x or y or dy is doubled in the forward or in the backward, and perhaps halved again."""

    def op(x):
        own = x.copy()
        y = x * x

        def backward(dy):
            dx = 2 * own * dy
            target = {"x": x, "y": y, "dy": dy}[what]
            if when == "backward":
                target *= 2
                if undo:
                    target /= 2
            return dx

        if when == "forward":
            x *= 2
            if undo:
                x /= 2
        return y, backward

    return op


def writes_dx_into_dy():
    def op(x):
        def backward(dy):
            dy *= 2 * x
            return dy

        return x * x, backward

    return op


def random(size):
    rng = np.random.default_rng(0)

    def op(x):
        return x * x, lambda dy: 2 * x * dy * (1 + size * rng.normal(size=x.shape))

    return op


def random_forward():
    rng = np.random.default_rng(0)

    def op(x):
        noise = rng.normal(size=x.shape)
        return x * x * noise, lambda dy: 2 * x * noise * dy

    return op


def raises_when_called_again():
    def op(x):
        calls = []

        def backward(dy):
            calls.append(1)
            if len(calls) > 1:
                raise RuntimeError("the graph has been freed")
            return 2 * x * dy

        return x * x, backward

    return op


STATE = {
    "keeps what it needs in a module": stale_cache,
    "keeps what the first call left": cache_of_the_first_call,
    "turns wrong later": state_of_the_backward,
    "adds to its first result": accumulates,
    "returns one buffer from all backwards": reuses_the_gradient,
    "returns one buffer from all calls of one backward": reuses_the_gradient_of_one_call,
    "returns one buffer from all forwards": reuses_the_output,
    "writes into x in the forward": lambda: writes_into("x", "forward"),
    "writes into x in the backward": lambda: writes_into("x", "backward"),
    "writes into y in the backward": lambda: writes_into("y", "backward"),
    "writes into dy": lambda: writes_into("dy", "backward"),
    "writes into x in the forward and undoes it": lambda: writes_into("x", "forward", undo=True),
    "writes into x in the backward and undoes it": lambda: writes_into("x", "backward", undo=True),
    "writes into dy and undoes it": lambda: writes_into("dy", "backward", undo=True),
    "writes dx into dy": writes_dx_into_dy,
    "writes into x in the forward where it may": lambda: writes_where_it_may("x", "forward"),
    "writes into x in the backward where it may": lambda: writes_where_it_may("x", "backward"),
    "writes into dy where it may": lambda: writes_where_it_may("dy", "backward"),
    "a random backward": lambda: random(1.0),
    "a backward with noise of 1e-5": lambda: random(1e-5),
    "a backward with noise of 1e-9": lambda: random(1e-9),
    "a random forward": random_forward,
}


@pytest.mark.parametrize("seed", range(40))
def test_a_rectified_dy_of_a_single_number_is_seen(seed):
    assert check(lambda x: ((x * x).sum(), lambda dy: 2 * x * np.maximum(dy, 0)), np.ones(3), seed=seed).verdict == "fail"
    assert check(lambda x: ((x * x).sum(), lambda dy: 2 * x * np.minimum(dy, 0)), np.ones(3), seed=seed).verdict == "fail"


SMALL_BESIDE = {
    "a sum with 1": (lambda x: (1 + x, lambda dy: -dy), 1e-14),
    "a sum with 1e15": (lambda x: (1e15 + x.sum(), lambda dy: -dy * np.ones_like(x)), 1.0),
    "a gain": (lambda x: (np.ones((7, 5)) + x[0] * np.tanh(np.ones((7, 5))), lambda dy: 0 * x), 1e-13),
}


@pytest.mark.parametrize("name", SMALL_BESIDE)
def test_a_gradient_that_is_certain_does_not_pass_as_zero_to_rounding(name):
    """It lies within the rounding of its output, but the complex step knows it."""
    op, size = SMALL_BESIDE[name]
    report = check(op, size * np.random.default_rng(0).normal(size=(3, 5)))
    assert report.verdict != "pass", report


# These say so themselves, and gradcheck adds when.
RAISE = {
    "where dy is zero": (raises_for_zero, "dy is zero", "a backward for dy = 0"),
    "when called again": (raises_when_called_again, "freed", "the backward that is called again, for another dy"),
}


@pytest.mark.parametrize("fault", RAISE)
def test_an_exception_passes_through_and_says_when(fault):
    make, text, when = RAISE[fault]
    with pytest.raises(Exception, match=text) as caught:
        check(make(), np.random.default_rng(1).normal(size=(3, 5)))
    assert caught.value.__notes__ == [f"gradcheck: raised by {when}"]


@pytest.mark.parametrize("fault", STATE)
def test_state_and_foreign_arrays(fault):
    x = np.random.default_rng(1).normal(size=(3, 5))
    before = x.copy()
    report = check(STATE[fault](), x)
    assert report.verdict == "fail", report
    assert np.array_equal(x, before)


def test_overwriting_an_integer_array_fails_and_the_array_has_its_contents_back():
    ids = np.array([2, 0, 2])

    def op(ids, table):
        y = table[ids]
        own = ids.copy()
        ids[0] = 1
        return y, lambda dy: embedding_backward(dy, own, table)

    report = check(op, ids, normal(4, 3))
    assert report.verdict == "fail"
    assert "ids is overwritten" in str(report)
    assert ids.tolist() == [2, 0, 2]


# Right for ordinary arrays alone.


LAYOUTS = {
    "read-only": lambda array: not array.flags.writeable,
    "column-major": lambda array: array.flags.f_contiguous and not array.flags.c_contiguous,
    "strided": lambda array: not array.flags.forc and min(array.strides) > array.itemsize,
    "reversed": lambda array: min(array.strides) < 0,
    "zero-stride": lambda array: 0 in array.strides,
    "not contiguous": lambda array: not array.flags.c_contiguous,
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("of", ["x", "dy"])
@pytest.mark.parametrize("what", ["dx", "shape of dx", "dtype of dx", "count"])
def test_a_backward_that_is_wrong_in_one_layout_alone_fails(layout, of, what):
    def op(x):
        def backward(dy):
            dx = 2 * x * dy
            if not LAYOUTS[layout]({"x": x, "dy": dy}[of]):
                return dx
            return {"dx": dx * 1.001, "shape of dx": dx[:1], "dtype of dx": dx.astype(np.float32), "count": (dx, dx)}[what]

        return x * x, backward

    report = check(op, np.random.default_rng(0).normal(size=(3, 5)))
    assert report.verdict == "fail", report
    assert layout in str(report) or layout == "not contiguous"


@pytest.mark.parametrize("layout", ["column-major", "strided", "reversed", "zero-stride"])
def test_a_backward_that_is_wrong_where_x_and_dy_both_have_the_layout_fails(layout):
    def op(x):
        return x * x, lambda dy: 2 * x * dy * (1.001 if LAYOUTS[layout](x) and LAYOUTS[layout](dy) else 1)

    assert check(op, np.random.default_rng(0).normal(size=(3, 5))).verdict == "fail"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_forward_that_is_wrong_in_one_layout_alone_fails(layout):
    def op(x):
        return x * x * (1.001 if LAYOUTS[layout](x) else 1), lambda dy: 2 * x * dy

    report = check(op, np.random.default_rng(0).normal(size=(3, 5)))
    assert report.verdict == "fail", report
    assert "the output differs on " in str(report)


def test_reading_the_memory_and_not_the_array_fails():
    def op(x):
        flat = np.frombuffer(x.data if x.flags.c_contiguous else x.base.data, x.dtype)[: x.size].reshape(x.shape)
        return x * x, lambda dy: 2 * flat * dy

    assert check(op, np.random.default_rng(0).normal(size=(3, 5))).verdict == "fail"


# Wrong only in float32 or float16, where it was given.


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(
    "wrong",
    [
        lambda dx: dx * dx.dtype.type(1.5),
        lambda dx: dx.astype(np.float64),
        lambda dx: dx[:1],
        lambda dx: None,
        lambda dx: dx * dx.dtype.type(np.nan),
    ],
    ids=["off", "float64", "shape", "None", "NaN"],
)
def test_wrong_in_low_precision_alone_fails(dtype, wrong):
    def op(x):
        return x * x, lambda dy: wrong(2 * x * dy) if x.dtype == dtype else 2 * x * dy

    report = check(op, normal(3, 5).astype(dtype))
    assert report.verdict == "fail", report
    assert f"in {np.dtype(dtype)}" in str(report)


def test_writing_into_dy_in_float32_alone_fails():
    def op(x):
        def backward(dy):
            dx = 2 * x * dy
            if x.dtype == np.float32:
                dy *= 0
            return dx

        return x * x, backward

    assert check(op, normal(3, 5).astype(np.float32)).verdict == "fail"


def test_a_moving_stopped_entry_in_float32_alone_fails():
    def op(x):
        return x[:1] * x[:1], lambda dy: np.array([2 * x[0] * dy[0], x.dtype == np.float32], x.dtype)

    stopped = {"x": np.array([False, True])}
    assert check(op, np.ones(2), stopped=stopped).ok
    assert check(op, np.ones(2, np.float32), stopped=stopped).verdict == "fail"


def test_there_are_at_least_as_many_as_were_measured():
    assert len(WRONG) + len(AROUND) + len(STATE) > 42
