"""Softmax: numbers made positive, and made to sum to one.

    y_i = exp(x_i) / Σ_j exp(x_j)

Backward. x_j moves its own y_j, and through the sum it moves every y_i: ∂y_i/∂x_j = y_i·([i = j] − y_j). Hence

    dx_j = Σ_i dy_i·y_i·([i = j] − y_j) = y_j·(dy_j − Σ_i dy_i·y_i)

The term taken off is the mean of dy under y. Softmax does not see a number added to all of x, so Σ dx = 0.

For the same reason the largest x may be taken off before exp, which then never overflows. A row that is −inf everywhere
has nothing to share out: its y and its dx are 0, and its dy is not read.

Source: Bridle 1990, "normalised exponential".
"""

import numpy as np

from npformer.arguments import check_axis
from npformer.operation import Array, Backward, operation


@operation(x="...")
def softmax(x: Array, axis: int = -1) -> tuple[Array, Backward]:
    """Softmax along `axis`: x (...) → y (...), and backward(dy) → dx (...). ValueError for an axis that x lacks."""
    check_axis("softmax", axis, x)
    top = x.real.max(axis, keepdims=True, initial=-np.inf)
    blank = top == -np.inf
    e = np.exp(x - np.where(blank, 0, top))
    total = e.sum(axis, keepdims=True)
    y = e / np.where(blank, 1, total)

    def backward(dy: Array) -> Array:
        if blank.any():
            dy = np.where(blank, 0, dy)
        dx: Array = y * (dy - (dy * y).sum(axis, keepdims=True))
        return dx

    return y, backward
