"""Where a token stands. Attention alone cannot tell: it is the same under any order of the keys.

    learned       a row for every position, added to the token's       Radford et al. 2018
    sinusoidal    the same with a constant table                       Vaswani et al. 2017, section 3.5
    rotary        queries and keys turned by their positions           Su et al. 2021
    ALiBi         a penalty on the scores that grows with distance     Press, Smith and Lewis 2022

The first two stand after the embedding, the other two in every attention.
"""

import numpy as np
from numpy.typing import DTypeLike

from npformer.arguments import check_count, check_name, check_number
from npformer.functional import alibi_bias, rotary, sinusoidal_positions
from npformer.layers.layer import Layer
from npformer.layers.parameter import Parameter
from npformer.operation import Array, Backward, Backwards, operation


class LearnedPositions(Layer):
    """x (B,T,D) → x + the first T rows of table (max_len, D), which starts with variance 1. ValueError where T > max_len."""

    def __init__(self, max_len: int, d_model: int, *, dtype: DTypeLike, rng: np.random.Generator) -> None:
        check_count("LearnedPositions", "max_len", max_len)
        check_count("LearnedPositions", "d_model", d_model)
        self.table = Parameter.normal((max_len, d_model), 1.0, dtype, rng)

    def forward(self, x: Array) -> tuple[Array, Backward]:
        y, add_backward = add_first_rows(x, self.table.value)

        def backward(dy: Array) -> Array:
            dx, dtable = add_backward(dy)
            self.table.grad += dtable
            return dx

        return y, backward


@operation(x="B T D", table="L D")
def add_first_rows(x: Array, table: Array) -> tuple[Array, Backwards]:
    """y_bt = x_bt + table_t: a row serves the whole batch, so its gradient is the sum over it."""
    T, max_len = x.shape[1], len(table)
    if max_len < T:
        raise ValueError(f"LearnedPositions: x has {T} positions, the table {max_len}")

    def backward(dy: Array) -> tuple[Array, ...]:
        dtable = np.zeros_like(table)
        dtable[:T] = dy.sum(0)  # (B,T,D) → (T,D)
        return dy, dtable

    return x + table[:T], backward


class SinusoidalPositions(Layer):
    """x (B,T,D) → scale·x + the constant table (T,D), whose entries have the size 1.

    The paper's scale is √d_model, so that rows of small embeddings do not drown in the table.
    """

    def __init__(self, *, scale: float = 1.0, base: float = 10000.0) -> None:
        self.scale = check_number("SinusoidalPositions", "scale", scale)
        self.base = check_number("SinusoidalPositions", "base", base, low=0)

    def forward(self, x: Array) -> tuple[Array, Backward]:
        return add_sinusoids(x, self.scale, self.base)


@operation(x="B T D")
def add_sinusoids(x: Array, scale: float, base: float) -> tuple[Array, Backward]:
    """y = scale·x + a constant, so dx = scale·dy."""

    def backward(dy: Array) -> Array:
        dx: Array = scale * dy
        return dx

    return scale * x + sinusoidal_positions(x.shape[1], x.shape[2], base).astype(x.dtype), backward


class RotaryPositions(Layer):
    """x (B,H,T,K) → x, position t turned by t; for queries and keys alike."""

    def __init__(self, *, base: float = 10000.0, layout: str = "half") -> None:
        self.base = check_number("RotaryPositions", "base", base, low=0)
        check_name("RotaryPositions", "layout", layout, ("half", "interleaved"))
        self.layout = layout

    def forward(self, x: Array) -> tuple[Array, Backward]:
        return rotary(x, np.arange(x.shape[-2]), self.base, self.layout)


class ALiBi:
    """The bias (1, n_heads, T, S) on attention's scores, a constant without parameters."""

    def __init__(self, n_heads: int) -> None:
        self.n_heads = check_count("ALiBi", "n_heads", n_heads)

    def bias(self, T: int, S: int, dtype: DTypeLike) -> Array:
        return alibi_bias(self.n_heads, T, S).astype(dtype)
