"""Ordinary differences, taken only to ask whether the complex step can be believed.

abs, conj, np.var, math.* and a cast to float silently drop the imaginary part, and a comparison of complex numbers looks
at it where the real parts are equal. So the complex step is held against slopes on both sides of a point:

    s(t) = (f(x + tv) − f(x)) / t = f′ + t·f″/2 + …        (8·s(t/8) − s(t)) / 7 = f′ + O(t²)

for t from coarse to fine. The error of each is bounded by the change since the last one and by rounding / t; the slope
with the smallest bound counts, with ten times that bound as its doubt, since such bounds are now and then too small.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np

from gradcheck.arrays import flattened, one_output_at_a_time, random_directions
from gradcheck.complex_step import ComplexUnsafeError, Run, derivatives_along, lost_in_steps
from gradcheck.directions import moved_together
from gradcheck.subject import Array, said

STEPS = tuple(2.0**-k for k in range(6, 37, 3))
CAUTION = 10.0


@dataclass(frozen=True)
class Slopes:
    """The derivative on the two sides of a point, each with its doubt."""

    left: float
    right: float
    doubt: float

    def allow(self, slope: float) -> bool:
        """Is this slope one of the two, or between them?"""
        return min(self.left, self.right) - self.doubt <= slope <= max(self.left, self.right) + self.doubt

    @property
    def differ(self) -> bool:
        return abs(self.left - self.right) > 2 * self.doubt

    def __str__(self) -> str:
        return f"{self.left:.6g} … {self.right:.6g}" if self.differ else f"{(self.left + self.right) / 2:.6g}"


def slopes_along(
    run: Run, arrays: Sequence[Array], directions: Sequence[Array], cotangents: Sequence[Sequence[Array]]
) -> list[Slopes | None]:
    """The slopes of each Σ dy·y along `directions`; None where the function is not a number beside the point."""

    def outputs_at(step: float) -> Array:
        return flattened(run([array + step * v for array, v in zip(arrays, directions, strict=True)])[0])

    here = outputs_at(0.0)
    left, right = (np.stack([outputs_at(side * step) for step in STEPS]) for side in (-1, 1))
    numbers = np.isfinite(here)
    moving = numbers & ((left != here) | (right != here)).any(0)
    still = numbers & ~moving  # by less than the last place, that is, at the coarsest step
    weights = np.stack([flattened(dys) for dys in cotangents])
    rounding = 2.0**-50 * np.abs(weights * np.where(numbers, here, 0))
    (a, p), (b, q) = (
        one_sided((side - here)[:, moving] @ weights[:, moving].T, rounding[:, moving].sum(1)) for side in (left, right)
    )
    lost = [lost_in_steps(dys) for dys in cotangents]  # by the complex step that is compared with these
    doubts = CAUTION * np.maximum(p, q) + rounding[:, still].sum(1) / STEPS[0] + lost
    return [
        Slopes(-float(a[k]), float(b[k]), float(doubts[k])) if np.isfinite([a[k], b[k], doubts[k]]).all() else None
        for k in range(len(cotangents))
    ]


def one_sided(changes: Array, rounding: Array) -> tuple[Array, Array]:
    """The slopes on one side, and a bound on the error of each, from the changes at every step."""
    steps = np.array(STEPS)[:, None]
    coarse_to_fine = changes / steps
    slopes = (8 * coarse_to_fine[1:] - coarse_to_fine[:-1]) / 7
    bounds = np.abs(np.diff(slopes, axis=0)) + 4 * rounding / steps[2:]
    best = np.where(np.isfinite(bounds), bounds, np.inf).argmin(0)
    each = np.arange(len(rounding))
    return slopes[1:][best, each], bounds[best, each]


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
            if slopes and not slopes.allow(derivative):
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
