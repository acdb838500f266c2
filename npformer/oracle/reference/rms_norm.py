"""Each row is given mean square 1, then a gain."""

from typing import Any

from npformer.oracle.reference.elementary import Number, sqrt
from npformer.oracle.reference.nested import Nested, each_row, kind_of


def rms_norm(x: Nested, gamma: Nested, eps: Number = 1e-6) -> Nested:
    """y = γ x / √(mean x² + ε)        Zhang and Sennrich 2019, equation 4"""
    eps = kind_of(x)(eps)

    def normalised(row: list[Any]) -> list[Any]:
        mean_square = sum(x_i * x_i for x_i in row) / len(row)
        return [g * x_i / sqrt(mean_square + eps) for x_i, g in zip(row, gamma, strict=True)]

    return each_row(normalised, x)
