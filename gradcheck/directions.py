"""Many entries at once, so that a check of large arrays does not cost several forwards an entry.

The entries of a large array are dealt at random into groups. Those of a group move together, each by a weight of random sign
and of a size between a half and one and a half, and the derivative along them is the weighted sum of theirs:

    Σ w·∂f/∂x                against                Σ w·gradient

Every entry that is not stopped is in exactly one direction, so that an error in it alone shows, times its weight. Two errors
cancel only where their weights happen to. Rounding errors of m entries add up to √(Σ w²) ≈ √m of them, and a direction's bar
is wider than an entry's by as much. Arrays that are small beside the others are compared entry by entry.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gradcheck.subject import Array

MOST_SUMS = 24  # of directions, taken at each of the points nearby, unless one for each array is more
MANY_ENTRIES = 800
MOST_ALONE = 4  # arrays, or groups of arrays, of a large subject that are asked one by one about complex safety


@dataclass(frozen=True)
class Directions:
    """Directions within one array: the k-th moves `entries` from starts[k] to starts[k + 1] by their weights.

    `firsts` are the directions with which sums of several of them begin, few enough to be taken at many points.
    """

    entries: Array
    weights: Array
    starts: Array
    firsts: Array

    def __len__(self) -> int:
        return len(self.starts)

    def of(self, k: int) -> tuple[Array, Array]:
        """The entries of direction k, and their weights."""
        own = slice(self.starts[k], self.starts[k + 1] if k + 1 < len(self) else None)
        return self.entries[own], self.weights[own]

    @property
    def single(self) -> bool:
        """Does every direction move one entry alone?"""
        return len(self) == len(self.entries)

    @property
    def length(self) -> float:
        """√(Σ w²) of the longest: how many times larger than an entry's independent errors grow along it."""
        return float(np.sqrt(np.add.reduceat(self.weights**2, self.starts).max(initial=0.0)))

    @property
    def smallest_weight(self) -> float:
        return float(np.abs(self.weights).min(initial=1.0))

    def along(self, gradient: Array) -> Array:
        """The derivative along each direction, by a gradient."""
        sums: Array = np.add.reduceat(self.weights * gradient.reshape(-1)[self.entries], self.starts)
        return sums

    def summed(self, derivatives: Array) -> Array:
        sums: Array = np.add.reduceat(derivatives, self.firsts)
        return sums

    def sums(self) -> "Directions":
        return Directions(self.entries, self.weights, self.starts[self.firsts], np.arange(len(self.firsts)))


def directions_in(
    arrays: Sequence[Array], skip: Sequence[Array], rng: np.random.Generator, entry_by_entry_to: int, most: int
) -> list[Directions]:
    """Every entry alone, or, where there are more than so many entries in all, at most so many directions in the large
    arrays, unless two for each array are more."""
    moving = [np.flatnonzero(~skipped) for skipped in skip]
    if sum(array.size for array in arrays) <= entry_by_entry_to:
        return [entry_by_entry(entries, np.ones(len(entries)), len(entries)) for entries in moving]
    most_sums = max(1, MOST_SUMS // len(arrays))
    directions = []
    for entries, n in zip(moving, numbers_of_directions([len(entries) for entries in moving], most), strict=True):
        signs = rng.choice([-1.0, 1.0], len(entries))
        if n == len(entries):
            directions.append(entry_by_entry(entries, signs, most_sums))
        else:
            directions.append(dealt(entries, signs * rng.uniform(0.5, 1.5, len(entries)), n, most_sums, rng))
    return directions


def numbers_of_directions(sizes: Sequence[int], most: int) -> list[int]:
    """As many as an array has entries, if those are no more than its fair share; the rest is shared by the root of the size,
    so that the length of the directions grows with the root as well."""
    numbers = list(sizes)
    left = most
    ascending = sorted(range(len(sizes)), key=lambda i: sizes[i])
    while ascending and sizes[ascending[0]] * len(ascending) <= left:
        left -= sizes[ascending.pop(0)]
    roots = sum(sizes[i] ** 0.5 for i in ascending)
    spare = max(0, left - 2 * len(ascending))
    for i in ascending:
        numbers[i] = min(sizes[i], 2 + int(spare * (sizes[i] ** 0.5 / roots)))
    return numbers


def entry_by_entry(entries: Array, signs: Array, most_sums: int) -> Directions:
    return Directions(entries, signs, np.arange(len(entries)), firsts_of(len(entries), most_sums))


def dealt(entries: Array, weights: Array, n: int, most_sums: int, rng: np.random.Generator) -> Directions:
    groups = rng.permutation(np.resize(np.arange(n), len(entries)))
    order = np.argsort(groups, kind="stable")
    return Directions(entries[order], weights[order], np.searchsorted(groups[order], np.arange(n)), firsts_of(n, most_sums))


def firsts_of(n: int, most_sums: int) -> Array:
    """Where n directions are cut into at most so many sums."""
    n_sums = min(n, most_sums)
    return np.arange(n_sums) * n // max(n_sums, 1)


def moved_together(arrays: Sequence[Array]) -> list[list[int]]:
    """The arrays one by one; in groups where there are many, with many entries."""
    n = min(len(arrays), MOST_ALONE) if sum(array.size for array in arrays) > MANY_ENTRIES else len(arrays)
    return [list(range(first, len(arrays), n)) for first in range(n)]
