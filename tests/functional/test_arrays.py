"""What every operation owes to its arrays: it leaves them alone, takes them in any layout, and keeps their dtype.

Cases come from the catalogue, so that an operation that is added is held to the same laws.
"""

import copy
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from npformer import functional
from npformer.catalogue import OPERATIONS, RandomChooser

N_CASES = 12  # of each operation and law
NAMES = [name for name, operation in OPERATIONS.items() if operation.differentiable]
every_operation = pytest.mark.parametrize("name", NAMES)
VIEWS_OF_THE_INPUT = ("split_heads", "merge_heads")  # which their docstrings say

LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "column-major": lambda array: array.copy(order="F"),
    "every second entry": lambda array: np.repeat(array[..., None], 2, axis=-1)[..., 0],
    "reversed": lambda array: np.flip(np.flip(array).copy()) if array.ndim else array,
    "read-only": lambda array: read_only(array.copy()),
}


def read_only(array):
    array.flags.writeable = False
    return array


def draw_cases(name, n=N_CASES):
    for seed in range(n):
        rng = np.random.default_rng([seed, *map(ord, name)])
        yield OPERATIONS[name].draw(RandomChooser(rng), rng), rng


def run(case):
    """What the operation returns for these very arrays; only a generator is copied."""
    options = {k: copy.deepcopy(v) if isinstance(v, np.random.Generator) else v for k, v in case.options.items()}
    return case.operation.function(**case.arrays, **options)


def mapped(case, change):
    """The case with `change` done to every array, ids and masks included."""
    options = {key: change(value) if isinstance(value, np.ndarray) else value for key, value in case.options.items()}
    return replace(case, arrays={key: change(array) for key, array in case.arrays.items()}, options=options)


def all_arrays(case):
    return [value for value in (*case.arrays.values(), *case.options.values()) if isinstance(value, np.ndarray)]


def floating(y):
    return [each for each in (y if isinstance(y, tuple) else (y,)) if isinstance(each, np.ndarray)]


def as_tuple(gradients):
    return gradients if isinstance(gradients, tuple) else (gradients,)


def dense(rng, outputs):
    return [np.asarray(rng.standard_normal(y.shape), y.dtype) for y in outputs]


def results(case, dys):
    """The floating outputs, then the gradients."""
    y, backward = run(case)
    return [*floating(y), *as_tuple(backward(*dys))]


def ordinary(case, rng):
    """Dense cotangents and what they give."""
    dys = dense(rng, floating(run(case)[0]))
    return dys, results(case, dys)


def assert_same(actual, expected, tolerance=0.0):
    """Equal in shape and dtype, NaN and infinities included, and within `tolerance` of the largest entry."""
    for got, known in zip(actual, expected, strict=True):
        assert got.shape == known.shape
        assert got.dtype == known.dtype
        numbers = np.isfinite(known)
        np.testing.assert_array_equal(got[~numbers], known[~numbers])
        bar = tolerance * np.abs(known[numbers]).max(initial=0)
        np.testing.assert_allclose(got[numbers], known[numbers], rtol=0, atol=bar)


@every_operation
def test_no_array_is_written_to(name):
    for case, rng in draw_cases(name):
        dys, _ = ordinary(case, rng)
        before = [array.tobytes() for array in (*all_arrays(case), *dys)]
        results(case, dys)
        assert [array.tobytes() for array in (*all_arrays(case), *dys)] == before


@every_operation
@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout_of_arrays_ids_and_masks_is_accepted(name, layout):
    change = LAYOUTS[layout]
    for case, rng in draw_cases(name):
        dys, expected = ordinary(case, rng)
        assert_same(
            results(mapped(case, change), [change(dy) for dy in dys]), expected, 0 if layout == "read-only" else 1e-13
        )


@every_operation
def test_one_slice_seen_many_times_is_accepted(name):
    """Broadcasting makes arrays and cotangents of stride 0."""

    def slice_seen_often(array):
        return np.broadcast_to(array[:1], array.shape) if array.ndim else array

    for case, rng in draw_cases(name):
        case = mapped(case, slice_seen_often)
        dys, _ = ordinary(case, rng)
        dys = [slice_seen_often(dy) for dy in dys]
        assert_same(results(case, dys), results(mapped(case, np.array), list(map(np.array, dys))), 1e-13)


@every_operation
def test_results_share_no_memory_with_arguments_or_one_another(name):
    for case, rng in draw_cases(name):
        y, backward = run(case)
        outputs = floating(y)
        dys, more_dys = dense(rng, outputs), dense(rng, outputs)
        gradients, more_gradients = as_tuple(backward(*dys)), as_tuple(backward(*more_dys))
        made = [*outputs, *gradients, *more_gradients]
        arguments = [] if name in VIEWS_OF_THE_INPUT else [*all_arrays(case), *dys, *more_dys]
        for i, array in enumerate(made):
            assert not any(np.shares_memory(array, other) for other in (*made[i + 1 :], *arguments))


@every_operation
def test_a_second_backward_is_independent_of_the_first(name):
    """Nothing accumulates, nothing that was returned is overwritten, and a closure outlives other calls."""
    for case, rng in draw_cases(name):
        y, backward = run(case)
        dys, other_dys = dense(rng, floating(y)), dense(rng, floating(y))
        first = as_tuple(backward(*dys))
        kept = [gradient.copy() for gradient in first]
        backward(*other_dys)
        elsewhere = case.with_arrays({key: np.flip(array) * 1.5 for key, array in case.arrays.items()})
        results(elsewhere, other_dys)
        assert_same(first, kept)
        assert_same(as_tuple(backward(*dys)), kept)


@every_operation
def test_repeated_calls_are_equal_to_the_last_bit(name):
    for case, rng in draw_cases(name):
        dys, expected = ordinary(case, rng)
        for got, known in zip(results(case, dys), expected, strict=True):
            assert got.tobytes() == known.tobytes()


@every_operation
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_outputs_and_gradients_have_the_dtype_and_the_shape_of_the_inputs(name, dtype):
    for case, rng in draw_cases(name):
        case = case.with_arrays({key: array.astype(dtype) for key, array in case.arrays.items()})
        y, backward = run(case)
        outputs = floating(y)
        gradients = as_tuple(backward(*dense(rng, outputs)))
        assert {array.dtype for array in (*outputs, *gradients)} == {np.dtype(dtype)}
        assert [gradient.shape for gradient in gradients] == [array.shape for array in case.arrays.values()]


@every_operation
def test_float16_is_float32_rounded(name):
    for case, rng in draw_cases(name):
        half = case.with_arrays({key: array.astype(np.float16) for key, array in case.arrays.items()})
        single = case.with_arrays({key: array.astype(np.float32) for key, array in half.arrays.items()})
        dys = [dy.astype(np.float16) for dy in dense(rng, floating(run(half)[0]))]
        with np.errstate(over="ignore"):
            rounded = [each.astype(np.float16) for each in results(single, [dy.astype(np.float32) for dy in dys])]
        assert_same(results(half, dys), rounded)


@every_operation
def test_an_option_given_as_a_numpy_number_does_not_change_the_dtype(name):
    """A NumPy scalar, unlike Python's numbers, imposes its dtype on the arrays that it meets."""

    def as_numpy(value):
        if type(value) is float:
            return np.float64(value)
        return np.int64(value) if type(value) is int else value

    for case, rng in draw_cases(name):
        case = case.with_arrays({key: array.astype(np.float32) for key, array in case.arrays.items()})
        dys, expected = ordinary(case, rng)
        assert_same(results(replace(case, options={k: as_numpy(v) for k, v in case.options.items()}), dys), expected)


def test_the_other_options_given_as_numpy_numbers_do_not_change_the_dtype_either():
    """Those that the catalogue draws seldom."""
    rng = np.random.default_rng(0)
    x, gamma = rng.standard_normal((3, 5)).astype(np.float32), rng.standard_normal(5).astype(np.float32)
    query = rng.standard_normal((2, 3, 5, 7)).astype(np.float32)
    generator = np.random.default_rng(1)
    calls = [
        functional.layer_norm(x, gamma, gamma, eps=np.float64(1e-3)),
        functional.rms_norm(x, gamma, eps=np.float64(1e-3)),
        functional.dropout(x, np.float64(0.3), generator),
        functional.rotary(query[..., :6], np.arange(5), base=np.float64(100.0)),
        functional.attention_weights(query, query, softcap=np.float64(1.5)),
        functional.attention(query, query, query, scale=np.float64(0.3), softcap=np.float64(1.5), causal=np.int64(0)),
        functional.attention(query, query, query, dropout=np.float64(0.3), rng=generator, window=np.int64(2)),
    ]
    for y, backward in calls:
        assert y.dtype == np.float32
        assert {gradient.dtype for gradient in as_tuple(backward(y))} == {np.dtype(np.float32)}
    (total, count), backward = functional.cross_entropy(x, np.arange(3), label_smoothing=np.float64(0.1))
    assert total.dtype == backward(np.float32(1)).dtype == np.float32


@every_operation
def test_complex_arrays_give_the_real_outputs_and_the_directional_derivative(name):
    """To first order, f(x + ihv) = f(x) + ih·f′(x)v; and dy·f′(x)v = dx·v."""
    h = 1e-30
    for case, rng in draw_cases(name):
        case = case.with_arrays({key: np.where(np.isfinite(array), array, 0) for key, array in case.arrays.items()})
        stopped = case.operation.stopped(case)
        vs = {k: np.where(stopped.get(k, False), 0, rng.standard_normal(x.shape)) for k, x in case.arrays.items()}
        real, backward = run(case)
        given = run(case.with_arrays({key: array + 1j * h * vs[key] for key, array in case.arrays.items()}))[0]
        dys = dense(rng, floating(real))
        for y, z in zip(floating(real), floating(given), strict=True):
            assert z.dtype == np.complex128
            assert_same([z.real.copy()], [y], 1e-13)
        terms = [(dy * z.imag / h).ravel() for dy, z in zip(dys, floating(given), strict=True)]
        gradients = as_tuple(backward(*dys))
        others = [(dx * v).ravel() for dx, v in zip(gradients, vs.values(), strict=True)]
        along, across = (np.concatenate(each) for each in (terms, others))
        assert abs(along.sum() - across.sum()) <= 1e-10 * (np.abs(along).sum() + np.abs(across).sum())


@every_operation
def test_a_nan_reaches_every_output_that_depends_on_its_entry(name):
    """Which those are is seen by moving the entry far to either side."""
    n_reached = 0
    for case, rng in draw_cases(name, 20):
        for key, array in case.arrays.items():
            if array.size:
                entry = rng.integers(array.size)
                low, here, high, poisoned = (
                    floating(run(case.with_arrays({**case.arrays, key: with_entry(array, entry, change)}))[0])[0]
                    for change in (-100.0, 0.0, 100.0, np.nan)
                )
                depends = (low != here) | (high != here)
                assert np.isnan(poisoned[depends]).all(), f"{case}: a NaN in {key}"
                n_reached += np.count_nonzero(depends)
    assert n_reached > 10


def with_entry(array, entry, change):
    array = array.copy(order="C")
    array.reshape(-1)[entry] += change
    return array


EXTREMES = {
    "logits of ±1e4": lambda rng, shape: 1e4 * rng.choice([-1.0, 1.0], shape),
    "a mean of 1e6": lambda rng, shape: 1e6 + rng.standard_normal(shape),
    "constant": lambda rng, shape: np.full(shape, 3.0),
    "zeros": lambda rng, shape: np.zeros(shape),
    "as large as can be": lambda rng, shape: 1.7e308 * rng.choice([-1.0, 1.0], shape),
    "as small as can be": lambda rng, shape: 5e-324 * rng.choice([-1.0, 1.0], shape),
    "infinities and NaN": lambda rng, shape: rng.choice([-np.inf, np.inf, np.nan, 1.0], shape),
}


@every_operation
@pytest.mark.parametrize("extreme", EXTREMES)
def test_nothing_warns(name, extreme):
    """Warnings are errors here; nor is NumPy asked to raise, which it would do outside of what an operation protects."""
    for dtype in (np.float64, np.float32, np.float16):
        for case, rng in draw_cases(name):
            with np.errstate(all="ignore"):
                arrays = {k: EXTREMES[extreme](rng, array.shape).astype(dtype) for k, array in case.arrays.items()}
            with np.errstate(all="raise"):
                y, backward = run(case.with_arrays(arrays))
                outputs = floating(y)
                with np.errstate(all="ignore"):
                    dys = [EXTREMES[extreme](rng, y.shape).astype(dtype) for y in outputs]
                backward(*dys)


@every_operation
def test_the_global_random_state_is_not_touched(name):
    before = copy.deepcopy(np.random.get_state())  # noqa: NPY002
    for case, rng in draw_cases(name):
        ordinary(case, rng)
    after = np.random.get_state()  # noqa: NPY002
    assert str(after) == str(before)
    np.testing.assert_array_equal(after[1], before[1])


@every_operation
def test_arrays_of_integers_have_no_gradient_and_are_refused(name):
    for case, _ in draw_cases(name, 3):
        for key, array in case.arrays.items():
            with pytest.raises(TypeError, match=rf"^{name}: {key} .*int64"):
                run(case.with_arrays({**case.arrays, key: np.where(np.isfinite(array), array, 0).astype(np.int64)}))


def zeros(*shapes):
    return tuple(np.zeros(shape) for shape in shapes)


def ids(*shape):
    return np.zeros(shape, np.int64)


# The floating arrays, the other arguments by name, and the shape of the output.
EMPTY = [
    *((name, zeros((3, 0)), {}, (3, 0)) for name in ("relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh")),
    *((name, zeros((0,)), {}, (0,)) for name in ("relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh")),
    *((name, zeros((3, 0)), {}, (3, 0)) for name in ("softmax", "log_softmax")),
    *((name, zeros((0, 3)), {"axis": axis}, (0, 3)) for name in ("softmax", "log_softmax") for axis in (0, 1)),
    ("linear", zeros((0, 3), (3, 5), (5,)), {}, (0, 5)),
    ("linear", zeros((2, 0, 3), (3, 5)), {}, (2, 0, 5)),
    ("linear", zeros((2, 3), (3, 0), (0,)), {}, (2, 0)),
    ("linear", zeros((2, 0), (0, 5), (5,)), {}, (2, 5)),
    ("linear", zeros((0,), (0, 5)), {}, (5,)),
    ("layer_norm", zeros((0, 3), (3,), (3,)), {}, (0, 3)),
    ("layer_norm", zeros((2, 0, 3), (3,), (3,)), {}, (2, 0, 3)),
    ("rms_norm", zeros((0, 2, 3), (3,)), {}, (0, 2, 3)),
    ("embedding", zeros((5, 3)), {"ids": ids(0, 2)}, (0, 2, 3)),
    ("embedding", zeros((5, 3)), {"ids": ids(2, 0), "padding_id": 0}, (2, 0, 3)),
    ("embedding", zeros((0, 3)), {"ids": ids(0)}, (0, 3)),
    ("dropout", zeros((2, 0)), {"p": 0.5, "rng": None}, (2, 0)),
    ("split_heads", zeros((0, 3, 10)), {"n_heads": 5}, (0, 5, 3, 2)),
    ("split_heads", zeros((2, 0, 10)), {"n_heads": 5}, (2, 5, 0, 2)),
    ("merge_heads", zeros((0, 5, 3, 2)), {}, (0, 3, 10)),
    ("merge_heads", zeros((2, 5, 0, 2)), {}, (2, 0, 10)),
    ("rotary", zeros((2, 0, 4)), {"positions": ids(0)}, (2, 0, 4)),
    ("rotary", zeros((0, 3, 4)), {"positions": ids(3)}, (0, 3, 4)),
    ("rotary", zeros((0, 2, 3, 4)), {"positions": ids(0, 1, 3)}, (0, 2, 3, 4)),
    ("cross_entropy", zeros((0, 3)), {"targets": ids(0)}, ()),
    ("cross_entropy", zeros((2, 0, 3)), {"targets": ids(2, 0), "label_smoothing": 0.1}, ()),
    ("attention", zeros((0, 4, 3, 2), (0, 2, 5, 2), (0, 2, 5, 7)), {}, (0, 4, 3, 7)),
    ("attention", zeros((1, 4, 0, 2), (1, 2, 5, 2), (1, 2, 5, 7)), {"causal": 5, "window": 2}, (1, 4, 0, 7)),
    ("attention", zeros((1, 4, 3, 2), (1, 2, 0, 2), (1, 2, 0, 7)), {"causal": -3}, (1, 4, 3, 7)),
    ("attention", zeros((1, 4, 3, 2), (1, 2, 0, 2), (1, 2, 0, 7)), {"keep": np.zeros((3, 0), bool)}, (1, 4, 3, 7)),
    ("attention", zeros((0, 4, 0, 2), (0, 2, 0, 2), (0, 2, 0, 0)), {"causal": True}, (0, 4, 0, 0)),
    ("attention_weights", zeros((1, 4, 3, 2), (1, 2, 0, 2)), {"softcap": 2.0}, (1, 4, 3, 0)),
]


@pytest.mark.parametrize("name, arrays, options, shape", EMPTY)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_empty_axes_have_outputs_and_gradients_of_the_right_shape_that_are_zero(name, arrays, options, shape, dtype):
    call = getattr(functional, name)
    arrays = tuple(array.astype(dtype) for array in arrays)
    y, backward = (
        call(options["ids"], *arrays, options.get("padding_id")) if name == "embedding" else call(*arrays, **options)
    )
    (y,) = floating(y)
    assert y.shape == shape
    gradients = as_tuple(backward(np.ones(shape, dtype)))
    assert [(gradient.shape, gradient.dtype) for gradient in gradients] == [(array.shape, dtype) for array in arrays]
    if name != "linear":
        assert not any(gradient.any() for gradient in (y, *gradients))


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (1, 1, 3, 1), (2, 1, 1, 5), (1, 6, 1, 5), (2, 6, 3, 5), (3, 5)])
def test_the_gradient_of_a_bias_is_summed_over_the_axes_along_which_it_was_repeated(shape):
    rng = np.random.default_rng(3)
    query, key, value = (rng.standard_normal(s) for s in ((2, 6, 3, 7), (2, 3, 5, 7), (2, 3, 5, 4)))
    bias, dy = rng.standard_normal(shape), rng.standard_normal((2, 6, 3, 4))
    dbias = functional.attention(query, key, value, bias=bias)[1](dy)[3]
    full = functional.attention(query, key, value, bias=np.broadcast_to(bias, (2, 6, 3, 5)).copy())[1](dy)[3]
    four = (1,) * (4 - len(shape)) + shape
    expected = full.sum(tuple(i for i in range(4) if four[i] == 1), keepdims=True).reshape(shape)
    assert_same([dbias], [expected], 1e-13)


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (0, 6, 3, 5), (1, 6, 3, 5), (3, 5)])
def test_the_gradient_of_a_bias_has_its_shape_also_over_an_empty_batch(shape):
    query, key, value, bias = zeros((0, 6, 3, 7), (0, 3, 5, 7), (0, 3, 5, 4), shape)
    dbias = functional.attention(query, key, value, bias=bias)[1](np.zeros((0, 6, 3, 4)))[3]
    assert dbias.shape == shape
    assert not dbias.any()
