"""The decision: do a gradient's numbers agree with the truth, within what rounding allows?

An entry agrees when |actual − truth| ≤ bar, one bar for a block (the gradient of one array for one cotangent):

    bar = rtol·max|truth| + 30·(w + f)            f = u·Σ|dy·y| / max|x|

w is how far the truth itself moves when every input moves by one unit u in its last place: a function that magnifies
rounding errors of its input has no digits beyond that to compare. f is the rounding of the output, seen from the input.
Where the bar is wide against the block, a real fault could hide in it, and agreement proves nothing.
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
    power: float  # the smallest error that would have been seen, over the largest entry; 0 for a block that is zero


def bar_of(truth: Array, moved: Array | float, rounding: float, rtol: float) -> float:
    """The bar of a block: `moved` is w, entry by entry or its maximum, and `rounding` f."""
    return rtol * largest(truth) + MARGIN * (largest(np.asarray(moved)) + rounding)


def judge(actual: Array, truth: Array, bar: float) -> Judgement:
    """Compare one block. A NaN or an infinity on either side, or on both, is a failure."""
    if truth.size == 0:
        return Judgement("pass", 0, (), 0.0, 0.0)
    with np.errstate(invalid="ignore"):
        error = np.abs(actual - truth)
    error = np.where(np.isfinite(actual) & np.isfinite(truth), error, np.inf)
    wrong = ~(error <= bar) | ~np.isfinite(error)
    n_wrong = int(np.count_nonzero(wrong))
    place = int(error.argmax())
    index = tuple(map(int, np.unravel_index(place, truth.shape)))
    worst = float(error.reshape(-1)[place])
    ratio = worst / bar if bar else (0.0 if worst == 0 else float("inf"))
    size = largest(truth)
    power = 0.0 if size <= bar else bar / size  # size ≤ bar: zero to rounding
    verdict: Verdict = "fail" if n_wrong else "inconclusive" if power > RESOLUTION else "pass"
    return Judgement(verdict, n_wrong, index, ratio, power)


def largest(array: Array) -> float:
    return float(np.abs(array).max(initial=0.0))
