"""The true gradient of something else: for another cotangent, or at another point."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeAlias

import numpy as np

from gradcheck.diagnosis.corrections import is_broadcast
from gradcheck.diagnosis.evidence import Evidence, Gradient
from gradcheck.subject import Array

MOST_COTANGENTS = 1_000_000  # numbers in all that are tried in place of dy

Change: TypeAlias = Callable[[Array], Array]


def another_cotangent(evidence: Evidence, own: Gradient) -> str | None:
    changes = list(other_cotangents(evidence))
    if len(changes) * sum(dy.size for dy in evidence.cotangents[0]) > MOST_COTANGENTS:
        return None
    for text, j, change in changes:
        others = [[*dys[:j], np.asarray(change(dys[j])), *dys[j + 1 :]] for dys in evidence.dys(own)]
        if evidence.is_true_for(own, others, evidence.arrays):
            return f"is the true gradient for {text}"
    return None


def other_cotangents(evidence: Evidence) -> Iterator[tuple[str, int, Change]]:
    """What may have been taken for the cotangent of output j."""
    for j, name in enumerate(evidence.names_of_dys):
        shape = evidence.outputs[j].shape
        yield f"{name} rounded to float32", j, rounded
        for axis, size in enumerate(shape):
            index = np.arange(size).reshape(-1, *[1] * (len(shape) - axis - 1))
            slices = [("first", index == 0), ("last", index == size - 1)]
            for text, chosen in slices if size > 1 else []:
                yield f"the {text} slice of {name} along axis {axis} alone", j, partial(np.multiply, chosen)
            for text, chosen in slices if size > 2 else []:
                yield f"{name} without its {text} slice along axis {axis}", j, partial(np.multiply, ~chosen)
        for known, z in evidence.known:
            if z.size > 1 and is_broadcast(z.shape, shape):
                yield f"{name} / {known} instead of {name}", j, partial(np.multiply, 1 / z)
                yield f"{name}·{known} instead of {name}", j, partial(np.multiply, z)


def another_point(evidence: Evidence, own: Gradient) -> str | None:
    for text, i, other in other_points(evidence):
        if evidence.is_true_for(own, evidence.dys(own), [*evidence.arrays[:i], other, *evidence.arrays[i + 1 :]]):
            return f"is the true gradient at {text}"
    return None


def other_points(evidence: Evidence) -> Iterator[tuple[str, int, Array]]:
    """What may have been taken for array i, in what was saved for the backward."""
    for i, (name, array) in enumerate(zip(evidence.names, evidence.arrays, strict=True)):
        for output, y in evidence.named_outputs:
            if y.shape == array.shape:
                yield f"{output} instead of {name}", i, y
        if array.ndim > 1 and array.shape[-1] == array.shape[-2] > 1:
            yield f"{name} transposed instead of {name}", i, array.swapaxes(-1, -2)
        yield f"{name} rounded to float32", i, rounded(array)


def rounded(array: Array) -> Array:
    return array.astype(np.float32).astype(np.float64)
