"""Positions as waves, from fast to slow."""

from npformer.oracle.reference.elementary import Number, cos, sin
from npformer.oracle.reference.nested import Nested


def sinusoidal_positions(length: int, d_model: int, base: Number = 10000.0, number: type = float) -> Nested:
    """y[p][2i] = sin(p / base^(2i/D)), y[p][2i + 1] = cos(p / base^(2i/D))        Vaswani et al. 2017, section 3.5"""

    def wave(p: int, column: int) -> Number:
        i = column // 2
        angle = p / number(base) ** (number(2 * i) / d_model)
        return sin(angle) if column % 2 == 0 else cos(angle)

    return [[wave(p, column) for column in range(d_model)] for p in range(length)]  # (length,D)
