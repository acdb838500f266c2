"""The trained model damaged in the ways people do: a factor, a table, a mask, a head, a learning rate."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from demos.cities.training import PEAK, train
from demos.weights import with_weights_of
from npformer import EncoderDecoder
from npformer.layers import KVCache, Layer, MultiHeadAttention

KINDS = ("attention", "cross_attention")
TIMES_FASTER, N_WILD_STEPS = 30, 50


class Damage(NamedTuple):
    """`damage(model, head)` changes a model in place; `head` is the number of a decoder layer and of its head."""

    name: str
    sentence: str
    damage: Callable[[EncoderDecoder, tuple[int, int]], None]


def damaged(model: EncoderDecoder, damage: Damage, head: tuple[int, int]) -> EncoderDecoder:
    """A copy of the model with the damage."""
    other = with_weights_of(model, EncoderDecoder(model.config, dtype=model.dtype))
    damage.damage(other, head)
    return other


def attentions(model: EncoderDecoder) -> list[MultiHeadAttention]:
    residuals = [getattr(layer, kind, None) for layer in (*model.encoder.layers, *model.decoder.layers) for kind in KINDS]
    return [residual.layer for residual in residuals if residual is not None]


class Times(Layer):
    """A layer whose output is multiplied."""

    def __init__(self, factor: float, layer: Layer) -> None:
        self.factor, self.layer = factor, layer

    def forward(self, x: np.ndarray) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
        y, backward = self.layer.forward(x)
        return self.factor * y, lambda dy: backward(self.factor * dy)


def leave_out_scale(model: EncoderDecoder, head: tuple[int, int]) -> None:
    """Queries times √K undo the 1/√K of the scores."""
    for attention in attentions(model):
        K = attention.query.weight.value.shape[1] // attention.n_heads
        attention.query = Times(math.sqrt(K), attention.query)


def leave_out_positions(model: EncoderDecoder, head: tuple[int, int]) -> None:
    for attention in attentions(model):
        attention.positions = None


class LooksAhead(Layer):
    """Self-attention whose causal mask is the wrong way round."""

    def __init__(self, layer: Layer) -> None:
        self.layer = layer

    def forward(self, x: np.ndarray, causal: bool, cache: KVCache | None = None, **options: Any) -> Any:
        T, n_before = x.shape[1], 0 if cache is None else cache.length
        keep = np.triu(np.ones((T, n_before + T), bool), n_before + 1)
        return self.layer.forward(x, keep=keep, cache=cache, **options)


def turn_mask(model: EncoderDecoder, head: tuple[int, int]) -> None:
    for layer in model.decoder.layers:
        layer.attention.layer = LooksAhead(layer.attention.layer)


def freeze_head(model: EncoderDecoder, head: tuple[int, int]) -> None:
    """Queries of 0 give every key the same score."""
    number, h = head
    attention = model.decoder.layers[number].cross_attention.layer
    K = attention.query.weight.value.shape[1] // attention.n_heads
    columns = slice(h * K, (h + 1) * K)
    attention.query.weight.value[:, columns] = 0
    attention.query.bias.value[columns] = 0


def train_wildly(model: EncoderDecoder, head: tuple[int, int]) -> None:
    train(model, N_WILD_STEPS, np.random.default_rng(0), peak=TIMES_FASTER * PEAK, n_warmup=0)


DAMAGES = (
    Damage("no scale", "the scores of attention are not divided by √d", leave_out_scale),
    Damage("no positions", "no token knows where it stands", leave_out_positions),
    Damage("wrong mask", "the causal mask is the wrong way round: the decoder sees what comes after, not before", turn_mask),
    Damage("frozen head", "one head of cross-attention looks at every token alike", freeze_head),
    Damage("wild learning", f"{N_WILD_STEPS} more steps at {TIMES_FASTER} times the learning rate", train_wildly),
)
