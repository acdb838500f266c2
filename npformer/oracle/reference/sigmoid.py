"""The logistic function."""

from npformer.oracle.reference.elementary import Number, exp
from npformer.oracle.reference.nested import Nested, each_entry


def sigmoid(x: Nested) -> Nested:
    """σ(x) = 1 / (1 + e⁻ˣ) = eˣ / (1 + eˣ), whichever does not overflow."""

    def logistic(z: Number) -> Number:
        e = exp(-abs(z))
        return e / (1 + e) if z < 0 else 1 / (1 + e)

    return each_entry(logistic, x)
