"""ALiBi: attention with linear biases. A key costs its query the more the further away it stands.

    bias[h, i, j] = −m_h·|i + offset − j|        m_h = 2^(−8(h + 1)/H) for H a power of two

Every head has a slope of its own, from steep (it looks near) to flat (it looks far). Where H is not a power of two, the
slopes of the next smaller power P come first, then every other slope of 2P. The paper looks back only; |·| lets a query
look ahead at the same price. A constant: no gradient.

Source: Press, Smith and Lewis 2022, section 3, and its published code for other numbers of heads.
"""

import numpy as np

from npformer.arguments import check_count, check_offset
from npformer.operation import Array


def alibi_slopes(n_heads: int) -> Array:
    """The slope of each head (n_heads,) in float64."""
    n_heads = check_count("alibi_slopes", "n_heads", n_heads)
    power = 1 << (n_heads.bit_length() - 1)  # the largest power of two that is no larger
    slopes = 2.0 ** (-8 * np.arange(1, power + 1) / power)
    between = 2.0 ** (-4 * np.arange(1, 2 * power + 1, 2) / power)  # every other slope of twice as many heads
    return np.concatenate([slopes, between[: n_heads - power]])


def alibi_bias(n_heads: int, T: int, S: int, offset: int = 0) -> Array:
    """The bias (1, n_heads, T, S) in float64, to be given to `attention` in the dtype of its query.

    Query i stands at position i + offset among the keys; a decoder that has seen S − T keys before passes offset = S − T,
    which is also its `causal`.
    """
    n_heads = check_count("alibi_bias", "n_heads", n_heads)
    T = check_count("alibi_bias", "T", T, low=0)
    S = check_count("alibi_bias", "S", S, low=0)
    offset = check_offset("alibi_bias", "offset", offset)
    distance = np.abs(np.arange(T)[:, None] + offset - np.arange(S))  # (T,S)
    bias: Array = -alibi_slopes(n_heads)[None, :, None, None] * distance
    return bias
