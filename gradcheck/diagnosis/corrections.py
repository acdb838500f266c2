"""What would make the returned gradient the true one: another order, a sum, a factor, a term."""

from collections.abc import Iterator
from itertools import combinations
from math import prod

import numpy as np

from gradcheck.decision import distance
from gradcheck.diagnosis.evidence import Evidence, Gradient
from gradcheck.diagnosis.ratios import constants, fitted
from gradcheck.subject import Array

OF_ROWS = 1e-4  # of what is missing: a bar wider than that proves nothing about it


def order(evidence: Evidence, own: Gradient) -> str | None:
    for text, stack in [*transposed_back(own), *moved_back(own)]:
        if own.agrees(stack):
            return f"is the truth {text}"
    if own.truth is not None and prod(own.shape) > 2:
        actual, truth = (np.sort(each.reshape(len(own.ks), -1)) for each in (own.actual, own.truth))
        if (distance(actual, truth) <= own.bars).all():
            return "has the right numbers in the wrong places"
    return None


def transposed_back(own: Gradient) -> Iterator[tuple[str, Array]]:
    for one, two in combinations([axis for axis, _ in long_axes(own)], 2):
        shape = list(own.shape)
        shape[one], shape[two] = shape[two], shape[one]
        what = "transposed" if len(shape) == 2 else f"with its axes {one} and {two} swapped"
        then = "" if tuple(shape) == own.shape else f" and then reshaped to {own.shape}"
        yield what + then, own.actual.reshape(-1, *shape).swapaxes(one + 1, two + 1)


def moved_back(own: Gradient) -> Iterator[tuple[str, Array]]:
    for axis, size in long_axes(own):
        yield f"in reverse order along axis {axis}", np.flip(own.actual, axis + 1)
        for text, by in (("1", 1), ("−1", -1))[: size - 1]:
            yield f"shifted by {text} along axis {axis}, cyclically", np.roll(own.actual, -by, axis + 1)


def sums(evidence: Evidence, own: Gradient) -> str | None:
    for axis, size in long_axes(own):
        for name, factor in (("mean", 1), ("sum", size)):
            if own.truth is not None and own.is_along(own.each_along(factor * averaged(own.truth, axis))):
                return f"is the {name} of the truth over axis {axis}, repeated along it"
            if own.agrees(factor * averaged(own.actual, axis)):
                return f"lacks a {name} over axis {axis}: its own {name}, repeated along it, is the truth"
    return None


def subtraction(evidence: Evidence, own: Gradient) -> str | None:
    """What softmax and the norms subtract from every row."""
    for axis, size in long_axes(own):
        mean = averaged(own.actual, axis)
        if own.agrees(own.actual - mean):
            return f"lacks a term: the mean of each row along axis {axis} has to be subtracted"
        for name, y in evidence.named_outputs:
            if y.shape == own.shape and own.agrees(own.actual - y * mean * size):
                row = f"each row along axis {axis}"
                return f"lacks a term: {name} times the sum of {row} has to be subtracted"
    return None


def factor(evidence: Evidence, own: Gradient) -> str | None:
    for known, z in evidence.known:
        if z.size > 1 and is_broadcast(z.shape, own.shape):
            for name, each in {known: z, f"1 − {known}": 1 - z, f"1 − ({known})²": 1 - z * z}.items():
                if own.agrees(own.actual * each):
                    return f"lacks the factor {name}"
                if own.agrees(own.actual / each):
                    return f"has an extra factor {name}"
    return None


def term(evidence: Evidence, own: Gradient) -> str | None:
    for name, dys in evidence.named_dys(own):
        ratio = fitted(own.truths - own.along, own.each_along(dys)) if dys.shape == own.actual.shape else None
        if ratio is not None and own.agrees(own.actual + ratio * dys) and prod(own.shape) > 2:
            exact = (text for exact, text, _ in constants(ratio) if own.agrees(own.actual + exact * dys))
            size = next(exact, f"{ratio:.6g}").lstrip("−-")
            return f"{'lacks the' if ratio > 0 else 'has an extra'} term {'' if size == '1' else f'{size}·'}{name}"
    return None


def rows(evidence: Evidence, own: Gradient) -> str | None:
    """In each row a multiple of something known is missing."""
    if own.truth is None:
        return None
    missing = own.truth - own.actual
    if not (own.entry_bars <= OF_ROWS * np.abs(missing)).any():
        return None
    known = [(name, np.broadcast_to(z, own.actual.shape)) for name, z in evidence.known if is_broadcast(z.shape, own.shape)]
    known += [(name, dys) for name, dys in evidence.named_dys(own) if dys.shape == own.actual.shape]
    for axis, size in reversed(long_axes(own)):
        vectors = [("a constant", np.ones(own.actual.shape))]
        for name, z in known:
            vectors += [(f"a multiple of {name}", z), (f"a multiple of ({name} − its mean)", z - averaged(z, axis))]
        for text, vector in vectors if size > 2 else []:
            if (distance(missing, projected(missing, vector, axis + 1)) <= own.entry_bars).all():
                return f"is off by {text} in each row along axis {axis}"
    return None


def projected(stack: Array, vectors: Array, axis: int) -> Array:
    """The multiple of the vector that is nearest to each row."""
    size = (vectors * vectors).sum(axis, keepdims=True)
    share = (stack * vectors).sum(axis, keepdims=True) / np.where(size, size, 1.0)
    return np.asarray(share * vectors)


def long_axes(own: Gradient) -> list[tuple[int, int]]:
    return [(axis, size) for axis, size in enumerate(own.shape) if size > 1]


def averaged(stack: Array, axis: int) -> Array:
    """The mean over an axis of each array, repeated along it."""
    return np.broadcast_to(stack.mean(axis + 1, keepdims=True), stack.shape)


def is_broadcast(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    try:
        return bool(np.broadcast_shapes(shape, to) == to)
    except ValueError:
        return False
