"""Layer normalisation: each row is given mean 0 and variance 1, then a gain and an offset of its own.

    c = x − mean(x)        r = 1 / √(mean(c²) + ε)        n = c·r        y = γ·n + β

Backward. Let g = γ·dy be the gradient that arrives at n. An entry c_j moves its own n_j by r, and through r every n_i:
∂r/∂c_j = −r³·c_j/D = −r²·n_j/D. So c receives r·(g − n·mean(g·n)). An entry of x moves its own c by 1 and, through the mean,
every c of its row by −1/D, which takes the mean off what c received; and since mean(n) = 0, that is

    dx = r · (g − mean(g) − n·mean(g·n))

The second term takes out what shifting the whole row would do, the third what stretching it would do. Layer norm is blind
to both, so dx is orthogonal to both: Σ dx = 0, and Σ dx·c = 0 as ε goes to 0. The gain and the offset are shared by all
rows, so theirs are sums over rows: dγ = Σ dy·n, dβ = Σ dy.

Source: Ba, Kiros and Hinton 2016, equations 3 and 4.
"""

from npformer.arguments import check_filled, check_number
from npformer.functional.rms_norm import inverse_rms
from npformer.operation import Array, Backwards, operation


@operation(x="... D", gamma="D", beta="D")
def layer_norm(x: Array, gamma: Array, beta: Array, eps: float = 1e-5) -> tuple[Array, Backwards]:
    """Normalise the last axis of `x`.

    x (..., D), gamma (D,), beta (D,) → y (..., D), and backward(dy) → dx (..., D), dgamma (D,), dbeta (D,).

    The variance is the biased one, eps stands inside the root, and both come from the centred row, so that a row with a
    large mean loses nothing. PyTorch and ONNX agree; some teaching code divides by the unbiased deviation plus eps.
    """
    eps = check_number("layer_norm", "eps", eps, low=0)
    check_filled("layer_norm", "x", x)
    c = x - x.mean(-1, keepdims=True)
    c = c - c.mean(-1, keepdims=True)  # what rounding left of the first mean
    r = inverse_rms(c, eps)
    n = c * r
    y = gamma * n + beta

    def backward(dy: Array) -> tuple[Array, ...]:
        rows = tuple(range(dy.ndim - 1))
        g = gamma * dy
        dx = r * (g - g.mean(-1, keepdims=True) - n * (g * n).mean(-1, keepdims=True))
        return dx, (dy * n).sum(rows), dy.sum(rows)

    return y, backward
