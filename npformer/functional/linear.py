"""A linear map with an offset, applied to the last axis.

    y = x W + b            y_o = Σ_i x_i W_io + b_o

Backward. x_i reaches every y_o, with the factor W_io, so what arrives at the outputs is gathered with the same factors:
dx_i = Σ_o dy_o W_io, which is dy Wᵀ. W_io carries x_i to y_o once in every row, so its gradient is a sum over rows,
dW_io = Σ x_i dy_o, which is xᵀ dy. The offset is added to every row: db = Σ dy.

Source: Rumelhart, Hinton and Williams 1986 (Nature 323), equations 1, 6 and 7.
"""

import math

from npformer.operation import Array, Backwards, operation


@operation(x="... D_in", weight="D_in D_out", bias="D_out")
def linear(x: Array, weight: Array, bias: Array | None = None) -> tuple[Array, Backwards]:
    """Map the last axis of `x`.

    x (..., D_in), weight (D_in, D_out), bias (D_out,) or None
    → y (..., D_out), and backward(dy) → dx, dweight, and dbias where a bias was given.

    The weight is stored (in, out). PyTorch stores (out, in): transpose what comes from there.
    """
    N = math.prod(x.shape[:-1])
    rows = x.reshape(N, x.shape[-1])  # (..., D_in) → (N, D_in): one large product is faster than many small ones
    y = rows @ weight  # (N, D_in)(D_in, D_out) → (N, D_out)
    if bias is not None:
        y = y + bias

    def backward(dy: Array) -> tuple[Array, ...]:
        drows = dy.reshape(y.shape)  # (..., D_out) → (N, D_out)
        dx = (drows @ weight.T).reshape(x.shape)  # (N, D_out)(D_out, D_in) → (N, D_in) → (..., D_in)
        dweight = rows.T @ drows  # (D_in, N)(N, D_out) → (D_in, D_out)
        if bias is None:
            return dx, dweight
        return dx, dweight, drows.sum(0)

    return y.reshape(*x.shape[:-1], weight.shape[1]), backward  # (N, D_out) → (..., D_out)
