"""A parameter: a value that training changes, and the gradient that every backward pass adds to."""

import numpy as np
from numpy.typing import DTypeLike

from npformer.arguments import is_array, kind
from npformer.operation import Array


class Parameter:
    """`value` is read when a layer is called, and may be set; `grad`, of its shape and dtype, only grows until it is zeroed.

    A parameter that several layers share is one object, whose gradient is the sum of theirs.
    """

    def __init__(self, value: Array) -> None:
        if not is_array(value) or value.dtype not in (np.float32, np.float64):
            raise TypeError(f"Parameter: value must be an array of float32 or float64, got {kind(value)}")
        self.value = value
        self.grad = np.zeros_like(value)

    @classmethod
    def normal(cls, shape: tuple[int, ...], deviation: float, dtype: DTypeLike, rng: np.random.Generator) -> "Parameter":
        """Independent normal numbers of mean 0, drawn in float64, so that a seed gives every dtype the same."""
        return cls((deviation * rng.standard_normal(shape)).astype(dtype))

    def __repr__(self) -> str:
        return f"Parameter({self.value.shape}, {self.value.dtype})"
