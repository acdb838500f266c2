"""A layer beside which its input passes unchanged, with a norm before the layer or after the sum.

    pre-norm     y = x + f(norm(x))          Radford et al. 2019 (GPT-2), section 2.3
    post-norm    y = norm(x + f(x))          Vaswani et al. 2017, section 3.1

Backward. x enters twice, so its gradient is the sum of what comes through f and of what comes beside it. In pre-norm the
second way runs from the loss to the first layer without anything in between.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from npformer.arguments import check_name
from npformer.layers.dropout import Dropout
from npformer.layers.layer import Layer
from npformer.layers.parameter import Parameter
from npformer.operation import Array


class Residual(Layer):
    """x → y of the same shape, around `layer`; `placement` is "pre" or "post"; `dropout` acts on what the layer returns.

    Other inputs, options and, where it is given, `rng` go to the layer. The parameters have the layer's own names, and the
    norm's begin with "norm".
    """

    def __init__(self, layer: Layer, norm: Layer, placement: str, dropout: float = 0.0) -> None:
        check_name("Residual", "placement", placement, ("pre", "post"))
        self.layer, self.norm, self.placement, self.dropout = layer, norm, placement, Dropout(dropout)

    def parts(self) -> Iterator[tuple[str, Parameter | Layer]]:
        yield from self.layer.parts()
        yield "norm", self.norm

    def forward(self, x: Array, *others: Array, rng: np.random.Generator | None = None, **options: Any) -> tuple[Array, Any]:
        """(y, backward), where backward(dy) → dx, or (dx, *dothers) where the layer has other inputs. Cotangents of other
        outputs go to the layer's backward."""
        pre = self.placement == "pre"
        inner, pre_backward = self.norm.forward(x) if pre else (x, None)
        if rng is not None:
            options["rng"] = rng
        inner, layer_backward = self.layer.forward(inner, *others, **options)
        inner, drop_backward = self.dropout.forward(inner, rng)
        y, post_backward = (x + inner, None) if pre else self.norm.forward(x + inner)
        cache = options.get("cache")
        if cache is not None and cache.no_backward:
            return y, layer_backward  # which says so, before any gradient is added

        def backward(dy: Array, *other_dys: Array) -> Any:
            beside = post_backward(dy) if post_backward else dy
            through = layer_backward(drop_backward(beside), *other_dys)
            through, *dothers = through if isinstance(through, tuple) else (through,)
            dx = beside + (pre_backward(through) if pre_backward else through)
            return (dx, *dothers) if dothers else dx

        return y, backward
