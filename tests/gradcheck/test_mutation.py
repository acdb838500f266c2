"""Mutants of operations made up for the purpose, and what a check makes of them."""

import doctest
import functools
import importlib.util
import inspect
import warnings

import numpy as np
import pytest

import gradcheck.mutation
from gradcheck import check
from gradcheck.mutants import LEFT_OUT, Source
from gradcheck.mutation import score


def numbers(rng):
    return rng.normal(size=(3, 5))


@pytest.fixture
def load(tmp_path):
    """The last function of a file with the given lines."""

    def load(text):
        path = tmp_path / "op.py"
        path.write_text(inspect.cleandoc(text) + "\n", encoding="utf-8")
        spec = importlib.util.spec_from_file_location("op", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return [value for value in vars(module).values() if inspect.isfunction(value)][-1]

    return load


# Which mutants are made.

MADE = [
    ("return dy + x", "a term dropped", {"return dy", "return x"}),
    ("return dy - x", "a term dropped", {"return dy", "return -x"}),
    ("return dy - x", "a sign turned", {"return dy + x", "return -(dy - x)"}),
    ("return dy + x", "a sign turned", {"return dy - x", "return -(dy + x)"}),
    ("return -dy", "a sign turned", {"return dy"}),
    ("return dy * x", "a factor dropped", {"return dy", "return x"}),
    ("return dy * x", "a factor doubled", {"return dy * x * x", "return dy * (dy * x)"}),
    ("return dy * x", "a gradient doubled", {"return 2 * (dy * x)"}),
    ("return dy / x", "a factor dropped", {"return dy", "return 1 / x"}),
    ("return dy / x", "a factor doubled", {"return dy / x / x"}),
    ("return dy / x", "a division turned", {"return dy * x"}),
    ("return dy ** x", "a power dropped", {"return dy"}),
    ("return dy @ x", "factors swapped", {"return x @ dy"}),
    ("return 0.5 * dy", "a constant moved", {"return 0.5005 * dy"}),
    ("return 3 * dy", "a constant moved", {"return 3.003 * dy"}),
    ("return np.where(x, 0, dy)", "a constant moved", {"return np.where(x, 0.001, dy)"}),
    ("return RATE * dy", "a constant moved", {"return 1.001 * RATE * dy"}),
    ("return np.pi * dy", "a constant moved", {"return 1.001 * np.pi * dy"}),
    ("return dy[1]", "another axis or index", {"return dy[0]", "return dy[2]"}),
    ("return dy[-1]", "another axis or index", {"return dy[-2]", "return dy[0]"}),
    ("return dy[..., x]", "entries swapped", {"return dy[x, ...]"}),
    ("return dy.sum(0)", "a sum left out", {"return dy"}),
    ("return dy.sum(0)", "a sum over everything", {"return dy.sum()"}),
    ("return dy.sum(0)", "a sum over another axis", {"return dy.sum(axis=-1)"}),
    ("return dy.sum(x)", "a sum over another axis", {"return dy.sum(axis=0)", "return dy.sum(axis=-1)"}),
    ("return dy.sum(0)", "another axis or index", {"return dy.sum(-1)", "return dy.sum(1)"}),
    ("return dy.sum(0)", "a mean for a sum", {"return dy.mean(0)"}),
    ("return dy.sum(0)", "the axes kept or not", {"return dy.sum(0, keepdims=True)"}),
    ("return dy.sum(0, keepdims=True)", "the axes kept or not", {"return dy.sum(0)"}),
    ("return np.sum(dy, 0)", "a sum left out", {"return dy"}),
    ("return np.sum(dy, axis=1)", "a sum over everything", {"return np.sum(dy)"}),
    ("return np.mean(dy, 1)", "a mean for a sum", {"return np.sum(dy, 1)"}),
    ("return dy.T", "a transpose removed", {"return dy"}),
    ("return dy.swapaxes(0, 1)", "a transpose removed", {"return dy"}),
    ("return np.swapaxes(dy, 0, 1)", "a transpose removed", {"return dy"}),
    ("return dy.reshape(x)", "a call left out", {"return dy"}),
    ("return np.exp(dy)", "a call left out", {"return dy"}),
    ("return np.where(x, dy, x)", "a call left out", {"return dy", "return x"}),
    ("return np.hypot(dy, x)", "arguments swapped", {"return np.hypot(x, dy)"}),
    ("return dy, x", "gradients swapped", {"return (x, dy)"}),
    ("return dy, x", "a sign turned", {"return (-dy, x)", "return (dy, -x)"}),
    ("return dy if x > 0 else (dy, x)", "gradients swapped", {"return dy if x > 0 else (x, dy)"}),
    ("return dy * (x < 0)", "a comparison turned", {"return dy * (x <= 0)", "return dy * (x > 0)"}),
    ("return dy * (x >= 0)", "a comparison turned", {"return dy * (x > 0)", "return dy * (x <= 0)"}),
    ("return dy * (x == 0)", "a comparison turned", {"return dy * (x != 0)"}),
    ("return dy if x is None else x", "a comparison turned", {"return dy if x is not None else x"}),
    ("return dy if x.any() else x", "a condition negated", {"return x if x.any() else dy"}),
    ("return dy * ~x", "a condition negated", {"return dy * x"}),
    ("return dy * (x & dy)", "a condition changed", {"return dy * (x | dy)"}),
    ("return dy if x.any() and dy.any() else 0", "a condition changed", {"return dy if x.any() or dy.any() else 0"}),
    ("dy += x; return dy", "+= turned =", {"dy = x"}),
    ("dy += x; return dy", "a sign turned", {"dy -= x", "return -dy"}),
    ("dy += x; return dy", "a statement left out", {LEFT_OUT}),
    ("dy[0] = x; return dy", "a statement left out", {LEFT_OUT}),
    ("dy = x; return dy", "a statement left out", {LEFT_OUT}),
    ("a, b = dy; return a", "entries swapped", {"b, a = dy"}),
    ("if x.any(): dy = x\n        return dy", "a condition negated", {"if not x.any():"}),
    ("if not x.any(): dy = x\n        return dy", "a condition negated", {"if x.any():"}),
]


@pytest.mark.parametrize(("lines", "kind", "after"), MADE)
def test_what_is_made_of_a_backward(lines, kind, after, load):
    op = load(
        f"import numpy as np\nRATE = 3\ndef op(x):\n    def backward(dy):\n        {lines}\n    return x * x, backward"
    )
    mutants = Source(op).mutants()
    assert {mutant.after for mutant in mutants if mutant.kind == kind} == after


def test_no_mutant_is_made_twice_and_none_is_the_original(load):
    op = load("""
        def op(x):
            def backward(dy):
                a = dy * dy + 2 * dy.sum(0, keepdims=True) - (dy - dy)
                return a, a
            return x, backward
    """)
    mutants = Source(op).mutants()
    assert len({(mutant.line, mutant.after) for mutant in mutants}) == len(mutants) > 20
    assert all(mutant.before != mutant.after for mutant in mutants)


def test_a_name_is_not_left_without_a_value(load):
    op = load("""
        def op(x):
            def backward(dy):
                a, b = dy, x
                c: float = a
                return c
            return x, backward
    """)
    assert LEFT_OUT not in {mutant.after for mutant in Source(op).mutants()}


# Where mutants are made.


def lines_of(op):
    return {mutant.before for mutant in Source(op).mutants()}


def test_of_the_forward_only_what_the_output_does_not_need(load):
    op = load("""
        import numpy as np
        def op(x, flag=True):
            if x.ndim > 7:
                raise ValueError("too many axes")
            e = np.exp(x)
            top = e - 1
            y = 2 * e
            slopes = []
            if flag:
                y = y + 1
                slopes.append(2 * e)
            np.add(y, 0, out=y)
            slope = 3 * top
            def backward(dy):
                return slopes[0] * dy + 0 * slope
            return y, backward
    """)
    assert lines_of(op) == {"slopes.append(2 * e)", "top = e - 1", "slope = 3 * top", "return slopes[0] * dy + 0 * slope"}


def test_functions_that_the_backward_alone_calls_and_those_they_call(load):
    op = load("""
        import numpy as np
        def both(x):
            return 1 * x
        def deep(x):
            return 2 * x
        def slope(x):
            return deep(both(x))
        def unused(x):
            return 3 * x
        def inner(x):
            y = both(x)
            return y, lambda dy: 4 * dy
        def op(x):
            y, inner_backward = inner(x)
            def backward(dy):
                return inner_backward(dy) * slope(x)
            return y, backward
    """)
    assert lines_of(op) == {
        "return 2 * x",
        "return deep(both(x))",
        "return (y, lambda dy: 4 * dy)",
        "return inner_backward(dy) * slope(x)",
    }


def test_a_lambda_and_a_separate_backward():
    def slope(dy, x):
        return np.cos(x) * dy

    op = lambda x: (np.sin(x), lambda dy: slope(dy, x))  # noqa: E731
    assert lines_of(op) == {"return (np.sin(x), lambda dy: slope(dy, x))", "return np.cos(x) * dy"}
    found = score(op, numbers)
    assert len(found.mutants) > 10
    assert found.ratio == 1


def doubled(function):
    @functools.wraps(function)
    def wrapped(x):
        y, backward = function(x)
        return 2 * y, lambda dy: 2 * backward(dy)

    return wrapped


@doubled
def decorated(x):
    def backward(dy):
        return 2 * x * dy

    return x * x, backward


def test_a_decorated_operation_is_decorated_again():
    assert check(Source(decorated).load(), np.ones(3)).ok
    found = score(decorated, numbers)
    assert found.ratio == 1
    assert found.mutants[0].mutant.line == inspect.getsourcelines(decorated)[1] + 3


class Scaled:
    rate = 3.0

    def forward(self, x):
        def backward(dy):
            return self.rate * dy

        return self.rate * x, backward


def test_of_a_method_the_class_is_made_anew():
    source = Source(Scaled.forward)
    right, wrong = source.load(), source.load(source.mutants()[0].code)
    x = np.array([1.0])
    assert right is not Scaled
    assert [cls().forward(x)[1](x)[0] for cls in (Scaled, right)] == [3, 3]
    assert wrong().forward(x)[1](x)[0] != 3


def test_the_operation_itself_is_left_alone(load):
    op = load("""
        CALLS = []
        def slope(x):
            CALLS.append(1)
            return 2 * x
        def op(x):
            return x * x, lambda dy: slope(x) * dy
    """)
    before = dict(op.__globals__)
    score(op, numbers)
    assert {name: value for name, value in op.__globals__.items() if name != "CALLS"} == {
        name: value for name, value in before.items() if name != "CALLS"
    }
    assert check(op, np.ones(3)).ok


def test_the_annotations_of_an_enclosing_function_need_no_names():
    class Number:
        pass

    def op(x: Number) -> Number:
        def backward(dy: Number) -> Number:
            return 2 * x * dy

        return x * x, backward

    assert score(op, numbers).ratio == 1


# What a check makes of them.


def square(x):
    def backward(dy):
        return 2 * x * dy

    return x * x, backward


def test_a_score_names_the_survivors_and_counts_by_kind():
    found = score(square, numbers, lambda op, x: check(lambda x: halved(op, x), x))
    text = str(found)
    assert found.ratio == len(found.killed) / len(found.mutants)
    assert [str(tried) in text for tried in found.survivors] == [True] * len(found.survivors)
    assert text.splitlines()[0] == f"square: {len(found.killed)} of {len(found.mutants)} mutants killed"
    assert not found.vacuous


def halved(op, x):
    """Only the first row is looked at."""
    y, backward = op(x)
    return y[:1], lambda dy: np.concatenate([backward(np.repeat(dy, 3, 0))[:1], 0 * x[1:]])


CHECKS = {
    "a report": lambda op, x: check(op, x),
    "True or False": lambda op, x: check(op, x).ok,
    "NumPy's": lambda op, x: np.bool_(check(op, x).ok),
    "an assertion": lambda op, x: check(op, x).assert_ok(),
}


@pytest.mark.parametrize("kind", CHECKS)
def test_a_check_may_answer_in_any_of_these_ways(kind):
    assert score(square, numbers, CHECKS[kind]).ratio == 1


def test_a_check_that_only_notices_what_raises_by_itself_is_vacuous():
    def op(x, w):
        def backward(dy):
            return dy @ w.T, x.T @ dy

        return x @ w, backward

    def runs(op, x, w):
        op(x, w)[1](np.ones((3, 2)))

    found = score(op, lambda rng: (rng.normal(size=(3, 5)), rng.normal(size=(5, 2))), runs)
    assert found.killed
    assert found.vacuous
    assert "that does not raise by itself" in str(found)


def test_what_killed_a_mutant_is_said():
    killed_by = {tried.mutant.after: tried.killed_by for tried in score(square, numbers).mutants}
    assert killed_by["return -(2 * x * dy)"].startswith("the gradient of x: 15 of 15 entries are wrong")
    assert score(square, numbers, CHECKS["True or False"]).mutants[0].killed_by == "the check returns False"
    assert score(square, numbers, CHECKS["an assertion"]).mutants[0].killed_by.startswith("GradientError: FAIL square")


@pytest.mark.parametrize("vacuous", [lambda op, x: True, lambda op, x: None, lambda op, x: check(square, x)])
def test_a_check_that_kills_nothing_is_called_vacuous(vacuous):
    found = score(square, numbers, vacuous)
    assert (found.vacuous, found.ratio, found.killed) == (True, 0, [])
    assert "the check is vacuous" in str(found)


def test_what_is_inconclusive_does_not_kill():
    def op(x, frequency):
        return np.sin(frequency * x), lambda dy: frequency * np.cos(frequency * x) * dy

    def make(rng):
        return rng.normal(size=3), {"frequency": 1e9 if rng.random() < 0.9 else 1.0}

    found = score(op, make)
    assert len(found.killed) > 0
    assert all("would not be seen" not in tried.killed_by for tried in found.killed)


def test_options_are_given_and_every_draw_is_another():
    seen = []

    def op(x, rate=1.0, *, flip):
        return rate * x, lambda dy: rate * dy

    def rate_comes_out(op, x, rate, *, flip):
        seen.append((x.shape, rate, flip))
        return np.allclose(op(x, rate, flip=flip)[1](np.ones_like(x)), rate)

    found = score(op, lambda rng: ((rng.normal(size=rng.integers(2, 9)), 3.0), {"flip": True}), rate_comes_out)
    assert {(rate, flip) for _, rate, flip in seen} == {(3.0, True)}
    assert len({shape for shape, *_ in seen}) > 2
    assert 0 < found.ratio < 1


def test_a_wrong_operation_is_refused():
    def op(x):
        return x * x, lambda dy: x * dy

    with pytest.raises(ValueError, match=r"the check does not pass op: the gradient of x: 15 of 15 entries are wrong"):
        score(op, numbers)


def test_a_check_that_proves_nothing_of_the_right_operation_is_refused():
    def op(x):
        return np.sin(1e9 * x), lambda dy: 1e9 * np.cos(1e9 * x) * dy

    with pytest.raises(ValueError, match=r"the check does not pass op: .*would not be seen"):
        score(op, numbers)


def test_an_answer_of_another_kind_is_refused():
    with pytest.raises(TypeError, match="check must return a Report, a bool or None, got float"):
        score(square, numbers, lambda op, x: 0.0)


def test_without_a_source_there_are_no_mutants():
    space = {}
    exec("def op(x):\n    return x, lambda dy: dy", space)
    with pytest.raises(ValueError, match="the source of op cannot be read"):
        score(space["op"], numbers)
    with pytest.raises(ValueError, match="made of functions written in Python, got ufunc"):
        score(np.sin, numbers)


def test_without_a_backward_of_its_own_there_are_no_mutants():
    def op(x):
        return square(x)

    def of_another_file(x):
        return decorated_elsewhere(x)

    decorated_elsewhere = functools.partial(square)
    assert score(op, numbers).mutants  # those of `square`, of the same file
    with pytest.raises(ValueError, match="no backward of its own"):
        score(of_another_file, numbers)


def test_two_lambdas_that_cannot_be_told_apart_are_refused():
    pair = [lambda x: (x, lambda dy: dy), lambda x: (2 * x, lambda dy: 2 * dy)]
    with pytest.raises(ValueError, match="the source of <lambda> stands 2 times"):
        score(pair[0], numbers)


def test_a_loop_that_might_not_end_is_refused(load):
    op = load("""
        def backward_of(x, dy):
            n = 0
            while n < 2:
                n += 1
            return n * x * dy
        def op(x):
            return x * x, lambda dy: backward_of(x, dy)
    """)
    with pytest.raises(ValueError, match="op has a while loop, and a wrong version of it might never end"):
        score(op, numbers)


def test_nothing_warns():
    def op(x):
        e = np.exp(x)
        return np.log1p(e), lambda dy: dy * e / (1 + e)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert score(op, lambda rng: 300 * rng.normal(size=5)).mutants


def test_the_example_in_the_documentation():
    assert doctest.testmod(gradcheck.mutation).failed == 0
    assert doctest.testmod(gradcheck.mutation).attempted > 3
