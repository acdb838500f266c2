"""The input, gated by an approximation of the normal distribution."""

from npformer.oracle.reference.elementary import Number, pi, sqrt
from npformer.oracle.reference.nested import Nested, each_entry, kind_of
from npformer.oracle.reference.sigmoid import sigmoid


def gelu_tanh(x: Nested) -> Nested:
    """y = ½ x (1 + tanh u) = x · σ(2u), where u = √(2/π) (x + 0.044715 x³)        Hendrycks and Gimpel 2016, section 2

    The second form is the same number, without the cancellation that the first has where x is very negative.
    """
    number = kind_of(x)

    def gated(z: Number) -> Number:
        u = sqrt(2 / pi(number)) * (z + number("0.044715") * z * z * z)
        return z * sigmoid(2 * u)

    return each_entry(gated, x)
