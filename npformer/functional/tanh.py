"""The hyperbolic tangent, which takes the real line to the interval from −1 to 1.

    tanh(x) = (exp(x) − exp(−x)) / (exp(x) + exp(−x))        dtanh/dx = 1 − tanh(x)² = 4·σ(2x)·σ(−2x)

The two forms of the slope are equal, 1 − tanh = 2·σ(−2x) and 1 + tanh = 2·σ(2x), but not in a computer: at x = 10 the
first subtracts from 1 a number that agrees with it in eight digits, and the second subtracts nothing.

Source: LeCun, Bottou, Orr and Müller 1998, section 4.4.
"""

import numpy as np

from npformer.functional.sigmoid import logistic
from npformer.operation import Array, Backward, operation


@operation(x="...")
def tanh(x: Array) -> tuple[Array, Backward]:
    """The hyperbolic tangent of each entry: x (...) → y (...), and backward(dy) → dx (...)."""
    y = np.tanh(x)

    def backward(dy: Array) -> Array:
        dx: Array = dy * tanh_slope(x)
        return dx

    return y, backward


def tanh_slope(x: Array) -> Array:
    """dtanh/dx, the value alone."""
    slope: Array = 4 * logistic(2 * x) * logistic(-2 * x)
    return slope
