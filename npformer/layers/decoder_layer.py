"""One layer of a decoder: every position looks back, then at what the encoder has read, then thinks for itself.

Source: Vaswani et al. 2017, section 3.1; without an encoder to look at: Liu et al. 2018, section 4.2.1.
"""

from typing import Any

import numpy as np

from npformer.layers.kv_cache import KVCache
from npformer.layers.layer import Layer
from npformer.layers.residual import Residual
from npformer.operation import Array


class DecoderLayer(Layer):
    """x (B,T,D) → y (B,T,D): causal self-attention, cross-attention to a memory (B,S,D) where there is one, and a
    feed-forward network, each inside a residual. With `window` = W a position sees W positions, its own included.
    """

    def __init__(
        self,
        attention: Residual,
        feed_forward: Residual,
        cross_attention: Residual | None = None,
        *,
        window: int | None = None,
    ) -> None:
        self.attention = attention
        self.cross_attention = cross_attention
        self.feed_forward = feed_forward
        self.window = window

    def forward(
        self,
        x: Array,
        memory: Array | None = None,
        *,
        memory_keep: Array | None = None,
        positions: Array | None = None,
        cache: KVCache | None = None,
        rng: np.random.Generator | None = None,
    ) -> tuple[Array, Any]:
        """(y, backward), with `positions` and `cache` as in MultiHeadAttention; `memory_keep` is cross-attention's `keep`.

        backward(dy), or with a cache backward(dy, dkeys, dvalues), → dx, then dmemory where a memory was given, then dkeys
        and dvalues of the earlier tokens where a cache was: a tuple, if there is more than dx.
        """
        if (memory is None) != (self.cross_attention is None):
            what = "needs a memory" if memory is None else "has no cross-attention for a memory"
            raise ValueError(f"DecoderLayer: the layer {what}")
        x, attention_backward = self.attention.forward(
            x, causal=True, window=self.window, positions=positions, cache=cache, rng=rng
        )
        if self.cross_attention and memory is not None:
            x, cross_backward = self.cross_attention.forward(x, memory, keep=memory_keep, rng=rng)
        y, feed_forward_backward = self.feed_forward.forward(x, rng=rng)
        if cache is not None and cache.no_backward:
            return y, attention_backward  # which says so

        def backward(dy: Array, *later: Array) -> Any:
            dx = feed_forward_backward(dy)
            dmemory: Any = ()
            if self.cross_attention:
                dx, *dmemory = cross_backward(dx)
            if cache is None:
                dx = attention_backward(dx)
                return (dx, *dmemory) if dmemory else dx
            dx, *earlier = attention_backward(dx, *later)
            return dx, *dmemory, *earlier

        return y, backward
