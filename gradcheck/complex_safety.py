"""Can the complex step be believed? It is held against ordinary differences.

abs, conj, np.var, math.* and a cast to float silently drop the imaginary part, and a comparison of complex numbers looks
at it where the real parts are equal. A right derivative by complex step lies within the doubt of the difference.
"""

from collections.abc import Sequence
from itertools import takewhile

import numpy as np

from gradcheck.arrays import one_output_at_a_time, random_directions
from gradcheck.complex_step import ComplexUnsafeError, derivatives_along, lost_in_steps
from gradcheck.differences import slopes_along
from gradcheck.directions import moved_together
from gradcheck.subject import Array, Run, said


def refuse_complex_unsafe(
    run: Run, arrays: Sequence[Array], skip: Sequence[Array], dys: Sequence[Array], rng: np.random.Generator
) -> None:
    """Raise ComplexUnsafeError where the complex step contradicts ordinary differences, twice.

    Each array alone is moved, or few of them where all have many entries, so that a small influence does not hide behind a
    large one, and each output is looked at alone. The point is one beside the given one, which may lie on a kink.
    """
    for group in moved_together(arrays):
        if not all(skip[i].all() for i in group):
            contradictions = (contradiction(run, arrays, skip, group, dys, rng) for _ in range(2))
            said_of_both = list(takewhile(bool, contradictions))
            if len(said_of_both) == 2:
                raise ComplexUnsafeError(said_of_both[0])


def contradiction(
    run: Run,
    arrays: Sequence[Array],
    skip: Sequence[Array],
    group: Sequence[int],
    dys: Sequence[Array],
    rng: np.random.Generator,
) -> str | None:
    """What contradicts the complex step when the arrays of a group move in a random direction."""
    directions = random_directions(arrays, skip, rng)
    alone = [v if i in group else np.zeros(v.shape) for i, v in enumerate(directions)]
    points = [
        [array + 2.0**-10 * v for array, v in zip(arrays, directions, strict=True)],
        [array * (1 + 2.0**-10 * rng.random(array.shape)) for array in arrays],  # keeps signs, and what is 0
        list(arrays),
    ]
    for point in points:
        try:
            outputs, _ = run(point)
            cotangents = [
                [np.where(np.isfinite(y), dy, 0) for dy, y in zip(one, outputs, strict=True)]
                for one in one_output_at_a_time(dys)
            ]
            all_slopes = slopes_along(run, point, alone, cotangents)
        except Exception as error:  # a function may refuse what lies outside its domain
            refusal = f"differences cannot confirm the complex step: beside the point it raises {said(error)}"
            continue
        derivatives = derivatives_along(run, point, alone, cotangents)
        for slopes, derivative in zip(all_slopes, derivatives, strict=True):
            if slopes and not slopes.allow(derivative, lost_in_steps(dys)):
                return (
                    f"along a random direction the complex step gives {derivative:.6g}, differences {slopes}; "
                    "abs, conj, np.var, math.*, a maximum with 0 or a cast to float drops the imaginary part"
                )
        return None
    return refusal


def excuse(
    run: Run,
    arrays: Sequence[Array],
    directions: Sequence[Array],
    dys: Sequence[Array],
    actual: float,
    truth: float,
    bar: float,
) -> str | None:
    """Why the backward's derivative along `directions` may be right although the complex step gives another; None if not.

    Either differences agree with the backward alone, or there is a kink and the forward looks at the imaginary part to
    choose a side. A forward that chooses by the real part has declared a side, which binds its backward.
    """
    slopes = slopes_along(run, arrays, directions, [dys])[0]
    if slopes is None or not slopes.allow(actual):
        return None
    opposite = -derivatives_along(run, arrays, [-v for v in directions], [dys])[0]
    if slopes.allow(truth) and abs(opposite - truth) <= bar:
        return None
    return (
        f"differences allow the backward's {actual:.12g}, with slopes of {slopes}, but the complex step gives {truth:.12g} "
        f"on one side and {opposite:.12g} on the other: the forward is not complex-safe there"
    )
