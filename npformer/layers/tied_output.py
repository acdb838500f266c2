"""Logits by the table of the embedding: a token is likely where the features point the way of its row.

    y = x Eᵀ        dx = dy E        dE = dyᵀ x, added to what the embedding's own backward adds

Source: Press and Wolf 2017, section 2.
"""

from npformer.functional import linear
from npformer.layers.embedding import Embedding
from npformer.layers.layer import Layer
from npformer.operation import Array, Backward


class TiedOutput(Layer):
    """x (..., d_model) → y (..., vocab_size), with `embedding`'s table and no parameter of its own."""

    def __init__(self, embedding: Embedding) -> None:
        self.table = embedding.table

    def forward(self, x: Array) -> tuple[Array, Backward]:
        y, linear_backward = linear(x, self.table.value.T)  # (..., D)(D,V) → (..., V)

        def backward(dy: Array) -> Array:
            dx, dweight = linear_backward(dy)
            self.table.grad += dweight.T  # (D,V) → (V,D)
            return dx

        return y, backward
