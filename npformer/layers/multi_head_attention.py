"""Multi-head attention: several heads attend, each to features of its own, and a last map mixes what they found.

    y = concat(attention(x W_Q, m W_K, m W_V) of every head) W_O + b_O        m = x, or the memory of cross-attention

Backward. The chain, from the last line to the first. In self-attention x enters three times, as what asks, what is asked
and what is taken, so its gradient is the sum of three; in cross-attention the memory's is the sum of two.

Source: Vaswani et al. 2017, section 3.2.2; fewer key and value heads: Ainslie et al. 2023.
"""

from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from npformer.arguments import check_count, check_probability
from npformer.functional import attention, merge_heads, split_heads
from npformer.layers.layer import Layer
from npformer.layers.linear import Linear
from npformer.layers.positions import ALiBi, RotaryPositions
from npformer.operation import Array


class MultiHeadAttention(Layer):
    """x (B,T,D) → y (B,T,D); with a memory (B,S,D), which the keys and values are then made of, cross-attention.

    d_head is d_model / n_heads unless given. Each of the n_kv_heads (n_heads unless given, which it divides) serves
    n_heads / n_kv_heads heads. `positions` turns queries and keys (RotaryPositions) or biases the scores (ALiBi).
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        d_head: int | None = None,
        n_kv_heads: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        positions: RotaryPositions | ALiBi | None = None,
        dtype: DTypeLike,
        rng: np.random.Generator,
    ) -> None:
        title = "MultiHeadAttention"
        rotary = isinstance(positions, RotaryPositions)
        self.n_heads, self.n_kv_heads, K = head_sizes(title, d_model, n_heads, d_head, n_kv_heads, rotary=rotary)
        if isinstance(positions, ALiBi) and positions.n_heads != n_heads:
            raise ValueError(f"{title}: positions are of {positions.n_heads} heads, but n_heads = {n_heads}")
        self.query = Linear(d_model, n_heads * K, bias=bias, dtype=dtype, rng=rng)
        self.key = Linear(d_model, self.n_kv_heads * K, bias=bias, dtype=dtype, rng=rng)
        self.value = Linear(d_model, self.n_kv_heads * K, bias=bias, dtype=dtype, rng=rng)
        self.output = Linear(n_heads * K, d_model, bias=bias, dtype=dtype, rng=rng)
        self.dropout = check_probability(title, "dropout", dropout)
        self.positions = positions

    def forward(
        self,
        x: Array,
        memory: Array | None = None,
        *,
        keep: Array | None = None,
        causal: bool | int | None = None,
        window: int | tuple[int, int] | None = None,
        rng: np.random.Generator | None = None,
    ) -> tuple[Array, Any]:
        """(y, backward), with `keep`, `causal` and `window` as in functional.attention.

        backward(dy) → dx, or (dx, dmemory) where a memory was given.
        """
        m = x if memory is None else memory
        q, query_backward = self.query.forward(x)  # (B,T,D) → (B,T,H·K)
        k, key_backward = self.key.forward(m)  # (B,S,D) → (B,S,G·K)
        v, value_backward = self.value.forward(m)  # (B,S,D) → (B,S,G·K)
        q, split_q_backward = split_heads(q, self.n_heads)  # (B,T,H·K) → (B,H,T,K)
        k, split_k_backward = split_heads(k, self.n_kv_heads)  # (B,S,G·K) → (B,G,S,K)
        v, split_v_backward = split_heads(v, self.n_kv_heads)  # (B,S,G·K) → (B,G,S,K)
        rotary = self.positions if isinstance(self.positions, RotaryPositions) else None
        alibi = self.positions if isinstance(self.positions, ALiBi) else None
        if rotary:
            q, turn_q_backward = rotary.forward(q)
            k, turn_k_backward = rotary.forward(k)
        bias = alibi.bias(q.shape[2], k.shape[2], x.dtype) if alibi else None  # (1,H,T,S)
        found, attention_backward = attention(
            q, k, v, keep=keep, bias=bias, causal=causal, window=window, dropout=self.dropout, rng=rng
        )
        found, merge_backward = merge_heads(found)  # (B,H,T,K) → (B,T,H·K)
        y, output_backward = self.output.forward(found)  # (B,T,H·K) → (B,T,D)

        def backward(dy: Array) -> Any:
            dq, dk, dv, *_ = attention_backward(merge_backward(output_backward(dy)))
            if rotary:
                dq, dk = turn_q_backward(dq), turn_k_backward(dk)
            dx = query_backward(split_q_backward(dq))
            dm = key_backward(split_k_backward(dk)) + value_backward(split_v_backward(dv))
            return dx + dm if memory is None else (dx, dm)

        return y, backward


def head_sizes(
    title: str, d_model: int, n_heads: int, d_head: int | None, n_kv_heads: int | None, *, rotary: bool
) -> tuple[int, int, int]:
    """H, G and K, with what is not given filled in. ValueError or TypeError where the sizes do not fit."""
    D = check_count(title, "d_model", d_model)
    H = check_count(title, "n_heads", n_heads)
    G = H if n_kv_heads is None else check_count(title, "n_kv_heads", n_kv_heads)
    if d_head is None and D % H:
        raise ValueError(f"{title}: n_heads = {H} does not divide d_model = {D}: give d_head")
    if H % G:
        raise ValueError(f"{title}: n_kv_heads = {G} does not divide n_heads = {H}")
    K = D // H if d_head is None else check_count(title, "d_head", d_head)
    if rotary and K % 2:
        raise ValueError(f"{title}: rotary positions turn pairs, so d_head must be even, got {K}")
    return H, G, K
