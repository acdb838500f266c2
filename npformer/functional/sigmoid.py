"""The logistic function, which takes the real line to the interval from 0 to 1.

    σ(x) = 1 / (1 + exp(−x))         σ(−x) = 1 − σ(x)         dσ/dx = σ(x)·σ(−x)

exp(−x) overflows on the far left. With e = exp(−|x|), which never exceeds 1, σ(x) is 1/(1 + e) on the right and, after
multiplying above and below by exp(x), e/(1 + e) on the left. The slope is the quotient rule, exp(−x)/(1 + exp(−x))²,
written as a product: σ(−x) is computed as such, since 1 − σ(x) would be 0 as soon as σ(x) has rounded to 1.

Source: Rumelhart, Hinton and Williams 1986 (Nature 323), equations 2 and 5.
"""

import numpy as np

from npformer.operation import Array, Backward, operation


@operation(x="...")
def sigmoid(x: Array) -> tuple[Array, Backward]:
    """The logistic function of each entry: x (...) → y (...), and backward(dy) → dx (...)."""
    y = logistic(x)

    def backward(dy: Array) -> Array:
        dx: Array = dy * y * logistic(-x)
        return dx

    return y, backward


def logistic(x: Array) -> Array:
    """σ(x), the value alone."""
    right = x.real >= 0
    e = np.exp(np.where(right, -x, x))
    y: Array = np.where(right, 1, e) / (1 + e)
    return y
