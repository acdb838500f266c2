"""Sinusoidal positions: every position is given a row of sines and cosines whose wavelengths grow along the row.

    PE[p, 2i] = sin(p / base^(2i/D))        PE[p, 2i + 1] = cos(p / base^(2i/D))

Shifting p by a fixed distance turns every pair (sin, cos) by a fixed angle, a linear map: that is how a model can read
distances off the rows. The table is a constant, and has no gradient.

Source: Vaswani et al. 2017, section 3.5.
"""

import numpy as np

from npformer.arguments import check_count, check_number
from npformer.operation import Array


def sinusoidal_positions(length: int, d_model: int, base: float = 10000.0) -> Array:
    """The table (length, d_model) in float64. An odd d_model ends with a sine that lacks its cosine."""
    length = check_count("sinusoidal_positions", "length", length, low=0)
    d_model = check_count("sinusoidal_positions", "d_model", d_model)
    base = check_number("sinusoidal_positions", "base", base, low=0)
    even = np.arange(0, d_model, 2)
    with np.errstate(over="ignore"):
        angles = np.arange(length)[:, None] * base ** (-even / d_model)  # (length, ⌈D/2⌉)
    table = np.empty((length, d_model))
    table[:, 0::2] = np.sin(angles)
    table[:, 1::2] = np.cos(angles[:, : d_model // 2])
    return table
