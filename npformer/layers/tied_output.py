"""Logits by the table of the embedding: a token is likely where the features point the way of its row.

    y = x Eᵀ + b        dx = dy E        dE = dyᵀ x, added to what the embedding's own backward adds

Source: Press and Wolf 2017, section 2.
"""

import numpy as np

from npformer.functional import linear
from npformer.layers.embedding import Embedding
from npformer.layers.layer import Layer
from npformer.layers.parameter import Parameter
from npformer.operation import Array, Backward


class TiedOutput(Layer):
    """x (..., d_model) → y (..., vocab_size), with `embedding`'s table; `bias` adds one (vocab_size,), which starts at 0."""

    def __init__(self, embedding: Embedding, *, bias: bool = False) -> None:
        self.table = embedding.table
        value = self.table.value
        self.bias = Parameter(np.zeros(len(value), value.dtype)) if bias else None

    def forward(self, x: Array) -> tuple[Array, Backward]:
        bias = self.bias.value if self.bias else None
        y, linear_backward = linear(x, self.table.value.T, bias)  # (..., D)(D,V) → (..., V)

        def backward(dy: Array) -> Array:
            dx, dweight, *dbias = linear_backward(dy)
            self.table.grad += dweight.T  # (D,V) → (V,D)
            if self.bias:
                self.bias.grad += dbias[0]
            return dx

        return y, backward
