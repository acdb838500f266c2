"""The strategies draw what they say, what they draw finds the usual faults, and examples shrink to what one can read."""

import doctest
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

import gradcheck
from gradcheck import check, strategies
from gradcheck.layouts import LAYOUTS
from gradcheck.strategies import MASKS, MEMORY, VALUES, array, arrays, cotangents, mask, masks, shapes

ROOT = Path(__file__).parents[2]
SAME = settings(derandomize=True, database=None, max_examples=100, suppress_health_check=list(HealthCheck))  # every run
UNSHRUNK = settings(SAME, max_examples=40, phases=[Phase.generate])


def drawn(strategy, n=100):
    """The first n examples."""
    examples = []

    @settings(UNSHRUNK, max_examples=n)
    @given(strategy)
    def collect(example):
        examples.append(example)

    collect()
    return examples


def shrunk(strategy, condition=lambda example: True):
    return find(strategy, condition, settings=SAME)


def test_the_docstring_runs():
    results = doctest.testmod(strategies)
    assert results.attempted
    assert not results.failed


# Shapes.


def test_sizes_are_different_odd_and_prime_by_preference():
    examples = drawn(shapes("B T D"))
    for axes in examples:
        assert len(set(axes.sizes.values())) == 3
        assert axes.shape("D B") == (axes["D"], axes["B"])
        assert axes.shape("T T 1 D") == (axes["T"], axes["T"], 1, axes["D"])
    seen = Counter(size for axes in examples for size in axes.sizes.values())
    assert set(seen) == {1, 2, 3, 5, 7, 11, 13}
    assert seen[1] + seen[2] < sum(seen.values()) / 2


def test_more_letters_than_sizes_still_have_sizes():
    assert all(len(axes.sizes) == 9 for axes in drawn(shapes("A B C D E F G H I"), 5))


def test_any_number_of_axes():
    examples = drawn(shapes("... D"))
    assert {len(axes.more) for axes in examples} == {0, 1, 2}
    for axes in examples:
        assert axes.shape("... D 1") == (*axes.more, axes["D"], 1)
        assert len({*axes.more, axes["D"]}) == len(axes.more) + 1


def test_an_empty_axis_only_where_it_is_asked_for():
    assert all(min(axes.sizes.values()) > 0 for axes in drawn(shapes("B T D")))
    examples = drawn(shapes("... T D", empty="T ..."), 200)
    assert all(axes["D"] > 0 for axes in examples)
    assert any(axes["T"] == 0 for axes in examples)
    assert any(0 in axes.more for axes in examples)
    assert all([*axes.more, axes["T"]].count(0) <= 1 for axes in examples)
    n_empty = sum(0 in axes.shape("... T") for axes in examples)
    assert n_empty < len(examples) / 2


def test_sizes_of_ones_own():
    examples = drawn(shapes("B T D", D=(4, 8), T=3))
    assert {axes["D"] for axes in examples} == {4, 8}
    assert {axes["T"] for axes in examples} == {3}
    assert all(axes["B"] != 3 for axes in examples)


@pytest.mark.parametrize("options", [{"empty": "S"}, {"S": 3}, {"B": ()}, {"B": -1}])
def test_what_shapes_refuses(options):
    with pytest.raises(ValueError, match=r"^shapes: [SB] "):
        shapes("B T D", **options)


def test_shapes_shrink():
    assert shrunk(shapes("B T D")).shape("B T D") == (3, 5, 7)
    assert shrunk(shapes("... D")).shape("... D") == (3,)
    assert shrunk(shapes("B T D", empty="T")).shape("B T D") == (3, 5, 7)
    assert shrunk(shapes("B T D"), lambda axes: axes["T"] > 5).shape("B T D") == (3, 7, 5)
    assert shrunk(shapes("... D"), lambda axes: len(axes.more) == 2).more == (5, 7)


# Arrays.


def backwards(x):
    return all(stride < 0 for stride in x.strides)


IS = {
    "row-major": lambda x: x.flags.c_contiguous and x.flags.writeable,
    "read-only": lambda x: x.flags.c_contiguous and not x.flags.writeable,
    "column-major": lambda x: x.flags.f_contiguous and not x.flags.c_contiguous,
    "strided": lambda x: not x.flags.forc and x.strides[-1] == 2 * x.itemsize,
    "reversed": backwards,
    "zero-stride": lambda x: x.strides[0] == 0 and x.strides[-1] == x.itemsize,
}


def test_every_layout_has_a_proof():
    assert list(IS) == list(MEMORY)
    assert set(LAYOUTS) < set(IS)


@pytest.mark.parametrize("layout", MEMORY)
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", ">f4"])
def test_a_layout_is_what_it_says(layout, dtype):
    for x in drawn(arrays((3, 5, 7), dtype, layout=layout), 10):
        assert x.shape == (3, 5, 7)
        assert x.dtype == dtype
        assert [name for name in MEMORY if IS[name](x)] == [layout]
        assert np.isfinite(x).all()


@pytest.mark.parametrize("layout", MEMORY)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (0, 3), (1,), (1, 1)])
def test_every_layout_of_small_shapes(layout, shape):
    assert array(shape, "float64", "normal", layout, 0).shape == shape


@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("seed", [0, 1])
def test_equal_seeds_give_equal_numbers_in_every_layout(values, seed):
    known = array((3, 5), "float32", values, "row-major", seed)
    for layout in MEMORY:
        x = array((3, 5), "float32", values, layout, seed)
        wanted = known if layout != "zero-stride" else np.repeat(known[:1], 3, axis=0)
        assert x.tobytes() == wanted.tobytes()
    assert not np.array_equal(array((3, 5), "float32", values, "row-major", seed + 2), known)


def test_any_layout_and_any_values_turn_up():
    examples = drawn(arrays((3, 5), values="any"))
    assert {name for x in examples for name in MEMORY if IS[name](x)} == set(MEMORY)
    sizes = [np.abs(x).max() for x in examples]
    assert min(sizes) < 0.1
    assert any(600 < size < 800 for size in sizes)
    assert any(900 < size < 1100 for size in sizes)
    assert any(np.array_equal(x, np.round(x)) for x in examples)


def test_the_kinds_of_values():
    x = {values: array((31, 37), "float64", values, "row-major", 0) for values in VALUES}
    assert 0.9 < x["normal"].std() < 1.1
    assert 0.009 < x["small"].std() < 0.011
    assert 3.6 < x["wide"].std() < 4.4
    assert 1 < len(np.unique(x["tied"])) < 15
    assert 999 < x["offset"].mean() < 1001
    assert 690 < np.abs(x["saturated"]).min()
    assert 0.4 < (x["saturated"] > 0).mean() < 0.6


def test_only_what_is_asked_for():
    for x in drawn(arrays((3, 5), values=("small", "tied"), layout=["reversed", "strided"]), 30):
        assert IS["reversed"](x) or IS["strided"](x)
        assert np.abs(x).max() < 0.1 or np.array_equal(x, np.round(x))


def test_arrays_of_letters():
    examples = drawn(arrays("... 1 D", layout="row-major"))
    assert {x.ndim for x in examples} == {2, 3, 4}
    assert all(x.shape[-2] == 1 for x in examples)


def test_a_drawn_array_is_nobody_elses():
    first, second = (array((3, 5), "float64", "normal", "row-major", 0) for _ in range(2))
    first += 1
    assert not np.shares_memory(first, second)
    assert np.array_equal(second, array((3, 5), "float64", "normal", "row-major", 0))


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"layout": "Fortran"}, ValueError, "arrays: layout must be \"any\" or among row-major, .*, got 'Fortran'"),
        ({"values": ("normal", "odd")}, ValueError, "arrays: values must be"),
        ({"values": ()}, ValueError, "arrays: values must be"),
        ({"dtype": "int64"}, TypeError, "arrays: dtype must be floating, got int64"),
    ],
)
def test_what_arrays_refuses(options, error, text):
    with pytest.raises(error, match=f"^{text}"):
        arrays((3, 5), **options)


def test_arrays_shrink():
    x = shrunk(arrays("B T D"))
    assert np.array_equal(x, array((3, 5, 7), "float64", "normal", "row-major", 0))
    assert shrunk(arrays("B T D"), lambda x: x.shape[2] > 7).shape == (3, 5, 11)


def test_a_failing_example_names_the_call_that_makes_it_again():
    @SAME
    @given(arrays("T D"))
    def fails(x):
        assert x.flags.writeable

    with pytest.raises(AssertionError) as raised:
        fails()
    text = " ".join(line.partition("#")[0].strip() for note in raised.value.__notes__ for line in note.splitlines())
    assert "array( (3, 5), 'float64', 'normal', 'read-only', 0" in text


# Faults of layout.


def in_memory_order(x):
    return (2 * x.ravel(order="K")).reshape(x.shape)


def by_the_buffer(x):
    base = x if x.base is None else x.base
    return 2 * np.frombuffer(base.tobytes(), x.dtype)[: x.size].reshape(x.shape)


def in_place(x):
    x *= 2
    return x


def by_strides_that_are_not_zero(x):
    return 2 * x if 0 not in x.strides else 0 * x


@pytest.mark.parametrize("op", [in_memory_order, by_the_buffer, in_place, by_strides_that_are_not_zero])
def test_a_fault_of_layout_is_found(op):
    @UNSHRUNK
    @given(arrays("T D"))
    def doubles(x):
        wanted = 2 * x
        assert np.array_equal(op(x), wanted)

    with pytest.raises((AssertionError, ValueError)):
        doubles()


# Cotangents.


def test_cotangents_are_dense_of_both_signs_and_three_scales():
    y = np.zeros((7, 11), np.float32)
    examples = drawn(cotangents(y))
    assert all(dy.shape == y.shape and dy.dtype == y.dtype for dy in examples)
    assert all((dy > 0).any() and (dy < 0).any() for dy in examples)
    scales = Counter(next(s for s in (1, 3, 1000) if (np.abs(dy) <= 1.5001 * s).all()) for dy in examples)
    assert set(scales) == {1, 3, 1000}
    assert all(np.abs(dy).min() >= 0.499 for dy in examples)


def test_a_cotangent_for_each_floating_output():
    for dys in drawn(cotangents((np.zeros((3, 5)), np.zeros(7, int), np.zeros(2, np.float32), np.float64(1))), 5):
        assert isinstance(dys, tuple)
        assert [(dy.shape, dy.dtype) for dy in dys] == [((3, 5), "float64"), ((2,), "float32"), ((), "float64")]
    (only,) = shrunk(cotangents((np.zeros(3),)))
    assert only.shape == (3,)


def test_cotangents_of_nothing_floating():
    with pytest.raises(ValueError, match="a floating array"):
        cotangents(np.zeros(3, int))


def test_a_backward_that_clips_is_found():
    @UNSHRUNK
    @given(arrays("T D", values="normal", layout="row-major"), st.data())
    def is_linear(x, data):
        dy = data.draw(cotangents(x))
        assert np.array_equal(np.clip(dy, -100, 100), dy)

    with pytest.raises(AssertionError):
        is_linear()


# Masks.


def row_is_empty(keep):
    return ~keep.any(axis=-1)


@pytest.mark.parametrize("shape", [(5, 7), (7, 5), (2, 3, 5, 7), (1, 1)])
def test_masks_are_what_they_say(shape):
    T, S = shape[-2:]
    t, s = np.ogrid[:T, :S]
    seen = {kind: drawn(masks(shape, kind), 30) for kind in MASKS}
    for keep in (keep for examples in seen.values() for keep in examples):
        assert keep.dtype == bool
        assert keep.shape == shape
        assert keep.flags.writeable
    assert all(keep.all() for keep in seen["all True"])
    assert not any(keep.any() for keep in seen["all False"])
    assert all(row_is_empty(keep).sum() == 1 for keep in seen["one row all False"])
    for keep in seen["causal"]:
        assert any(np.array_equal(keep, np.broadcast_to(s <= t + c, shape)) for c in (0, S - T))
    for keep in seen["band"]:
        widths = [(left, right) for left in range(3) for right in range(3)]
        assert any(
            np.array_equal(keep, np.broadcast_to((t - left <= s) & (s <= t + right), shape)) for left, right in widths
        )
    if T > 1:
        assert any(0 < keep.mean() < 1 for keep in seen["random"])
        for kind in ("causal", "band", "random", "one row all False"):
            assert len({keep.tobytes() for keep in seen[kind]}) > 1


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (2, 0, 3)])
def test_empty_masks(kind, shape):
    assert mask(shape, kind, 0).shape == shape


def test_an_empty_row_turns_up():
    examples = drawn(masks((5, 7)), 40)
    assert any(row_is_empty(keep).any() and keep.any() for keep in examples)
    assert any(not keep.any() for keep in examples)
    assert any(keep.all() for keep in examples)


def test_a_softmax_that_fails_on_an_empty_row_is_found():
    def weights(scores, keep):
        scores = np.where(keep, scores, -np.inf)
        shifted = np.exp(scores - np.maximum(scores.max(axis=-1, keepdims=True), -1e300))
        with np.errstate(invalid="ignore"):
            return shifted / shifted.sum(axis=-1, keepdims=True)

    @UNSHRUNK
    @given(shapes("T S"), st.data())
    def is_finite(axes, data):
        shape = axes.shape("T S")
        scores, keep = data.draw(arrays(shape, layout="row-major")), data.draw(masks(shape))
        assert np.isfinite(weights(scores, keep)).all()

    with pytest.raises(AssertionError):
        is_finite()


def test_what_masks_refuses():
    with pytest.raises(ValueError, match=r"^masks: shape must end with queries and keys, got \(3,\)"):
        masks((3,))
    with pytest.raises(ValueError, match=r"^masks: kind must be .*, got 'diagonal'"):
        masks((3, 5), "diagonal")


def test_masks_shrink():
    assert shrunk(masks((3, 5))).all()
    assert np.array_equal(shrunk(masks((3, 5)), lambda keep: not keep.all()), np.tri(3, 5, 2, dtype=bool))


# All together, as in a test of one's own.


def scaled_by(factor):
    def scale(x, gamma):
        return x * gamma, lambda dy: (dy * gamma, factor * (dy * x).sum(axis=tuple(range(x.ndim - 1))))

    return scale


@pytest.mark.parametrize("factor", [1, 1.001])
def test_an_operation_of_ones_own(factor):
    @settings(UNSHRUNK, max_examples=15)
    @given(shapes("... D", empty="..."), st.data())
    def is_right(axes, data):
        x, gamma = (data.draw(arrays(axes.shape(letters), values="normal")) for letters in ("... D", "D"))
        check(scaled_by(factor), x, gamma).assert_ok()

    if factor == 1:
        is_right()
    else:
        with pytest.raises(gradcheck.GradientError):
            is_right()


# The extra.


def run(code):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)


def test_gradcheck_itself_does_without_hypothesis():
    result = run("import sys, gradcheck; print('hypothesis' in sys.modules, 'gradcheck.strategies' in sys.modules)")
    assert result.stdout.split() == ["False", "False"], result.stderr


def test_without_hypothesis_the_extra_is_named():
    result = run("import sys; sys.modules['hypothesis'] = None; import gradcheck.strategies")
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1] == (
        "ImportError: gradcheck.strategies needs Hypothesis: pip install 'npformer[test]'"
    )
