"""Gradients that are zero, not a number, or something else that was at hand."""

from collections.abc import Iterator
from math import prod

import numpy as np

from gradcheck.decision import RESOLUTION
from gradcheck.diagnosis.evidence import Evidence, Gradient, is_same
from gradcheck.places import whereabouts


def not_a_number(evidence: Evidence, own: Gradient) -> str | None:
    strange = np.asarray(~np.isfinite(own.actual).all(0))
    return f"is not a number {whereabouts(strange)}" if strange.any() else None


def truth_is_zero(evidence: Evidence, own: Gradient) -> str | None:
    truths, sizes = (np.abs(each).max(1, keepdims=True) for each in (own.truths, own.along))
    is_zero = (truths <= np.minimum(own.bars, RESOLUTION * sizes)).all() and np.isfinite(own.bars).all()
    return "should be zero everywhere" if is_zero else None


def zero(evidence: Evidence, own: Gradient) -> str | None:
    if (np.abs(own.actual) <= own.entry_bars).all():
        return f"is zero{' to rounding' if own.actual.any() else ''} everywhere; the truth is not"
    return None


def argument(evidence: Evidence, own: Gradient) -> str | None:
    """One of the arguments, unchanged."""
    for name, stack in [*((name, array[np.newaxis]) for name, array in evidence.known), *evidence.named_dys(own)]:
        if stack[0].size == prod(own.shape) and is_same(own.actual, stack.reshape(-1, *own.shape)):
            return f"is {name} itself" + ("" if stack[0].shape == own.shape else ", reshaped")
    return None


def another_gradient(evidence: Evidence, own: Gradient) -> str | None:
    for other in evidence.gradients:
        if other is not own and is_that_of(own, other):
            return f"is the true gradient of {other.name}"
    return None


def pairs_swapped(evidence: Evidence) -> Iterator[tuple[Gradient, Gradient]]:
    wrong = [own for own in evidence.gradients if own.is_wrong and own.is_sharp]
    for own in wrong:
        for other in wrong:
            if own.i < other.i and is_that_of(own, other) and is_that_of(other, own):
                yield own, other


def is_that_of(own: Gradient, other: Gradient) -> bool:
    return own.shape == other.shape and own.ks == other.ks and other.is_sharp and other.agrees(own.actual)
