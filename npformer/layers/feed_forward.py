"""The position-wise feed-forward network: two linear maps with a bend between them.

    y = f(x W₁ + b₁) W₂ + b₂                                   Vaswani et al. 2017, section 3.3

The gated kind bends one half and lets it open and close the other, entry by entry:

    y = (silu(x W_g + b_g)·(x W₁ + b₁)) W₂ + b₂                Shazeer 2020, equation 6 ("SwiGLU")

so that each half's gradient is the product's times the other half.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import DTypeLike

from npformer.functional import silu
from npformer.layers.dropout import Dropout
from npformer.layers.layer import Layer
from npformer.layers.linear import Linear
from npformer.operation import Array, Backward


class FeedForward(Layer):
    """Widen every position from d_model to d_ff, bend it with `activation`, and bring it back: x (B,T,D) → y (B,T,D).

    `activation` is relu, gelu, gelu_tanh, silu or another of their kind. `dropout` acts after it, as in PyTorch's layers;
    the papers have none there.
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        activation: Callable[[Array], tuple[Array, Backward]],
        *,
        bias: bool = True,
        dropout: float = 0.0,
        dtype: DTypeLike,
        rng: np.random.Generator,
    ) -> None:
        self.widen = Linear(d_model, d_ff, bias=bias, dtype=dtype, rng=rng)
        self.activation = activation
        self.dropout = Dropout(dropout)
        self.narrow = Linear(d_ff, d_model, bias=bias, dtype=dtype, rng=rng)

    def forward(self, x: Array, rng: np.random.Generator | None = None) -> tuple[Array, Backward]:
        wide, widen_backward = self.widen.forward(x)  # (B,T,D) → (B,T,F)
        bent, bend_backward = self.activation(wide)
        kept, drop_backward = self.dropout.forward(bent, rng)
        y, narrow_backward = self.narrow.forward(kept)  # (B,T,F) → (B,T,D)

        def backward(dy: Array) -> Array:
            return widen_backward(bend_backward(drop_backward(narrow_backward(dy))))

        return y, backward


class GatedFeedForward(Layer):
    """SwiGLU: x (B,T,D) → y (B,T,D). Three matrices of 2/3 of the d_ff have as many parameters as two."""

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        *,
        bias: bool = True,
        dropout: float = 0.0,
        dtype: DTypeLike,
        rng: np.random.Generator,
    ) -> None:
        self.gate = Linear(d_model, d_ff, bias=bias, dtype=dtype, rng=rng)
        self.widen = Linear(d_model, d_ff, bias=bias, dtype=dtype, rng=rng)
        self.dropout = Dropout(dropout)
        self.narrow = Linear(d_ff, d_model, bias=bias, dtype=dtype, rng=rng)

    def forward(self, x: Array, rng: np.random.Generator | None = None) -> tuple[Array, Backward]:
        opened, gate_backward = self.gate.forward(x)  # (B,T,D) → (B,T,F)
        bent, bend_backward = silu(opened)
        wide, widen_backward = self.widen.forward(x)  # (B,T,D) → (B,T,F)
        kept, drop_backward = self.dropout.forward(bent * wide, rng)
        y, narrow_backward = self.narrow.forward(kept)  # (B,T,F) → (B,T,D)

        def backward(dy: Array) -> Array:
            dproduct = drop_backward(narrow_backward(dy))
            return gate_backward(bend_backward(dproduct * wide)) + widen_backward(dproduct * bent)

        return y, backward
