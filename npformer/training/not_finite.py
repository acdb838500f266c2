"""Which number was the first that is not finite: found by doing the step again, and looking at every result."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from npformer.layers import Layer, Parameter
from npformer.models import GPT
from npformer.operation import Array


class NotFiniteError(ArithmeticError):
    """A number of a training step became infinite or NaN; the text names the step and the tensor."""


class FoundError(Exception):
    """Ends the search."""


def first_not_finite(model: GPT, micro_batches: Iterable[tuple[Array, Array]], rng: np.random.Generator | None) -> str:
    """What is not finite first, in words, when the ids and targets of a step are gone through again: a parameter, the
    output of a layer, the loss, or a gradient. `rng` must be as the step found it; parameter gradients start from 0."""
    names = {id(parameter): name for name, parameter in model.parameters().items()}
    layers = {id(layer): (name, layer, vars(layer).get("forward")) for name, layer in model.sublayers()}
    try:
        for name, parameter in model.parameters().items():
            look(f"the parameter {name}", parameter.value)
            parameter.grad[...] = 0
        for name, layer, _ in layers.values():
            layer.forward = watched(name, layer, names)
        for ids, targets in micro_batches:
            (total, _), backward = model.loss(ids, targets, rng)
            if not np.isfinite(total):
                return f"the loss, {total}"
            backward(np.ones((), total.dtype))
    except FoundError as found:
        return str(found)
    finally:
        for _, layer, own in layers.values():
            vars(layer).pop("forward", None)  # the class's own shows again
            if own is not None:
                layer.forward = own
    return "nothing when the step is done again"


def watched(name: str, layer: Layer, names: Mapping[int, str]) -> Callable[..., Any]:
    """The layer's forward, which ends the search where what it or its backward makes is not finite."""
    forward = layer.forward

    def watched_forward(*inputs: Any, **options: Any) -> tuple[Any, Callable[..., Any]]:
        y, backward = forward(*inputs, **options)
        look(f"the output of {name}", y)

        def watched_backward(dy: Array) -> Any:
            look(f"the gradient of the output of {name}", dy)
            dx = backward(dy)
            for _, part in layer.parts():
                if isinstance(part, Parameter):
                    look(f"the gradient of {names[id(part)]}", part.grad)
            if dx is not None:
                look(f"the gradient of the input of {name}", dx)
            return dx

        return y, watched_backward

    return watched_forward


def look(what: str, array: Array) -> None:
    if not np.isfinite(array).all():
        raise FoundError(f"{what}{place(array)}")


def place(array: Array) -> str:
    index = [int(i) for i in np.argwhere(~np.isfinite(array))[0]]
    return f", {array[tuple(index)]} at {index}"
