"""Each row is given mean 0 and variance 1, then a gain and an offset."""

from typing import Any

from npformer.oracle.reference.elementary import Number, sqrt
from npformer.oracle.reference.nested import Nested, each_row, kind_of


def layer_norm(x: Nested, gamma: Nested, beta: Nested, eps: Number = 1e-5) -> Nested:
    """y = γ (x − mean x) / √(mean (x − mean x)² + ε) + β        Ba, Kiros and Hinton 2016, equations 3 and 4"""
    eps = kind_of(x)(eps)

    def normalised(row: list[Any]) -> list[Any]:
        mean = sum(row) / len(row)
        variance = sum((x_i - mean) * (x_i - mean) for x_i in row) / len(row)
        deviation = sqrt(variance + eps)
        return [g * (x_i - mean) / deviation + b for x_i, g, b in zip(row, gamma, beta, strict=True)]

    return each_row(normalised, x)
