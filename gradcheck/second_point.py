"""A second point: a backward that keeps what the first call left behind is right at the first point only."""

from collections.abc import Iterator, Sequence

import numpy as np

from gradcheck.arrays import copies, nudged, random_directions
from gradcheck.complex_step import derivatives_along, lost_in_steps
from gradcheck.decision import MARGIN, largest
from gradcheck.differences import excuse
from gradcheck.report import Finding
from gradcheck.runs import Runs
from gradcheck.subject import Array, gradients_of

RTOL = 1e-6  # what an earlier call left behind is wrong by more,
ROUNDING = 1e-9  # and far away much may be zero to rounding,
CANCELLED = 1e-12  # or cancel to exactly nothing


def second_point(runs: Runs, rtol: float, rng: np.random.Generator) -> Iterator[Finding]:
    """One derivative along a random direction; the entries are compared at the first point."""
    if runs.elsewhere is None:
        return
    subject, point, dys = runs.subject, runs.elsewhere, runs.cotangents[0]
    directions = random_directions(point, runs.skip, rng)

    def derivatives(arrays: Sequence[Array], dys: Sequence[Array]) -> tuple[float, float, float]:
        """By the backward and by complex step, and the size of the terms of their sum."""
        _, backward = subject.run(copies(arrays))
        gradients = gradients_of(subject, backward, copies(dys), arrays)
        terms = [(gradient * v)[v != 0] for gradient, v in zip(gradients, directions, strict=True)]
        truth = derivatives_along(subject.run, arrays, directions, [dys])[0]
        return sum(float(each.sum()) for each in terms), truth, sum(float(np.abs(each).sum()) for each in terms)

    actual, truth, size = derivatives(point, dys)
    near = np.array([derivatives(nudged(point, rng), nudged(dys, rng)) for _ in range(3)])
    wander = np.abs(near[:, :2] - [actual, truth]).max()
    outputs, _ = subject.run(copies(point))
    natural = sum(float(np.abs(dy * y)[np.isfinite(y)].sum()) for dy, y in zip(dys, outputs, strict=True))
    moves = sum(float(np.abs(dy).sum()) for dy in dys) * max(largest(v) for v in directions)
    bar = float(max(RTOL, rtol) * size + MARGIN * wander + ROUNDING * natural + CANCELLED * moves + lost_in_steps(dys))
    if not np.isfinite([actual, truth, bar]).all() or abs(actual - truth) <= bar:
        return
    why = excuse(subject.run, point, directions, dys, actual, truth, bar)
    if why:
        yield Finding("inconclusive", f"at a second point {why}")
    else:
        text = f"at a second point the derivative along a random direction is {truth:.12g}, the gradients give {actual:.12g}"
        yield Finding("fail", text)
