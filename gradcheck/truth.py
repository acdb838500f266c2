"""Where the truth comes from: the complex step, or ordinary differences where the forward does not take complex arrays."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from gradcheck.complex_step import ComplexPoint, derivatives_along
from gradcheck.differences import slopes_along
from gradcheck.directions import Directions
from gradcheck.slopes import Slopes
from gradcheck.subject import Array, Run

TRUTHS = ("auto", "complex", "difference")  # by name, for the caller to choose from
Cotangents: TypeAlias = Sequence[Sequence[Array]]  # sets of them


def check_truth(truth: str) -> None:
    if not isinstance(truth, str) or truth not in TRUTHS:
        raise ValueError(f'truth must be "auto", "complex" or "difference", got {truth!r}')


class Point(Protocol):
    def slopes(self, i: int, entries: Array, weights: Array) -> list[Slopes | None]:
        """The derivative of each Σ dy·y where the entries of array i move by their weights."""
        ...


@dataclass(eq=False)
class Truth:
    """A way to differentiate: at a point along few entries at a time, or along directions in all arrays.

    Of more entries than `entry_by_entry`, those of large arrays are compared along `most_directions`, unless two for each
    array are more.
    """

    name: str
    entry_by_entry: int
    most_directions: int
    point: Callable[[Run, Sequence[Array], Cotangents], Point]
    along: Callable[[Run, Sequence[Array], Sequence[Array], Cotangents], Sequence[Slopes | None]]


class ComplexSteps(ComplexPoint):
    def slopes(self, i: int, entries: Array, weights: Array) -> list[Slopes | None]:
        return [Slopes(slope, slope) for slope in self.derivatives(i, entries, weights)]


class DifferencePoint:
    def __init__(self, run: Run, arrays: Sequence[Array], cotangents: Cotangents) -> None:
        self.run, self.arrays, self.cotangents = run, arrays, cotangents

    def slopes(self, i: int, entries: Array, weights: Array) -> list[Slopes | None]:
        size = step_size(self.arrays[i], entries)
        directions = [np.zeros(array.shape) for array in self.arrays]
        directions[i].reshape(-1)[entries] = size * weights
        found = slopes_along(self.run, self.arrays, directions, self.cotangents)
        return [slopes and slopes.scaled(1 / size) for slopes in found]


def step_size(array: Array, entries: Array) -> float:
    """As large as the largest of the entries, or as is usual in their array, if that is more."""
    numbers = np.abs(array[np.isfinite(array) & (array != 0)])
    own = np.abs(array.reshape(-1)[entries])
    usual = float(np.median(numbers)) if numbers.size else 1.0
    return max(float(own.max(initial=0.0, where=np.isfinite(own))), usual, SMALLEST_STEP)


def complex_steps_along(
    run: Run, arrays: Sequence[Array], directions: Sequence[Array], cotangents: Cotangents
) -> list[Slopes]:
    return [Slopes(slope, slope) for slope in derivatives_along(run, arrays, directions, cotangents)]


SMALLEST_STEP = 2.0**-900  # so that what it moves has all its digits

# Of differences one takes some forty forwards.
COMPLEX_STEP = Truth("complex step", 800, 250, ComplexSteps, complex_steps_along)
DIFFERENCES = Truth("differences", 100, 60, DifferencePoint, slopes_along)


@dataclass(frozen=True)
class Known:
    """The derivatives along the directions in one array for one set of cotangents: between `low` and `high`, which differ
    at a kink, up to `doubt`. It is infinite where nothing is known."""

    low: Array
    high: Array
    doubt: Array

    def nearest(self, actual: Array) -> Array:
        """Of all that the truth may be, what is nearest to `actual`."""
        truth: Array = np.where(np.isfinite(actual), np.clip(actual, self.low, self.high), self.low)
        return truth

    def unless_wider(self, doubt: float) -> "Known":
        """Nothing where the doubt is wider."""
        wide = self.doubt > doubt
        return Known(
            np.where(wide, -np.inf, self.low), np.where(wide, np.inf, self.high), np.where(wide, np.inf, self.doubt)
        )

    def slopes(self, k: int) -> Slopes:
        return Slopes(float(self.low[k]), float(self.high[k]), float(self.doubt[k]))

    @property
    def n_kinks(self) -> int:
        return int(np.count_nonzero(np.isfinite(self.doubt) & (self.low != self.high)))


UNKNOWN = Slopes(-np.inf, np.inf, np.inf)


def known_along(point: Point, directions: Sequence[Directions], n_cotangents: int) -> list[list[Known]]:
    """For each set of cotangents and each array, whatever the number of cotangents, from one derivative a direction."""
    each = [[point.slopes(i, *own.of(k)) for k in range(len(own))] for i, own in enumerate(directions)]
    return [[together([found[k] or UNKNOWN for found in own]) for own in each] for k in range(n_cotangents)]


def together(slopes: Sequence[Slopes]) -> Known:
    sides = np.array([(each.left, each.right) for each in slopes]).reshape(-1, 2)
    return Known(sides.min(1), sides.max(1), np.array([each.doubt for each in slopes]))
