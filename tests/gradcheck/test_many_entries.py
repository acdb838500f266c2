"""Arrays of many entries are compared along directions: cheaply, and every entry is still seen."""

from functools import wraps
from itertools import chain, product

import numpy as np
import pytest

from gradcheck import check, check_layer, directions
from gradcheck.comparison import lengthening
from gradcheck.directions import directions_in, moved_together, numbers_of_directions
from gradcheck.truth import COMPLEX_STEP

LIMITS = (COMPLEX_STEP.entry_by_entry, COMPLEX_STEP.most_directions)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


# An operation of 20,180 entries, and what may be wrong with one of its gradients.


def dense(x, W, b):
    y = np.tanh(x @ W + b)

    def backward(dy):
        dz = dy * (1 - y * y)
        return dz @ W.T, x.T @ dz, dz.sum(0)

    return y, backward


def arrays_of(n=100, m=180, seed=0):
    return normal(20, n, seed=seed), normal(n, m, seed=seed + 1) * n**-0.5, normal(m, seed=seed + 2)


def square(x):
    return x * x, lambda dy: (2 * x * dy,)


def changed(place, change, op=dense):
    """`op`, one of whose gradients is what `change` makes of it, of dy and of the arrays."""

    @wraps(op)
    def wrong(*arrays):
        y, backward = op(*arrays)

        def wrong_backward(dy):
            gradients = [np.array(gradient) for gradient in backward(dy)]
            gradients[place] = change(gradients[place], dy, *arrays)
            return tuple(gradients)

        return y, wrong_backward

    return wrong


def entry(index, change):
    """One entry of a gradient changed."""

    def changed_entry(gradient, *_):
        gradient[index] = change(gradient[index])
        return gradient

    return changed_entry


def several(indices, error):
    def changed_entries(gradient, dy, *_):
        for k, index in enumerate(indices):
            gradient[index] += (-1) ** k * error * np.abs(dy).max()
        return gradient

    return changed_entries


def evaluations(n, m):
    report = check(dense, *arrays_of(n, m))
    assert report.ok, report
    assert report.n_entries == 20 * n + n * m + m
    return report.n_evaluations / report.n_entries**0.5


def test_a_right_operation_passes_at_the_price_of_few_evaluations():
    assert evaluations(100, 180) < 4.2
    assert evaluations(300, 400) < 4


def test_the_first_line_says_what_was_done():
    report = check(dense, *arrays_of())
    assert 200 <= report.n_directions <= 250
    assert str(report).startswith(
        f"PASS dense: 20,180 entries along {report.n_directions} directions against complex step, "
        f"{report.n_evaluations} forward evaluations, errors above "
    )
    assert " along direction " in str(report).splitlines()[1]
    assert report.findings == []
    small = check(dense, normal(2, 3), normal(3, 2), normal(2))
    assert small.n_directions == 0
    assert str(small).startswith("PASS dense: 14 entries against complex step, ")
    assert " along " not in str(small)


def test_the_entries_are_taken_one_by_one_up_to_a_number_of_them():
    limit = COMPLEX_STEP.entry_by_entry
    assert check(square, normal(limit)).n_directions == 0
    assert check(square, normal(limit + 1)).n_directions == 250


@pytest.mark.parametrize("index", [(0, 0), (57, 101), (99, 179)])
@pytest.mark.parametrize("factor", [1 + 1e-6, 1.001, 2.0, -1.0, 0.0, np.nan, np.inf])
def test_one_wrong_entry_is_found_and_named(index, factor):
    report = check(changed(1, entry(index, lambda number: factor * number)), *arrays_of())
    assert report.verdict == "fail", report
    assert (report.worst.argument, report.worst.index) == ("W", index)
    at = f"[{index[0]}, {index[1]}]"
    assert f"fail: the gradient of W is wrong, for one at {at}: 1 of " in str(report)
    assert f"worst  gradient of W{at}: returned " in str(report)
    if np.isfinite(factor):
        assert report.worst.actual == pytest.approx(factor * report.worst.truth, rel=1e-8)
        assert report.worst.ratio > 1


def test_the_values_of_the_entry_are_those_of_an_entry_by_entry_check(monkeypatch):
    op, arrays = changed(1, entry((3, 5), lambda number: 1.25 * number)), arrays_of(30, 40)
    along = check(op, *arrays).worst
    monkeypatch.setattr(COMPLEX_STEP, "entry_by_entry", 10**6)
    alone = check(op, *arrays).worst
    assert alone.index == along.index == (3, 5)
    assert along.actual / along.truth == pytest.approx(alone.actual / alone.truth, rel=1e-12)


@pytest.mark.parametrize("index", [123, 456, 789, 1000])
def test_the_truth_of_a_small_entry_among_large_ones_has_all_its_digits(index):
    x = normal(1001) * 1e3
    x[index] = 1e-3
    report = check(changed(0, entry(index, lambda number: 2.0**40 * number), square), x)
    assert report.worst.index == (index,)
    assert report.worst.actual == pytest.approx(2.0**40 * report.worst.truth, rel=1e-14)


def scaled_row(dW, *_):
    dW[41] *= 1.01
    return dW


def scaled_column(dW, *_):
    dW[:, 17] *= 1.01
    return dW


WRONG = {
    "a row scaled": scaled_row,
    "a column scaled": scaled_column,
    "doubled": lambda dW, *_: 2 * dW,
    "negative": lambda dW, *_: -dW,
    "off by a little everywhere": lambda dW, *_: dW * (1 + 1e-7),
    "zeros": lambda dW, *_: np.zeros_like(dW),
    "a missing term": lambda dW, dy, x, W, b: x.T @ dy,
    "a row of x forgotten": lambda dW, dy, x, W, b: x[1:].T @ (dy * (1 - np.tanh(x @ W + b) ** 2))[1:],
    "positive entries only": lambda dW, *_: np.maximum(dW, 0),
    "positive entries wrong": lambda dW, *_: np.where(dW > 0, 1.001 * dW, dW),
    "a constant too much": lambda dW, dy, *_: dW + 1e-5 * np.abs(dy).mean(),
    "noise": lambda dW, dy, *_: dW + 1e-6 * np.abs(dy).mean() * normal(*dW.shape, seed=5),
    "float32 inside": lambda dW, *_: dW.astype(np.float32).astype(np.float64),
    "in the other order": lambda dW, *_: dW[::-1].copy(),
    "two errors that cancel in a sum": several([(3, 5), (70, 150)], 1e-3),
    "four errors that cancel in a sum": several([(3, 5), (70, 150), (70, 151), (71, 150)], 1.0),
}


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_gradient_fails(fault):
    report = check(changed(1, WRONG[fault]), *arrays_of())
    assert report.verdict == "fail", report
    assert "fail: the gradient of W is wrong, for one at [" in str(report)
    assert report.worst.argument == "W"
    assert len(report.worst.index) == 2
    assert report.worst.error > 0


def test_a_transposed_square_gradient_fails():
    report = check(changed(1, lambda dW, *_: dW.T.copy()), *arrays_of(140, 140))
    assert report.verdict == "fail", report
    assert report.worst.argument == "W"


@pytest.mark.parametrize("seed", range(10))
def test_errors_that_cancel_within_one_direction_or_nearly_so_are_found(seed):
    """With few directions the two are often in the same."""
    i, j = np.random.default_rng(seed).choice(1000, 2, replace=False)
    report = check(changed(0, several([(i,), (j,)], 1e-4), square), normal(1000), seed=seed)
    assert report.verdict == "fail", report
    assert report.worst.index in [(i,), (j,)]


def test_a_wrong_small_array_beside_a_large_one_is_named_as_it_is_among_small_ones():
    report = check(changed(2, entry((7,), lambda number: 1.001 * number)), normal(20, 100), normal(100, 30), normal(30))
    assert report.verdict == "fail", report
    assert (report.worst.argument, report.worst.index) == ("b", (7,))
    assert "fail: the gradient of b: 1 of 30 entries are wrong, one of them [7]" in str(report)


@pytest.mark.parametrize("seed", range(10))
def test_the_power_is_what_would_have_been_seen_in_any_entry(monkeypatch, seed):
    drawn = []
    monkeypatch.setattr(
        "gradcheck.runs.directions_in", lambda *arguments: drawn.append(directions_in(*arguments)) or drawn[-1]
    )
    x = normal(2000, seed=seed)
    power = check(square, x, seed=seed).power
    assert 1e-10 < power < 1e-8
    ((own,),) = drawn
    index = int(own.entries[np.abs(own.weights).argmin()])

    def off_by(error):
        return changed(0, lambda dx, *_: entry(index, lambda number: number + error * np.abs(dx).max())(dx), square)

    assert check(off_by(1.1 * power), x, seed=seed).verdict == "fail"
    assert check(off_by(0.1 * power), x, seed=seed).verdict == "pass"


@pytest.mark.parametrize("rtol", [1e-5, 1e-3])
def test_an_agreement_that_the_caller_asks_for_is_enough(rtol):
    noisy = changed(1, lambda dW, *_: dW + 0.1 * rtol * np.abs(dW).max() * normal(*dW.shape, seed=5).clip(-2, 2))
    assert check(noisy, *arrays_of()).verdict == "fail"
    report = check(noisy, *arrays_of(), rtol=rtol)
    assert report.ok, report
    assert report.power > rtol


# What is stopped.


def padded(padding):
    def embedding(ids, table):
        def backward(dy):
            dtable = np.zeros_like(table)
            np.add.at(dtable, ids, dy)
            dtable[padding] = 0
            return dtable

        return np.sin(table[ids]), lambda dy: backward(dy * np.cos(table[ids]))

    return embedding


def test_stopped_entries_take_part_in_no_direction():
    ids, table = np.arange(300) % 97, normal(101, 40)
    stopped = np.zeros(table.shape, bool)
    stopped[3] = True
    assert check(padded(3), ids, table, stopped={"table": stopped}).ok
    assert check(padded([]), ids, table, stopped={"table": stopped}).verdict == "fail"
    wrong = check(padded(3), ids, table)
    assert wrong.verdict == "fail"
    assert wrong.worst.index[0] == 3
    wrong = check(padded([3, 4]), ids, table, stopped={"table": stopped})
    assert wrong.verdict == "fail"
    assert wrong.worst.index[0] == 4


def test_an_array_that_is_stopped_as_a_whole():
    op = changed(1, lambda dW, *_: np.zeros_like(dW))
    assert check(op, *arrays_of(), stopped={"W": np.ones((100, 180), bool)}).ok
    assert check(op, *arrays_of()).verdict == "fail"


# Layers, and many arrays.


class Parameter:
    def __init__(self, value):
        self.value, self.grad = value, np.ones_like(value)


class Stack:
    """Many small dense layers, one after another."""

    def __init__(self, n=12, width=30, dtype=np.float64, wrong=None):
        self.weights = [Parameter((normal(width, width, seed=i) * width**-0.5).astype(dtype)) for i in range(n)]
        self.biases = [Parameter(normal(width, seed=100 + i).astype(dtype)) for i in range(n)]
        self.wrong = wrong

    def parameters(self):
        names = {f"{i}.weight": weight for i, weight in enumerate(self.weights)}
        return {**names, **{f"{i}.bias": bias for i, bias in enumerate(self.biases)}}

    def forward(self, x):
        backwards = []
        for weight, bias in zip(self.weights, self.biases, strict=True):
            y, backward = dense(x, weight.value, bias.value)
            backwards.append(backward)
            x = y + x

        def backward_of_all(dy):
            for i, backward in reversed(list(enumerate(backwards))):
                dx, dW, db = backward(dy)
                if i == self.wrong:
                    dW[11, 13] *= 1.001
                self.weights[i].grad += dW
                self.biases[i].grad += db
                dy = dx + dy
            return dy

        return x, backward_of_all


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_layer_of_many_entries(dtype):
    layer = Stack(dtype=dtype)
    before = [(p, p.value, p.value.copy(), p.grad, p.grad.copy()) for p in layer.parameters().values()]
    report = check_layer(layer, normal(3, 30, seed=9).astype(dtype))
    assert report.ok, report
    assert report.n_entries == 12 * (900 + 30) + 90
    for parameter, value, numbers, grad, added in before:
        assert parameter.value is value and parameter.grad is grad
        assert np.array_equal(value, numbers) and np.array_equal(grad, added)
    wrong = check_layer(Stack(dtype=dtype, wrong=7), normal(3, 30, seed=9).astype(dtype))
    assert wrong.verdict == "fail"
    assert (wrong.worst.argument, wrong.worst.index) == ("7.weight", (11, 13))


def test_many_arrays_cost_a_few_evaluations_each():
    report = check_layer(Stack(35, 17), normal(3, 17, seed=9))
    assert report.ok, report
    assert report.n_directions <= 250
    assert report.n_evaluations < 750


def test_a_forward_that_clears_its_gradients_leaves_those_of_the_caller_alone():
    class Clearing(Stack):
        def forward(self, x):
            for parameter in self.parameters().values():
                parameter.grad[...] = 0
            return super().forward(x)

    layer = Clearing()
    check_layer(layer, normal(3, 30))
    assert all((parameter.grad == 1).all() for parameter in layer.parameters().values())


@pytest.mark.parametrize("influence", [1.0, 1e-5])
def test_a_forward_that_casts_one_of_many_arrays_to_float_is_compared_with_differences(influence):
    arrays = [normal(60, seed=i) for i in range(20)]

    def op(*arrays):
        seen = [influence * array.real if i == 11 else array for i, array in enumerate(arrays)]
        return sum(np.sin(each) for each in seen), lambda dy: tuple(
            np.zeros_like(each) if i == 11 else np.cos(each) * dy for i, each in enumerate(seen)
        )

    report = check(op, *arrays, truth="complex")
    assert report.verdict == "inconclusive", report
    assert "not complex-safe" in str(report)
    report = check(op, *arrays)
    assert report.verdict == "fail" and report.worst.argument == "arrays[11]", report


# Kinks.


def plain_relu(x):
    return np.maximum(x, 0), lambda dy: (dy * (x > 0),)


def test_kinks_are_excused_and_a_wrong_entry_among_them_is_not():
    x = normal(2000)
    x[::100] = 0
    report = check(plain_relu, x)
    assert report.verdict == "inconclusive", report
    index = int(x.argmax())
    for factor in (1.001, 1 + 1e-7):
        wrong = check(changed(0, entry(index, lambda number, factor=factor: factor * number), plain_relu), x)
        assert wrong.verdict == "fail", wrong
        assert wrong.worst.index == (index,)


def test_ties_that_move_together_are_not_accused():
    def largest(x):
        first = x.argmax(-1)[:, None] == np.arange(x.shape[-1])
        return np.maximum.reduce(x, axis=-1), lambda dy: first * dy[:, None]

    for seed in range(5):
        report = check(largest, np.round(normal(200, 7, seed=seed)), seed=seed)
        assert report.verdict == "inconclusive", report


# Right, in nasty places.


def layer_norm(x, gamma, beta):
    c = x - x.mean(-1, keepdims=True)
    c = c - c.mean(-1, keepdims=True)
    r = 1 / np.sqrt((c * c).mean(-1, keepdims=True) + 1e-5)
    n = c * r

    def backward(dy):
        g = gamma * dy
        dx = r * (g - g.mean(-1, keepdims=True) - n * (g * n).mean(-1, keepdims=True))
        return dx, (dy * n).sum(0), dy.sum(0)

    return gamma * n + beta, backward


def softmax(x):
    e = np.exp(x - x.real.max(-1, keepdims=True))
    y = e / e.sum(-1, keepdims=True)
    return y, lambda dy: y * (dy - (y * dy).sum(-1, keepdims=True))


def attention(q, k, v, bias):
    P, softmax_backward = softmax(q @ (k + bias).T)

    def backward(dy):
        ds = softmax_backward(dy @ v.T)
        return ds @ (k + bias), ds.T @ q, P.T @ dy, (ds.T @ q).sum(0)

    return P @ v, backward


def rows(rng, spread=1.0, offset=0.0):
    return offset + spread * rng.normal(size=(30, 41)), rng.normal(size=41), rng.normal(size=41)


def heads(rng, size=1.0, bias=1.0):
    return size * rng.normal(size=(23, 8)), rng.normal(size=(50, 8)), rng.normal(size=(50, 17)), bias * rng.normal(size=8)


def scales_in_one_array(rng):
    return rng.normal(size=(7, 40)), rng.normal(size=(40, 31)) * 10.0 ** rng.uniform(-6, 4, (40, 1)), rng.normal(size=31)


PLACES = {
    "layer norm": (layer_norm, rows),
    "layer norm at 1e3": (layer_norm, lambda rng: rows(rng, offset=1e3)),
    "layer norm at 1e6": (layer_norm, lambda rng: rows(rng, offset=1e6)),
    "layer norm, rows of spread 1e-6": (layer_norm, lambda rng: rows(rng, spread=1e-6)),
    "layer norm, rows of spread 1e-6 around 1e6": (layer_norm, lambda rng: rows(rng, spread=1e-6, offset=1e6)),
    "softmax": (softmax, lambda rng: (rng.normal(size=(30, 41)),)),
    "softmax of deviation 10": (softmax, lambda rng: (10 * rng.normal(size=(30, 41)),)),
    "softmax of ±700": (softmax, lambda rng: (rng.uniform(-700, 700, (30, 41)),)),
    "softmax at 1e4": (softmax, lambda rng: (1e4 + rng.normal(size=(30, 41)),)),
    "softmax with one sharp row": (softmax, lambda rng: (rng.normal(size=(30, 41)) * np.where(np.eye(30, 1), 300, 1),)),
    "attention": (attention, heads),
    "attention of deviation 10": (attention, lambda rng: heads(rng, size=10.0)),
    "scales far apart": (
        dense,
        lambda rng: (1e4 * rng.normal(size=(7, 40)), 1e-6 * rng.normal(size=(40, 31)), 1e-3 * rng.normal(size=31)),
    ),
    "scales far apart in one array": (dense, scales_in_one_array),
    "logarithm of small numbers": (lambda x: (np.log(x), lambda dy: dy / x), lambda rng: (10 ** rng.uniform(-60, 0, 1001),)),
    "what cancels to nothing": (
        lambda x: (0.1 * x + 0.2 * x - 0.3 * x, lambda dy: np.zeros_like(x)),
        lambda rng: (rng.normal(size=1001),),
    ),
    "what is centred": (
        lambda x: ((x - x.mean(0)).sum(0), lambda dy: np.broadcast_to(dy, x.shape) - np.broadcast_to(dy, x.shape).mean(0)),
        lambda rng: (rng.normal(size=(30, 41)),),
    ),
    "an output of zeros": (lambda x: (0 * x, lambda dy: 0 * dy), lambda rng: (rng.normal(size=1001),)),
}
PROVES_LITTLE = {
    "layer norm at 1e6",
    "layer norm, rows of spread 1e-6 around 1e6",
    "attention of deviation 10",
    "scales far apart in one array",
    "what cancels to nothing",
    "what is centred",
}


@pytest.mark.parametrize("place", PLACES)
def test_a_right_backward_is_not_accused(place):
    op, draw = PLACES[place]
    for seed in range(20):
        report = check(op, *draw(np.random.default_rng(seed)), seed=seed)
        assert report.n_directions
        assert report.verdict != "fail", report
        assert report.ok or place in PROVES_LITTLE, report


def test_a_gradient_that_is_truly_zero_passes():
    arrays = heads(np.random.default_rng(0))
    for bias in (arrays[3], np.zeros(8)):
        report = check(attention, *arrays[:3], bias)
        assert report.ok, report
        assert "note: the gradient of bias is zero to rounding" in str(report)
    wrong = check(changed(3, lambda gradient, dy, *_: gradient + 1e-4 * dy.sum(), attention), *arrays)
    assert wrong.verdict == "fail", wrong
    assert wrong.worst.argument == "bias"


def test_a_large_gradient_that_is_truly_zero_passes():
    """A shift of a whole row, which softmax takes out again."""

    def shifted(x, shift):
        y, backward = softmax(x + shift)
        return y, lambda dy: (backward(dy), backward(dy).sum(-1, keepdims=True))

    report = check(shifted, normal(1100, 3), normal(1100, 1))
    assert report.ok, report
    assert "note: the gradient of shift is zero to rounding" in str(report)


def test_zeros_where_next_to_nothing_could_be_seen_do_not_pass():
    """Of 1e10 and more only the last digits are left."""
    report = check(lambda x: (x - 1e10 + x * 0.0, lambda dy: 0.0 * dy), 1e10 + normal(1001))
    assert report.verdict != "pass", report


# The same for small cases, with the limits lowered.


@pytest.fixture
def few_directions(monkeypatch):
    for name, number in (("entry_by_entry", 4), ("most_directions", 6)):
        monkeypatch.setattr(COMPLEX_STEP, name, number)
    for name, number in (("MANY_ENTRIES", 4), ("MOST_SUMS", 3), ("MOST_ALONE", 2)):
        monkeypatch.setattr(directions, name, number)


SMALL = {
    "dense": (dense, (normal(3, 5), normal(5, 2), normal(2))),
    "layer norm": (layer_norm, (normal(3, 5), normal(5), normal(5))),
    "attention": (attention, (normal(3, 5), normal(7, 5), normal(7, 2), normal(5))),
}
FAULTS = {
    "doubled": lambda gradient, *_: 2 * gradient,
    "negative": lambda gradient, *_: -gradient,
    "zeros": lambda gradient, *_: np.zeros_like(gradient),
    "off by 1e-7": lambda gradient, *_: gradient * (1 + 1e-7),
    "its first entry": entry(0, lambda number: 1.001 * number),
    "its last entry": entry(-1, lambda number: number * (1 + 1e-6)),
    "backwards": lambda gradient, *_: gradient[::-1].copy(),
    "its mean taken out": lambda gradient, *_: gradient - gradient.mean(),
    "rectified": lambda gradient, *_: np.maximum(gradient, 0),
    "not a number": entry(-1, lambda number: number * np.nan),
    "its square": lambda gradient, *_: gradient**2,
}


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("seed", range(5))
def test_small_right_ones_along_directions(few_directions, name, seed):
    op, arrays = SMALL[name]
    report = check(op, *arrays, seed=seed)
    assert report.ok, report
    assert 0 < report.n_directions <= 8


MEAN_OF_ZERO = [("layer norm", 0, "its mean taken out"), ("attention", 1, "its mean taken out")]


@pytest.mark.parametrize(
    ("name", "place", "fault"), [case for case in product(SMALL, range(3), FAULTS) if case not in MEAN_OF_ZERO]
)
def test_small_wrong_ones_along_directions(few_directions, name, place, fault):
    op, arrays = SMALL[name]
    report = check(changed(place, FAULTS[fault], op), *arrays)
    assert report.verdict == "fail", report
    assert "differs when the arrays" not in str(report)


@pytest.mark.parametrize("seed", range(5))
def test_a_wrong_entry_in_a_direction_with_kinks_is_found(few_directions, seed):
    x = normal(40, seed=seed)
    x[::4] = 0
    assert check(plain_relu, x, seed=seed, truth="complex").verdict == "inconclusive"
    assert check(plain_relu, x, seed=seed).ok
    index = int(x.argmax())
    wrong = check(changed(0, entry(index, lambda number: 1.001 * number), plain_relu), x, seed=seed)
    assert wrong.verdict == "fail", wrong
    assert wrong.worst.index == (index,)


@pytest.mark.parametrize("seed", range(5))
def test_a_kink_that_is_none_for_a_single_entry_is_excused(few_directions, monkeypatch, seed):
    """The smaller of |a| and |b| at 0 moves only where both do."""
    monkeypatch.setattr(directions, "MOST_SUMS", 12)  # the directions themselves: sums of them would give it away

    def smaller(x):
        sizes = np.maximum(x, -x)
        first = sizes[:, :1] < sizes[:, 1:]
        return np.minimum(sizes[:, 0], sizes[:, 1]), lambda dy: np.sign(x) * np.concatenate([first, ~first], 1) * dy[:, None]

    report = check(smaller, np.zeros((60, 2)), seed=seed, truth="complex")
    assert report.verdict == "inconclusive", report
    assert "the forward is not complex-safe there" in str(report)


def test_empty_arrays_and_arrays_without_axes_along_directions(few_directions):
    def op(x, a, empty):
        return a * x * x, lambda dy: (2 * a * x * dy, (x * x * dy).sum(), np.zeros_like(empty))

    arrays = normal(3, 5), np.array(1.5), np.zeros((0, 3))
    assert check(op, *arrays).ok
    wrong = check(changed(1, lambda da, *_: np.array(2 * da), op), *arrays)
    assert wrong.verdict == "fail"
    assert (wrong.worst.argument, wrong.worst.index) == ("a", ())


def test_the_same_seed_says_the_same():
    wrong = changed(1, WRONG["noise"])
    assert str(check(wrong, *arrays_of(), seed=3)) == str(check(wrong, *arrays_of(), seed=3))
    assert check(wrong, *arrays_of(), seed=3).worst != check(wrong, *arrays_of(), seed=4).worst


# The directions themselves.


@pytest.mark.parametrize("sizes", [(2000,), (900, 70, 3), (1000, 0, 1), (400, 400, 400), tuple(range(100))])
def test_every_entry_that_is_not_stopped_is_in_exactly_one_direction(sizes):
    rng = np.random.default_rng(0)
    arrays = [normal(size, seed=size) for size in sizes]
    skip = [rng.random(size) < 0.2 for size in sizes]
    for own, array, skipped in zip(directions_in(arrays, skip, rng, *LIMITS), arrays, skip, strict=True):
        parts = [own.of(k) for k in range(len(own))]
        entries = np.concatenate([entries for entries, _ in parts] or [np.zeros(0, int)])
        assert sorted(entries) == np.flatnonzero(~skipped).tolist()
        assert all(len(entries) for entries, _ in parts)
        assert max((len(entries) for entries, _ in parts), default=0) <= len(entries) / max(len(own), 1) + 1
        assert all((0.5 <= abs(weights)).all() and (abs(weights) <= 1.5).all() for _, weights in parts)
        gradient = np.where(skipped, np.nan, array)
        expected = [weights @ array[entries] for entries, weights in parts]
        np.testing.assert_allclose(own.along(gradient), expected, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(own.sums().along(gradient), own.summed(own.along(gradient)), rtol=1e-12, atol=1e-12)
        assert own.length == pytest.approx(max((np.sqrt(weights @ weights) for _, weights in parts), default=0))


def test_the_entries_are_dealt_at_random():
    x = normal(2000)
    (first,), (second,) = (directions_in([x], [x > 9], np.random.default_rng(seed), *LIMITS) for seed in (0, 1))
    assert not np.array_equal(first.entries, second.entries)
    steps = np.diff(first.of(0)[0])
    assert len(set(steps)) > 1
    assert (first.weights < 0).any() and (first.weights > 0).any()


@pytest.mark.parametrize("n", [800, 1, 100])
def test_the_sums_are_few_and_about_equally_long(n):
    arrays = [normal(1000), *(normal(n) for _ in range(2))]
    skip = [np.zeros(each.shape, bool) for each in arrays]
    for own in directions_in(arrays, skip, np.random.default_rng(0), *LIMITS):
        sums = own.sums()
        assert len(sums) == min(len(own), 8)
        lengths = [len(sums.of(k)[0]) for k in range(len(sums))]
        assert sum(lengths) == len(own.entries)
        assert max(lengths) <= 1.2 * min(lengths) + 10


def test_by_how_much_derivatives_along_directions_may_be_larger():
    (own,) = directions_in([normal(10**4)], [np.zeros(10**4, bool)], np.random.default_rng(0), *LIMITS)
    assert lengthening(own, np.ones(10**4)) == 1
    assert lengthening(own, np.zeros(10**4)) == 1
    assert lengthening(own, normal(10**4)) == 1
    one_large = np.where(np.arange(10**4) == 3, 1e3, 1e-3)
    assert lengthening(own, one_large) == pytest.approx(own.length, rel=1e-6)
    assert lengthening(own, np.where(np.arange(10**4) == 5, np.nan, one_large)) == pytest.approx(own.length, rel=1e-6)
    assert 6 < own.length < 7.5


@pytest.mark.parametrize(
    ("sizes", "numbers"),
    [
        ((2000,), [250]),
        ((900, 100, 3), [147, 100, 3]),
        ((10**6, 10**4), [225, 24]),
        ((0, 10**6), [0, 250]),
        ((10**4,) * 70, [3] * 70),
        ((10**3,) * 200, [2] * 200),
        ((1,) * 1000, [1] * 1000),
        ((), []),
    ],
)
def test_the_numbers_of_directions(sizes, numbers):
    assert numbers_of_directions(sizes, COMPLEX_STEP.most_directions) == numbers


def test_few_entries_are_moved_as_ever_and_draw_nothing():
    arrays, rng = [normal(3, 5), normal(2)], np.random.default_rng(0)
    skip = [np.eye(3, 5) > 0, np.zeros(2, bool)]
    first, second = directions_in(arrays, skip, rng, *LIMITS)
    assert first.entries.tolist() == [1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 13, 14]
    assert (first.weights == 1).all() and (second.weights == 1).all()
    assert len(first) == 12 and len(second) == 2
    assert rng.bit_generator.state == np.random.default_rng(0).bit_generator.state
    assert moved_together([normal(3)] * 20) == [[i] for i in range(20)]


def test_large_arrays_are_moved_in_few_groups():
    groups = moved_together([normal(100)] * 20)
    assert len(groups) == directions.MOST_ALONE
    assert sorted(chain.from_iterable(groups)) == list(range(20))
    assert moved_together([normal(1000)] * 3) == [[0], [1], [2]]
