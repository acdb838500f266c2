"""The logarithm of softmax, without taking the softmax first.

    y_i = x_i − log Σ_j exp(x_j)

Backward. x_i moves its own y_i by one, and through the sum it moves every y: ∂(log Σ exp)/∂x_j = softmax_j. Hence

    dx_j = dy_j − softmax_j·Σ_i dy_i

The largest x is taken off first and never put back: c − log Σ exp(c) with c = x − max x is the same number. So nothing
overflows, rows with a large mean lose no digits, and an entry far below the largest keeps all of its own, where
log(softmax) would be log(0). An entry far above all others has a y that is nearly 0: with n entries at the maximum, which
add exactly n to the sum, log Σ = log n + log1p(the others / n) keeps its digits. Entries of −inf have y = −inf,
softmax 0 and so dx = dy, in a row of nothing else as well.

Source: Goodfellow, Bengio and Courville 2016, section 6.2.2.3.
"""

import numpy as np

from npformer.arguments import check_axis
from npformer.operation import Array, Backward, operation


@operation(x="...")
def log_softmax(x: Array, axis: int = -1) -> tuple[Array, Backward]:
    """log(softmax) along `axis`: x (...) → y (...), and backward(dy) → dx (...). ValueError for an axis that x lacks."""
    check_axis("log_softmax", axis, x)
    y = log_probabilities(x, axis)

    def backward(dy: Array) -> Array:
        dx: Array = dy - np.exp(y) * dy.sum(axis, keepdims=True)
        return dx

    return y, backward


def log_probabilities(x: Array, axis: int) -> Array:
    """log(softmax) along `axis`, the value alone."""
    top = x.real.max(axis, keepdims=True, initial=-np.inf)
    c = x - np.where(top == -np.inf, 0, top)
    e = np.exp(c)
    is_top = c.real == 0
    n = np.maximum(is_top.sum(axis, keepdims=True, dtype=x.real.dtype), 1)
    others = np.where(is_top, e - 1, e).sum(axis, keepdims=True)  # e − 1 is 0 for a real entry at the maximum
    y: Array = c - (np.log(n) + np.log1p(others / n))
    return y
