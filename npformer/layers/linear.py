"""A linear map with parameters: y = x W + b. The gradients are derived in functional/linear.py."""

import math

import numpy as np
from numpy.typing import DTypeLike

from npformer.arguments import check_count
from npformer.functional import linear
from npformer.layers.layer import Layer
from npformer.layers.parameter import Parameter
from npformer.operation import Array, Backward


class Linear(Layer):
    """x (..., d_in) → y (..., d_out).

    weight (d_in, d_out) starts with variance 1/d_in, which keeps the variance of x; bias (d_out,) starts at 0.
    """

    def __init__(self, d_in: int, d_out: int, *, bias: bool = True, dtype: DTypeLike, rng: np.random.Generator) -> None:
        check_count("Linear", "d_in", d_in)
        check_count("Linear", "d_out", d_out)
        self.weight = Parameter.normal((d_in, d_out), 1 / math.sqrt(d_in), dtype, rng)
        self.bias = Parameter(np.zeros(d_out, dtype)) if bias else None

    def forward(self, x: Array) -> tuple[Array, Backward]:
        y, linear_backward = linear(x, self.weight.value, self.bias.value if self.bias else None)

        def backward(dy: Array) -> Array:
            dx, dweight, *dbias = linear_backward(dy)
            self.weight.grad += dweight
            if self.bias:
                self.bias.grad += dbias[0]
            return dx

        return y, backward
