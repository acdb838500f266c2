"""The hyperbolic tangent."""

from npformer.oracle.reference import elementary
from npformer.oracle.reference.nested import Nested, each_entry


def tanh(x: Nested) -> Nested:
    """y = (eˣ − e⁻ˣ) / (eˣ + e⁻ˣ)"""
    return each_entry(elementary.tanh, x)
