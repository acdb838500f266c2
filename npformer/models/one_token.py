"""One token a row, decoded without what only longer sequences and backwards need.

The weights are put together at the first token (folded.py), and the keys and values of the memory made. After that a token
takes one product with every matrix, and what attention itself takes: two products with the keys and values so far.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from npformer.arguments import check_ids, check_integers
from npformer.functional import alibi_slopes, sinusoidal_positions
from npformer.layers import (
    ALiBi,
    DecoderLayer,
    Dropout,
    Embedding,
    FeedForward,
    GatedFeedForward,
    KVCache,
    Layer,
    LayerNorm,
    LearnedPositions,
    Linear,
    MultiHeadAttention,
    Residual,
    RMSNorm,
    RotaryPositions,
    SinusoidalPositions,
    TiedOutput,
)
from npformer.models.decoder_cache import DecoderCache
from npformer.models.folded import CrossAttention, FeedForwardNetwork, Norm, SelfAttention, centre, joined
from npformer.models.model import Model
from npformer.models.stack import Stack
from npformer.observing import OBSERVERS
from npformer.operation import Array

KINDS = {
    *(DecoderLayer, Residual, MultiHeadAttention, FeedForward, GatedFeedForward, LayerNorm, RMSNorm, Linear, Dropout),
    *(Embedding, LearnedPositions, SinusoidalPositions, RotaryPositions, TiedOutput),
}


def decode_step(title: str, model: Any, ids: Array, cache: DecoderCache) -> Array:
    """A model's logits (B, V) after one more token in each row, ids (B,), which is added to its cache.

    ValueError or TypeError, and nothing is changed, for ids outside the vocabulary, another number of rows than the cache
    has, and a token past max_len.
    """
    cache.check(title, model)
    decoder, output, max_len = model.decoder, model.output, model.config.max_len
    first = cache.layers[0]
    check_integers(title, "ids", ids)
    known = cache.memory if cache.memory is not None else first.key_slots if first.begun else ids
    if ids.ndim != 1 or len(ids) != len(known):
        rows = "" if known is ids else f" = ({len(known)},), the cache's rows"
        raise ValueError(f"{title}: ids must have the shape (B,){rows}, got {ids.shape}")
    if not all(0 <= number < model.config.vocab_size for number in ids.tolist()):
        check_ids(title, "ids", ids, limit=model.config.vocab_size)  # says which
    if first.length >= max_len:
        raise ValueError(f"{title}: ids reach to token {cache.length + 1} with those in the cache, past max_len = {max_len}")
    if OBSERVERS.get() or (cache.one_token is None and not is_known(model, decoder, output)):  # who watches sees all of it
        logits: Array = model.decode(ids[:, None], cache)[:, 0]  # (B,1,V) → (B,V)
        return logits
    with np.errstate(all="ignore"):
        if cache.one_token is None:
            cache.one_token = OneToken(decoder, output, max_len, cache, len(ids))
        return cache.one_token.step(ids, cache.layers)


def is_known(model: Layer, decoder: Stack, output: Layer) -> bool:
    """Whether each part is of a kind whose attributes are read here; what is derived from one may compute something else."""
    if type(model).__base__ is not Model or type(decoder) is not Stack or "forward" in {*vars(model), *vars(decoder)}:
        return False
    parts: list[Any] = [decoder.embedding, decoder.positions, decoder.final_norm, output]
    alike = set()  # what one mask and one bias for all layers need
    for layer in decoder.layers:
        residuals = [part for part in vars(layer).values() if isinstance(part, Layer)]
        parts += [layer, *residuals]
        for residual in residuals:
            if isinstance(residual, Residual):
                if residual is getattr(layer, "attention", None):
                    positions = getattr(residual.layer, "positions", None)
                    alike.add((getattr(layer, "window", None), type(positions), getattr(positions, "n_heads", None)))
                parts += [residual.norm, residual.layer, *vars(residual.layer).values()]
    if len(alike) > 1 or any(issubclass(kind, ALiBi) and kind is not ALiBi for _, kind, _ in alike):
        return False
    return all(not isinstance(part, Layer) or (type(part) in KINDS and "forward" not in vars(part)) for part in parts)


class OneToken:
    """A decoder made ready for `step`, with its keys and values of the cache's memory."""

    def __init__(self, decoder: Stack, output: Linear | TiedOutput, max_len: int, cache: DecoderCache, n_rows: int) -> None:
        layers: list[Any] = decoder.layers
        memory: Any = cache.memory  # there where a layer has cross-attention
        residuals = [r for layer in layers for r in (layer.attention, layer.cross_attention, layer.feed_forward) if r]
        centred = isinstance(decoder.final_norm, LayerNorm) and all(
            r.placement == "pre" and isinstance(r.norm, LayerNorm) for r in residuals
        )
        table = decoder.embedding.table.value
        places = None
        if isinstance(decoder.positions, LearnedPositions):
            places = decoder.positions.table.value.copy()
        elif decoder.positions:
            places = sinusoidal_positions(max_len, table.shape[1], decoder.positions.base).astype(table.dtype)
        self.table, self.places = decoder.embedding.scale * table, places
        if centred:
            centre(self.table)
            if places is not None:
                centre(places)
        self.layers = [
            (
                SelfAttention(layer.attention, centred),
                CrossAttention(layer.cross_attention, centred, memory, cache.memory_keep) if layer.cross_attention else None,
                FeedForwardNetwork(layer.feed_forward, centred),
            )
            for layer in layers
        ]
        final = decoder.final_norm
        self.norm = None if final is None else Norm(final, centre=not centred)
        weight = output.table.value.T if isinstance(output, TiedOutput) else output.weight.value
        self.output = joined([weight], [output.bias], final)
        self.window = layers[0].window
        attention = layers[0].attention.layer
        self.slopes = None
        if isinstance(attention.positions, ALiBi):
            self.slopes = alibi_slopes(attention.n_heads).reshape(attention.n_kv_heads, -1, 1)  # (H,) → (G,R,1)
        self.place(n_rows)

    def place(self, n_rows: int) -> None:
        """Make the arrays that a step of `n_rows` rows fills."""
        D = self.table.shape[1]
        self.x = np.empty((n_rows, D), self.table.dtype)
        self.read = np.ones((n_rows, D + 1), self.table.dtype)
        self.steps = [
            (
                attention.place(self.x, self.read),
                cross.place(self.x, self.read) if cross else None,
                network.place(self.x, self.read),
            )
            for attention, cross, network in self.layers
        ]
        self.last = self.norm.place(self.x, self.read[:, :-1]) if self.norm else None

    @property
    def nbytes(self) -> int:
        """The bytes of the memory's keys and values."""
        return sum(cross.keys.nbytes + cross.values.nbytes for _, cross, _ in self.layers if cross)

    def reorder(self, rows: Array) -> None:
        for _, cross, _ in self.layers:
            if cross:
                cross.reorder(rows)

    def fork(self) -> OneToken:
        other = copy.copy(self)
        other.layers = [(attention, copy.copy(cross), network) for attention, cross, network in self.layers]
        other.place(len(self.x))
        return other

    def step(self, ids: Array, caches: Sequence[KVCache]) -> Array:
        """The logits (B, V) of ids (B,), which `caches` take in: one for each layer."""
        if len(ids) != len(self.x):
            self.place(len(ids))
        first = caches[0]
        positions = first.length if first.row_lengths is None else first.row_lengths
        rows = self.table.take(ids, 0)  # (B,) → (B,D)
        if self.places is None:
            self.x[...] = rows
        else:
            np.add(rows, self.places[positions], self.x)
        seen, visible = None, self.visible
        for (attention, cross, feed_forward), cache in zip(self.steps, caches, strict=True):
            seen = attention(cache, positions, seen, visible)
            if cross:
                cross()
            feed_forward()
        if self.last:
            self.last()
        else:
            self.read[:, :-1] = self.x
        logits: Array = self.read.dot(self.output)
        return logits

    def visible(self, cache: KVCache) -> tuple[slice | None, Array | None, Array | None]:
        """What the new tokens see of the keys, alike in all layers: the part to look at, a bias of the scores, as `attend`
        takes it, and which places (B,1,S,1) hold what must not matter; None where there is no such thing."""
        lengths, W = cache.row_lengths, self.window
        recent = slice(-W, None) if W and lengths is None else None
        if lengths is None and self.slopes is None:
            return recent, None, None
        hidden = bias = None
        last = cache.length - 1 if lengths is None else lengths[:, None] - 1
        places = cache.slot_positions()
        distance = (last - places)[..., recent or slice(None)]  # (S,) or (B,S)
        if self.slopes is not None:
            bias = (-self.slopes * distance[..., None, None, :]).astype(self.x.dtype)
        if lengths is not None:
            out = places < 0
            if W:
                out |= distance >= W
                if out.shape[1] > W:
                    hidden = out[:, None, :, None]
            bias = np.where(out[:, None, None], -np.inf, 0 if bias is None else bias).astype(self.x.dtype)
        return recent, bias, hidden
