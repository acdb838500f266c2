"""A layer: an operation with parameters.

    y, backward = layer.forward(x)        dx = backward(dy)

`backward` returns the gradients of the inputs and adds each parameter's to `parameter.grad`. What it needs it has captured;
nothing of a call is stored on the layer, so that one layer may be called twice before either backward, and be shared.
"""

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, TypeAlias

import numpy as np

from npformer.layers.parameter import Parameter
from npformer.observing import entered

Forward: TypeAlias = Callable[..., tuple[Any, Callable[..., Any]]]


class Layer:
    """What all layers have: names for their parameters, and a call without a backward.

    A layer's parts are its attributes that are a Parameter, a Layer, or a list or tuple with such in it. Chance is an
    argument of `forward`: what can drop does so only where it is given `rng`, a numpy.random.Generator.
    """

    forward: Forward

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "forward" in vars(cls):
            cls.forward = silent(cls.forward)

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        """y alone, for inference: nothing is dropped."""
        if "rng" in options:
            raise TypeError(f"{type(self).__name__}: a call without a backward is for inference and takes no rng")
        return self.forward(*inputs, **options)[0]

    def parts(self) -> Iterator[tuple[str, "Parameter | Layer"]]:
        """The parts by name, in the order in which they were set; those of a list have a number: layers.0, layers.1."""
        for name, value in vars(self).items():
            if isinstance(value, list | tuple):
                yield from ((f"{name}.{i}", part) for i, part in enumerate(value) if isinstance(part, Parameter | Layer))
            elif isinstance(value, Parameter | Layer):
                yield name, value

    def parameters(self) -> dict[str, Parameter]:
        """Every parameter by its dotted name, such as layers.0.attention.query.weight; a shared one by its first. ValueError
        where two have the same."""
        named: dict[int, tuple[str, Parameter]] = {}
        for name, part in self.parts():
            own = {name: part} if isinstance(part, Parameter) else part.parameters()
            for inner, parameter in own.items():
                named.setdefault(id(parameter), (inner if parameter is part else f"{name}.{inner}", parameter))
        by_name = dict(named.values())
        if len(by_name) < len(named):
            twice = next(name for name, parameter in named.values() if by_name[name] is not parameter)
            raise ValueError(f"{type(self).__name__}: two parameters are called {twice}")
        return by_name

    def sublayers(self) -> Iterator[tuple[str, "Layer"]]:
        """Every layer in this one by its dotted name, the inner ones of each before it."""
        for name, part in self.parts():
            if isinstance(part, Layer):
                yield from ((f"{name}.{inner}", layer) for inner, layer in part.sublayers())
                yield name, part


def silent(forward: Forward) -> Forward:
    """`forward` and its backward without NumPy's warnings: infinities and NaN pass through as IEEE arithmetic has them."""

    @wraps(forward)
    def silent_forward(layer: Any, *inputs: Any, **options: Any) -> tuple[Any, Callable[..., Any]]:
        with np.errstate(all="ignore"), entered(layer, inputs, options) as tell:
            y, backward = forward(layer, *inputs, **options)
            tell(y)

        def silent_backward(*cotangents: Any) -> Any:
            with np.errstate(all="ignore"):
                return backward(*cotangents)

        return y, silent_backward

    return silent_forward
