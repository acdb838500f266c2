"""Which query sees which key: the four masks in one place."""

import math

from npformer.oracle.reference.nested import Nested, at


def may_attend(
    b: int,
    h: int,
    i: int,
    j: int,
    *,
    keep: Nested = None,
    bias: Nested = None,
    causal: int | None = None,
    window: int | tuple[int, int] | None = None,
) -> bool:
    """Whether query i of head h in batch b sees key j, which it does unless a mask forbids it.

    keep (T,S) or four axes: where it is False, no. bias likewise: where it is −∞, no.
    causal c: keys j ≤ i + c; True is c = 0, None and False are off (and 0 is not off).
    window (left, right): keys i + c − left … i + c + right; W is (W − 1, 0).
    """
    if keep is not None and not at(keep, b, h, i, j):
        return False
    if bias is not None and at(bias, b, h, i, j) == -math.inf:
        return False
    is_causal = causal is not None and causal is not False
    c = 0 if causal is None or isinstance(causal, bool) else causal  # True is an int, and means 0
    if is_causal and j > i + c:
        return False
    if window is None:
        return True
    left, right = (window - 1, 0) if isinstance(window, int) else window
    return i + c - left <= j <= i + c + right
