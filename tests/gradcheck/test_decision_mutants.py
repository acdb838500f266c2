"""gradcheck got wrong on purpose: its decision in every small way, a probe or a cotangent left out, a tolerance widened.

Each must be noticed, the decision's by its own tests, the others by an operation that only what is missing finds wrong.
"""

import importlib.util
import inspect
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import FunctionType

import numpy as np
import pytest

from gradcheck import check, check_layer, comparison, decision, low_precision, runs, second_point, side_effects
from gradcheck.mutants import Source

INF = float("inf")
X = np.random.default_rng(0).uniform(0.5, 2, (3, 5)) * np.random.default_rng(1).choice([-1.0, 1.0], (3, 5))

# The decision.


def load_tests():
    """The tests of the decision, in a module of their own, whose names may be set."""
    spec = importlib.util.spec_from_file_location("tests_of_the_decision", Path(__file__).with_name("test_decision.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TESTS = load_tests()
FUNCTIONS = [name for name, value in vars(decision).items() if getattr(value, "__module__", "") == decision.__name__]
FUNCTIONS = [name for name in FUNCTIONS if isinstance(getattr(decision, name), FunctionType)]
MUTANTS = [(name, mutant) for name in FUNCTIONS for mutant in Source(getattr(decision, name)).mutants(of_all=True)]
SAME_NUMBER = "0 and 0.0 are the same number"
SYMMETRIC = "|a − b| = |b − a|"
ENDLESS = "infinity times a number is infinity"
BAR = "return float('inf') if np.isnan(bar) else bar"
RATIO = "return part / whole if whole and np.isfinite(part) else float('inf')"
RATIOS = "ratio: Array = np.where(error == 0, 0.0, np.where(np.isinf(error), np.inf, error / bar))"
DISTANCE = "error: Array = np.abs(np.subtract(actual, truth, out=np.full(truth.shape, np.inf), where=numbers))"
EQUIVALENT = {
    ("judge", "return Judgement('pass', 0, (), 0.0, 0.0)", "return Judgement('pass', 0.0, (), 0, 0.0)"): SAME_NUMBER,
    ("judge", "return Judgement('pass', 0, (), 0.0, 0.0)", "return Judgement('pass', 0.0, (), 0.0, 0)"): SAME_NUMBER,
    ("judge", "error = distance(actual, truth)", "error = distance(truth, actual)"): SYMMETRIC,
    ("distance", DISTANCE, DISTANCE.replace("actual, truth", "truth, actual")): SYMMETRIC,
    ("distance", DISTANCE, DISTANCE.replace("np.inf", "1.001 * np.inf")): ENDLESS,
    ("ratios", RATIOS, RATIOS.replace("np.inf", "1.001 * np.inf")): ENDLESS,
    ("bar_of", BAR, BAR.replace("float", "2 * float")): ENDLESS,
    ("over", RATIO, RATIO.replace("float", "2 * float")): ENDLESS,
}


# Of bars that differ from entry to entry.


def a(*numbers):
    return np.array(numbers, float)


def test_the_worst_entry_is_the_one_that_is_off_by_the_most_bars():
    judgement = decision.judge(a(3.0, 1.0, 6.0), a(1.0, 1.5, 6.0), a(4.0, 0.25, 0.5))
    assert (judgement.n_wrong, judgement.index, judgement.ratio) == (1, (1,), 2.0)


def test_a_block_is_zero_to_rounding_where_every_entry_is():
    bars = a(1.0, 2.0, 0.5)
    assert decision.judge(a(0.0, 0.0, 0.0), a(1.0, -2.0, 0.5), bars).is_zero is True
    assert decision.judge(a(0.0, 0.0, 0.0), a(1.0, -2.5, 0.5), bars).is_zero is False


def test_what_would_be_seen_is_seen_with_the_widest_bar():
    truth = a(8.0, 8.0)
    assert decision.judge(truth, truth, a(2.0**-30, 2.0**-20)).power == 2.0**-23


def test_ratios():
    ratios = decision.ratios(a(0.0, 1.0, 3.0, 1.0, 0.0, INF, INF), a(2.0, 2.0, 2.0, 0.0, 0.0, 2.0, INF))
    assert ratios.tolist() == [0.0, 0.5, 1.5, INF, 0.0, INF, INF]


OF_BARS_AND_RATIOS = (
    test_the_worst_entry_is_the_one_that_is_off_by_the_most_bars,
    test_a_block_is_zero_to_rounding_where_every_entry_is,
    test_what_would_be_seen_is_seen_with_the_widest_bar,
    test_ratios,
)


def calls(test) -> Iterator[dict]:
    """What a test is called with, once for each of its cases."""
    choices = []
    for mark in getattr(test, "pytestmark", []):
        names, cases = mark.args
        names = [names] if isinstance(names, str) else names
        choices.append([dict(zip(names, case if len(names) > 1 else [case], strict=True)) for case in cases])
    for chosen in product(*choices):
        yield {name: value for each in chosen for name, value in each.items()}


def first_failure() -> str:
    """The first test of the decision that fails; "" if all pass."""
    tests = [test for name, test in vars(TESTS).items() if name.startswith("test_")]
    for test in (*tests, *OF_BARS_AND_RATIOS):
        for arguments in calls(test):
            try:
                test(**arguments)
            except Exception:
                return test.__name__
    return ""


def put(monkeypatch, name, function):
    for module in (decision, TESTS):
        monkeypatch.setattr(module, name, function, raising=False)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_of_the_decision_that_is_only_made_anew_passes(name, monkeypatch):
    put(monkeypatch, name, Source(getattr(decision, name)).load())
    assert first_failure() == ""


@pytest.mark.parametrize(("name", "mutant"), MUTANTS, ids=lambda each: each if isinstance(each, str) else str(each.line))
def test_a_wrong_decision_is_found(name, mutant, monkeypatch):
    put(monkeypatch, name, Source(getattr(decision, name)).load(mutant.code))
    found = first_failure()
    assert bool(found) != ((name, mutant.before, mutant.after) in EQUIVALENT), f"{mutant}: {found}"


def test_every_equivalent_mutant_of_the_decision_is_still_made():
    assert EQUIVALENT.keys() <= {(name, mutant.before, mutant.after) for name, mutant in MUTANTS}


# Probes.


def square(wrong):
    """x², whose backward is off by a thousandth where wrong(x, dy)."""

    def op(x):
        return x * x, lambda dy: 2 * x * dy * (1.001 if wrong(x, dy) else 1)

    return op


def writes_into_dy_where_it_may():
    def op(x):
        def backward(dy):
            dx = 2 * x * dy
            if dy.flags.writeable and dy.flags.c_contiguous:
                dy *= 2
            return dx

        return x * x, backward

    return op


def returns_one_buffer_from_all_its_backwards():
    def op(x):
        dx = np.zeros(x.shape)
        return x * x, lambda dy: np.multiply(2 * x, dy, out=dx)

    return op


def keeps_its_point_where_the_next_backward_writes():
    kept = {}

    def op(x):
        point = [x]

        def backward(dy):
            if point:
                kept["x"] = point.pop()
            return 2 * kept["x"] * dy

        return x * x, backward

    return op


class Square:
    """A layer that sets its gradient instead of adding to it."""

    def __init__(self):
        self.x = type("Parameter", (), {"value": X.copy(), "grad": np.zeros(X.shape)})()

    def parameters(self):
        return {"x": self.x}

    def forward(self):
        x = self.x.value

        def backward(dy):
            self.x.grad = 2 * x * dy

        return x * x, backward


def is_only_column_major(array):
    return array.flags.f_contiguous and not array.flags.c_contiguous


NOTICED_BY = {
    "arrays_left_alone": lambda: check(writes_into_dy_where_it_may(), X),
    "read_only_arrays": lambda: check(square(lambda x, dy: not dy.flags.writeable and 0 not in dy.strides), X),
    "other_layouts": lambda: check(square(lambda x, dy: is_only_column_major(x)), X),
    "zero_strides": lambda: check(square(lambda x, dy: 0 in dy.strides), X),
    "called_again": lambda: check(returns_one_buffer_from_all_its_backwards(), X),
    "called_late": lambda: check(keeps_its_point_where_the_next_backward_writes(), X),
    "zero_cotangent": lambda: check(lambda x: (x * x, lambda dy: 2 * x * dy + (0 if dy.any() else 1e-300)), X),
    "gradients_added": lambda: check_layer(Square()),
}


def test_every_probe_has_a_fault_that_it_alone_notices():
    names = side_effects.side_effects.__code__.co_names
    probes = {name for name in names if list(parameters_of(getattr(side_effects, name, None))) == ["run"]}
    assert probes == NOTICED_BY.keys()


def parameters_of(value) -> list[str]:
    return list(inspect.signature(value).parameters) if isinstance(value, FunctionType) else []


@pytest.mark.parametrize("name", NOTICED_BY)
def test_a_probe_left_out_is_noticed(name, monkeypatch):
    assert NOTICED_BY[name]().verdict == "fail"
    monkeypatch.setattr(side_effects, name, lambda run: iter(()))
    assert NOTICED_BY[name]().verdict != "fail"


# Cotangents.


def is_of_size(scale, dy):
    """All entries, which are between a half and one and a half times as large."""
    return bool(((0.5 * scale <= abs(dy)) & (abs(dy) <= 1.5 * scale)).all())


def has_both_signs(dy):
    return bool((dy > 0).any() and (dy < 0).any())


OF_SCALE = {
    1.0: square(lambda x, dy: is_of_size(1, dy) and has_both_signs(dy)),
    -3.0: square(lambda x, dy: is_of_size(3, dy)),
    1e3: square(lambda x, dy: abs(dy).max() > 100),
    1e-6: square(lambda x, dy: 0 < abs(dy).max() < 1e-3),
}
FIRST_RUN = "first_run" if hasattr(runs, "first_run") else "ordinary_runs"
OTHER_COTANGENTS = {
    "np.abs": square(lambda x, dy: bool((dy > 0).all())),
    "[-dy": square(lambda x, dy: bool((dy < 0).all())),
    "< 0.5": square(lambda x, dy: bool((dy == 0).any() and (dy != 0).any())),
    "one_output_at_a_time": lambda x: ((x * x, 1e-13 * np.sin(x)), lambda da, db: 2 * x * da),
}


@pytest.mark.parametrize("scale", OF_SCALE)
def test_a_cotangent_of_another_size_left_out_is_noticed(scale, monkeypatch):
    assert check(OF_SCALE[scale], X).verdict == "fail"
    monkeypatch.setattr(runs, "COTANGENT_SCALES", tuple(each for each in runs.COTANGENT_SCALES if each != scale))
    assert check(OF_SCALE[scale], X).ok


def test_every_size_of_cotangents_has_its_fault():
    assert set(runs.COTANGENT_SCALES) == set(OF_SCALE)


def statements_that_add_cotangents():
    """The mutants of the first run that lack one."""
    mutants = Source(getattr(runs, FIRST_RUN)).mutants(of_all=True)
    return [
        each
        for each in mutants
        if each.after == "(left out)" and each.before.startswith(("cotangents.append(", "cotangents +="))
    ]


@pytest.mark.parametrize("piece", OTHER_COTANGENTS)
def test_cotangents_left_out_are_noticed(piece, monkeypatch):
    op = OTHER_COTANGENTS[piece]
    assert check(op, X).verdict == "fail"
    (mutant,) = (each for each in statements_that_add_cotangents() if piece in each.before)
    right = getattr(runs, FIRST_RUN)
    for module in gradcheck_modules():
        if getattr(module, FIRST_RUN, None) is right:
            monkeypatch.setattr(module, FIRST_RUN, Source(right).load(mutant.code))
    assert check(op, X).verdict != "fail"


def test_every_statement_that_adds_cotangents_has_its_fault():
    assert len(statements_that_add_cotangents()) == len(OTHER_COTANGENTS)


# Tolerances.


def gradcheck_modules():
    return [module for name, module in sys.modules.items() if name.split(".")[0] == "gradcheck"]


def off(relative):
    return lambda x: (x * x, lambda dy: 2 * x * dy * (1 + relative))


def sharp(frequency, relative):
    """Its slope turns in its last digits: one unit of x is worth frequency·x units of it."""
    return lambda x: (np.sin(frequency * x), lambda dy: frequency * np.cos(frequency * x) * dy * (1 + relative))


def off_elsewhere(forward, slope, wrong_slope):
    """Right near the first point that it is given."""
    first = []

    def op(x):
        if not first:
            first.append(x.real.copy())
        near = np.allclose(x.real, first[0], rtol=1e-3, atol=0)
        return forward(x), lambda dy: (slope if near else wrong_slope)(x) * dy

    return op


def off_in_low_precision(dtype, relative):
    def op(x):
        return x * x, lambda dy: 2 * x * dy * x.dtype.type(1 + relative * (x.dtype == dtype))

    return op


def restless(x):
    """Its gradient, far below the size of its output, is all noise."""
    return 1e11 + x, lambda dy: dy * (1 + np.cos(1e13 * x))


def nearly_certain(x):
    """Its gradient, far below the rounding of its output, moves by some hundredths when x does in its last places."""
    return 1e15 + x - 2e-18 * np.cos(1e16 * x), lambda dy: dy * (1 + 0.02 * np.sin(1e16 * x))


def blind(b):
    """Softmax does not see what is added to all of a row."""
    row = np.array([0.3, -1.2, 0.7, 2.1])
    e = np.exp(row + b - (row + b.real).max())
    y = e / e.sum()
    return y, lambda dy: (y * (dy - (dy * y).sum())).sum(keepdims=True)


def tiny_output(x):
    """Its output is off in one layout, by less than the arrays' last digit."""
    return 1e-9 * x * (1 + 1e-6 * is_only_column_major(x)), lambda dy: 1e-9 * dy


WIDENED = {
    ("checker", "RTOL"): lambda: check(off(1e-9), X),
    ("checker", "REPEAT_RTOL"): lambda: check(
        lambda x: (x * x, lambda dy: 2 * x * dy * (1 + 1e-9 * is_only_column_major(dy))), X
    ),
    ("decision", "MARGIN"): lambda: check(sharp(1e5, 1e-8), X),
    ("decision", "RESOLUTION"): lambda: check(sharp(1e9, 0), X),
    ("comparison", "NEGLIGIBLE"): lambda: check(restless, X[0]),
    ("comparison", "CERTAIN"): lambda: check(nearly_certain, X),
    ("comparison", "NOISE_OF_ZERO"): lambda: check(blind, np.array([1.7])),
    ("second_point", "RTOL"): lambda: check(
        off_elsewhere(lambda x: x * x, lambda x: 2 * x, lambda x: 2 * x * (1 + 1e-5)), X
    ),
    ("second_point", "ROUNDING"): lambda: check(off_elsewhere(lambda x: 1e4 + x, lambda x: 1.0, lambda x: 1 + 1e-4), X),
    ("second_point", "CANCELLED"): lambda: check(off_elsewhere(lambda x: 1e-13 * x, lambda x: 1e-13, lambda x: 2e-11), X),
    ("low_precision", "LOW_PRECISION_RTOL"): lambda: check(off_in_low_precision(np.float32, 1e-3), X.astype(np.float32)),
    ("examination", "NOTHING"): lambda: check(tiny_output, X),
}


VERDICTS = {  # before and after
    "RESOLUTION": ("inconclusive", "pass"),
    "NOISE_OF_ZERO": ("pass", "inconclusive"),
    "NEGLIGIBLE": ("fail", "inconclusive"),
    "CERTAIN": ("pass", "inconclusive"),
}


@pytest.mark.parametrize(("module", "name"), WIDENED)
def test_a_tolerance_widened_a_hundredfold_is_noticed(module, name, monkeypatch):
    before, after = VERDICTS.get(name, ("fail", "pass"))
    assert WIDENED[module, name]().verdict == before
    known = getattr(sys.modules[f"gradcheck.{module}"], name)
    wide = {key: 100 * value for key, value in known.items()} if isinstance(known, dict) else 100 * known
    for each in gradcheck_modules():
        if getattr(each, name, None) is known:
            monkeypatch.setattr(each, name, wide)
        for function in vars(each).values():
            defaults = (isinstance(function, FunctionType) and function.__defaults__) or ()
            if any(value is known for value in defaults):
                monkeypatch.setattr(function, "__defaults__", tuple(wide if value is known else value for value in defaults))
    assert WIDENED[module, name]().verdict == after


def test_every_tolerance_has_been_widened():
    """But JUMP, which only chooses words, and COARSE, which makes of a pass or a failure an "inconclusive"."""
    for module in (decision, comparison, second_point, low_precision):
        short = module.__name__.rpartition(".")[2]
        source = inspect.getsource(module)
        own = {name for name, value in vars(module).items() if isinstance(value, float) and f"\n{name} = " in source}
        assert own - {"JUMP", "COARSE"} <= {name for place, name in WIDENED if place == short}
