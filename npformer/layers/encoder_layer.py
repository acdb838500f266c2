"""One layer of an encoder: every position looks at all, then thinks for itself.

Source: Vaswani et al. 2017, section 3.1.
"""

import numpy as np

from npformer.layers.layer import Layer
from npformer.layers.residual import Residual
from npformer.operation import Array, Backward


class EncoderLayer(Layer):
    """x (B,T,D) → y (B,T,D): self-attention and a feed-forward network, each inside a residual.

    `keep` is as in functional.attention, `positions` as in MultiHeadAttention.
    """

    def __init__(self, attention: Residual, feed_forward: Residual) -> None:
        self.attention = attention
        self.feed_forward = feed_forward

    def forward(
        self,
        x: Array,
        *,
        keep: Array | None = None,
        positions: Array | None = None,
        rng: np.random.Generator | None = None,
    ) -> tuple[Array, Backward]:
        x, attention_backward = self.attention.forward(x, keep=keep, positions=positions, rng=rng)
        y, feed_forward_backward = self.feed_forward.forward(x, rng=rng)

        def backward(dy: Array) -> Array:
            dx: Array = attention_backward(feed_forward_backward(dy))
            return dx

        return y, backward
