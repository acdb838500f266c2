"""A forward that the complex step cannot differentiate is inconclusive, with the reason: never passed, never accused."""

import math
import warnings

import numpy as np
import pytest

from gradcheck import check


def normal(*shape):
    return np.random.default_rng(0).normal(size=shape)


X = normal(3, 5)


def variance(x):
    return np.var(x, axis=-1), lambda dy: 2 / 5 * dy[:, None] * (x - x.mean(-1, keepdims=True))


def norm(x):
    y = np.linalg.norm(x, axis=-1)
    return y, lambda dy: (dy / y)[:, None] * x


def one_by_one(function, slope):
    def op(x):
        y = np.array([function(value) for value in x.reshape(-1)]).reshape(x.shape)
        return y, lambda dy: dy * np.array([slope(value) for value in x.reshape(-1)]).reshape(x.shape)

    return op


def cast(x):
    own = np.asarray(x, np.float64)
    return own * own, lambda dy: 2 * own * dy


def cast_silently(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        own = x.astype(np.float64)
    return own * own, lambda dy: 2 * own * dy


def cast_in_part(x):
    """The result is complex, and right for one of two terms."""
    return x * x + x.real**3, lambda dy: (2 * x + 3 * x * x) * dy


def into_a_buffer(x):
    y = np.zeros(x.shape)
    y[...] = x * x
    return y, lambda dy: 2 * x * dy


def small_part(x):
    return x + 1e-3 * x.real * x, lambda dy: (1 + 2e-3 * x) * dy


def small_array(x, b):
    """Beside x, b hardly counts."""
    return 1e6 * x + abs(b) + 0j * x.imag, lambda dy: (1e6 * dy, dy * np.sign(b))


def small_output(x):
    return (1e6 * x, abs(x) + 0 * x), lambda da, db: 1e6 * da + db * np.sign(x)


def refuses(x):
    if np.iscomplexobj(x):
        raise TypeError("x must be real")
    return x * x, lambda dy: 2 * x * dy


def of_another_shape(x):
    y = x * x
    return (y[:1] if np.iscomplexobj(x) else y), lambda dy: 2 * x * dy


def fewer_outputs(x):
    return (x * x if np.iscomplexobj(x) else (x * x, x)), lambda dy, dz: 2 * x * dy + dz


UNSAFE = {
    "abs": lambda x: (abs(x), lambda dy: dy * np.sign(x)),
    "abs squared": lambda x: (abs(x) ** 2, lambda dy: 2 * x * dy),
    "conj": lambda x: (x * np.conj(x), lambda dy: 2 * x * dy),
    "real": lambda x: (x.real**2, lambda dy: 2 * x * dy),
    "hermitian transpose": lambda x: ((x @ x.conj().T).sum(), lambda dy: 2 * dy * np.ones((3, 3)) @ x),
    "vdot": lambda x: (np.vdot(x, x), lambda dy: 2 * dy * x),
    "var": variance,
    "norm": norm,
    "math.exp": one_by_one(math.exp, math.exp),
    "float()": one_by_one(lambda value: float(value) ** 2, lambda value: 2 * value),
    "asarray float64": cast,
    "astype with the warning silenced": cast_silently,
    "real in one of two terms": cast_in_part,
    "a buffer of float64": into_a_buffer,
    "real in a small term": small_part,
    "an exception": refuses,
    "another shape": of_another_shape,
    "fewer outputs": fewer_outputs,
    "an output that stays real": small_output,
}


@pytest.mark.parametrize("name", UNSAFE)
@pytest.mark.parametrize("seed", range(3))
def test_an_unsafe_forward_is_compared_with_differences(name, seed):
    report = check(UNSAFE[name], X, seed=seed, truth="complex")
    assert report.verdict == "inconclusive", report
    assert "not complex-safe" in str(report)
    report = check(UNSAFE[name], X, seed=seed)
    assert report.ok, report
    assert report.against == "differences"
    assert "note: compared with differences, since the forward is not complex-safe" in str(report)
    assert check(UNSAFE[name], X, seed=seed, truth="difference").ok


def test_the_reason_is_told():
    def reason(name):
        return check(UNSAFE[name], X).findings[0].text

    assert "x must be real" in reason("an exception")
    assert "ComplexWarning" in reason("asarray float64")
    assert "returns a real one" in reason("abs")
    assert "along a random direction the complex step gives" in reason("real in one of two terms")
    assert "other shapes" in reason("another shape")


def test_an_unsafe_influence_of_a_small_array():
    report = check(small_array, X, normal(5), truth="complex")
    assert report.verdict == "inconclusive", report


def test_a_zero_gradient_that_agrees_with_a_dropped_imaginary_part_does_not_pass():
    """Backward and complex step make the same mistake."""
    report = check(lambda x, b: (1e6 * x + b.real, lambda dy: (1e6 * dy, 0 * b)), normal(5), normal(5) + 3)
    assert report.verdict == "fail", report
    assert report.worst.argument == "b"


@pytest.mark.parametrize("name", ["abs", "conj", "var", "real in one of two terms", "astype with the warning silenced"])
@pytest.mark.parametrize("factor", [0.0, 2.0, -1.0])
def test_an_unsafe_forward_with_a_wrong_backward_does_not_pass(name, factor):
    def op(x):
        y, backward = UNSAFE[name](x)
        return y, lambda dy: factor * backward(dy)

    assert check(op, X, truth="complex").verdict in ("inconclusive", "fail")
    assert check(op, X).verdict == "fail"


def x_is_at(*index):
    entries = np.zeros(X.shape, bool)
    entries[index] = True
    return entries


# What needs no truth is found nevertheless.


def unsafe(backward):
    return lambda x: (abs(x), lambda dy: backward(dy, x))


def overwrites(dy, x):
    dy *= np.sign(x)
    return dy


NOISE = np.random.default_rng(0)


@pytest.mark.parametrize(
    "backward",
    [
        overwrites,
        lambda dy, x: np.full_like(x, np.nan),
        lambda dy, x: np.where(x == x.max(), np.inf, dy * np.sign(x)),
        lambda dy, x: dy * np.sign(x) + 1,
        lambda dy, x: NOISE.normal(size=x.shape) * dy,
        lambda dy, x: (dy * np.sign(x))[:1],
        lambda dy, x: dy * np.sign(x) * (1 if x.flags.c_contiguous else 2),
        lambda dy, x: None,
    ],
    ids=["overwrites dy", "NaN", "infinity", "adds a constant", "random", "shape", "layout", "None"],
)
def test_other_faults_of_an_unsafe_op_fail(backward):
    report = check(unsafe(backward), X)
    assert report.verdict == "fail", report


def test_an_unsafe_op_whose_gradient_is_not_a_number_is_told_where():
    report = check(unsafe(lambda dy, x: np.where(x == x[1, 2], np.nan, dy * np.sign(x))), X, truth="complex")
    assert "the gradient of x[1, 2] is not a number" in str(report)
    stopped = {"x": x_is_at(1, 2)}
    assert check(unsafe(lambda dy, x: np.where(x == X[1, 2], 0, dy * np.sign(x))), X, stopped=stopped).ok


# Kinks. Of a forward that looks at the imaginary part to choose a side, the complex step knows nothing at the kink itself.

AT_KINKS = np.array([-1.0, 0.0, 0.5, 0.0, 2.0])


@pytest.mark.parametrize(
    "forward",
    [
        lambda x: np.maximum(x, 0),
        lambda x: np.where(x > 0, x, 0),
        lambda x: x * (x > 0),
        lambda x: np.where(x >= 0, x, 0),
        lambda x: np.clip(x, 0, 100),
    ],
    ids=["maximum", "where >", "times >", "where >=", "clip"],
)
@pytest.mark.parametrize("slope", [0.0, 0.5, 1.0])
def test_a_comparison_at_a_kink_is_not_accused_of_any_slope_between(forward, slope):
    def op(x):
        return forward(x), lambda dy: dy * np.where(x == 0, slope, x > 0)

    assert check(op, AT_KINKS).ok
    report = check(op, AT_KINKS, truth="complex")
    assert report.verdict == "inconclusive" if slope < 1 else report.verdict != "fail", report
    if slope == 0:
        assert "x[1]" in str(report)
        assert "on one side and -0 on the other" in str(report) or "on one side and 0 on the other" in str(report)
        assert report.worst.index == (1,)


def test_away_from_the_kink_it_passes():
    x = np.array([-1.0, 0.1, 2.0])
    assert check(lambda x: (np.maximum(x, 0), lambda dy: dy * (x > 0)), x).ok


@pytest.mark.parametrize("slope", [2.0, -1.0, np.nan])
def test_a_slope_beside_the_kinks_two_fails(slope):
    def op(x):
        return np.maximum(x, 0), lambda dy: dy * np.where(x == 0, slope, x > 0)

    report = check(op, AT_KINKS)
    assert report.verdict == "fail", report


def test_a_wrong_entry_is_not_excused_by_a_kink_elsewhere():
    def op(x):
        def backward(dy):
            dx = dy * (x > 0)
            dx[-1] *= 1.001
            return dx

        return np.maximum(x, 0), backward

    report = check(op, AT_KINKS)
    assert report.verdict == "fail", report
    assert "one of them [4]" in str(report)


def test_an_excused_array_does_not_hide_a_wrong_one():
    def op(x, w):
        return np.maximum(x, 0) * w, lambda dy: (dy * (x > 0) * w, (1 + 1e-6) * dy * np.maximum(x, 0))

    report = check(op, AT_KINKS, normal(5))
    assert report.verdict == "fail", report
    assert report.worst.argument == "w"


@pytest.mark.parametrize("side", [0.0, 1.0])
def test_a_forward_that_chooses_by_the_real_part_has_declared_a_side(side):
    def op(slope):
        on = (lambda x: x.real >= 0) if side else (lambda x: x.real > 0)
        return lambda x: (np.where(on(x), x, 0), lambda dy: dy * np.where(x == 0, slope, x > 0))

    assert check(op(side), AT_KINKS).ok
    assert check(op(1 - side), AT_KINKS).verdict == "fail"


def test_a_forward_that_is_unsafe_at_one_entry_only_is_not_accused():
    """A random direction hardly sees it; the failing entry is looked at alone."""

    def op(x):
        y = x * x
        y[0, 0] = x[0, 0].real ** 2
        return y, lambda dy: 2 * x * dy

    x = np.random.default_rng(0).normal(size=(20, 20))
    x[0, 0] = 1e-3
    report = check(op, x, truth="complex")
    assert report.verdict == "inconclusive", report
    report = check(op, x)
    assert report.ok, report


def test_a_complex_step_that_gives_nan_is_not_believed():
    report = check(lambda x: (3 * x, lambda dy: 3 * dy), np.array([1.0, -np.inf, 2.0]))
    assert report.verdict != "pass"
    report = check(
        lambda x: (np.where(np.isfinite(x), 3 * x, 0), lambda dy: 3 * dy * np.isfinite(x)), np.array([1.0, -np.inf])
    )
    assert report.verdict != "fail", report


# Ops that the whole method does not fit.


def test_a_complex_output_for_real_arrays_is_inconclusive():
    report = check(lambda x: (np.exp(1j * x), lambda dy: (1j * np.exp(1j * x) * dy).real), X)
    assert report.verdict == "inconclusive"
    assert "complex output for real arrays" in str(report)


def test_an_op_for_float32_alone_is_inconclusive():
    def op(x):
        if x.dtype != np.float32:
            raise TypeError("a kernel for float32")
        return x * x, lambda dy: 2 * x * dy

    report = check(op, X.astype(np.float32))
    assert report.verdict == "inconclusive"
    assert "a kernel for float32" in str(report)


# What is refused at once.


@pytest.mark.parametrize("arguments", [(), (np.array([1, 2]),), (1.5,), ([1.0, 2.0],), (np.array([True]),)])
def test_no_differentiable_input_is_a_value_error(arguments):
    def my_op(*arguments):
        return np.ones(2), lambda dy: None

    with pytest.raises(ValueError, match="my_op has no differentiable input"):
        check(my_op, *arguments)


def test_what_the_op_raises_is_let_through():
    def op(x):
        raise KeyError("which row?")

    for x in (X, X.astype(np.float32)):
        with pytest.raises(KeyError, match="which row"):
            check(op, x)


@pytest.mark.parametrize("exception", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("call", [1, 2, 3, 30, 60])
def test_an_interruption_is_let_through_from_anywhere(exception, call):
    calls = []

    def op(x):
        calls.append(1)
        if len(calls) == call:
            raise exception
        return x * x, lambda dy: 2 * x * dy

    with pytest.raises(exception):
        check(op, X)


def test_an_exception_of_the_backward_passes_through_with_a_note():
    mine = IndexError("too many indices")

    def op(x):
        def backward(dy):
            raise mine

        return x * x, backward

    with pytest.raises(IndexError) as caught:
        check(op, X)
    assert caught.value is mine
    assert mine.__notes__ == ["gradcheck: raised by the backward for a dense random dy"]
    with pytest.raises(TypeError, match="positional argument"):
        check(lambda x: ((x, x * x), lambda dy: dy), X)


@pytest.mark.parametrize(
    "returned",
    [None, X, (X,), (X, X), (X, X, X), "y", np.ones((2, 3)), [1, 2, 3]],
)
def test_an_op_must_return_y_and_a_backward(returned):
    with pytest.raises(TypeError, match="must return"):
        check(lambda x: returned, X)


@pytest.mark.parametrize("y", [np.array([1, 2]), "text", (), None, [1, 2], np.array([True])])
def test_y_must_have_a_floating_array(y):
    with pytest.raises(ValueError, match="must return a floating array"):
        check(lambda x: (y, lambda dy: dy), X)


@pytest.mark.parametrize("y", [{"y": X}, (X, {"z": X}), (X, (X, X)), [X, [X]]])
def test_outputs_inside_outputs_are_not_passed_over(y):
    with pytest.raises(TypeError, match="an array or a tuple of arrays, got a"):
        check(lambda x: (y if isinstance(y, tuple | list) else (y,), lambda dy: dy), X)


@pytest.mark.parametrize(
    ("bad", "named"),
    [
        (X.astype(object), "x must be an ordinary array of numbers, got an array of object"),
        (np.ma.masked_array(X, X > 1), "x must be an ordinary array of numbers, got a MaskedArray"),
        (
            X.astype(">f8") if np.little_endian else X.astype("<f8"),
            "x must be float64, float32 or float16 to be checked, got",
        ),
        (X.astype(np.longdouble), "x must be float64, float32 or float16 to be checked, got"),
    ],
    ids=["object", "masked", "byte order", "longdouble"],
)
def test_an_array_of_another_kind_is_refused_by_name(bad, named):
    with pytest.raises(TypeError, match=named):
        check(parabola, bad)


@pytest.mark.parametrize(
    ("bad", "named"), [(1.5, "x is a float"), ([1.0, 2.0], "x is a list"), (np.array([1]), "x is an array of int64")]
)
def test_no_differentiable_input_says_what_there_is(bad, named):
    with pytest.raises(ValueError, match=rf"none of its arguments is a floating array \({named}\)"):
        check(parabola, bad)


def test_masked_arrays_that_come_out_are_refused_by_name():
    with pytest.raises(TypeError, match="got a MaskedArray"):
        check(lambda x: (np.ma.masked_array(x * x, x > 1), lambda dy: 2 * x * dy), X)
    report = check(lambda x: (x * x, lambda dy: np.ma.masked_array(2 * x * dy, x > 1)), X)
    assert report.verdict == "fail"
    assert "the gradient of x is a MaskedArray" in str(report)


def test_a_nan_among_the_arrays_is_named_where_the_check_fails():
    report = check(parabola, np.where(X == X[1, 2], np.nan, X))
    assert report.verdict == "fail"
    assert "note: x itself is NaN, as at [1, 2]" in str(report)


def test_a_complex_array_is_refused_by_name():
    with pytest.raises(TypeError, match="x is complex"):
        check(lambda x: (x, lambda dy: dy), np.array([1j]))


@pytest.mark.parametrize(
    ("argument", "error", "text"),
    [
        ({"rtol": "a"}, ValueError, "rtol must be between 0 and 1"),
        ({"seed": "a"}, ValueError, "seed must be an integer"),
        ({"seed": -1}, ValueError, "seed must be an integer"),
        ({"truth": np.zeros(2)}, ValueError, "truth must be"),
    ],
)
def test_a_bad_setting_is_refused_by_name(argument, error, text):
    with pytest.raises(error, match=text):
        check(lambda x: (x, lambda dy: dy), X, **argument)


def test_what_is_no_function_is_refused():
    with pytest.raises(TypeError, match="must be a function, got NoneType"):
        check(None, X)


def parabola(x):
    return x * x, lambda dy: 2 * x * dy


@pytest.mark.parametrize("dtype", [np.longdouble, ">f8"])
def test_other_floating_dtypes_are_a_type_error(dtype):
    with pytest.raises(TypeError, match="x must be float64, float32 or float16"):
        check(parabola, X.astype(dtype))


@pytest.mark.parametrize("stopped", [{"z": X > 0}, {1: X > 0}, {-1: X > 0}, {None: X > 0}])
def test_stopping_an_unknown_argument_is_a_value_error(stopped):
    with pytest.raises(ValueError, match="which is none of x"):
        check(parabola, X, stopped=stopped)


@pytest.mark.parametrize("entries", [X[:1] > 0, X, (X > 0).astype(int), True, [[True]], None])
def test_stopped_must_be_boolean_and_of_the_shape(entries):
    with pytest.raises(ValueError, match=r"stopped\['x'\] must be boolean of the shape \(3, 5\)"):
        check(parabola, X, stopped={"x": entries})


@pytest.mark.parametrize("stopped", [[X > 0], X > 0, "x", ()])
def test_stopped_must_be_a_mapping(stopped):
    with pytest.raises(TypeError, match="stopped must be a mapping"):
        check(parabola, X, stopped=stopped)


@pytest.mark.parametrize("truth", ["differences", "exact", None, "", 1])
def test_an_unknown_truth_is_a_value_error(truth):
    with pytest.raises(ValueError, match="truth must be"):
        check(parabola, X, truth=truth)


def test_both_names_of_the_truth():
    assert str(check(parabola, X, truth="complex")) == str(check(parabola, X, truth="auto")) == str(check(parabola, X))


@pytest.mark.parametrize("rtol", [0, -1e-10, 1.0, 2, float("nan"), float("inf")])
def test_a_bad_rtol_is_a_value_error(rtol):
    with pytest.raises(ValueError, match="rtol must be between 0 and 1"):
        check(parabola, X, rtol=rtol)


def test_rtol_is_what_it_says():
    def off_by(error):
        return lambda x: (x * x, lambda dy: 2 * x * dy * (1 + error))

    assert check(off_by(1e-12), X).ok
    assert check(off_by(1e-9), X).verdict == "fail"
    assert check(off_by(1e-9), X, rtol=1e-8).ok
    assert check(off_by(1e-3), X, rtol=1e-2).ok
    assert check(off_by(1e-3), X, rtol=1e-4).verdict == "fail"
    assert check(off_by(1e-12), X, rtol=1e-14).verdict == "fail"
