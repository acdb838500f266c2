"""Multi-head attention: several heads attend, each to features of its own, and a last map mixes what they found.

    y = concat(attention(x W_Q, m W_K, m W_V) of every head) W_O + b_O        m = x, or the memory of cross-attention

Backward. The chain, from the last line to the first. In self-attention x enters three times, as what asks, what is asked
and what is taken, so its gradient is the sum of three; in cross-attention the memory's is the sum of two.

With a cache the keys and values of earlier tokens stand before those of x, and those of x will be seen by later tokens: the
earlier ones are inputs and all of them outputs, so that backward takes what the later tokens owe to the keys and values so
far, and returns what is owed to the earlier ones (kv_cache.py).

Source: Vaswani et al. 2017, section 3.2.2; fewer key and value heads: Ainslie et al. 2023.
"""

from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from npformer.arguments import check_count, check_probability
from npformer.functional import attention, merge_heads, split_heads
from npformer.functional.visibility import four_axes, visible_positions
from npformer.layers.kv_cache import KVCache
from npformer.layers.layer import Layer
from npformer.layers.linear import Linear
from npformer.layers.positions import ALiBi, RotaryPositions, places
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
        positions: Array | None = None,
        cache: KVCache | None = None,
        rng: np.random.Generator | None = None,
    ) -> tuple[Array, Any]:
        """(y, backward), with `keep`, `causal` and `window` as in functional.attention.

        positions  where the tokens of x stand, integers (T,) or (B, T), −1 for hidden ones: 0 … T − 1 unless given, or what
                   comes next in `cache`. `causal` (True) and `window` then go by position
        cache      the keys and values of earlier tokens, to which those of x are added

        backward(dy) → dx, or (dx, dmemory) where a memory was given. With a cache, backward(dy, dkeys, dvalues) → dx, and
        dkeys and dvalues of the earlier tokens; those that it takes are what later tokens owe to all keys and values so far,
        and are left out where there are none.
        """
        if memory is not None and cache is not None:
            raise ValueError("MultiHeadAttention: a cache is for self-attention, and memory was given too")
        m = x if memory is None else memory
        q, query_backward = self.query.forward(x)  # (B,T,D) → (B,T,H·K)
        k, key_backward = self.key.forward(m)  # (B,S,D) → (B,S,G·K)
        v, value_backward = self.value.forward(m)  # (B,S,D) → (B,S,G·K)
        q, split_q_backward = split_heads(q, self.n_heads)  # (B,T,H·K) → (B,H,T,K)
        k, split_k_backward = split_heads(k, self.n_kv_heads)  # (B,S,G·K) → (B,G,S,K)
        v, split_v_backward = split_heads(v, self.n_kv_heads)  # (B,S,G·K) → (B,G,S,K)
        by_position = cache is not None or positions is not None
        if positions is None and cache is not None:
            positions = cache.next_positions(q.shape[2])
        positions = places("MultiHeadAttention", q, positions)
        if cache is not None:
            keep_rows = positions >= 0 if positions.ndim == 2 else None
            if not np.array_equal(positions, cache.next_positions(q.shape[2], keep_rows)):
                raise ValueError("MultiHeadAttention: positions are not those that come next in the cache")
        key_positions = positions if memory is None else np.arange(k.shape[2])
        rotary = self.positions if isinstance(self.positions, RotaryPositions) else None
        alibi = self.positions if isinstance(self.positions, ALiBi) else None
        if rotary:
            q, turn_q_backward = rotary.forward(q, positions)
            k, turn_k_backward = rotary.forward(k, key_positions)
        if cache is not None:
            (k, v), append_backward = cache.append(k, v, keep_rows)  # (B,G,S,K) of all
            key_positions = cache.positions
        if by_position:
            seen = visible_positions("MultiHeadAttention", positions, key_positions, causal, window)
            if keep is not None:
                sizes = (len(q), self.n_heads, q.shape[2], k.shape[2])
                seen = seen & four_axes("MultiHeadAttention", "keep", keep, sizes)
            keep, causal, window = seen, None, None
        bias = alibi.bias(positions, key_positions, x.dtype) if alibi else None  # (1 or B,H,T,S)
        found, attention_backward = attention(
            q, k, v, keep=keep, bias=bias, causal=causal, window=window, dropout=self.dropout, rng=rng
        )
        found, merge_backward = merge_heads(found)  # (B,H,T,K) → (B,T,H·K)
        y, output_backward = self.output.forward(found)  # (B,T,H·K) → (B,T,D)
        if cache is not None and cache.no_backward:
            return y, append_backward

        def backward(dy: Array, *later: Array) -> Any:
            for d in later:
                if d.shape != k.shape:
                    owed = f"what later tokens owe to keys and values must have the shape {k.shape}, got {d.shape}"
                    raise ValueError(f"MultiHeadAttention: {owed}")
            dq, dk, dv, *_ = attention_backward(merge_backward(output_backward(dy)))
            if cache is not None:
                if later:
                    dk, dv = dk + later[0], dv + later[1]
                *earlier, dk, dv = append_backward(dk, dv)
            if rotary:
                dq, dk = turn_q_backward(dq), turn_k_backward(dk)
            dx = query_backward(split_q_backward(dq))
            dm = key_backward(split_k_backward(dk)) + value_backward(split_v_backward(dv))
            if memory is not None:
                return dx, dm
            return (dx + dm, *earlier) if cache is not None else dx + dm

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
