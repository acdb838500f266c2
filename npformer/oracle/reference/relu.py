"""The rectifier."""

from npformer.oracle.reference.elementary import Number
from npformer.oracle.reference.nested import Nested, each_entry


def relu(x: Nested) -> Nested:
    """y = x where x is positive, else 0; NaN, which is not less than 0, stays NaN.        Nair and Hinton 2010"""

    def rectified(z: Number) -> Number:
        return type(z)(0) if z < 0 else z

    return each_entry(rectified, x)
