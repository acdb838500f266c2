"""The three entrances: an operation, a pair of functions, a layer.

A check runs the backward on dense random cotangents of several sizes, compares every entry of every gradient, alone or as
one of many (directions.py), with the derivative that the forward alone defines, and then looks for what numbers do not show
(side_effects.py).
"""

from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

import numpy as np

from gradcheck.examination import Examination
from gradcheck.low_precision import LOW_PRECISION_RTOL
from gradcheck.report import Report
from gradcheck.subject import (
    Array,
    Layer,
    Subject,
    parameters_put_back,
    subject_of_layer,
    subject_of_op,
    subject_of_pair,
)
from gradcheck.truth import check_truth

RTOL = 1e-10
REPEAT_RTOL = 1e-10


def check(
    op: Callable[..., tuple[Any, Callable[..., Any]]],
    *arrays: Any,
    stopped: Mapping[Any, Array] | None = None,
    truth: str = "auto",
    rtol: float | None = None,
    repeat_rtol: float | None = None,
    seed: int = 0,
    **options: Any,
) -> Report:
    """Check the backward of `op`, where op(*arrays, **options) returns (y, backward).

    y is an array or a tuple of arrays. backward takes one cotangent for each floating output and returns one gradient for
    each floating array among the arguments, keywords included, in the order of the signature; a None in the place of an
    integer or boolean array is accepted. A numpy.random.Generator among the arguments is copied afresh for every call.

    stopped  {argument's index or name: boolean array}: entries whose gradient is exactly 0 by contract
    truth    "complex": the derivative by complex step, exact to rounding; "difference": by ordinary differences, with an
             error bar that is measured; "auto": the first, unless the forward turns out not to take complex arrays
    rtol     agreement relative to the largest entry of a gradient, 1e-10 unless given
    repeat_rtol  likewise between two runs on the same numbers, for kernels whose sums are not deterministic
    seed     of the cotangents; the report depends on nothing else

    For the complex step the forward must give complex arrays the complex values that its formula has: |z|² as z*z, maxima
    and branches by z.real, and no abs, conj, np.linalg.norm, std, var or math.*. Whether it does is found out. At a kink
    differences allow every slope between those of the two sides.

    The cotangents are random and dense, of the sizes 1, 3, 1000 and 1e-6; the numbers of `report.worst` are those of the one
    with the worst entry. Of more than 800 entries, those of large arrays are compared in sums, along some 250 random
    directions: each is still seen, and where a sum is wrong, one wrong entry is looked up. Arrays of float32 or float16 are
    checked as float64 copies, then as they are. An op's own argument named stopped, truth, rtol, repeat_rtol or seed must be
    bound beforehand, with functools.partial.

    Raises ValueError where no argument is a floating array, and whatever the op itself raises on arrays like its own, with
    a note of the probe; what it raises on complex arrays or other layouts alone is a note in the report.
    """
    return examine(subject_of_op(op, arrays, options), stopped, truth, rtol, repeat_rtol, seed)


def check_pair(
    forward: Callable[..., Any],
    backward: Callable[..., Any],
    *arrays: Any,
    stopped: Mapping[Any, Array] | None = None,
    truth: str = "auto",
    rtol: float | None = None,
    repeat_rtol: float | None = None,
    seed: int = 0,
    **options: Any,
) -> Report:
    """Check two separate functions: forward(*arrays) → y, backward(dy, *arrays) → a gradient or a tuple of them.

    Both are given the options. With several floating outputs their cotangents come first. Otherwise as `check`.
    """
    return examine(subject_of_pair(forward, backward, arrays, options), stopped, truth, rtol, repeat_rtol, seed)


def check_layer(
    layer: Layer,
    *arrays: Any,
    stopped: Mapping[Any, Array] | None = None,
    truth: str = "auto",
    rtol: float | None = None,
    repeat_rtol: float | None = None,
    seed: int = 0,
    **options: Any,
) -> Report:
    """Check layer.forward(*arrays) → (y, backward): the gradients of its inputs and of every parameter.

    layer.parameters() is {name: object with .value and .grad}; one object under two names is one parameter. The backward
    returns the gradients of the inputs and adds the parameters' to `.grad`. During the check `.value` and `.grad` are
    replaced; afterwards every parameter has its own back, whatever happened. What else a layer keeps between calls, such as
    running means, goes through the check's calls as well. Chance is an argument, a Generator. Otherwise as `check`.
    """
    subject = subject_of_layer(layer, arrays, options)
    with parameters_put_back(subject.parameters):
        return examine(subject, stopped, truth, rtol, repeat_rtol, seed)


def examine(
    subject: Subject,
    stopped: Mapping[Any, Array] | None,
    truth: str,
    rtol: float | None,
    repeat_rtol: float | None,
    seed: int,
) -> Report:
    check_truth(truth)
    for name, given in (("rtol", rtol), ("repeat_rtol", repeat_rtol)):
        if given is not None and not (isinstance(given, Real) and 0 < given < 1):
            raise ValueError(f"{name} must be between 0 and 1, got {given!r}")
    if not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"seed must be an integer of at least 0, got {seed!r}")
    if not subject.arrays:
        others = f" ({'; '.join(subject.others)})" if subject.others else ""
        text = "has no differentiable input: none of its arguments is a floating array"
        raise ValueError(f"{subject.title} {text}{others}")
    for name, array in zip(subject.names, subject.arrays, strict=True):
        if array.dtype not in (np.float64, *LOW_PRECISION_RTOL):
            raise TypeError(f"{name} must be float64, float32 or float16 to be checked, got {array.dtype}")
    skip = stopped_entries(subject, {} if stopped is None else stopped)
    return Examination(subject, skip, truth, rtol or RTOL, repeat_rtol or REPEAT_RTOL, seed).report()


def stopped_entries(subject: Subject, stopped: Mapping[Any, Array]) -> list[Array]:
    if not isinstance(stopped, Mapping):
        raise TypeError(f"stopped must be a mapping of arguments to boolean arrays, got {type(stopped).__name__}")
    skip = [np.zeros(array.shape, bool) for array in subject.arrays]
    for key, entries in stopped.items():
        place = next((i for i, (n, s) in enumerate(zip(subject.names, subject.slots, strict=True)) if key in (n, s)), None)
        if place is None:
            raise ValueError(f"stopped names {key!r}, which is none of {', '.join(subject.names)}")
        entries = np.asarray(entries)
        if entries.dtype != np.bool_ or entries.shape != skip[place].shape:
            raise ValueError(
                f"stopped[{key!r}] must be boolean of the shape {skip[place].shape}, got {entries.dtype} {entries.shape}"
            )
        skip[place] = skip[place] | entries
    return skip
