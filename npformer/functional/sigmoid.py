"""The logistic function, which takes the real line to the interval from 0 to 1.

    σ(x) = 1 / (1 + exp(−x))         σ(−x) = 1 − σ(x)         dσ/dx = σ(x)·σ(−x)

On the far left exp(−x) overflows to infinity, and 1/∞ = 0 is right but for numbers too small to matter. The slope is the
quotient rule, exp(−x)/(1 + exp(−x))², written as a product: σ(−x) is computed as such, since 1 − σ(x) would be 0 as soon as
σ(x) has rounded to 1.

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
    e = np.exp(-x)
    y: Array = 1 / (1 + e)
    return np.where(np.isposinf(e.real), 0, y) if np.iscomplexobj(y) else y  # complex division makes NaN of 1/∞
