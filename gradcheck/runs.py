"""The ordinary runs of what is checked, from which everything else is measured."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gradcheck.arrays import (
    UNIT,
    copies,
    dense,
    furthest,
    neighbours,
    nudged,
    one_output_at_a_time,
    random_directions,
)
from gradcheck.directions import Directions, directions_in
from gradcheck.subject import Array, Backward, Subject, gradients_of, noted, said
from gradcheck.truth import DIFFERENCES, Truth

# Unit cotangents alone cannot see a backward that squares, clips, rectifies or normalises dy.
COTANGENT_SCALES = (1.0, -3.0, 1e3, 1e-6)
AROUND = 2.0**-20


class InconclusiveError(Exception):
    """Nothing can be said of the gradients; the text says why."""


@dataclass(frozen=True)
class Nearby:
    """A run on arrays and cotangents that differ a little from the given ones; of its gradients, what is compared."""

    arrays: list[Array]
    outputs: list[Array]
    along: list[list[Array]]


@dataclass(frozen=True)
class Runs:
    """The run on float64 copies of the given arrays, with the gradients of every array for every set of cotangents.

    truth      what the gradients are compared with
    skip       for every array the entries that are stopped
    directions along which the gradient of every array is compared
    along      the derivatives along them, by the gradients
    nearby     three runs where every number differs by a few units; none where the subject accepts no other arrays
    around     three runs a little further away, likewise
    elsewhere  a point far away, likewise
    refusals   what the subject says of points that lie outside its domain
    """

    subject: Subject
    truth: Truth
    skip: Sequence[Array]
    arrays: list[Array]
    outputs: list[Array]
    cotangents: list[list[Array]]
    gradients: list[list[Array]]
    directions: list[Directions]
    along: list[list[Array]]
    nearby: list[Nearby]
    around: list[Nearby]
    elsewhere: list[Array] | None
    refusals: list[str]

    def noise(self, k: int, i: int) -> float:
        """v: how far the backward's own result wanders around."""
        noise = furthest(self.along[k][i], [run.along[k][i] for run in (*self.nearby, *self.around)])
        return noise if np.isfinite(noise) else 0.0


@dataclass(frozen=True)
class FirstRun:
    """The run on float64 copies of the given arrays, with the gradients for every set of cotangents. An output that is NaN
    has the cotangent 0."""

    arrays: list[Array]
    outputs: list[Array]
    cotangents: list[list[Array]]
    gradients: list[list[Array]]


def first_run(subject: Subject, rng: np.random.Generator) -> FirstRun:
    """Raises what the subject itself raises on its own arrays; WrongGradientsError; InconclusiveError."""
    arrays = [np.array(array, np.float64, order="C") for array in subject.arrays]
    with noted("the forward on the given arrays"):
        given, backward = subject.run(copies(subject.arrays))
    if any(array.dtype != np.float64 for array in subject.arrays):
        try:
            given, backward = subject.run(copies(arrays))
        except Exception as error:
            raise InconclusiveError(f"refuses float64 copies of its arrays: {said(error)}") from error
    outputs = copies(given)
    if any(np.iscomplexobj(y) for y in outputs):
        raise InconclusiveError("returns a complex output for real arrays")
    cotangents = [dense(outputs, scale, rng) for scale in COTANGENT_SCALES]
    cotangents.append([np.abs(dy) for dy in dense(outputs, 1.0, rng)])
    cotangents.append([-dy for dy in cotangents[-1]])
    cotangents.append([dy * (rng.random(dy.shape) < 0.5) for dy in cotangents[0]])
    if len(outputs) > 1:  # so that a small output does not hide behind a large one
        cotangents += one_output_at_a_time(cotangents[0])
    cotangents = [[np.where(np.isnan(y), 0.0, dy) for dy, y in zip(dys, outputs, strict=True)] for dys in cotangents]
    return FirstRun(arrays, outputs, cotangents, gradients_for(subject, backward, cotangents, arrays))


def gradients_for(
    subject: Subject, backward: Backward, cotangents: Sequence[Sequence[Array]], arrays: Sequence[Array]
) -> list[list[Array]]:
    with noted("the backward for a dense random dy"):
        gradients = [gradients_of(subject, backward, copies(cotangents[0]), arrays)]
    with noted("the backward that is called again, for another dy"):
        return gradients + [gradients_of(subject, backward, copies(dys), arrays) for dys in cotangents[1:]]


def where_finite(subject: Subject, first: FirstRun) -> FirstRun:
    """The same with cotangents of 0 for all outputs that are no numbers: a difference does not see them move."""
    if all(np.isfinite(y).all() for y in first.outputs):
        return first
    cotangents = [
        [np.where(np.isfinite(y), dy, 0.0) for dy, y in zip(dys, first.outputs, strict=True)] for dys in first.cotangents
    ]
    _, backward = subject.run(copies(first.arrays))
    return replace(first, cotangents=cotangents, gradients=gradients_for(subject, backward, cotangents, first.arrays))


def ordinary_runs(subject: Subject, first: FirstRun, truth: Truth, skip: Sequence[Array], rng: np.random.Generator) -> Runs:
    """Raises what the subject itself raises on arrays like its own, and WrongGradientsError."""
    if truth is DIFFERENCES:
        first = where_finite(subject, first)
    arrays, cotangents, gradients = first.arrays, first.cotangents, first.gradients
    directions = directions_in(arrays, skip, rng, truth.entry_by_entry, truth.most_directions)
    refusals: list[str] = []
    return Runs(
        subject=subject,
        truth=truth,
        skip=skip,
        arrays=arrays,
        outputs=first.outputs,
        cotangents=cotangents,
        gradients=gradients,
        directions=directions,
        along=[derivatives_along_each(directions, each) for each in gradients],
        nearby=runs_nearby(subject, arrays, cotangents, directions, rng, UNIT, refusals),
        around=runs_nearby(subject, arrays, cotangents, directions, rng, AROUND, refusals),
        elsewhere=another_point(subject, arrays, first.outputs, skip, rng, refusals),
        refusals=list(dict.fromkeys(refusals)),
    )


def derivatives_along_each(directions: Sequence[Directions], gradients: Sequence[Array]) -> list[Array]:
    return [own.along(gradient) for own, gradient in zip(directions, gradients, strict=True)]


def runs_nearby(
    subject: Subject,
    arrays: Sequence[Array],
    cotangents: Sequence[Sequence[Array]],
    directions: Sequence[Directions],
    rng: np.random.Generator,
    unit: float,
    refusals: list[str],
) -> list[Nearby]:
    def run(point: list[Array], outputs: list[Array], backward: Backward) -> Nearby:
        gradients = (gradients_of(subject, backward, nudged(dys, rng, unit), arrays) for dys in cotangents)
        return Nearby(point, outputs, [derivatives_along_each(directions, each) for each in gradients])

    for steps in ((-2, -1, 1, 2), (-3, -2, -1, 0)):  # only towards 0 where the domain ends
        points = neighbours(arrays, rng, [unit * step for step in steps])
        try:
            forwards = [subject.run(copies(point)) for point in points]
        except Exception as error:
            refusals.append(said(error))
            continue
        with noted("the backward at a point close by"):
            return [run(point, copies(given), backward) for point, (given, backward) in zip(points, forwards, strict=True)]
    return []


def another_point(
    subject: Subject,
    arrays: Sequence[Array],
    outputs: Sequence[Array],
    skip: Sequence[Array],
    rng: np.random.Generator,
    refusals: list[str],
) -> list[Array] | None:
    """As far away as the subject is defined."""
    directions = random_directions(arrays, skip, rng)
    factors = [rng.uniform(0.0, 1.0, array.shape) for array in arrays]
    points = [
        [array + 0.3 * v for array, v in zip(arrays, directions, strict=True)],
        [array * (1 + 0.3 * each) for array, each in zip(arrays, factors, strict=True)],  # keeps signs
        [array * (1 - 2.0**-10 * each) for array, each in zip(arrays, factors, strict=True)],
    ]
    for point in points:
        try:
            given, _ = subject.run(copies(point))
        except Exception as error:
            refusals.append(said(error))
            continue
        if all(np.isfinite(new[np.isfinite(y)]).all() for new, y in zip(given, outputs, strict=True)):
            return point
    return None
