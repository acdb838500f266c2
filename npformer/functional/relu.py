"""The rectified linear unit: the positive part.

    y = max(x, 0)          dy/dx = 1 where x > 0, 0 where x ≤ 0

At x = 0 the slope jumps from 0 to 1. Any value between would be a subgradient; 0 is the field's choice. A NaN is neither
above 0 nor below it: it must come out as NaN, and not as the 0 of a comparison that failed.

Source: Nair and Hinton 2010.
"""

import numpy as np

from npformer.operation import Array, Backward, operation


@operation(x="...")
def relu(x: Array) -> tuple[Array, Backward]:
    """The positive part of each entry: x (...) → y (...), and backward(dy) → dx (...). The slope at 0 is 0."""
    off = x.real <= 0
    y = np.where(off, 0, x)

    def backward(dy: Array) -> Array:
        return np.where(off, 0, dy)

    return y, backward
