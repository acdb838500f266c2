"""A table with a row for every id. The gradient is derived in functional/embedding.py; a scale multiplies it as well."""

import numpy as np
from numpy.typing import DTypeLike

from npformer.arguments import check_count, check_number
from npformer.functional import embedding
from npformer.layers.layer import Layer
from npformer.layers.parameter import Parameter
from npformer.operation import Array, LastBackward


class Embedding(Layer):
    """ids (...) integers in 0 … vocab_size − 1 → y (..., d_model). backward(dy) returns None: ids have no gradient.

    y is `scale` times the id's row of table (vocab_size, d_model), which starts with variance 1. The row of `padding_id`
    gets no gradient.
    """

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        padding_id: int | None = None,
        *,
        scale: float = 1.0,
        dtype: DTypeLike,
        rng: np.random.Generator,
    ) -> None:
        check_count("Embedding", "vocab_size", vocab_size)
        check_count("Embedding", "d_model", d_model)
        if padding_id is not None:
            check_count("Embedding", "padding_id", padding_id, low=0, high=vocab_size - 1)
        self.table = Parameter.normal((vocab_size, d_model), 1.0, dtype, rng)
        self.padding_id = padding_id
        self.scale = check_number("Embedding", "scale", scale)

    def forward(self, ids: Array) -> tuple[Array, LastBackward]:
        rows, embedding_backward = embedding(ids, self.table.value, self.padding_id)

        def backward(dy: Array) -> None:
            self.table.grad += embedding_backward(self.scale * dy)

        return self.scale * rows, backward
