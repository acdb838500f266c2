"""The input, gated by its own logistic."""

from npformer.oracle.reference.elementary import Number
from npformer.oracle.reference.nested import Nested, each_entry
from npformer.oracle.reference.sigmoid import sigmoid


def silu(x: Nested) -> Nested:
    """y = x · σ(x)        Elfwing, Uchibe and Doya 2018, section 2"""

    def gated(z: Number) -> Number:
        return z * sigmoid(z)

    return each_entry(gated, x)
