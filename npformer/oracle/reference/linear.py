"""Every output is a weighted sum of the inputs."""

from typing import Any

from npformer.oracle.reference.nested import Nested, each_row


def linear(x: Nested, weight: Nested, bias: Nested = None) -> Nested:
    """yₒ = Σᵢ xᵢ Wᵢₒ + bₒ; x (..., D_in), weight (D_in, D_out), bias (D_out) → y (..., D_out)."""

    def transform(row: list[Any]) -> list[Any]:
        y = [sum(x_i * w_io for x_i, w_io in zip(row, column, strict=True)) for column in zip(*weight, strict=True)]
        return y if bias is None else [y_o + b_o for y_o, b_o in zip(y, bias, strict=True)]

    return each_row(transform, x)
