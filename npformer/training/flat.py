"""All parameters of a model in one vector, all gradients in another.

What training does to every number alike (clip, average, update) is then one line, and a copy of the whole model one array.
"""

from collections.abc import Mapping

import numpy as np

from npformer.layers import Parameter
from npformer.operation import Array


class FlatParameters:
    """`values` and `gradients` (n,), of which every parameter's `value` and `grad` become views.

    The matrices come first: `n_matrix` entries, those that weight decay acts on. Vectors, gains and offsets, follow.
    From here on a parameter is changed in place, `parameter.value[...] = …`; ValueError where one was replaced.
    """

    def __init__(self, parameters: Mapping[str, Parameter]) -> None:
        by_rank = sorted(parameters.items(), key=lambda item: item[1].value.ndim < 2)
        dtypes = {parameter.value.dtype for parameter in parameters.values()}
        if len(dtypes) != 1:
            raise ValueError(f"FlatParameters: parameters must share one dtype, got {sorted(map(str, dtypes)) or 'none'}")
        self.parameters = dict(by_rank)
        self.values = np.concatenate([parameter.value.ravel() for _, parameter in by_rank])
        self.gradients = np.zeros_like(self.values)
        self.n_matrix = sum(parameter.value.size for _, parameter in by_rank if parameter.value.ndim >= 2)
        self.views = {}
        grads = self.split(self.gradients)
        for name, value in self.split(self.values).items():
            self.views[name] = value, grads[name]
            self.parameters[name].value, self.parameters[name].grad = self.views[name]

    def split(self, vector: Array) -> dict[str, Array]:
        """A vector (n,) of one number a parameter entry, as views by name, each of its parameter's shape."""
        views = {}
        start = 0
        for name, parameter in self.parameters.items():
            size = parameter.value.size
            views[name] = vector[start : start + size].reshape(parameter.value.shape)
            start += size
        return views

    def check_views(self) -> None:
        for name, parameter in self.parameters.items():
            value, grad = self.views[name]
            if parameter.value is not value or parameter.grad is not grad:
                raise ValueError(f"FlatParameters: {name} was replaced; while training, change it in place")
