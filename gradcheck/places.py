"""Where in an array the wrong entries lie, in words that follow "wrong": "in row 3", "in the last 4 of 9 along axis 1"."""

from collections.abc import Sequence

import numpy as np

from gradcheck.subject import Array

MOST_LISTED = 5  # places along one axis that are named one by one


def whereabouts(wrong: Array) -> str:
    """The entries that are True: "nowhere", "everywhere", or the rows, columns and ranges that hold exactly these entries,
    or all but these; "in scattered places" where there is no such description."""
    if not wrong.any():
        return "nowhere"
    if wrong.all():
        return "everywhere"
    exact = [box(wrong)] if fills_its_box(wrong) else []
    if fills_its_box(~wrong) and ((~wrong).sum() == 1 or " and " not in box(~wrong)):
        exact.append(f"everywhere but {box(~wrong)}")
    if exact:
        return min(exact, key=len)
    if wrong.ndim > 1:
        for words, triangle in triangles(wrong.shape[-2:]):
            if triangle.any() and np.array_equal(wrong, np.broadcast_to(triangle, wrong.shape)):
                return words
    within = box(wrong)
    return f"in scattered places {within}" if within else "in scattered places"


def fills_its_box(wrong: Array) -> bool:
    return bool(wrong.sum() == np.prod([len(own) for own in indices(wrong)]))


def indices(wrong: Array) -> list[Array]:
    """For each axis the indices at which something is wrong."""
    axes = range(wrong.ndim)
    return [np.flatnonzero(wrong.any(tuple(other for other in axes if other != axis))) for axis in axes]


def box(wrong: Array) -> str:
    """The smallest product of sets of indices that holds all that is wrong; empty where that is the whole array."""
    if wrong.sum() == 1:
        return f"at [{', '.join(str(axis[0]) for axis in np.nonzero(wrong))}]"
    words = [along(own, axis, wrong.shape) for axis, own in enumerate(indices(wrong)) if len(own) < wrong.shape[axis]]
    return " and ".join(words)


def along(own: Array, axis: int, shape: Sequence[int]) -> str:
    size, first, last = shape[axis], int(own[0]), int(own[-1])
    of_axis = f" along axis {axis}" if len(shape) > 1 else ""
    if len(own) == 1:
        if len(shape) == 2:
            return f"in {'column' if axis else 'row'} {first}"
        return f"at index {first} of axis {axis}"
    if last - first == len(own) - 1:
        if first == 0:
            return f"in the first {len(own)} of {size}{of_axis}"
        if last == size - 1:
            return f"in the last {len(own)} of {size}{of_axis}"
        return f"at the indices {first} to {last}{of_axis}"
    step = int(own[1] - own[0])
    if len(own) > 2 and np.array_equal(own, np.arange(first, size, step)):
        return f"at every {ordinal(step)} index from {first}{of_axis}"
    if len(own) <= MOST_LISTED:
        return f"at the indices {', '.join(map(str, own))}{of_axis}"
    return f"at {len(own)} of {size} indices{of_axis}"


def triangles(shape: Sequence[int]) -> list[tuple[str, Array]]:
    row, column = np.ogrid[: shape[0], : shape[1]]
    of_axes = "the diagonal of the last two axes"
    return [
        (f"above {of_axes}", row < column),
        (f"on and above {of_axes}", row <= column),
        (f"below {of_axes}", row > column),
        (f"on and below {of_axes}", row >= column),
        (f"on {of_axes}", row == column),
    ]


def ordinal(n: int) -> str:
    ending = "th" if n % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{ending}"
