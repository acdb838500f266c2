"""The truth times one number, everywhere or where it is wrong; or the truth but for its last digits."""

from collections.abc import Iterator
from math import copysign, prod

import numpy as np

from gradcheck.decision import RESOLUTION, distance
from gradcheck.diagnosis.evidence import Evidence, Gradient, is_same
from gradcheck.places import whereabouts
from gradcheck.subject import Array

LARGEST_CONSTANT = 1_000_000  # beyond it, every number is a whole one to within a bar
FLOAT32 = 2.0**-30, 2.0**-20  # relative errors that are usual where float32 is used inside
NEARLY_RIGHT = 1e-3


def constant_ratio(evidence: Evidence, own: Gradient) -> str | None:
    return ratio_between(evidence, own, own.along, own.truths)


def ratio_in_places(evidence: Evidence, own: Gradient) -> str | None:
    """The same of the wrong entries, where they are not all."""
    wrong = own.wrong_entries
    if own.truth is None or wrong is None or wrong.all():
        return None
    where = f" where it is wrong{f', {plain_place(wrong)}' if plain_place(wrong) else ''}"
    actual, truth = own.actual[:, wrong], own.truth[:, wrong]
    if not actual.any():
        return f"is zero{where}"
    if (np.abs(truth) <= own.bars).all():
        return f"should be zero{where}"
    return ratio_between(evidence, own, actual, truth, where) if wrong.sum() > 1 else None


def ratio_between(evidence: Evidence, own: Gradient, actual: Array, truth: Array, where: str = "") -> str | None:
    ratio = fitted(actual, truth)
    if ratio is None:
        return None

    def holds(ratio: float) -> bool:
        return bool((distance(actual / ratio, truth) <= own.bars).all())

    for exact, text, n in constants(ratio):
        if holds(exact):
            return times(text) + where + size_said(evidence, own, text, n)
    return f"is {ratio:.10g} times the truth{where}" if holds(ratio) else None


def fitted(above: Array, below: Array) -> float | None:
    """The one number c with above ≈ c·below, all cotangents weighing the same; None where there is none."""
    sizes = np.abs(below).max(1, keepdims=True)
    weights = np.where(sizes, 1 / sizes, 0.0) ** 2
    ratio = float((weights * above * below).sum() / (weights * below * below).sum())
    return ratio if ratio and np.isfinite(ratio) else None


def constants(value: float) -> Iterator[tuple[float, str, int]]:
    """What `value` may be exactly: n, 1/n, √n or 1/√n, in words, and n."""
    sign, size = "−" if value < 0 else "", abs(value)
    for power, root in ((1, ""), (2, "√")):
        near = max(size, 1 / size) ** power
        if not near <= LARGEST_CONSTANT:
            return
        n = round(near)
        exact = copysign(n ** (1 / power if size >= 1 else -1 / power), value)
        if abs(exact / value - 1) <= RESOLUTION:
            yield exact, f"{sign}{root}{n}" if size >= 1 or n == 1 else f"{sign}1/{root}{n}", n


def times(text: str) -> str:
    if text == "−1":
        return "is the truth with the wrong sign"
    return f"is {text} of the truth" if "/" in text else f"is {text} times the truth"


def size_said(evidence: Evidence, own: Gradient, text: str, n: int) -> str:
    """Of what n is the size, if of anything."""
    if n == 1:
        return ""
    places = []
    for name, array in sorted(evidence.known, key=lambda each: each[0] != own.name):
        places += [f"axis {axis} of {name}" for axis, size in enumerate(array.shape) if size == n]
        if array.ndim > 2 and prod(array.shape[:-1]) == n:
            places.append(f"all axes but the last of {name}")
        if array.ndim > 1 and array.size == n:
            places.append(f"the whole of {name}")
    if not places:
        return ""
    mean = ", as if a mean stood for a sum" if text == f"1/{n}" else ""
    return f"{mean}; {n} is the size of {' and of '.join(places[:2])}"


def only_somewhere(evidence: Evidence, own: Gradient) -> str | None:
    where = plain_place(own.wrong_entries) if own.wrong_entries is not None else ""
    return f"is wrong {'' if where.startswith('everywhere but') else 'only '}{where}" if where else None


def plain_place(wrong: Array) -> str:
    """Where the entries lie, if it says something."""
    where = whereabouts(wrong)
    return "" if wrong.sum() < 2 or where == "everywhere" or where.startswith("in scattered places") else where


def digits(evidence: Evidence, own: Gradient) -> str | None:
    if is_same(own.actual, own.actual.astype(np.float32).astype(np.float64)):
        return "holds numbers of float32 only, as if that were used inside"
    sizes = np.abs(own.truths).max(1)
    off_by = (np.abs(own.along - own.truths).max(1) / np.where(sizes, sizes, np.inf)).max()
    if not off_by < NEARLY_RIGHT:
        return None
    errors = ((own.along - own.truths) / own.truths)[own.along != own.truths]
    low, high = FLOAT32
    usual = (np.abs(errors) > low) & (np.abs(errors) < high)
    both_signs = errors.size > 3 and 0.2 < (errors > 0).mean() < 0.8
    why = ", as if float32 were used inside" if both_signs and usual.mean() > 0.9 and off_by < high / 2 else ""
    return f"agrees with the truth to {int(-np.log10(off_by))} digits{why}"
