"""A second point: a backward that keeps what the first call left behind is right at the first point only."""

from collections.abc import Iterator, Sequence

import numpy as np

from gradcheck.arrays import copies, nudged, random_directions
from gradcheck.complex_safety import excuse
from gradcheck.complex_step import lost_in_steps
from gradcheck.decision import MARGIN, largest
from gradcheck.report import Finding
from gradcheck.runs import Runs
from gradcheck.subject import Array, gradients_of
from gradcheck.truth import COMPLEX_STEP, UNKNOWN

RTOL = 1e-6  # what an earlier call left behind is wrong by more,
ROUNDING = 1e-9  # and far away much may be zero to rounding,
CANCELLED = 1e-12  # or cancel to exactly nothing


def second_point(runs: Runs, rtol: float, rng: np.random.Generator) -> Iterator[Finding]:
    """One derivative along a random direction; the entries are compared at the first point."""
    if runs.elsewhere is None:
        return
    subject, point, dys = runs.subject, runs.elsewhere, runs.cotangents[0]
    directions = random_directions(point, runs.skip, rng)

    def derivatives(arrays: Sequence[Array], dys: Sequence[Array]) -> tuple[float, float, float, float]:
        """By the backward and in truth, the doubt of that, and the size of the terms of their sum."""
        _, backward = subject.run(copies(arrays))
        gradients = gradients_of(subject, backward, copies(dys), arrays)
        terms = [(gradient * v)[v != 0] for gradient, v in zip(gradients, directions, strict=True)]
        actual, size = (sum(float(each.sum()) for each in these) for these in (terms, map(np.abs, terms)))
        known = runs.truth.along(subject.run, arrays, directions, [dys])[0] or UNKNOWN
        return actual, known.nearest(actual), known.doubt, size

    actual, truth, doubt, size = derivatives(point, dys)
    near = np.array([derivatives(nudged(point, rng), nudged(dys, rng)) for _ in range(3)])
    wander = np.abs(near[:, :2] - [actual, truth]).max()
    outputs, _ = subject.run(copies(point))
    natural = sum(float(np.abs(dy * y)[np.isfinite(y)].sum()) for dy, y in zip(dys, outputs, strict=True))
    moves = sum(float(np.abs(dy).sum()) for dy in dys) * max(largest(v) for v in directions)
    bar = float(
        max(RTOL, rtol) * size + MARGIN * wander + ROUNDING * natural + CANCELLED * moves + lost_in_steps(dys) + doubt
    )
    if not np.isfinite([actual, truth, bar]).all() or abs(actual - truth) <= bar:
        return
    why = excuse(subject.run, point, directions, dys, actual, truth, bar) if runs.truth is COMPLEX_STEP else None
    if why:
        yield Finding("inconclusive", f"at a second point {why}")
    else:
        text = f"at a second point the derivative along a random direction is {truth:.12g}, the gradients give {actual:.12g}"
        yield Finding("fail", text)
