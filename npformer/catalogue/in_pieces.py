"""A decoder's layer or model that reads its sequence in pieces, so that its backward through a cache is tried as well."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from npformer.layers import Layer, Parameter
from npformer.operation import Array

CUT = ("x", "ids", "token_types")
OF_WHOLE_SEQUENCES = ("keep", "positions")


class InPieces(Layer):
    """`layer` with x or ids (B,T,…) in pieces of 2 tokens: each sees those before it through the cache, and owes to them.

    new_cache(T) returns the argument that is a new cache, by name. What belongs to a sequence as a whole has no backward in
    pieces, and is handed to `layer` all at once.
    """

    def __init__(self, layer: Layer, new_cache: Callable[[int], dict[str, Any]]) -> None:
        self.layer = layer
        self.new_cache = new_cache

    def parts(self) -> Iterator[tuple[str, Parameter | Layer]]:
        yield from self.layer.parts()

    def forward(self, **given: Any) -> tuple[Array, Any]:
        if any(name in given for name in OF_WHOLE_SEQUENCES):
            return self.layer.forward(**given)
        T = next(given[name].shape[1] for name in CUT if name in given)
        cuts = np.arange(2 if T > 2 else 1, T, 2)  # scores of one key alone have no gradient
        pieces = {name: np.split(given.pop(name), cuts, axis=1) for name in CUT if name in given}
        given |= self.new_cache(T)
        runs = [
            self.layer.forward(**dict(zip(pieces, piece, strict=True)), **given)
            for piece in zip(*pieces.values(), strict=True)
        ]

        def backward(dy: Array) -> tuple[Array, ...]:
            dxs: list[Array] = []
            dmemories: list[Array] = []
            later: tuple[Any, ...] = ()
            for (_, piece_backward), dpiece in reversed(list(zip(runs, np.split(dy, cuts, axis=1), strict=True))):
                gradients = piece_backward(dpiece, *later)
                gradients = gradients if isinstance(gradients, tuple) else (gradients,)
                if "x" in pieces:
                    dx, *dmemory, dkeys, dvalues = gradients
                    dxs.insert(0, dx)
                    later = dkeys, dvalues
                else:
                    *dmemory, earlier = gradients
                    later = (earlier,)
                dmemories += dmemory
            dx = (np.concatenate(dxs, axis=1),) if dxs else ()
            return (*dx, np.sum(dmemories, axis=0)) if dmemories else dx

        return np.concatenate([y for y, _ in runs], axis=1), backward
