"""The Gaussian error linear unit: the input, times the probability that a standard normal number lies below it.

    y = x·Φ(x)             Φ(x) = ½·erfc(−x/√2)             dy/dx = Φ(x) + x·φ(x)             φ(x) = exp(−x²/2) / √(2π)

The product rule: Φ held still, then Φ's own slope, which is the normal density φ. Φ is also ½·(1 + erf(x/√2)), but on the
left that adds to 1 a number near −1: at x = −9 all digits are lost. The complement erfc has nothing to cancel.

Source: Hendrycks and Gimpel 2016, section 2.
"""

import math

import numpy as np

from npformer.functional.error_function import erfc
from npformer.operation import Array, Backward, operation


@operation(x="...")
def gelu(x: Array) -> tuple[Array, Backward]:
    """The exact GELU of each entry: x (...) → y (...), and backward(dy) → dx (...).

    The tanh form, which GPT-2 uses, is another function: `gelu_tanh`. Their slopes differ by up to 9e-4.
    """
    below = 0.5 * erfc(-x / math.sqrt(2))
    y = x * below

    def backward(dy: Array) -> Array:
        density = np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
        dx: Array = dy * (below + x * density)
        return dx

    return y, backward
