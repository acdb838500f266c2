"""The sigmoid linear unit, also called swish: the input, gated by its own logistic.

    y = x·σ(x)             dy/dx = σ(x) + x·σ(x)·σ(−x)

The product rule: the first term is the gate held still, the second the gate's own slope σ(x)·σ(−x).

Source: Elfwing, Uchibe and Doya 2018, section 2; Ramachandran, Zoph and Le 2017.
"""

from npformer.functional.sigmoid import logistic
from npformer.operation import Array, Backward, operation


@operation(x="...")
def silu(x: Array) -> tuple[Array, Backward]:
    """x·σ(x) of each entry: x (...) → y (...), and backward(dy) → dx (...)."""
    gate = logistic(x)
    y = x * gate

    def backward(dy: Array) -> Array:
        dx: Array = dy * (gate + y * logistic(-x))
        return dx

    return y, backward
