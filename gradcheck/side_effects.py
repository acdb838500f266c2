"""Faults that no single number shows: what a forward and a backward do to their arrays, and to each other's.

Each probe runs the subject in an unusual but legal way, and compares with the gradients of the ordinary run.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gradcheck.decision import judge, largest
from gradcheck.report import Finding
from gradcheck.subject import Array, Subject

LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "column-major": lambda array: array.copy(order="F"),
    "strided": lambda array: np.repeat(array[..., None], 2, axis=-1)[..., 0],
    "reversed": lambda array: np.flip(np.flip(array).copy()),
}


@dataclass(frozen=True)
class Ordinary:
    """The ordinary run that every probe is compared with, and the bars of its outputs and gradients."""

    subject: Subject
    arrays: Sequence[Array]
    dys: Sequence[Array]
    outputs: Sequence[Array]
    gradients: Sequence[Array]
    output_bars: Sequence[float]
    gradient_bars: Sequence[float]

    def differing_gradients(self, gradients: Sequence[Array], known: Sequence[Array] | None = None) -> list[str]:
        names = [f"the gradient of {name}" for name in self.subject.names]
        return differing(names, gradients, self.gradients if known is None else known, self.gradient_bars)

    def differing_outputs(self, outputs: Sequence[Array], known: Sequence[Array] | None = None) -> list[str]:
        names = ["the output"] if len(self.outputs) == 1 else [f"output {i}" for i in range(len(self.outputs))]
        return differing(names, outputs, self.outputs if known is None else known, self.output_bars)


def side_effects(run: Ordinary) -> Iterator[Finding]:
    """All findings of all probes."""
    yield from arrays_left_alone(run)
    yield from read_only_arrays(run)
    yield from other_layouts(run)
    yield from zero_strides(run)
    yield from called_again(run)
    yield from called_late(run)
    yield from zero_cotangent(run)
    if run.subject.parameters:
        yield from gradients_added(run)


def arrays_left_alone(run: Ordinary) -> Iterator[Finding]:
    arrays, dys = copies(run.arrays), copies(run.dys)
    before, dys_before = contents(arrays), contents(dys)
    _, backward = run.subject.run(arrays)
    for name in changed(run.subject.names, arrays, before):
        yield Finding("fail", f"the forward overwrites {name}")
    before = contents(arrays)
    backward(dys)
    for name in changed(run.subject.names, arrays, before):
        yield Finding("fail", f"the backward overwrites {name}")
    for name in changed([f"dy{i}" if i else "dy" for i in range(len(dys))], dys, dys_before):
        yield Finding("fail", f"the backward overwrites {name}")


def read_only_arrays(run: Ordinary) -> Iterator[Finding]:
    arrays, dys = copies(run.arrays), copies(run.dys)
    for array in (*arrays, *dys):
        array.flags.writeable = False
    yield from compared(run, "read-only", arrays, dys)


def other_layouts(run: Ordinary) -> Iterator[Finding]:
    for name, layout in LAYOUTS.items():
        yield from compared(run, name, [layout(array) for array in run.arrays], [layout(dy) for dy in run.dys])


def zero_strides(run: Ordinary) -> Iterator[Finding]:
    """Arrays that repeat one slice along their first axis without storing it twice."""
    arrays = [np.broadcast_to(array[:1], array.shape) if array.ndim else array for array in run.arrays]
    dys = [np.broadcast_to(dy[:1], dy.shape) if dy.ndim else dy for dy in run.dys]
    try:
        outputs, backward = run.subject.run(copies(arrays))
        known_outputs, known_gradients = copies(outputs), copies(backward(copies(dys)))
    except Exception as error:
        yield Finding("pass", f"refuses arrays of equal slices: {type(error).__name__}: {error}")
        return
    yield from compared(run, "zero-stride", arrays, dys, known_outputs, known_gradients)


def compared(
    run: Ordinary,
    layout: str,
    arrays: Sequence[Array],
    dys: Sequence[Array],
    known_outputs: Sequence[Array] | None = None,
    known_gradients: Sequence[Array] | None = None,
) -> Iterator[Finding]:
    try:
        given, backward = run.subject.run(arrays)
        outputs = copies(given)
        gradients = backward(dys)
    except Exception as error:
        writes = "read-only" in str(error)
        text = "tries to write into a read-only array" if writes else f"refuses {layout} arrays"
        yield Finding("fail" if writes else "pass", f"{text}: {type(error).__name__}: {error}")
        return
    for name in (
        *run.differing_outputs(outputs, known_outputs),
        *run.differing_gradients(gradients, known_gradients),
    ):
        yield Finding("fail", f"{name} differs when the arrays are {layout}")


def called_again(run: Ordinary) -> Iterator[Finding]:
    """The same backward twice with the same cotangent, and the same forward twice."""
    outputs, backward = run.subject.run(copies(run.arrays))
    kept_outputs = copies(outputs)
    first = backward(copies(run.dys))
    kept = copies(first)
    second = backward(copies(run.dys))
    for name in run.differing_outputs(kept_outputs):
        yield Finding("fail", f"{name} of a second forward with the same arrays differs")
    for name in run.differing_gradients(second, kept):
        yield Finding("fail", f"{name} of a second backward with the same dy differs")
    for name in run.differing_gradients(first, kept):
        yield Finding("fail", f"{name} that a first backward returned is changed by the second")
    for name in run.differing_outputs(outputs, kept_outputs):
        yield Finding("fail", f"{name} is changed by the backward")


def called_late(run: Ordinary) -> Iterator[Finding]:
    """The backward of one point after the forward and the backward of another."""
    outputs, backward = run.subject.run(copies(run.arrays))
    kept = copies(outputs)
    rng = np.random.default_rng(0)
    elsewhere = [array * (1 + 0.3 * rng.random(array.shape)) for array in run.arrays]
    _, other_backward = run.subject.run(elsewhere)
    other_backward(copies(run.dys))
    if run.subject.parameters:  # a layer's values are read when it is called: give back those of this closure
        for parameter, value in zip(run.subject.parameters, run.arrays[-len(run.subject.parameters) :], strict=True):
            parameter.value = value
    for name in run.differing_outputs(outputs, kept):
        yield Finding("fail", f"{name} is changed by a later forward")
    for name in run.differing_gradients(backward(copies(run.dys))):
        yield Finding("fail", f"{name} is stale: it is another after a forward elsewhere")


def zero_cotangent(run: Ordinary) -> Iterator[Finding]:
    _, backward = run.subject.run(copies(run.arrays))
    for name, gradient in zip(run.subject.names, backward([np.zeros_like(dy) for dy in run.dys]), strict=True):
        if np.any(gradient):
            yield Finding("fail", f"the gradient of {name} is not zero for dy = 0")


def gradients_added(run: Ordinary) -> Iterator[Finding]:
    """A layer's backward adds to `.grad`: two calls without zeroing between leave the sum."""
    n_inputs = len(run.arrays) - len(run.subject.parameters)
    _, backward = run.subject.run(copies(run.arrays))
    once = copies(backward(copies(run.dys)))
    twice = backward(copies(run.dys), from_zero=False)
    names, bars = run.subject.names[n_inputs:], run.gradient_bars[n_inputs:]
    for name in differing(names, twice[n_inputs:], [2 * each for each in once[n_inputs:]], [2 * bar for bar in bars]):
        yield Finding("fail", f"the gradient of {name} is not added to what its .grad held")


def copies(arrays: Sequence[Array]) -> list[Array]:
    return [np.array(array, order="C") for array in arrays]


def contents(arrays: Sequence[Array]) -> list[bytes]:
    return [array.tobytes() for array in arrays]


def changed(names: Sequence[str], arrays: Sequence[Array], before: Sequence[bytes]) -> list[str]:
    return [name for name, array, old in zip(names, arrays, before, strict=True) if array.tobytes() != old]


def differing(names: Sequence[str], new: Sequence[Array], known: Sequence[Array], bars: Sequence[float]) -> list[str]:
    """The names of the arrays that are not the known ones within their bars; infinities and NaN must be the same."""
    differ = []
    for name, array, old, bar in zip(names, new, known, bars, strict=True):
        numbers = np.isfinite(old)
        same = np.shape(array) == old.shape and np.array_equal(array[~numbers], old[~numbers], equal_nan=True)
        if not same or judge(array[numbers], old[numbers], bar + 1e-10 * largest(old[numbers])).n_wrong:
            differ.append(name)
    return differ
