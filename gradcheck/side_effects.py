"""Faults that no single number shows: what a forward and a backward do to their arrays, and to each other's.

Each probe runs the subject in an unusual but legal way, and compares with the gradients of the ordinary run.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from gradcheck.arrays import contents, copies
from gradcheck.layouts import other_layouts, read_only_arrays, zero_strides
from gradcheck.ordinary import Ordinary
from gradcheck.report import Finding
from gradcheck.subject import Array, GradientCountError, noted


def side_effects(run: Ordinary) -> Iterator[Finding]:
    """All findings of all probes."""
    probes: list[tuple[str, Callable[[Ordinary], Iterator[Finding]]]] = [
        ("a second forward and backward", arrays_left_alone),
        ("read-only arrays", read_only_arrays),
        ("arrays of another layout", other_layouts),
        ("zero-stride arrays", zero_strides),
        ("a backward that is called again", called_again),
        ("a backward that is called after another forward", called_late),
        ("a backward for dy = 0", zero_cotangent),
    ]
    if run.subject.parameters:
        probes.append(("a backward without .grad set to zero", gradients_added))
    for name, probe in probes:
        try:
            with noted(name):
                yield from probe(run)
        except GradientCountError as error:
            yield Finding("fail", f"{name}: {error}")


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


def called_again(run: Ordinary) -> Iterator[Finding]:
    """The same backward twice with the same cotangent and once with another, and the same forward twice."""
    outputs, backward = run.subject.run(copies(run.arrays))
    kept_outputs = copies(outputs)
    first = backward(copies(run.dys))
    kept = copies(first)
    second = copies(backward(copies(run.dys)))
    backward([np.asarray(-2 * dy) for dy in run.dys])
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
    for name in run.differing(names, twice[n_inputs:], [2 * each for each in once[n_inputs:]], [2 * bar for bar in bars]):
        yield Finding("fail", f"the gradient of {name} is not added to what its .grad held")


def changed(names: Sequence[str], arrays: Sequence[Array], before: Sequence[bytes]) -> list[str]:
    return [name for name, array, old in zip(names, arrays, before, strict=True) if array.tobytes() != old]


def names_of(dys: Sequence[Array]) -> list[str]:
    return [f"dy{i}" if i else "dy" for i in range(len(dys))]
