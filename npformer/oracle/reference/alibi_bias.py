"""Attention that falls with distance, as a bias."""

from npformer.oracle.reference.alibi_slopes import alibi_slopes
from npformer.oracle.reference.nested import Nested


def alibi_bias(n_heads: int, T: int, S: int, offset: int = 0, number: type = float) -> Nested:
    """y[0][h][i][j] = −slopeₕ · |i + offset − j|; y (1,H,T,S)        Press, Smith and Lewis 2022, section 3"""
    slopes = alibi_slopes(n_heads, number)
    return [[[[-slope * abs(i + offset - j) for j in range(S)] for i in range(T)] for slope in slopes]]
