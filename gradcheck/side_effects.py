"""Faults that no single number shows: what a forward and a backward do to their arrays, and to each other's.

Each probe runs the subject in an unusual but legal way, and compares with the gradients of the ordinary run.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradcheck.arrays import contents, copies, furthest, nudged
from gradcheck.decision import MARGIN, bar_of, judge, largest
from gradcheck.report import Finding
from gradcheck.subject import Array, GradientCountError, Subject, said

REPEAT_RTOL = 1e-10  # between runs with the same numbers, besides the bars


def reversed_view(array: Array) -> Array:
    return np.flip(np.flip(array).copy()) if array.ndim else array.copy()


LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "column-major": lambda array: array.copy(order="F"),
    "strided": lambda array: np.repeat(array[..., None], 2, axis=-1)[..., 0],
    "reversed": reversed_view,
}


@dataclass(frozen=True)
class Ordinary:
    """The ordinary run that every probe is compared with.

    rounding       f of each gradient, which bounds the difference between two runs of the same code on the same arrays
    output_bars    what another layout, in whose sums the terms come in another order, may change
    gradient_bars  the same of the gradients
    elsewhere      other arrays of the same shapes; None where the subject accepts no others
    """

    subject: Subject
    arrays: Sequence[Array]
    dys: Sequence[Array]
    outputs: Sequence[Array]
    gradients: Sequence[Array]
    rounding: Sequence[float]
    output_bars: Sequence[float]
    gradient_bars: Sequence[float]
    elsewhere: Sequence[Array] | None

    def differing_gradients(
        self, gradients: Sequence[Any], known: Sequence[Array] | None = None, bars: Sequence[float] | None = None
    ) -> list[str]:
        names = [f"the gradient of {name}" for name in self.subject.names]
        return differing(names, gradients, known or self.gradients, bars or self.gradient_bars)

    def differing_outputs(
        self, outputs: Sequence[Array], known: Sequence[Array] | None = None, bars: Sequence[float] | None = None
    ) -> list[str]:
        names = ["the output"] if len(self.outputs) == 1 else [f"output {i}" for i in range(len(self.outputs))]
        return differing(
            names, outputs, self.outputs if known is None else known, self.output_bars if bars is None else bars
        )

    @property
    def repeat_bars(self) -> list[float]:
        return [MARGIN * each for each in self.rounding]


def side_effects(run: Ordinary) -> Iterator[Finding]:
    """All findings of all probes."""
    probes: list[tuple[str, Callable[[Ordinary], Iterator[Finding]]]] = [
        ("when it is run a second time", arrays_left_alone),
        ("on read-only arrays", read_only_arrays),
        ("on arrays of another layout", other_layouts),
        ("on zero-stride arrays", zero_strides),
        ("when it is called again", called_again),
        ("after another forward", called_late),
        ("for dy = 0", zero_cotangent),
    ]
    if run.subject.parameters:
        probes.append(("without .grad set to zero", gradients_added))
    for when, probe in probes:
        try:
            yield from probe(run)
        except Exception as error:
            yield Finding("fail", f"{when} it raises {said(error)}")


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
    n_inputs = len(arrays) - len(run.subject.parameters)
    values = [np.asarray(parameter.value) for parameter in run.subject.parameters]
    for name in changed(run.subject.names[n_inputs:], values, before[n_inputs:]):
        yield Finding("fail", f"the forward or the backward replaces the value of {name}")
    for name in changed(names_of(dys), dys, dys_before):
        yield Finding("fail", f"the backward overwrites {name}")


def read_only_arrays(run: Ordinary) -> Iterator[Finding]:
    arrays, dys = copies(run.arrays), copies(run.dys)
    for array in (*arrays, *dys):
        array.flags.writeable = False
    yield from compared(run, "read-only", arrays, dys)


def other_layouts(run: Ordinary) -> Iterator[Finding]:
    for name, layout in LAYOUTS.items():
        arrays, dys = [layout(array) for array in run.arrays], [layout(dy) for dy in run.dys]
        yield from compared(run, name, arrays, dys)
        yield from compared(run, f"{name} and dy is not", arrays, copies(run.dys))
        yield from compared(run, f"ordinary and dy is {name}", copies(run.arrays), dys)


def zero_strides(run: Ordinary) -> Iterator[Finding]:
    """Arrays that repeat one slice along their first axis without storing it twice.

    Equal slices are a point of their own, where much may cancel or tie, so it has bars of its own.
    """
    arrays = [np.broadcast_to(array[:1], array.shape) if array.ndim else array for array in run.arrays]
    dys = [np.broadcast_to(dy[:1], dy.shape) if dy.ndim else dy for dy in run.dys]
    yield from zero_strides_of(run, arrays, dys)
    one_number = [np.broadcast_to(dy.reshape(-1)[0], dy.shape) if dy.size else dy for dy in run.dys]
    yield from zero_strides_of(run, copies(run.arrays), one_number)


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
    output_bars = [bar_of(y, furthest(y, [near[i] for near, _ in runs]), 0, REPEAT_RTOL) for i, y in enumerate(outputs)]
    gradient_bars = [
        run.gradient_bars[i] + bar_of(gradient, furthest(gradient, [near[i] for _, near in runs]), 0, REPEAT_RTOL)
        for i, gradient in enumerate(gradients)
    ]
    yield from compared(run, "zero-stride", arrays, dys, (outputs, output_bars), (gradients, gradient_bars))


def compared(
    run: Ordinary,
    layout: str,
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
        yield Finding("fail", f"on {layout} arrays {error}")
        return
    except Exception as error:
        writes = "read-only" in str(error) and "buffer source" not in str(error)  # Cython's refusal of a read-only buffer
        text = "tries to write into a read-only array" if writes else f"refuses {layout} arrays"
        yield Finding("fail" if writes else "pass", f"{text}: {said(error)}")
        return
    for name in (
        *run.differing_outputs(outputs, *known_outputs),
        *run.differing_gradients(gradients, *known_gradients),
    ):
        yield Finding("fail", f"{name} differs when the arrays are {layout}")


def called_again(run: Ordinary) -> Iterator[Finding]:
    """The same backward twice with the same cotangent and once with another, and the same forward twice."""
    outputs, backward = run.subject.run(copies(run.arrays))
    kept_outputs = copies(outputs)
    first = backward(copies(run.dys))
    kept = copies(first)
    second = copies(backward(copies(run.dys)))
    backward([-2 * dy for dy in run.dys])
    nothing = [0.0] * len(outputs)
    for name in run.differing_outputs(kept_outputs, bars=nothing):
        yield Finding("fail", f"{name} of a second forward with the same arrays differs")
    for name in run.differing_gradients(second, kept, run.repeat_bars):
        yield Finding("fail", f"{name} of a second backward with the same dy differs")
    for name in run.differing_gradients(kept, bars=run.repeat_bars):
        yield Finding("fail", f"{name} of a second forward and backward differs")
    for name in run.differing_gradients(first, kept, run.repeat_bars):
        yield Finding("fail", f"{name} that one backward returned is changed by the next")
    for name in run.differing_outputs(outputs, kept_outputs, nothing):
        yield Finding("fail", f"{name} is changed by the backward")


def called_late(run: Ordinary) -> Iterator[Finding]:
    """The backward of one point after the forward and the backward of another."""
    outputs, backward = run.subject.run(copies(run.arrays))
    kept = copies(outputs)
    gradients = backward(copies(run.dys))
    kept_gradients = copies(gradients)
    if run.elsewhere is None:
        yield Finding("pass", "accepts no other arrays, so that stale values could not be looked for")
        return
    _, other_backward = run.subject.run(copies(run.elsewhere))
    other_backward(copies(run.dys))
    if run.subject.parameters:  # a layer's values are read when it is called: give back those of this closure
        for parameter, value in zip(run.subject.parameters, run.arrays[-len(run.subject.parameters) :], strict=True):
            parameter.value = value
    for name in run.differing_outputs(outputs, kept, [0.0] * len(outputs)):
        yield Finding("fail", f"{name} is changed by a later forward")
    for name in run.differing_gradients(gradients, kept_gradients, run.repeat_bars):
        yield Finding("fail", f"{name} that one backward returned is changed by that of a later forward")
    for name in run.differing_gradients(backward(copies(run.dys)), bars=run.repeat_bars):
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
    names, bars = run.subject.names[n_inputs:], run.repeat_bars[n_inputs:]
    for name in differing(names, twice[n_inputs:], [2 * each for each in once[n_inputs:]], [2 * bar for bar in bars]):
        yield Finding("fail", f"the gradient of {name} is not added to what its .grad held")


def results(subject: Subject, arrays: Sequence[Array], dys: Sequence[Array]) -> tuple[list[Array], list[Array]]:
    """The outputs and the gradients of one run on copies."""
    outputs, backward = subject.run(copies(arrays))
    return copies(outputs), copies(backward(copies(dys)))


def changed(names: Sequence[str], arrays: Sequence[Array], before: Sequence[bytes]) -> list[str]:
    return [name for name, array, old in zip(names, arrays, before, strict=True) if array.tobytes() != old]


def names_of(dys: Sequence[Array]) -> list[str]:
    return [f"dy{i}" if i else "dy" for i in range(len(dys))]


def differing(names: Sequence[str], new: Sequence[Any], known: Sequence[Array], bars: Sequence[float]) -> list[str]:
    """The names of the arrays that are not the known ones within their bars; infinities and NaN must be the same."""
    differ = []
    for name, given, old, bar in zip(names, new, known, bars, strict=True):
        array = np.asarray(given)
        if array.shape != old.shape or array.dtype != old.dtype:
            differ.append(name)
            continue
        numbers = np.isfinite(old)
        same = np.array_equal(array[~numbers], old[~numbers], equal_nan=True)
        if not same or judge(array[numbers], old[numbers], bar + REPEAT_RTOL * largest(old)).n_wrong:
            differ.append(name)
    return differ
