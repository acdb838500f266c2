"""The same numbers in other layouts of memory must give the same outputs and gradients, and read-only arrays stay so."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from gradcheck.arrays import copies, furthest, nudged
from gradcheck.decision import bar_of
from gradcheck.ordinary import Ordinary
from gradcheck.report import Finding
from gradcheck.subject import Array, GradientCountError, Subject, said


def reversed_view(array: Array) -> Array:
    return np.flip(np.flip(array).copy()) if array.ndim else array.copy()


LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "column-major": lambda array: array.copy(order="F"),
    "strided": lambda array: np.repeat(array[..., None], 2, axis=-1)[..., 0],
    "reversed": reversed_view,
}


def copy_as(array: Array, given: Array) -> Array:
    """The numbers of one array in the order of memory of another."""
    copy = np.empty_like(given, dtype=array.dtype)
    copy[...] = array
    return copy


def read_only_arrays(run: Ordinary) -> Iterator[Finding]:
    arrays, dys = copies(run.arrays), copies(run.dys)
    for array in (*arrays, *dys):
        array.flags.writeable = False
    yield from compared(run, "read-only arrays", arrays, dys)


def other_layouts(run: Ordinary) -> Iterator[Finding]:
    as_given = [copy_as(array, given) for array, given in zip(run.arrays, run.given, strict=True)]
    if not all(array.flags.c_contiguous for array in as_given):
        yield from compared(run, "arrays in the layout in which they were given", as_given, copies(run.dys))
    for name, layout in LAYOUTS.items():
        arrays, dys = [layout(array) for array in run.arrays], [layout(dy) for dy in run.dys]
        yield from compared(run, f"{name} arrays", arrays, dys)
        yield from compared(run, f"{name} arrays beside an ordinary dy", arrays, copies(run.dys))
        yield from compared(run, f"ordinary arrays beside a {name} dy", copies(run.arrays), dys)
    for first in (0, 1) if len(run.arrays) > 1 else ():
        mixed = [array.copy(order="F" if i % 2 == first else "C") for i, array in enumerate(run.arrays)]
        yield from compared(run, "column-major arrays beside others", mixed, copies(run.dys))


def zero_strides(run: Ordinary) -> Iterator[Finding]:
    """Arrays that repeat one slice along their first axis without storing it twice.

    Equal slices are a point of their own, where much may cancel or tie, so it has bars of its own.
    """
    arrays = [np.broadcast_to(array[:1], array.shape) if array.ndim else array.copy() for array in run.arrays]
    dys = [np.broadcast_to(dy[:1], dy.shape) if dy.ndim else dy.copy() for dy in run.dys]
    yield from zero_strides_of(run, arrays, dys)
    one_number = [np.broadcast_to(dy.reshape(-1)[0], dy.shape) if dy.size else dy.copy() for dy in run.dys]
    yield from zero_strides_of(run, copies(run.arrays), one_number)
    one_a_row = [np.broadcast_to(dy[..., :1], dy.shape) if dy.ndim else dy.copy() for dy in run.dys]
    yield from zero_strides_of(run, copies(run.arrays), one_a_row)


def zero_strides_of(run: Ordinary, arrays: Sequence[Array], dys: Sequence[Array]) -> Iterator[Finding]:
    try:
        outputs, gradients = results(run.subject, arrays, dys)
        rng = np.random.default_rng(0)
        runs = [results(run.subject, nudged(arrays, rng), nudged(dys, rng)) for _ in range(3)]
    except GradientCountError:
        raise
    except Exception as error:
        yield Finding("pass", f"refuses arrays of equal slices: {said(error)}")
        return
    rtol = max(run.repeat_rtol, run.rtol)
    output_bars = [bar_of(y, furthest(y, [near[i] for near, _ in runs]), 0, rtol) for i, y in enumerate(outputs)]
    gradient_bars = [
        run.gradient_bars[i] + bar_of(gradient, furthest(gradient, [near[i] for _, near in runs]), 0, rtol)
        for i, gradient in enumerate(gradients)
    ]
    yield from compared(run, "zero-stride arrays", arrays, dys, (outputs, output_bars), (gradients, gradient_bars))


def compared(
    run: Ordinary,
    which: str,
    arrays: Sequence[Array],
    dys: Sequence[Array],
    known_outputs: tuple[Sequence[Array] | None, Sequence[float] | None] = (None, None),
    known_gradients: tuple[Sequence[Array] | None, Sequence[float] | None] = (None, None),
) -> Iterator[Finding]:
    try:
        given, backward = run.subject.run(arrays)
        outputs = copies(given)
        gradients = backward(dys)
    except GradientCountError as error:
        yield Finding("fail", f"on {which} {error}")
        return
    except Exception as error:
        writes = "read-only" in str(error) and "buffer source" not in str(error)  # Cython's refusal of a read-only buffer
        text = "tries to write into a read-only array" if writes else f"refuses {which}"
        yield Finding("fail" if writes else "pass", f"{text}: {said(error)}")
        return
    for name in (
        *run.differing_outputs(outputs, *known_outputs),
        *run.differing_gradients(gradients, *known_gradients),
    ):
        yield Finding("fail", f"{name} differs on {which}")


def results(subject: Subject, arrays: Sequence[Array], dys: Sequence[Array]) -> tuple[list[Array], list[Array]]:
    """The outputs and the gradients of one run on copies."""
    outputs, backward = subject.run(copies(arrays))
    return copies(outputs), copies(backward(copies(dys)))
