"""The decision: do a gradient's numbers agree with the truth, within what rounding allows?

An entry agrees when |actual − truth| ≤ bar, one bar for a block (the gradient of one array for one cotangent):

    bar = rtol·max|truth| + 30·(w + f)            f = u·Σ|dy·y| / max|x|

w is how far the truth itself moves when every input moves by one unit u in its last place: a function that magnifies
rounding errors of its input has no digits beyond that to compare. f is the rounding of the output, seen from the input; in
a sharp function, whose truth moves by more than u of itself, intermediate results cancel, and f takes w/max|truth| for u.

Where many entries are compared along directions, all of this holds for their weighted sums. What would have been seen is
an error in one entry alone, times the smallest weight.

A block whose truth lies within its own bar is zero to rounding: what is compared there is the rounding of what cancels on
the way, and neither w nor f knows how large that is. Where such a block disagrees, its bar is widened by 30·v, v being how
far the backward's own result wanders between points close by, at all of which the truth is zero.

Where the bar is wide against the block, or for a zero block against f/u, the size that the gradient would have if nothing
cancelled, a real fault could hide in it, and agreement proves nothing.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from gradcheck.subject import Array

Verdict = Literal["pass", "fail", "inconclusive"]

MARGIN = 30.0
RESOLUTION = 1e-6  # a bar wider than this fraction of its block proves nothing


@dataclass(frozen=True)
class Judgement:
    verdict: Verdict
    n_wrong: int
    index: tuple[int, ...]  # of the worst entry
    ratio: float  # its error over the bar
    power: float  # the smallest error that would have been seen, over `size` (zero block: over `natural`)
    is_zero: bool = False  # to rounding


def bar_of(truth: Array, moved: Array | float, rounding: float, rtol: float) -> float:
    """The bar of a block: `moved` is w, entry by entry or its maximum, and `rounding` f."""
    bar = rtol * largest(truth) + MARGIN * (float(np.abs(moved).max(initial=0.0)) + rounding)
    return float("inf") if np.isnan(bar) else bar


def judge(
    actual: Array,
    truth: Array,
    bar: Array | float,
    natural: float = float("inf"),
    resolution: float = RESOLUTION,
    size: float | None = None,
) -> Judgement:
    """Compare one block. A NaN or an infinity on either side, or on both, is a failure.

    `bar` is that of the block, or one for each entry, where the truth has doubts of its own. `size` is that of the largest
    entry, unless given: along directions, what an error as large as that entry would make.
    """
    if truth.size == 0:
        return Judgement("pass", 0, (), 0.0, 0.0)
    error = distance(actual, truth)
    bars = np.broadcast_to(bar, truth.shape)
    n_wrong = int(np.count_nonzero(~(error <= bars) | np.isinf(error)))
    place = int(ratios(error, bars).argmax())
    index = tuple(map(int, np.unravel_index(place, truth.shape)))
    is_zero = bool((np.abs(truth) <= bars).all(where=np.isfinite(truth)))
    verdict: Verdict = "fail" if n_wrong else "pass"
    widest = float(bars.max())
    power = over(widest, natural if is_zero else largest(truth) if size is None else size)
    if verdict == "pass" and power > resolution:
        verdict = "inconclusive"
    return Judgement(verdict, n_wrong, index, over(float(error[index]), float(bars[index])), power, is_zero)


def ratios(error: Array, bar: Array | float) -> Array:
    """error / bar: 0 where there is no error, infinite where there is one and no bar."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio: Array = np.where(error == 0, 0.0, np.where(np.isinf(error), np.inf, error / bar))
    return ratio


def over(part: float, whole: float) -> float:
    """part / whole, where 0/0 is 0 and an infinite part is infinitely large."""
    if part == 0 or (np.isinf(whole) and np.isfinite(part)):
        return 0.0
    return part / whole if whole and np.isfinite(part) else float("inf")


def distance(actual: Array, truth: Array) -> Array:
    """|actual − truth|, infinite where one of them is not a number."""
    numbers = np.isfinite(actual) & np.isfinite(truth)
    with np.errstate(over="ignore"):
        error: Array = np.abs(np.subtract(actual, truth, out=np.full(truth.shape, np.inf), where=numbers))
    return error


def largest(array: Array) -> float:
    """The largest size of an entry that is a number; 0 if there is none."""
    return float(np.abs(array).max(initial=0.0, where=np.isfinite(array)))
