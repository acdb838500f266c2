"""GELU with a tanh in place of the normal distribution: GPT-2's activation.

    y = x·½·(1 + tanh(u)) = x·σ(2u)                  2u = 2·√(2/π)·(x + 0.044715·x³)
    dy/dx = σ(2u) + x·σ(2u)·σ(−2u)·d(2u)/dx          d(2u)/dx = 2·√(2/π)·(1 + 3·0.044715·x²)

½·(1 + tanh(u)) is the logistic of 2u, and is computed as that: on the left 1 + tanh(u) would cancel. The rest is the
product rule, with the chain rule through u.

Source: Hendrycks and Gimpel 2016, section 2.
"""

import math

import numpy as np

from npformer.functional.sigmoid import logistic
from npformer.operation import Array, Backward, operation

SLOPE = 2 * math.sqrt(2 / math.pi)
CUBIC = 0.044715


@operation(x="...")
def gelu_tanh(x: Array) -> tuple[Array, Backward]:
    """The tanh form of GELU of each entry: x (...) → y (...), and backward(dy) → dx (...).

    PyTorch's gelu(approximate="tanh"). The exact function is `gelu`; they differ by up to 5e-4.
    """
    square = x * x
    v = x * (SLOPE + SLOPE * CUBIC * square)  # 2u
    gate = logistic(v)
    y = x * gate

    def backward(dy: Array) -> Array:
        dv = SLOPE + 3 * SLOPE * CUBIC * np.minimum(square, 1e4)  # beyond, the gate is flat, and 0·inf would be NaN
        dx: Array = dy * (gate + y * logistic(-v) * dv)
        return dx

    return y, backward
