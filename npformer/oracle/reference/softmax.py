"""Scores to a distribution."""

import math
from typing import Any

from npformer.oracle.reference.elementary import exp
from npformer.oracle.reference.nested import Nested, each_row


def softmax(x: Nested, axis: int = -1) -> Nested:
    """yᵢ = exp(xᵢ − m) / Σⱼ exp(xⱼ − m), where m = max x changes nothing but the overflow; a row of −∞ gives zeros."""

    def distribution(row: list[Any]) -> list[Any]:
        if all(x_j == -math.inf for x_j in row):
            return [type(x_j)(0) for x_j in row]
        m = max(row)
        total = sum(exp(x_j - m) for x_j in row)
        return [exp(x_i - m) / total for x_i in row]

    return each_row(distribution, x, axis)
