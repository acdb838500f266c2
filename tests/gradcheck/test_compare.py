"""Arrays against arrays: what agrees, what does not, and what the report says of it."""

import doctest
from types import MappingProxyType

import numpy as np
import pytest

import gradcheck.agreement
from gradcheck import Worst, compare

X = np.random.default_rng(0).standard_normal((3, 5))


def off(error, index=(1, 2), array=X):
    other = array.copy()
    other[index] += error
    return other


def test_the_docstring_tells_the_truth():
    results = doctest.testmod(gradcheck.agreement)
    assert results.attempted
    assert not results.failed


def test_equal_arrays_agree():
    report = compare(X.copy(), X)
    assert report.ok, report
    assert report.findings == []
    assert (report.n_entries, report.against, report.worst.error) == (15, "expected", 0)
    assert len(str(report).splitlines()) == 2


def test_the_first_lines():
    lines = str(compare(off(0.25), X)).splitlines()
    assert lines == [
        "FAIL compare: 15 entries against expected, errors above 1e-10 of an array's largest entry would show",
        f"  worst  actual[1, 2] is {X[1, 2] + 0.25:.12g}, expected {X[1, 2]:.12g}, off by 0.25 = 1.1e+09 × bar 2.3e-10",
        "  fail: 1 of 15 entries of actual are off, at [1, 2]",
    ]


# The tolerance.


@pytest.mark.parametrize(
    ("dtypes", "rtol"),
    [
        (("float64", "float64"), 1e-10),
        (("float32", "float64"), 1e-4),
        (("float64", "float32"), 1e-4),
        (("float16", "float32"), 1e-2),
        (("longdouble", "longdouble"), 1e-10),
        (("complex64", "float64"), 1e-4),
        (("complex128", "complex128"), 1e-10),
        ((">f4", "int64"), 1e-4),
    ],
)
def test_the_default_rtol_is_that_of_the_coarser_dtype(dtypes, rtol):
    """64 is the largest entry: what rtol allows of it stands in another entry, of a size that every dtype holds."""
    actual, expected = np.zeros(2, dtypes[0]), np.zeros(2, dtypes[1])
    actual[0] = expected[0] = 64
    actual[1] = 63 * rtol
    assert compare(actual, expected).ok
    actual[1] = 65 * rtol
    assert compare(actual, expected).verdict == "fail"


def test_rtol_is_relative_to_the_largest_entry():
    expected = np.array([100.0, 1e-3])
    assert compare(np.array([100.0, 2e-3]), expected, rtol=1e-4).ok
    assert not compare(np.array([100.0, 1.2e-2]), expected, rtol=1e-4).ok
    assert compare(np.array([-100.0, 2e-3]), np.array([-100.0, 1e-3]), rtol=1e-4).ok


def test_atol_is_added():
    assert compare(off(1e-3), X, atol=1.1e-3).ok
    assert not compare(off(1e-3), X, atol=0.9e-3).ok
    assert compare(np.array([5.0, 1e-3]), np.array([5.0, 0.0]), rtol=1e-4, atol=6e-4).ok
    assert not compare(off(1e-15), X, rtol=0).ok


def test_power_is_what_would_have_shown():
    power = compare(X, X, rtol=1e-3, atol=1e-4).power
    largest = np.abs(X).max()
    assert compare(off(0.99 * power * largest), X, rtol=1e-3, atol=1e-4).ok
    assert not compare(off(1.01 * power * largest), X, rtol=1e-3, atol=1e-4).ok


def test_where_zeros_are_expected():
    zeros = np.zeros(3)
    assert compare(zeros, zeros).ok
    assert "any difference would show" in str(compare(zeros, zeros))
    assert not compare(zeros + 1e-300, zeros).ok
    assert compare(zeros + 1e-9, zeros, atol=1e-8).ok
    assert "errors above 1e-08 would show" in str(compare(zeros + 1e-9, zeros, atol=1e-8))


def test_an_atol_in_which_everything_hides_is_inconclusive():
    small = 1e-9 * X
    report = compare(np.zeros_like(X), small, atol=1e-8)
    assert report.verdict == "inconclusive"
    assert "zeros would agree as well" in str(report)
    assert compare(small, small).ok
    assert compare(np.zeros_like(X), small).verdict == "fail"


# The budget.


@pytest.mark.parametrize(
    ("deviations", "ok"), [(0, True), (4, True), (5.99, True), (6.01, False), (16, False), (-16, False)]
)
def test_an_entry_may_be_six_deviations_off(deviations, ok):
    sigma = 1e-3 * np.abs(X)
    for budget, size in ((sigma, sigma[1, 2]), (1e-3, 1e-3)):
        report = compare(off(deviations * size), X, budget=budget)
        assert report.ok == ok
        assert report.worst.ratio == pytest.approx(abs(deviations) / 6)


def test_the_budget_is_that_of_each_entry():
    budget = np.full(X.shape, 1e-3)
    budget[1, 2] = 1e-5
    report = compare(off(1e-3, (0, 0), off(1e-3)), X, budget=budget)
    assert report.worst.index == (1, 2)
    assert report.worst.error == pytest.approx(1e-3)
    assert report.error_bar == pytest.approx(6e-5)
    text = str(report)
    assert "errors above 6σ would show" in text
    assert "off by 0.001 = 1e+02σ of the 6σ allowed" in text
    assert "1 of 15 entries of actual are off" in text


def test_a_budget_broadcasts():
    assert compare(off(5e-3, (1, 2)), X, budget=np.array([1e-9, 1e-9, 1e-3, 1e-9, 1e-9])).ok
    assert not compare(off(5e-3, (1, 1)), X, budget=np.array([1e-9, 1e-9, 1e-3, 1e-9, 1e-9])).ok


def test_without_any_budget_only_the_same_will_do():
    assert compare(X, X, budget=0).ok
    report = compare(off(1e-12), X, budget=np.zeros_like(X))
    assert report.verdict == "fail"
    assert "infσ" in str(report)


def test_what_is_zero_to_rounding_is_noted():
    report = compare(np.zeros(3), np.full(3, 1e-17), budget=1e-16)
    assert report.ok
    assert "zeros would agree as well" in str(report)


def test_one_budget_for_each_part():
    both = {"dq": off(1e-3), "dk": off(1e-3)}
    report = compare(both, {"dq": X, "dk": X}, budget={"dk": 1e-2, "dq": np.full(5, 1e-5)})
    assert [finding.text for finding in report.findings] == ["1 of 15 entries of dq are off, at [1, 2]"]
    assert compare(both, {"dq": X, "dk": X}, budget=1e-2).ok


# What is not a number.


@pytest.mark.parametrize("sign", [1, -1])
def test_equal_infinities_agree_and_others_do_not(sign):
    infinite = off(sign * np.inf)
    assert compare(infinite, infinite).ok
    assert compare(infinite, infinite, budget=1e-9).ok
    for actual, expected in ((infinite, X), (X, infinite), (-infinite, infinite)):
        for tolerance in ({}, {"budget": 1e300}, {"rtol": 0.5, "atol": 1e300}):
            assert compare(actual, expected, **tolerance).verdict == "fail"


def test_an_infinity_does_not_widen_the_bar():
    infinite = off(np.inf)
    assert not compare(off(1e-3, (0, 0), infinite), infinite).ok


@pytest.mark.parametrize("tolerance", [{}, {"budget": 1e300}, {"atol": 1e300}])
def test_a_nan_never_agrees(tolerance):
    nan = off(np.nan)
    for actual, expected in ((nan, X), (X, nan), (nan, nan)):
        report = compare(actual, expected, **tolerance)
        assert report.verdict == "fail"
        assert report.worst.index == (1, 2)
        assert report.worst.ratio == float("inf")
    assert "actual has 1 NaN" in str(compare(nan, X))
    assert "actual is expected to have 1 NaN, with which nothing agrees" in str(compare(X, nan))
    assert "worst  actual[1, 2] is nan, expected " in str(compare(nan, X))


def test_a_difference_beyond_the_largest_number_is_seen():
    for tolerance in ({}, {"budget": 1e308}):
        assert compare(1e308, -1e308, **tolerance).verdict == "fail"


# Dtypes and kinds of arrays.


def test_other_dtypes_are_noted():
    report = compare(X.astype(np.float32), X)
    assert report.ok
    assert [str(finding) for finding in report.findings] == [
        "note: actual is float32, expected float64: compared in float64"
    ]


def test_integers_must_be_equal():
    large = np.array([2**53, 5])
    assert compare(large, large).ok
    report = compare(large + np.array([1, 0]), large, atol=10)
    assert report.verdict == "fail"
    assert "actual[0] is 9007199254740993, expected 9007199254740992, off by 1" in str(report)
    assert not compare(np.uint64(2**63), np.int64(-(2**63))).ok
    assert compare(np.array([True, False]), np.array([True, False])).ok
    assert not compare(np.array([True, False]), np.array([True, True])).ok
    noted = compare(np.int32(3), np.int64(3))
    assert noted.ok
    assert "compared exactly" in str(noted)


def test_the_worst_of_several_wrong_integers_is_the_furthest():
    assert compare(np.array([1, 9, 3]), np.array([2, 2, 4])).worst.index == (1,)


def test_complex_numbers():
    z = X + 1j
    assert compare(z, z).ok
    report = compare(off(3e-3 + 4e-3j, array=z), z, atol=4.5e-3)
    assert report.verdict == "fail"
    assert report.worst.error == pytest.approx(5e-3)
    assert compare(off(3e-3 + 4e-3j, array=z), z, atol=5.1e-3).ok
    assert not compare(z, X).ok
    assert not compare(z.real, z).ok
    assert not compare(off(np.nan * 1j, array=z), z).ok


def test_lists_and_numbers():
    assert compare([[1.0, 2.0], [3.0, 4.0]], np.array([[1.0, 2.0], [3.0, 4.0]])).ok
    report = compare(3.0, 4.0)
    assert "worst  actual is 3, expected 4" in str(report)
    assert report.worst.index == ()


class Foreign:
    """An array of another framework, which NumPy reads by the protocol alone."""

    def __init__(self, array):
        self.own = array

    def __dlpack__(self, **options):
        return self.own.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.own.__dlpack_device__()


class Convertible:
    def __init__(self, array):
        self.own = array

    def __array__(self, dtype=None, copy=None):
        return self.own


class NeedsGradient:
    requires_grad = True

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("Can't call numpy() on Tensor that requires grad.")


@pytest.mark.parametrize("foreign", [Foreign, Convertible])
def test_arrays_of_other_frameworks(foreign):
    assert compare(foreign(X.copy()), X).ok
    assert compare(X, foreign(X.copy())).ok
    assert not compare(foreign(off(1e-3)), X).ok


def test_bfloat16():
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    assert compare(X.astype(bfloat16), X).ok
    assert not compare(X.astype(bfloat16), 1.2 * X).ok


def test_any_layout_and_no_array_is_written_to():
    for given in (np.asfortranarray(X), np.flip(np.flip(X).copy()), np.repeat(X, 2, axis=1)[:, ::2]):
        given.flags.writeable = False
        before = given.copy()
        assert compare(given, X, budget=np.full(X.shape, 1e-9)).ok
        assert np.array_equal(given, before)


MASKED = np.ma.masked_array([1.0, 2.0], [True, False])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (MASKED, "a masked array"),
        (np.array([1.0, None]), "an array of numbers, got ndarray of dtype object"),
        (None, "an array of numbers, got NoneType"),
        ("text", "an array of numbers, got str"),
        ({1.0, 2.0}, "an array of numbers, got set"),
        ([[1.0, 2.0], [3.0]], "inhomogeneous"),
        (np.zeros(2, [("x", float)]), "an array of numbers"),
        (np.array(["2020"], "M8[Y]"), "an array of numbers"),
        (NeedsGradient(), r"requires a gradient; give \S+\.detach\(\)"),
    ],
)
def test_what_is_no_array_of_numbers_is_named(value, text):
    for actual, expected, name in (
        (value, X, "actual"),
        (X, value, "expected"),
        ((X, value), (X, X), r"actual\[1\]"),
        ({"dq": X}, {"dq": value}, r"expected\.dq"),
    ):
        with pytest.raises(TypeError, match=f"^compare: {name} .*{text}"):
            compare(actual, expected)


# Shapes.


@pytest.mark.parametrize(
    ("shape", "expected", "hint"),
    [
        ((5, 3), (3, 5), ", which is transposed"),
        ((3, 5, 1), (3, 5), ", which differs in axes of size 1"),
        ((3,), (1, 3), ", which differs in axes of size 1"),
        ((3, 2, 5), (2, 3, 5), ", which has the same axes in another order"),
        ((3, 5), (3, 7), ""),
        ((15,), (3, 5), ""),
        ((0, 5), (0, 3), ""),
    ],
)
def test_another_shape_fails_and_is_named(shape, expected, hint):
    report = compare(np.ones(shape), np.ones(expected))
    assert report.verdict == "fail"
    assert report.worst is None
    assert report.power == float("inf")
    assert [finding.text for finding in report.findings] == [f"actual has the shape {shape}, expected {expected}{hint}"]
    assert "none could be compared" in str(report)


def test_what_would_broadcast_fails():
    assert not compare(1.0, np.ones(3)).ok
    assert not compare(np.ones(3), 1.0).ok


def test_empty_arrays_agree_and_are_noted():
    report = compare(np.zeros((0, 3)), np.zeros((0, 3)))
    assert report.ok
    assert str(report).splitlines() == [
        "PASS compare: 0 entries against expected, there is nothing to compare",
        "  note: actual is empty, of the shape (0, 3)",
    ]
    assert compare((np.zeros(0), X), (np.zeros(0), X)).power == compare(X, X).power


# Several arrays.


def test_the_parts_of_a_tuple():
    report = compare((X, off(1e-3), X), (X, X, X))
    assert report.verdict == "fail"
    assert report.n_entries == 45
    assert report.worst.argument == "actual[1]"
    assert "worst  actual[1][1, 2] is" in str(report)
    assert compare((X, X), (X, X)).ok


def test_the_parts_of_a_mapping_are_matched_by_name():
    assert compare({"dq": X, "dk": 2 * X}, MappingProxyType({"dk": 2 * X, "dq": X})).ok
    report = compare({"dq": X, "dk": X}, {"dk": 2 * X, "dq": X})
    assert report.worst.argument == "dk"
    assert [finding.text for finding in report.findings] == ["15 of 15 entries of dk are off, everywhere"]


def test_parts_inside_parts():
    report = compare({"y": X, "gradients": (X, {"b": off(1)})}, {"y": X, "gradients": (X, {"b": X})})
    assert report.worst.argument == "gradients[1].b"


def test_a_missing_or_an_additional_part_fails_and_is_named():
    report = compare({"dq": X, "dx": X}, {"dq": X, "dk": X})
    assert report.verdict == "fail"
    assert [finding.text for finding in report.findings] == ["dk is missing", "dx is not expected"]
    assert report.n_entries == 15
    assert "actual[1] is missing" in str(compare((X,), (X, X)))
    assert "actual[1] is not expected" in str(compare((X, X), (X,)))
    assert compare({}, {"dq": X}).verdict == "fail"
    assert compare({"dq": X}, {}).verdict == "fail"


@pytest.mark.parametrize("several", [(), (X,), (X, X), {"actual": X}])
def test_one_array_is_not_several(several):
    for report in (compare(several, X), compare(X, several)):
        assert report.verdict == "fail"
        assert "a tuple or a mapping of arrays" in str(report)


def test_parts_have_a_tolerance_each():
    """The first is far larger than the second, and has fewer digits."""
    large = (1e6 * X).astype(np.float32)
    assert compare((large, X), (large, X)).ok
    assert not compare((large, off(1e-6)), (large, X)).ok


def test_the_worst_part_is_that_furthest_beyond_its_own_bar():
    report = compare((1e6 * X + 1e-3, off(1e-4)), (1e6 * X, X))
    assert report.worst.argument == "actual[1]"


def test_failures_come_first_and_lines_are_few():
    given = {f"part {i}": X.astype(np.float32) for i in range(30)}
    given["part 29"] = given["part 29"] * 2
    report = compare(given, {name: X for name in given})
    assert report.findings[0].verdict == "fail"
    assert report.worst.argument == "part 29"
    assert len(str(report).splitlines()) == 20


# What is refused.


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"budget": 1.0, "rtol": 0.1}, "budget says how far"),
        ({"budget": 1.0, "atol": 0.0}, "budget says how far"),
        ({"rtol": 1.0}, "rtol must be at least 0 and below 1, got 1.0"),
        ({"rtol": -0.1}, "rtol must be"),
        ({"rtol": float("nan")}, "rtol must be"),
        ({"rtol": "a"}, "rtol must be"),
        ({"atol": -1}, "atol must be finite and at least 0, got -1"),
        ({"atol": float("inf")}, "atol must be"),
        ({"atol": float("nan")}, "atol must be"),
        ({"budget": -1.0}, "budget must hold finite numbers of at least 0"),
        ({"budget": float("nan")}, "budget must hold"),
        ({"budget": np.full(X.shape, np.inf)}, "budget must hold"),
        ({"budget": 1j}, "budget must hold"),
        ({"budget": np.ones((2, 3, 5))}, r"budget has the shape \(2, 3, 5\), which does not fit expected's \(3, 5\)"),
        ({"budget": np.ones(3)}, r"budget has the shape \(3,\)"),
        ({"budget": {"dq": 1.0}}, "budget is not put together as expected is: it has a part dq"),
    ],
)
def test_a_bad_tolerance_is_a_value_error(options, text):
    with pytest.raises(ValueError, match=f"^compare: {text}"):
        compare(X, X, **options)


def test_a_budget_that_lacks_a_part():
    with pytest.raises(ValueError, match="compare: budget has no part dk"):
        compare({"dq": X, "dk": X}, {"dq": X, "dk": X}, budget={"dq": 1.0})


@pytest.mark.parametrize("nothing", [(), {}, ((), {})])
def test_no_arrays_at_all_is_a_value_error(nothing):
    with pytest.raises(ValueError, match="hold no arrays"):
        compare(nothing, nothing)


def test_the_worst_entry_is_a_worst():
    worst = compare(off(1e-3), X).worst
    assert isinstance(worst, Worst)
    assert worst.ratio == worst.error / worst.bar > 1
