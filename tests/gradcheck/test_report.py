"""What a report says, and that it says the same again."""

import subprocess
import sys

import numpy as np
import pytest

import gradcheck
from gradcheck import Finding, GradientError, Report, Worst, check


def normal(*shape):
    return np.random.default_rng(0).normal(size=shape)


def scaled(*factors):
    """An operation with as many arrays as factors, by which its gradients are wrong."""

    def op(*arrays):
        return sum(array * array for array in arrays), lambda dy: tuple(
            2 * array * dy * factor for array, factor in zip(arrays, factors, strict=True)
        )

    return op


RIGHT = check(scaled(1, 1), normal(3, 5), normal(3, 5))
WRONG = check(scaled(1, 2), normal(3, 5), normal(3, 5))
UNSURE = check(lambda x: (abs(x), lambda dy: dy * np.sign(x)), normal(3, 5), truth="complex")


def test_names_of_many_lines_stay_in_their_lines():
    def op(x):
        return x * x, lambda dy: 2 * x * dy

    op.__name__ = "a\n" * 40
    assert len(str(check(op, normal(3))).splitlines()) == 2


def test_numbers_that_are_no_arrays_are_noted():
    report = check(lambda x, w, s: (s * x * w[0], lambda dy: s * dy * w[0]), normal(3), [normal(3)], np.float64(2))
    assert report.ok
    assert [str(finding) for finding in report.findings] == [
        "note: w is a list, and no gradient of it is checked: only arrays are",
        "note: s is a float64, and no gradient of it is checked: only arrays are",
    ]


def test_an_empty_check_says_that_there_is_nothing_to_compare():
    assert "nothing to compare" in str(check(lambda x: (x * x, lambda dy: 2 * x * dy), np.ones((0, 3))))


def test_the_modules_that_few_need_are_there_all_the_same():
    code = "import gradcheck; print(gradcheck.mutation.score.__name__, gradcheck.strategies.arrays.__name__)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "score arrays\n"
    with pytest.raises(AttributeError, match="no attribute 'mutations'"):
        gradcheck.mutations  # noqa: B018


def test_the_public_names():
    functions = {"check", "check_pair", "check_layer", "compare", "derivative"}
    assert set(gradcheck.__all__) == functions | {"Derivative", "Report", "GradientError", "Finding", "Worst"}
    assert all(hasattr(gradcheck, name) for name in gradcheck.__all__)
    assert issubclass(GradientError, AssertionError)


@pytest.mark.parametrize(("report", "verdict"), [(RIGHT, "pass"), (WRONG, "fail"), (UNSURE, "inconclusive")])
def test_the_verdict(report, verdict):
    assert report.verdict == verdict
    assert report.ok == (verdict == "pass")
    first = str(report).splitlines()[0]
    assert first.startswith(verdict.upper())
    assert report.title in first
    assert all(finding.verdict in ("pass", "fail", "inconclusive") for finding in report.findings)


def test_assert_ok():
    assert RIGHT.assert_ok() is None
    for report in (WRONG, UNSURE):
        with pytest.raises(GradientError) as raised:
            report.assert_ok()
        assert str(raised.value) == str(report)


def test_the_worst_entry():
    worst = WRONG.worst
    assert (worst.argument, WRONG.error_bar) == ("arrays[1]", worst.bar)
    assert worst.actual == pytest.approx(2 * worst.truth)
    assert worst.error == pytest.approx(abs(worst.truth))
    assert worst.ratio == worst.error / worst.bar > 1e6
    text = str(WRONG)
    assert f"worst  gradient of arrays[1][{worst.index[0]}, {worst.index[1]}]: returned {worst.actual:.12g}" in text
    assert f"truth {worst.truth:.12g}" in text
    assert "fail: the gradient of arrays[1]: 15 of 15 entries are wrong" in text


def test_the_worst_entry_of_several_wrong_arrays():
    report = check(scaled(1 + 1e-7, 1 + 1e-3, 1 + 1e-5), normal(2), normal(2), normal(2))
    assert report.worst.argument == "arrays[1]"


def test_the_power_is_that_of_the_least_certain_array():
    x, shift = normal(3, 5), np.array([1e9])
    report = check(lambda x, shift: (x * x + shift, lambda dy: (2 * x * dy, dy.sum(keepdims=True).reshape(1))), x, shift)
    alone = check(lambda x: (x * x, lambda dy: 2 * x * dy), x)
    assert report.power > 10 * alone.power


def test_the_worst_entry_of_a_right_backward():
    assert RIGHT.worst.ratio < 1e-3
    assert 0 < RIGHT.error_bar < 1e-6
    assert RIGHT.findings == []
    assert len(str(RIGHT).splitlines()) == 2


def test_the_power_is_what_would_have_been_seen():
    x = np.array([1.0, -1.25, 1.5])

    def off_by(error):
        return check(lambda x: (x * x, lambda dy: 2 * x * dy * (1 + error)), x)

    power = off_by(0).power
    assert 1e-10 <= power < 2e-10
    assert off_by(1.1 * power).verdict == "fail"
    assert off_by(0.5 * power).verdict == "pass"
    assert f"errors above {power:.1g} of a gradient's largest entry would show" in str(off_by(0))


def test_where_nothing_was_compared_nothing_would_have_shown():
    report = check(lambda x: (x * x, lambda dy: dy[:1]), normal(3, 5))
    assert report.worst is None
    assert report.power == float("inf")
    assert np.isnan(report.error_bar)
    assert "none could be compared" in str(report)
    assert UNSURE.power == float("inf")
    empty = check(lambda x: (x * x, lambda dy: 2 * x * dy), normal(0, 5))
    assert (empty.ok, empty.worst, empty.power) == (True, None, 0.0)


def test_an_entry_of_an_array_without_axes():
    report = check(lambda x: (x * x, lambda dy: x * dy), np.array(1.5))
    assert report.worst.index == ()
    assert "gradient of x: returned" in str(report)


def test_what_is_not_a_number_has_an_infinite_error():
    report = check(lambda x: (x * x, lambda dy: 2 * x * dy * np.array([1, np.nan])), np.ones(2))
    assert report.worst.index == (1,)
    assert report.worst.error == report.worst.ratio == float("inf")
    assert "returned nan, truth" in str(report)


@pytest.mark.parametrize("n", [1, 17, 18, 19, 50])
def test_at_most_twenty_lines(n):
    report = check(scaled(*[2] * n), *(normal(2) + i for i in range(n)))
    lines = str(report).splitlines()
    n_others = 2 + len(report.diagnosis)
    assert len(report.findings) == n
    assert len(lines) == min(n + n_others, 20)
    assert lines[0].startswith("FAIL")
    if n + n_others > 20:
        assert lines[-1] == f"  … and {n + n_others - 19} more findings"


def test_many_side_effects_still_fit():
    def op(*arrays):
        y = sum(array * array for array in arrays)

        def backward(dy):
            for array in arrays:
                array *= 2
            dy *= 3
            return tuple(array.astype(np.float64) * dy for array in arrays)

        return y, backward

    report = check(op, *(normal(2) for _ in range(20)))
    assert len(report.findings) > 20
    assert len(str(report).splitlines()) == 20


def test_failures_come_first():
    def op(x, w):
        return abs(x) * w, lambda dy: (dy * np.sign(x) * w + 1, dy * abs(x))

    report = check(op, normal(5), normal(5), truth="complex")
    verdicts = [finding.verdict for finding in report.findings]
    assert verdicts == sorted(verdicts, key=["fail", "inconclusive", "pass"].index)
    assert {"fail", "inconclusive"} <= set(verdicts)


def test_findings_are_in_the_order_of_the_arguments():
    report = check(scaled(2, 1, 3, 1, 0.5), *(normal(2) for _ in range(5)))
    named = [finding.text.split(":")[0] for finding in report.findings if "entries are wrong" in finding.text]
    assert named == [f"the gradient of arrays[{i}]" for i in (0, 2, 4)]


def test_a_long_message_of_many_lines_stays_one_line():
    def op(x):
        if np.iscomplexobj(x):
            raise ValueError("\n".join(["line"] * 1000))
        return x * x, lambda dy: 2 * x * dy

    text = str(check(op, normal(5)))
    assert len(text.splitlines()) == 3
    assert len(text) < 1000


@pytest.mark.parametrize("op", [scaled(1, 2), scaled(1, 1)])
def test_the_same_seed_says_the_same(op):
    arrays = normal(3, 5), normal(3, 5)
    texts = {str(check(op, *arrays, seed=3)) for _ in range(3)}
    assert len(texts) == 1
    np.random.default_rng(0).random()
    assert check(op, *arrays, seed=3) == check(op, *arrays, seed=3)


def test_another_seed_draws_other_cotangents():
    arrays = normal(3, 5), normal(3, 5)
    assert check(scaled(1, 2), *arrays, seed=1).worst != check(scaled(1, 2), *arrays, seed=2).worst
    assert check(scaled(1, 2), *arrays) == check(scaled(1, 2), *arrays, seed=0)


def test_the_global_random_state_is_left_alone():
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    check(scaled(1, 1), normal(3, 5), normal(3, 5))
    assert np.array_equal(np.random.get_state()[1], before)  # noqa: NPY002


def test_evaluations_are_counted():
    calls = []

    def op(x):
        calls.append(1)
        return x * x, lambda dy: 2 * x * dy

    assert check(op, normal(3, 5)).n_evaluations == len(calls)


def test_a_report_by_hand():
    worst = Worst("x", (1, 2), 3.0, 2.0, 1.0, 0.25)
    report = Report("op", "fail", worst, 0.125, [Finding("fail", "it is wrong"), Finding("pass", "and noted")], 6, 7)
    assert str(report).splitlines() == [
        "FAIL op: 6 entries against complex step, 7 forward evaluations, "
        "errors above 0.1 of a gradient's largest entry would show",
        "  worst  gradient of x[1, 2]: returned 3, truth 2, error 1 = 4 × bar 0.25",
        "  fail: it is wrong",
        "  note: and noted",
    ]
    assert Worst("x", (), 3.0, 2.0, 1.0, 0.0).ratio == float("inf")
    assert Worst("x", (), 2.0, 2.0, 0.0, 0.0).ratio == 0.0
