"""Where a token stands. Attention alone cannot tell: it is the same under any order of the keys.

    learned       a row for every position, added to the token's       Radford et al. 2018
    sinusoidal    the same with a constant table                       Vaswani et al. 2017, section 3.5
    rotary        queries and keys turned by their positions           Su et al. 2021
    ALiBi         a penalty on the scores that grows with distance     Press, Smith and Lewis 2022

The first two stand after the embedding, the other two in every attention. Where tokens stand is given as `positions`,
integers (T,) or (B, T): 0 … T − 1 unless a sequence is read in pieces or has padding. −1 is the position of no token.
"""

import numpy as np
from numpy.typing import DTypeLike

from npformer.arguments import check_count, check_integers, check_name, check_number
from npformer.functional import alibi_slopes, embedding, rotary, sinusoidal_positions
from npformer.layers.layer import Layer
from npformer.layers.parameter import Parameter
from npformer.operation import Array, Backward, Backwards, operation


class LearnedPositions(Layer):
    """x (B,T,D) → x + the rows of table (max_len, D) at `positions`; the table starts with variance 1. The position −1 adds
    nothing. ValueError for one past the table.
    """

    def __init__(self, max_len: int, d_model: int, *, dtype: DTypeLike, rng: np.random.Generator) -> None:
        check_count("LearnedPositions", "max_len", max_len)
        check_count("LearnedPositions", "d_model", d_model)
        self.table = Parameter.normal((max_len, d_model), 1.0, dtype, rng)

    def forward(self, x: Array, positions: Array | None = None) -> tuple[Array, Backward]:
        y, add_backward = add_rows(x, self.table.value, positions)

        def backward(dy: Array) -> Array:
            dx, dtable = add_backward(dy)
            self.table.grad += dtable
            return dx

        return y, backward


@operation(x="B T D", table="L D")
def add_rows(x: Array, table: Array, positions: Array | None) -> tuple[Array, Backwards]:
    """y_bt = x_bt + table_p with p the position of t, or nothing: a row's gradient is the sum over where it was added."""
    p = places("LearnedPositions", x, positions)
    if p.max(initial=-1) >= len(table):
        raise ValueError(f"LearnedPositions: x reaches to position {p.max()}, the table to {len(table) - 1}")
    there = (p >= 0)[..., None]  # (T,1) or (B,T,1)
    rows, rows_backward = embedding(np.maximum(p, 0), table)  # (T,D) or (B,T,D)

    def backward(dy: Array) -> tuple[Array, ...]:
        drows = dy.sum(0) if p.ndim == 1 else dy  # (B,T,D) → (T,D): one row serves the whole batch
        return dy, rows_backward(np.where(there, drows, 0))

    return x + np.where(there, rows, 0), backward


def places(title: str, x: Array, positions: Array | None) -> Array:
    """`positions` for x (B, …, T, width), checked; 0 … T − 1 for None."""
    B, T = x.shape[0], x.shape[-2]
    if positions is None:
        return np.arange(T)
    check_integers(title, "positions", positions)
    if positions.shape not in ((T,), (B, T)) or positions.min(initial=0) < -1:
        shapes = f"(T,) = {(T,)} or (B, T) = {(B, T)}"
        raise ValueError(f"{title}: positions must have the shape {shapes} and none below -1, got {positions.shape}")
    return positions


class SinusoidalPositions(Layer):
    """x (B,T,D) → x + the rows of a constant table, whose entries have the size 1, at `positions`. The position −1 adds
    nothing. Rows of small embeddings drown in it: the paper multiplies those by √d_model (Embedding's scale).
    """

    def __init__(self, *, base: float = 10000.0) -> None:
        self.base = check_number("SinusoidalPositions", "base", base, low=0)

    def forward(self, x: Array, positions: Array | None = None) -> tuple[Array, Backward]:
        return add_sinusoids(x, positions, self.base)


@operation(x="B T D")
def add_sinusoids(x: Array, positions: Array | None, base: float) -> tuple[Array, Backward]:
    """y = x + a constant, so dx = dy."""
    p = places("SinusoidalPositions", x, positions)
    table = sinusoidal_positions(int(p.max(initial=0)) + 1, x.shape[2], base).astype(x.dtype)
    y = x + np.where((p >= 0)[..., None], table[p], 0)

    def backward(dy: Array) -> Array:
        return dy

    return y, backward


class RotaryPositions(Layer):
    """x (B,H,T,K) → x, each token turned by its position; for queries and keys alike."""

    def __init__(self, *, base: float = 10000.0, layout: str = "half") -> None:
        self.base = check_number("RotaryPositions", "base", base, low=0)
        check_name("RotaryPositions", "layout", layout, ("half", "interleaved"))
        self.layout = layout

    def forward(self, x: Array, positions: Array | None = None) -> tuple[Array, Backward]:
        p = places("RotaryPositions", x, positions)
        return rotary(x, p if p.ndim == 1 else p[:, None], self.base, self.layout)  # (B,T) → (B,1,T)


class ALiBi:
    """The bias on attention's scores, a constant without parameters."""

    def __init__(self, n_heads: int) -> None:
        self.n_heads = check_count("ALiBi", "n_heads", n_heads)

    def bias(self, query_positions: Array, key_positions: Array, dtype: DTypeLike) -> Array:
        """−m_h·|i − j| with the positions i of the queries and j of the keys: (T,) and (S,) → (1, H, T, S), or where one of
        them is (B, T) or (B, S) → (B, H, T, S). m is alibi_slopes(n_heads).
        """
        distance = np.abs(query_positions[..., :, None] - key_positions[..., None, :])  # (T,S) or (B,T,S)
        distance = distance[None, None] if distance.ndim == 2 else distance[:, None]  # → (1 or B,1,T,S)
        bias: Array = -alibi_slopes(self.n_heads)[:, None, None] * distance
        return bias.astype(dtype)
