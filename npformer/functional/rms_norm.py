"""RMS normalisation: each row is given mean square 1, then a gain of its own. Layer norm without the centring.

    r = 1 / √(mean(x²) + ε)        n = x·r        y = γ·n

Backward. Let g = γ·dy be the gradient that arrives at n. An entry of x moves its own n by r, and through r the whole row:
∂r/∂x_j = −r³·x_j/D = −r²·n_j/D. Hence

    dx = r · (g − n·mean(g·n))

The term taken off is what stretching the row would do, to which the norm is blind: Σ dx·x = 0 as ε goes to 0. The gain is
shared by all rows: dγ = Σ dy·n.

Source: Zhang and Sennrich 2019, equation 4.
"""

import numpy as np

from npformer.arguments import check_filled, check_number
from npformer.operation import Array, Backwards, operation


@operation(x="... D", gamma="D")
def rms_norm(x: Array, gamma: Array, eps: float = 1e-6) -> tuple[Array, Backwards]:
    """Normalise the last axis of `x` by its root mean square.

    x (..., D), gamma (D,) → y (..., D), and backward(dy) → dx (..., D), dgamma (D,).

    eps stands inside the root. The gain is gamma itself; Gemma's checkpoints store gamma − 1.
    """
    eps = check_number("rms_norm", "eps", eps, low=0)
    check_filled("rms_norm", "x", x)
    r = inverse_rms(x, eps)
    n = x * r
    y = gamma * n

    def backward(dy: Array) -> tuple[Array, ...]:
        rows = tuple(range(dy.ndim - 1))
        g = gamma * dy
        dx = r * (g - n * (g * n).mean(-1, keepdims=True))
        return dx, (dy * n).sum(rows)

    return y, backward


def inverse_rms(x: Array, eps: float) -> Array:
    """1 / √(mean(x²) + eps) over the last axis, which is kept with size 1."""
    eps = max(eps, float(np.finfo(x.real.dtype).tiny))  # a smaller one would be 0 in this dtype
    mean_square = (x * x).mean(-1, keepdims=True)
    fits = np.isfinite(mean_square)
    if fits.all():
        r: Array = 1 / np.sqrt(mean_square + eps)
        return r
    # A row whose squares overflow is measured in units of its largest entry.
    unit = np.where(fits, 1, np.abs(x.real).max(-1, keepdims=True))
    mean_square = ((x / unit) * (x / unit)).mean(-1, keepdims=True)
    r = 1 / (unit * np.sqrt(mean_square + eps / unit / unit))
    return r
