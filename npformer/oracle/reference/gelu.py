"""The input, gated by the normal distribution: the exact form."""

from npformer.oracle.reference.elementary import Number, erfc, sqrt
from npformer.oracle.reference.nested import Nested, each_entry


def gelu(x: Nested) -> Nested:
    """y = x · Φ(x), where Φ(x) = ½ (1 + erf(x/√2)) = ½ erfc(−x/√2)        Hendrycks and Gimpel 2016, section 2

    The second form is the same number, without the cancellation that the first has where x is very negative.
    """

    def gated(z: Number) -> Number:
        return z * erfc(-z / sqrt(type(z)(2))) / 2

    return each_entry(gated, x)
