"""Dropout: each entry is set to 0 with probability p, and the others are enlarged so that the mean stays.

    y = x·m        m = kept / (1 − p)        kept is 1 with probability 1 − p, otherwise 0
    dx = dy·m

Backward. m does not depend on x, so the gradient passes where the value passed, enlarged alike, with the mask of this very
call: a fresh one, or one read off y/x where x may be 0, would be another function's.

Source: Srivastava et al. 2014, sections 4 and 10, where p is the probability to keep.
"""

import numpy as np

from npformer.arguments import check_generator, check_probability
from npformer.operation import Array, Backward, operation


@operation(x="...")
def dropout(x: Array, p: float, rng: np.random.Generator | None) -> tuple[Array, Backward]:
    """Drop entries of `x` with probability `p`: x (...) → y (...), and backward(dy) → dx (...).

    0 ≤ p < 1, otherwise ValueError. p = 0 is the identity, exactly, and so is rng = None: without chance nothing is
    dropped. The same state of `rng` gives the same mask, whatever the dtype of x.
    """
    p = check_probability("dropout", "p", p)
    check_generator("dropout", "rng", rng)
    m = dropout_factor(x, p, rng)
    y = x * m

    def backward(dy: Array) -> Array:
        dx: Array = dy * m
        return dx

    return y, backward


def dropout_factor(x: Array, p: float, rng: np.random.Generator | None) -> Array | int:
    """m for an array like `x`; 1 where nothing can be dropped."""
    if p == 0 or rng is None:
        return 1
    kept = rng.random(x.shape, np.float32) >= p
    m: Array = kept / np.asarray(1 - p, x.dtype)
    return m
