"""The weights of one model in another."""

from typing import TypeVar

from npformer.layers import Layer

M = TypeVar("M", bound=Layer)


def with_weights_of(given: Layer, model: M) -> M:
    """`model`, whose parameters now have the values of those of `given`, each in its own dtype."""
    for mine, other in zip(model.parameters().values(), given.parameters().values(), strict=True):
        mine.value[...] = other.value
    return model
