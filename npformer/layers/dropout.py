"""Dropout as a layer: it acts only where a generator is passed. The gradient is derived in functional/dropout.py."""

import numpy as np

from npformer.arguments import check_probability
from npformer.functional import dropout
from npformer.layers.layer import Layer
from npformer.operation import Array, Backward


class Dropout(Layer):
    """x (...) → y (...). Without `rng`, or with p = 0, y is x itself and dx is dy itself."""

    def __init__(self, p: float) -> None:
        self.p = check_probability("Dropout", "p", p)

    def forward(self, x: Array, rng: np.random.Generator | None = None) -> tuple[Array, Backward]:
        if rng is None or self.p == 0:
            return x, lambda dy: dy
        return dropout(x, self.p, rng)
