"""A right backward is never accused, however nasty the place; and it passes wherever something can be proved there."""

from functools import partial

import numpy as np
import pytest

from gradcheck import check

SEEDS = range(15)
MANY_SEEDS = range(200)


def mean(x):
    return x.mean(-1, keepdims=True)


def layer_norm(x, gamma, beta, eps=1e-5):
    c = x - mean(x)
    c = c - mean(c)
    r = 1 / np.sqrt(mean(c * c) + eps)
    n = c * r

    def backward(dy):
        g = gamma * dy
        rows = tuple(range(dy.ndim - 1))
        return r * (g - mean(g) - n * mean(g * n)), (dy * n).sum(rows), dy.sum(rows)

    return gamma * n + beta, backward


def softmax(x):
    m = x.real.max(-1, keepdims=True)
    e = np.exp(x - np.where(np.isfinite(m), m, 0))
    s = e.sum(-1, keepdims=True)
    y = e / np.where(s == 0, 1, s)
    return y, lambda dy: y * (dy - (y * dy).sum(-1, keepdims=True))


def log_softmax(x):
    z = x - x.real.max(-1, keepdims=True)
    y = z - np.log(np.exp(z).sum(-1, keepdims=True))
    return y, lambda dy: dy - np.exp(y) * dy.sum(-1, keepdims=True)


def linear(x, W, b=None):
    def backward(dy):
        gradients = dy @ W.T, x.T @ dy
        return gradients if b is None else (*gradients, dy.sum(0))

    return x @ W + (0 if b is None else b), backward


def attention(q, k, v, keep=None):
    scale = q.shape[-1] ** -0.5
    scores = q @ k.T * scale
    P, softmax_backward = softmax(scores if keep is None else np.where(keep, scores, -np.inf))

    def backward(dy):
        ds = softmax_backward(dy @ v.T) * scale
        return ds @ k, ds.T @ q, P.T @ dy

    return P @ v, backward


def relu(x):
    """By the real part, with slope 0 at 0."""
    off = x.real <= 0
    return np.where(off, 0, x), lambda dy: np.where(off, 0, dy)


def plain_relu(x):
    """As it is usually written."""
    return np.maximum(x, 0), lambda dy: dy * (x > 0)


def largest(x):
    first = x.real.argmax(-1)[..., None]

    def backward(dy):
        dx = np.zeros_like(x)
        np.put_along_axis(dx, first, dy[..., None], -1)
        return dx

    return np.take_along_axis(x, first, -1)[..., 0], backward


def silu(x):
    s = 1 / (1 + np.exp(-x))
    return x * s, lambda dy: dy * (s + x * s * (1 - s))


def sigmoid(x):
    e = np.exp(np.where(x.real < 0, x, -x))
    y = np.where(x.real < 0, e, 1) / (1 + e)
    return y, lambda dy: dy * y * (1 - y)


# Every place draws its arrays anew for each seed.


def never_accused(op, draw, seeds=SEEDS, **options):
    """Each verdict as often as it came."""
    verdicts = {"pass": 0, "inconclusive": 0}
    for seed in seeds:
        rng = np.random.default_rng(seed)
        report = check(op, *draw(rng), seed=seed, **options)
        assert report.verdict != "fail", f"seed {seed}: {report}"
        assert "refuses" not in str(report)
        verdicts[report.verdict] += 1
    return verdicts


def rows(rng, spread=1.0, offset=0.0):
    return offset + spread * rng.normal(size=(3, 5)), rng.normal(size=5), rng.normal(size=5)


PLACES = {
    "layer norm": (layer_norm, rows),
    "layer norm, no eps": (partial(layer_norm, eps=0.0), rows),
    "layer norm, rows of spread 1e-6": (layer_norm, partial(rows, spread=1e-6)),
    "layer norm at 1e3": (layer_norm, partial(rows, offset=1e3)),
    "layer norm, rows of spread 1e3": (layer_norm, partial(rows, spread=1e3)),
    "softmax": (softmax, lambda rng: (rng.normal(size=(3, 5)),)),
    "softmax of weights of deviation 10": (softmax, lambda rng: (10 * rng.normal(size=(3, 5)),)),
    "softmax over [0, 40]": (softmax, lambda rng: (rng.uniform(0, 40, (3, 5)),)),
    "softmax of ±700 alone": (softmax, lambda rng: (rng.choice([-700.0, 700.0], (3, 5)),)),
    "softmax at 1e4": (softmax, lambda rng: (1e4 + rng.normal(size=(3, 5)),)),
    "softmax of ties": (softmax, lambda rng: (np.round(rng.normal(size=(3, 5))),)),
    "softmax of one entry": (softmax, lambda rng: (rng.normal(size=(3, 1)),)),
    "softmax with masked slots": (
        softmax,
        lambda rng: (np.where(rng.random((3, 5)) < 0.3, -np.inf, rng.normal(size=(3, 5))),),
    ),
    "log-softmax of ±700": (log_softmax, lambda rng: (rng.uniform(-700, 700, (3, 5)),)),
    "log-softmax at 1e4": (log_softmax, lambda rng: (1e4 + rng.normal(size=(3, 5)),)),
    "attention": (attention, lambda rng: (rng.normal(size=(3, 2)), rng.normal(size=(5, 2)), rng.normal(size=(5, 4)))),
    "silu": (silu, lambda rng: (rng.normal(size=(3, 5)),)),
    "silu at ±700": (silu, lambda rng: (rng.uniform(-700, 700, (3, 5)),)),
    "sigmoid at 1e10": (sigmoid, lambda rng: (1e10 * rng.normal(size=(3, 5)),)),
    "linear": (linear, lambda rng: (rng.normal(size=(3, 5)), rng.normal(size=(5, 2)), rng.normal(size=2))),
    "linear, zero bias": (linear, lambda rng: (rng.normal(size=(3, 5)), rng.normal(size=(5, 2)), np.zeros(2))),
    "linear, scales far apart": (
        linear,
        lambda rng: (1e-6 * rng.normal(size=(3, 5)), 1e6 * rng.normal(size=(5, 2)), 1e-3 * rng.normal(size=2)),
    ),
    "relu": (relu, lambda rng: (rng.normal(size=(3, 5)),)),
    "relu at exact 0": (relu, lambda rng: (np.round(rng.normal(size=(3, 5))),)),
    "relu, all negative": (relu, lambda rng: (-rng.uniform(1, 2, (3, 5)),)),
    "relu of zeros": (relu, lambda rng: (np.zeros((3, 5)),)),
    "the largest": (largest, lambda rng: (rng.normal(size=(3, 5)),)),
    "an output of 1e-8": (lambda x: (1e-8 * np.sin(x), lambda dy: 1e-8 * np.cos(x) * dy), lambda rng: (rng.normal(size=5),)),
    "an output of 1e300": (
        lambda x: (1e300 * np.sin(x), lambda dy: 1e300 * np.cos(x) * dy),
        lambda rng: (rng.normal(size=5),),
    ),
    "an output of zeros": (lambda x: (0 * x, lambda dy: 0 * dy), lambda rng: (rng.normal(size=5),)),
    "x itself": (lambda x: (x, lambda dy: dy), lambda rng: (rng.normal(size=5),)),
    "a view of x": (lambda x: (x[::-1], lambda dy: dy[::-1]), lambda rng: (rng.normal(size=5),)),
    "logarithm of small numbers": (lambda x: (np.log(x), lambda dy: dy / x), lambda rng: (10.0 ** rng.uniform(-60, 0, 5),)),
    "root of small numbers": (
        lambda x: (np.sqrt(x), lambda dy: dy / (2 * np.sqrt(x))),
        lambda rng: (10.0 ** rng.uniform(-60, 0, 5),),
    ),
    "a minimum above 0": (lambda x: (1 + (x - 1) * (x - 1), lambda dy: 2 * (x - 1) * dy), lambda rng: (np.ones(5),)),
}


NASTIEST = {
    "layer norm, rows of spread 1e-6",
    "softmax over [0, 40]",
    "softmax of ±700",
    "sigmoid at ±700",
    "layer norm, rows of spread 1e-6 around 1e6",
    "relu at exact 0",
}


def seeds_for(place):
    return MANY_SEEDS if place in NASTIEST else SEEDS


@pytest.mark.parametrize("place", PLACES)
def test_a_right_backward_passes(place):
    seeds = seeds_for(place)
    verdicts = never_accused(*PLACES[place], seeds=seeds)
    assert verdicts["inconclusive"] <= 0.05 * len(seeds), verdicts


HOPELESS = {
    "attention of deviation 10": (
        attention,
        lambda rng: (10 * rng.normal(size=(3, 2)), 10 * rng.normal(size=(5, 2)), rng.normal(size=(5, 4))),
    ),
    "softmax of ±700": (softmax, lambda rng: (rng.uniform(-700, 700, (3, 5)),)),
    "a minimum": (lambda x: ((x - 1) * (x - 1), lambda dy: 2 * (x - 1) * dy), lambda rng: (np.ones(5),)),
    "an output of 1e-300": (
        lambda x: (1e-300 * np.sin(x), lambda dy: 1e-300 * np.cos(x) * dy),
        lambda rng: (rng.normal(size=5),),
    ),
    "linear at 1e10": (linear, lambda rng: (1e10 * rng.normal(size=(3, 5)), rng.normal(size=(5, 2)), rng.normal(size=2))),
    "sigmoid at ±700": (sigmoid, lambda rng: (rng.uniform(-700, 700, (3, 5)),)),
    "layer norm, rows of spread 1e-6 around 1e6": (layer_norm, partial(rows, spread=1e-6, offset=1e6)),
    "layer norm, no eps, spread 1e-6 around 1e3": (partial(layer_norm, eps=0.0), partial(rows, spread=1e-6, offset=1e3)),
    "layer norm of constant rows": (layer_norm, partial(rows, spread=0.0, offset=1e6)),
    "layer norm at 1e6": (layer_norm, partial(rows, offset=1e6)),
    "softmax at 1e10": (softmax, lambda rng: (1e10 + 1e3 * rng.normal(size=(3, 5)),)),
    "silu at 1e10": (silu, lambda rng: (1e10 * rng.uniform(-1, 1, size=(3, 5)),)),
    "attention of deviation 1e3": (
        attention,
        lambda rng: (1e3 * rng.normal(size=(3, 2)), 1e3 * rng.normal(size=(5, 2)), rng.normal(size=(5, 4))),
    ),
    "the largest of ties": (largest, lambda rng: (np.round(rng.normal(size=(3, 5))),)),
    "denormals": (silu, lambda rng: (1e-310 * rng.normal(size=(3, 5)),)),
    "weights of denormals": (
        linear,
        lambda rng: (1e-310 * rng.normal(size=(3, 5)), rng.normal(size=(5, 2)), 1e-310 * rng.normal(size=2)),
    ),
    "plain relu at exact 0": (plain_relu, lambda rng: (np.round(rng.normal(size=(3, 5))),)),
    "difference of nearly equal numbers": (
        lambda x: ((x + 1e8) - 1e8 + x * x, lambda dy: (1 + 2 * x) * dy),
        lambda rng: (rng.normal(size=(3, 5)),),
    ),
}


@pytest.mark.parametrize("place", HOPELESS)
def test_a_right_backward_is_not_accused_where_little_can_be_proved(place):
    never_accused(*HOPELESS[place], seeds=seeds_for(place))


@pytest.mark.parametrize(
    "place",
    ["layer norm, rows of spread 1e-6 around 1e6", "layer norm, no eps, spread 1e-6 around 1e3", "an output of 1e-300"],
)
def test_agreement_that_proves_nothing_does_not_pass(place):
    assert never_accused(*HOPELESS[place], seeds=range(5))["pass"] == 0


@pytest.mark.long
@pytest.mark.parametrize("place", {**PLACES, **HOPELESS})
def test_a_right_backward_is_not_accused_on_many_seeds(place):
    never_accused(*{**PLACES, **HOPELESS}[place], seeds=range(200, 1200))


# Against differences, which see less.


SEEN_BY_DIFFERENCES = [
    "layer norm",
    "layer norm, no eps",
    "layer norm, rows of spread 1e-6",
    "layer norm, rows of spread 1e3",
    "softmax",
    "softmax of ±700 alone",
    "softmax at 1e4",
    "softmax of ties",
    "softmax with masked slots",
    "log-softmax at 1e4",
    "attention",
    "silu",
    "silu at ±700",
    "linear",
    "linear, zero bias",
    "linear, scales far apart",
    "relu",
    "relu at exact 0",
    "relu, all negative",
    "relu of zeros",
    "the largest",
    "an output of 1e-8",
    "an output of 1e300",
    "an output of zeros",
    "x itself",
    "a view of x",
    "a minimum above 0",
]


@pytest.mark.parametrize("place", {**PLACES, **HOPELESS})
def test_a_right_backward_is_not_accused_by_differences(place):
    verdicts = never_accused(*{**PLACES, **HOPELESS}[place], seeds=range(2), truth="difference")
    assert verdicts["pass"] or place not in SEEN_BY_DIFFERENCES


@pytest.mark.long
@pytest.mark.parametrize("place", {**PLACES, **HOPELESS})
def test_a_right_backward_is_not_accused_by_differences_on_many_seeds(place, capsys):
    seeds = range(100)
    verdicts = never_accused(*{**PLACES, **HOPELESS}[place], seeds=seeds, truth="difference")
    with capsys.disabled():
        print(f"\n{place}: {verdicts['pass']} pass, {verdicts['inconclusive']} inconclusive")
    if place in SEEN_BY_DIFFERENCES:
        assert verdicts["pass"] > 0.8 * len(seeds), verdicts


# Gradients that are truly zero.


def attention_with_key_bias(q, k, v, bias):
    y, backward = attention(q, k + bias, v)

    def backward_with_bias(dy):
        dq, dk, dv = backward(dy)
        return dq, dk, dv, dk.sum(0)

    return y, backward_with_bias


@pytest.mark.parametrize("size", [1e-3, 1.0, 30.0])
def test_the_key_bias_of_attention_passes_as_zero_to_rounding(size):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        arrays = rng.normal(size=(3, 2)), rng.normal(size=(5, 2)), rng.normal(size=(5, 4)), size * rng.normal(size=2)
        report = check(attention_with_key_bias, *arrays, seed=seed)
        assert report.ok, report
        assert "note: the gradient of bias is zero to rounding" in str(report)
        assert report.power < 1e-6


@pytest.mark.parametrize("wrong", ["of the queries", "a thousandth"])
def test_a_wrong_gradient_of_the_key_bias_fails(wrong):
    def op(q, k, v, bias):
        y, backward = attention_with_key_bias(q, k, v, bias)

        def wrong_backward(dy):
            dq, dk, dv, _ = backward(dy)
            return dq, dk, dv, dq.sum(0) if wrong == "of the queries" else dv.sum() * np.full(2, 1e-3)

        return y, wrong_backward

    rng = np.random.default_rng(0)
    report = check(op, rng.normal(size=(3, 2)), rng.normal(size=(5, 2)), rng.normal(size=(5, 4)), rng.normal(size=2))
    assert report.verdict == "fail", report


@pytest.mark.parametrize("offset", [130.0, 1.3e4])
@pytest.mark.parametrize("width", [5, 8])
def test_a_shift_that_a_norm_takes_out_again_is_not_accused(offset, width):
    def op(x, shift):
        y, backward = layer_norm(x + shift, np.ones(width), np.zeros(width))

        def backward_of_both(dy):
            dx, _, _ = backward(dy)
            return dx, dx.sum()

        return y, backward_of_both

    never_accused(op, lambda rng: (rng.normal(size=(3, width)), np.array(offset)), range(40))
    never_accused(
        lambda shift: (lambda y, back: (y, lambda dy: back(dy)[1]))(
            *op(np.linspace(0, 1, 3 * width).reshape(3, width), shift)
        ),
        lambda rng: (np.array(offset * (1 + rng.random())),),
        range(20),
    )


# Precisions.


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(
    "place", [place for place in PLACES if not any(number in place for number in ("1e3", "1e4", "1e10", "e300", "small"))]
)
def test_a_right_backward_in_low_precision_is_not_accused(dtype, place):
    op, draw = PLACES[place]

    def in_low_precision(rng):
        return [np.clip(array, -6e4, 6e4).astype(dtype) for array in draw(rng)]

    never_accused(op, in_low_precision, range(4))


def test_layer_norm_in_float32_on_rows_without_digits_to_spare_is_not_accused():
    def draw(rng):
        return [array.astype(np.float32) for array in rows(rng, spread=1.0, offset=1e5)]

    never_accused(layer_norm, draw)


def test_arrays_of_mixed_precision():
    def op(x, w):
        return x * w.astype(x.dtype), lambda dy: (dy * w.astype(dy.dtype), (dy * x).sum(0).astype(w.dtype))

    rng = np.random.default_rng(0)
    assert check(op, rng.normal(size=(3, 5)), rng.normal(size=5).astype(np.float32)).ok


def test_gradients_that_float16_cannot_hold_are_not_accused():
    x = np.array([3.0, -5.0, 0.5], np.float16)
    with np.errstate(over="ignore"):
        never_accused(lambda x: (x * 30000 * 3, lambda dy: dy * 30000 * 3), lambda rng: (x,), range(5))
        never_accused(lambda x: (x * 1e-5 * 1e-4, lambda dy: dy * 1e-5 * 1e-4), lambda rng: (x,), range(5))


# Shapes.


@pytest.mark.parametrize("shape", [(), (1,), (0,), (0, 5), (3, 0), (1, 1, 1), (2, 3, 5, 2)])
def test_shapes(shape):
    report = check(lambda x: (np.sin(x), lambda dy: np.cos(x) * dy), np.random.default_rng(0).normal(size=shape))
    assert report.ok, report
    assert not report.findings


def test_scalars_out():
    """A sum is a NumPy number and not an array; so may a gradient be."""
    x = np.random.default_rng(0).normal(size=(3, 5))
    assert check(lambda x: ((x * x).sum(), lambda dy: 2 * x * dy), x).ok
    assert check(lambda x: (x * x * x, lambda dy: np.float64(3 * x * x * dy)), np.array(1.5)).ok


def test_empty_beside_full():
    rng = np.random.default_rng(0)
    report = check(linear, rng.normal(size=(0, 5)), rng.normal(size=(5, 2)), rng.normal(size=2))
    assert report.ok, report
    assert check(linear, rng.normal(size=(3, 0)), rng.normal(size=(0, 2)), rng.normal(size=2)).ok


def test_a_gradient_that_is_a_read_only_view():
    def op(x):
        return x.sum(0), lambda dy: np.broadcast_to(dy, x.shape)

    assert check(op, np.random.default_rng(0).normal(size=(3, 5))).ok


def test_a_layout_of_the_caller_changes_nothing():
    x = np.random.default_rng(0).normal(size=(5, 3)).T[:, ::-1]
    x.flags.writeable = False
    assert check(softmax, x).ok


# What masked slots hold.


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_masked_slots_may_hold_anything(poison):
    keep = np.array([[True, False, True], [True, True, True], [False, False, True]])

    def op(x, keep):
        seen = np.where(keep, x, 0)
        return seen * seen, lambda dy: (2 * seen * dy, None)

    def draw(rng):
        return np.where(keep, rng.normal(size=(3, 3)), poison), keep

    assert never_accused(op, draw, range(20))["pass"] == 20


def test_a_bias_of_minus_infinity():
    def op(scores, bias):
        y, backward = softmax(scores + bias)

        def backward_of_both(dy):
            ds = backward(dy)
            return ds, ds.sum(0)

        return y, backward_of_both

    def draw(rng):
        return rng.normal(size=(3, 5)), np.array([0.3, -np.inf, 0.1, -np.inf, -0.7])

    assert never_accused(op, draw, range(20))["pass"] == 20


def test_minus_infinity_that_is_multiplied():
    """The complex step gives NaN there, the forward does not: nothing can be said, and nothing is."""

    def op(bias):
        y, backward = softmax(3 * bias)
        return y, lambda dy: 3 * backward(dy)

    never_accused(op, lambda rng: (np.array([0.3, -np.inf, 0.1]),), range(20))


def test_outputs_of_minus_infinity():
    never_accused(log_softmax, lambda rng: (np.array([0.3, -np.inf, 0.1]),), range(20))


# Arguments.


def test_several_outputs():
    def op(x, w):
        return (x * w, (x * x).sum(), np.exp(w)), lambda da, db, dc: (da * w + 2 * x * db, (da * x).sum(0) + dc * np.exp(w))

    def draw(rng):
        return rng.normal(size=(3, 5)), rng.normal(size=5)

    assert never_accused(op, draw, range(20))["pass"] == 20


def test_an_integer_output_has_no_cotangent():
    def op(x):
        return (x * x, x.real.argmax(), x.shape[0], x.real > 0), lambda dy: 2 * x * dy

    assert check(op, np.random.default_rng(0).normal(size=5)).ok


def test_a_floating_output_that_does_not_depend_on_the_arrays():
    def op(x):
        return (x * x, np.float64(len(x))), lambda dy, dn: 2 * x * dy

    assert check(op, np.random.default_rng(0).normal(size=5)).ok


def embedding(ids, table, keep=None, scale=1.0):
    def backward(dy):
        dtable = np.zeros_like(table)
        np.add.at(dtable, ids, scale * dy)
        return dtable

    return scale * table[ids], backward


@pytest.mark.parametrize("ids", [np.array([2, 0, 2]), np.array([[1], [1]], np.int8), np.zeros((0, 2), np.uint16)])
def test_integer_boolean_and_other_arguments(ids):
    table = np.random.default_rng(0).normal(size=(4, 3))
    report = check(embedding, ids, table, keep=np.array([True, False]), scale=1.5)
    assert report.ok, report
    assert check(embedding, ids, table=table, keep=None).ok


@pytest.mark.parametrize("in_their_place", [(None, "table"), ("table",), (None, "table", None)])
def test_none_may_stand_in_the_place_of_an_integer_gradient(in_their_place):
    def op(ids, table, keep):
        y, backward = embedding(ids, table)
        return y, lambda dy: tuple(backward(dy) if each else None for each in in_their_place)

    arguments = np.array([2, 0, 2]), np.random.default_rng(0).normal(size=(4, 3)), np.array([True])
    report = check(op, *arguments)
    assert report.ok or len(in_their_place) == 2  # one None for two arrays says nothing
    assert report.verdict != "pass" or len(in_their_place) != 2


def test_keywords_in_the_order_of_the_signature():
    def op(x, *, weight, bias):
        return x * weight + bias, lambda dy: (dy * weight, (dy * x).sum(0), dy.sum(0))

    rng = np.random.default_rng(0)
    x, weight, bias = rng.normal(size=(3, 5)), rng.normal(size=5), rng.normal(size=5)
    assert check(op, x, weight=weight, bias=bias).ok
    assert check(op, x, bias=bias, weight=weight).ok
    report = check(op, bias=bias, x=x, weight=weight)
    assert report.ok, report
    swapped = check(lambda x, *, weight, bias: op(x, weight=bias, bias=weight), x, bias=bias, weight=weight)
    assert swapped.verdict == "fail"


def test_any_number_of_arguments():
    def op(*arrays):
        return sum(i * array * array for i, array in enumerate(arrays)), lambda dy: tuple(
            2 * i * array * dy for i, array in enumerate(arrays)
        )

    rng = np.random.default_rng(0)
    assert check(op, *(rng.normal(size=4) for _ in range(5))).ok

    def one_wrong(*arrays):
        y, backward = op(*arrays)
        return y, lambda dy: (*backward(dy)[:3], 1.5 * backward(dy)[3], backward(dy)[4])

    report = check(one_wrong, *(rng.normal(size=4) for _ in range(5)))
    assert report.verdict == "fail"
    assert report.worst.argument == "arrays[3]"


def test_any_keywords():
    def op(x, **weights):
        return sum(x * weight for weight in weights.values()), lambda dy: (
            sum(dy * weight for weight in weights.values()),
            *(dy * x for _ in weights),
        )

    rng = np.random.default_rng(0)
    assert check(op, rng.normal(size=4), second=rng.normal(size=4), first=rng.normal(size=4)).ok


class WithoutSignature:
    """Callable, but inspect cannot say with what."""

    __signature__ = "unknown"

    def __call__(self, x, w):
        return x * w, lambda dy: (dy * w, dy * x)


@pytest.mark.parametrize("op", [WithoutSignature(), partial(lambda eps, x, w: (x * w, lambda dy: (dy * w, dy * x)), 1e-5)])
def test_callables_of_other_kinds(op):
    rng = np.random.default_rng(0)
    report = check(op, rng.normal(size=4), rng.normal(size=4))
    assert report.ok, report


@pytest.mark.parametrize("by_keyword", [False, True])
def test_a_generator_is_copied_afresh_for_every_call(by_keyword):
    def dropout(x, rng):
        mask = (rng.random(x.shape) >= 0.5) / 0.5
        return x * mask, lambda dy: dy * mask

    x, rng = np.random.default_rng(0).normal(size=(5, 7)), np.random.default_rng(1)
    before = rng.bit_generator.state
    report = check(dropout, x, rng=rng) if by_keyword else check(dropout, x, rng)
    assert report.ok, report
    assert rng.bit_generator.state == before


def test_the_arrays_of_the_caller_are_left_alone():
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(3, 5)), rng.normal(size=(5, 2)), rng.normal(size=2)]
    before = [array.copy() for array in arrays]
    check(linear, *arrays)
    assert all(np.array_equal(array, old) for array, old in zip(arrays, before, strict=True))


# Ops that do not take everything that is tried on them.


def test_a_refused_layout_is_a_note():
    def op(x):
        if min(x.strides) < 0:
            raise ValueError("strides must not be negative")
        return x * x, lambda dy: 2 * x * dy

    report = check(op, np.random.default_rng(0).normal(size=(3, 5)))
    assert report.ok
    assert "note: refuses reversed arrays: ValueError: strides must not be negative" in str(report)


def test_a_refused_read_only_buffer_is_a_note():
    def op(x):
        if not x.flags.writeable:
            raise ValueError("buffer source array is read-only")
        return x * x, lambda dy: 2 * x * dy

    assert check(op, np.random.default_rng(0).normal(size=(3, 5))).ok


def within(low, high):
    def op(x):
        if not np.iscomplexobj(x) and ((x < low) | (x > high)).any():
            raise ValueError(f"x must lie between {low} and {high}")
        return x * x * x, lambda dy: 3 * x * x * dy

    return op


@pytest.mark.parametrize(
    ("low", "high", "x"),
    [
        (0, 1, [0.0, 0.25, 1.0]),
        (0, np.inf, [0.0, 0.0, 3.0]),
        (0, np.inf, [0.0, 0.0]),
        (1, np.inf, [1.0, 2.0, 3.0]),
        (-1, 1, [-1.0, 1.0]),
    ],
)
def test_the_domain_may_end_where_the_arrays_are(low, high, x):
    report = check(within(low, high), np.array(x))
    assert report.verdict != "fail", report


def test_a_function_of_one_point_only_is_inconclusive():
    x = np.array([1.0, 2.0, 3.0])

    def op(given):
        if not np.array_equal(given.real, x):
            raise ValueError("only one, two, three")
        return given * given, lambda dy: 2 * given * dy

    report = check(op, x)
    assert report.verdict == "inconclusive", report


def test_an_output_that_does_not_depend_on_the_array_at_all():
    report = check(lambda x: (np.ones(3) + 0 * x.sum(), lambda dy: np.zeros_like(x)), np.ones(5))
    assert report.ok, report
