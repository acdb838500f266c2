"""The logarithm of softmax."""

import math
from typing import Any

from npformer.oracle.reference.elementary import exp, log1p
from npformer.oracle.reference.nested import Nested, each_row, kind_of


def log_softmax(x: Nested, axis: int = -1) -> Nested:
    """yᵢ = xᵢ − log Σⱼ exp xⱼ = (xᵢ − m) − log(1 + Σ exp(xⱼ − m)), m one largest entry and j all others.

    So a y that is almost 0 is as precise as any. −∞ stays −∞, alone or in a row of nothing else.
    """

    def log_distribution(row: list[Any]) -> list[Any]:
        if all(x_j == -math.inf for x_j in row):
            return list(row)
        m = max(row)
        largest = row.index(m)
        rest = sum((exp(x_j - m) for j, x_j in enumerate(row) if j != largest), kind_of(x)(0))
        return [x_i - m - log1p(rest) for x_i in row]

    return each_row(log_distribution, x, axis)
