"""Layer norm and RMS norm with their gains. The gradients are derived in functional/layer_norm.py and rms_norm.py."""

import numpy as np
from numpy.typing import DTypeLike

from npformer.arguments import check_count, check_number
from npformer.functional import layer_norm, rms_norm
from npformer.layers.layer import Layer
from npformer.layers.parameter import Parameter
from npformer.operation import Array, Backward


class LayerNorm(Layer):
    """x (..., d_model) → y (..., d_model). gamma (d_model,) starts at 1; beta (d_model,), left out without `bias`, at 0."""

    def __init__(self, d_model: int, *, eps: float = 1e-5, bias: bool = True, dtype: DTypeLike) -> None:
        check_count("LayerNorm", "d_model", d_model)
        self.gamma = Parameter(np.ones(d_model, dtype))
        self.beta = Parameter(np.zeros(d_model, dtype)) if bias else None
        self.eps = check_number("LayerNorm", "eps", eps, low=0)

    def forward(self, x: Array) -> tuple[Array, Backward]:
        gamma = self.gamma.value
        beta = self.beta.value if self.beta else np.zeros_like(gamma)
        y, norm_backward = layer_norm(x, gamma, beta, self.eps)

        def backward(dy: Array) -> Array:
            dx, dgamma, dbeta = norm_backward(dy)
            self.gamma.grad += dgamma
            if self.beta:
                self.beta.grad += dbeta
            return dx

        return y, backward


class RMSNorm(Layer):
    """x (..., d_model) → y (..., d_model). gamma (d_model,) starts at 1."""

    def __init__(self, d_model: int, *, eps: float = 1e-6, dtype: DTypeLike) -> None:
        check_count("RMSNorm", "d_model", d_model)
        self.gamma = Parameter(np.ones(d_model, dtype))
        self.eps = check_number("RMSNorm", "eps", eps, low=0)

    def forward(self, x: Array) -> tuple[Array, Backward]:
        y, norm_backward = rms_norm(x, self.gamma.value, self.eps)

        def backward(dy: Array) -> Array:
            dx, dgamma = norm_backward(dy)
            self.gamma.grad += dgamma
            return dx

        return y, backward
