"""What the modules of gradcheck do with lists of arrays."""

from collections.abc import Sequence

import numpy as np

from gradcheck.decision import largest
from gradcheck.subject import Array

UNIT = 2.0**-52
# By how many units numbers are moved at each of three points. One unit shows what rounding does by chance; but it may also
# be lost in the next rounding, so that only several show how sharp a function is.
FACTORS = (1.0, 16.0, 16.0)
SMALLEST_NUMBER = 2.0**-1022  # that has all its digits


def copies(arrays: Sequence[Array]) -> list[Array]:
    return [np.array(array, order="C") for array in arrays]


def contents(arrays: Sequence[Array]) -> list[bytes]:
    return [array.tobytes() for array in arrays]


def flattened(arrays: Sequence[Array]) -> Array:
    flat: Array = np.concatenate([array.reshape(-1) for array in arrays])
    return flat


def nudged(arrays: Sequence[Array], rng: np.random.Generator, unit: float = UNIT) -> list[Array]:
    """Every number moved by one unit in its last place."""
    return [np.asarray(array * (1 + unit * rng.choice([-1.0, 1.0], array.shape))) for array in arrays]


def neighbours(arrays: Sequence[Array], rng: np.random.Generator, steps: Sequence[float]) -> list[list[Array]]:
    """Three points where every number is moved by one of four steps times the point's factor, relative to itself.

    Of up to 64 entries of an array no two are moved alike at all three, which would hide how much hangs on their difference.
    """
    codes = [np.resize(rng.permutation(64), array.shape) for array in arrays]
    return [
        [
            np.asarray(array * (1 + factor * np.array(steps)[code // 4**draw % 4]))
            for array, code in zip(arrays, codes, strict=True)
        ]
        for draw, factor in enumerate(FACTORS)
    ]


def dense(outputs: Sequence[Array], scale: float, rng: np.random.Generator) -> list[Array]:
    """Cotangents: random numbers of both signs, none of them small."""
    sizes = [scale * rng.uniform(0.5, 1.5, y.shape) * rng.choice([-1.0, 1.0], y.shape) for y in outputs]
    return [np.asarray(size, y.dtype) for size, y in zip(sizes, outputs, strict=True)]


def one_output_at_a_time(dys: Sequence[Array]) -> list[list[Array]]:
    return [[dy if j == k else np.zeros_like(dy) for j, dy in enumerate(dys)] for k in range(len(dys))]


def random_directions(arrays: Sequence[Array], skip: Sequence[Array], rng: np.random.Generator) -> list[Array]:
    """A direction in each array, in every entry as long as the entry itself; none where it is skipped or not finite."""
    return [
        np.where(skipped | ~np.isfinite(array), 0.0, sizes_of(array) * rng.standard_normal(array.shape))
        for array, skipped in zip(arrays, skip, strict=True)
    ]


def sizes_of(array: Array) -> Array:
    """How large every entry is; a 0 is as large as the largest, or 1."""
    return np.where(np.isfinite(array) & (array != 0), np.abs(array), largest(array) or 1.0)


def natural_size(dys: Sequence[Array], outputs: Sequence[Array], array: Array) -> float:
    """The size that the gradient would have if nothing cancelled: the output, seen from the input."""
    weighted = sum(float(np.abs(dy * y)[np.isfinite(y)].sum()) for dy, y in zip(dys, outputs, strict=True))
    return weighted / (largest(array) or 1.0)


def furthest(known: Array, moved: Sequence[Array], factors: Sequence[float] | None = None) -> float:
    """The largest change of an entry that was a number, over the factor by which it was moved; infinite where it is none any
    more."""
    numbers = np.isfinite(known)
    changes = [float(np.abs(each[numbers] - known[numbers]).max(initial=0.0)) for each in moved]
    if factors:
        changes = [change / factor for change, factor in zip(changes, factors, strict=False)]
    return max((change if np.isfinite(change) else float("inf") for change in changes), default=0.0)
