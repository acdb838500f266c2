"""Clipping: a gradient longer than a limit is shortened to it, and keeps its direction.

    g ← g·min(1, limit/‖g‖)                ‖g‖ over all parameters together

Source: Pascanu, Mikolov and Bengio 2013, algorithm 1.
"""

import math

import numpy as np

from npformer.operation import Array


def clip_by_norm(gradients: Array, limit: float) -> float:
    """Shorten `gradients` (n,), in place, to the length `limit`; the length before. One that is not finite is left."""
    unit = 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        length = math.sqrt(np.dot(gradients, gradients))
        if math.isinf(length):  # the squares overflow: measure in units of the largest entry
            unit = float(np.abs(gradients).max())
            scaled = gradients / unit
            length = math.sqrt(np.dot(scaled, scaled))
    norm = unit * length
    if limit < norm < math.inf:
        if unit != 1:
            gradients /= unit  # limit / norm at once could be too small a number
        gradients *= limit / length
    return norm
