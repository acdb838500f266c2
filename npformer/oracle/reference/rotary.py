"""Positions as rotations: pairs of features turn, each pair at its own speed."""

from npformer.oracle.reference.elementary import Number, cos, sin
from npformer.oracle.reference.nested import Nested, depth, is_empty, kind_of


def rotary(x: Nested, positions: Nested, base: Number = 10000.0, layout: str = "half") -> Nested:
    """(a, b) → (a cos φ − b sin φ, a sin φ + b cos φ), where φ = p · base^(−2i/K)        Su et al. 2021, section 3.2.2

    for pair i at position p. x (..., T, K); positions (T), or the axes of x without the last, each of size 1 or full.
    Pair i is entries i and i + K/2 in layout "half", 2i and 2i + 1 in layout "interleaved", which is the paper's.
    """
    if is_empty(x):
        return x
    if depth(positions) < depth(x) - 1:
        return [rotary(part, positions, base, layout) for part in x]
    if depth(x) > 1:
        shared = len(positions) == 1
        return [rotary(part, positions[0 if shared else n], base, layout) for n, part in enumerate(x)]

    number, K = kind_of(x), len(x)
    y = list(x)
    for i in range(K // 2):
        a, b = (i, i + K // 2) if layout == "half" else (2 * i, 2 * i + 1)
        angle = positions * number(base) ** (number(-2 * i) / K)
        y[a] = x[a] * cos(angle) - x[b] * sin(angle)
        y[b] = x[a] * sin(angle) + x[b] * cos(angle)
    return y
