"""A stack: ids become features, layer by layer. The models differ in what they stack and in what they make of the features.

    ids → embedding (+ token types, + positions) → dropout → layers → final norm

Padding. A hidden token is as if it were not there: positions count the tokens that are kept, no query sees the others, and
their features are 0. What ids stand there is not read.

Backward. The chain, from the last line to the first. All decoder layers read one memory, so its gradient is their sum.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from npformer.arguments import check_ids, check_integers, check_mask, is_array
from npformer.layers import (
    DecoderLayer,
    Dropout,
    Embedding,
    EncoderLayer,
    KVCache,
    Layer,
    LearnedPositions,
    SinusoidalPositions,
)
from npformer.operation import Array

NOT_COUNTED = -1  # as a target
Owed: TypeAlias = list[tuple[Array, Array]]  # to the keys and values of each layer


class Stack(Layer):
    """ids (B,T) → features (B,T,D): of encoder layers, or of decoder layers, which may read a memory (B,S,D)."""

    def __init__(
        self,
        embedding: Embedding,
        positions: LearnedPositions | SinusoidalPositions | None,
        layers: Sequence[EncoderLayer | DecoderLayer],
        final_norm: Layer | None,
        *,
        token_types: Embedding | None = None,
        dropout: float = 0.0,
    ) -> None:
        self.embedding = embedding
        self.token_types = token_types
        self.positions = positions
        self.dropout = Dropout(dropout)
        self.layers: list[Layer] = list(layers)
        self.final_norm = final_norm

    def forward(
        self,
        ids: Array,
        memory: Array | None = None,
        *,
        token_types: Array | None = None,
        keep: Array | None = None,
        memory_keep: Array | None = None,
        caches: Sequence[KVCache] | None = None,
        rng: np.random.Generator | None = None,
    ) -> tuple[Array, Any]:
        """(features, backward), with `keep` (B, T) and `memory_keep` (B, S), and a cache for each layer of a decoder.

        backward(dfeatures) → None, or dmemory where a memory was given. With caches, backward(dfeatures, later) → earlier,
        or (dmemory, earlier): lists of a pair (dkeys, dvalues) for each layer. `later` is what later tokens owe to all
        tokens so far, and is left out where there are none; `earlier` is what is owed to those before these.
        """
        positions = positions_of(ids, keep, caches)
        x, embedding_backward = self.embedding.forward(ids if keep is None else np.where(keep, ids, 0))  # (B,T) → (B,T,D)
        types_backward = positions_backward = norm_backward = None
        if token_types is not None and self.token_types:
            added, types_backward = self.token_types.forward(token_types)
            x = x + added
        if self.positions:
            x, positions_backward = self.positions.forward(x, positions)
        if keep is not None:  # id 0, which stands for hidden ones, may have any row; their gradient is 0 already
            x = np.where(keep[..., None], x, 0)
        x, drop_backward = self.dropout.forward(x, rng)
        options: dict[str, Any] = {"positions": positions, "rng": rng}
        if memory is not None:
            options |= {"memory": memory, "memory_keep": None if memory_keep is None else memory_keep[:, None, None]}
        layer_backwards: list[Callable[..., Any]] = []
        for i, layer in enumerate(self.layers):
            x, layer_backward = layer.forward(x, **options, **({} if caches is None else {"cache": caches[i]}))
            layer_backwards.append(layer_backward)
        if self.final_norm:
            x, norm_backward = self.final_norm.forward(x)
        features = x if keep is None else np.where(keep[..., None], x, 0)
        if caches is not None and caches[0].no_backward:
            return features, layer_backwards[0]  # which says so

        def backward(dx: Array, later: Owed | None = None) -> Any:
            dx = dx if keep is None else np.where(keep[..., None], dx, 0)
            if norm_backward:
                dx = norm_backward(dx)
            dmemories: list[Array] = []
            earlier: Owed = []
            for i in reversed(range(len(layer_backwards))):
                gradients = layer_backwards[i](dx, *(later[i] if later else ()))
                dx, *others = gradients if isinstance(gradients, tuple) else (gradients,)
                if caches is not None:
                    *others, dkeys, dvalues = others
                    earlier.insert(0, (dkeys, dvalues))
                dmemories += others
            dx = drop_backward(dx)
            if positions_backward:
                dx = positions_backward(dx)
            if types_backward:
                types_backward(dx)
            embedding_backward(dx)
            results = ([sum(dmemories)] if dmemories else []) + ([earlier] if caches is not None else [])
            return tuple(results) if len(results) == 2 else results[0] if results else None

        return features, backward


def positions_of(ids: Array, keep: Array | None, caches: Sequence[KVCache] | None) -> Array | None:
    """Where the tokens stand, (T,) or (B, T) with −1 for hidden ones; None for 0 … T − 1."""
    if caches is not None:
        return caches[0].next_positions(ids.shape[1], keep)
    return None if keep is None else np.where(keep, keep.cumsum(1) - 1, -1)


def check_tokens(
    title: str, name: str, ids: Any, keep: Any, vocab_size: int, max_len: int, caches: Sequence[KVCache] | None = None
) -> None:
    """ids (B, T) of the vocabulary where `keep` (B, T) does not hide them, and none past max_len."""
    check_integers(title, name, ids)
    if ids.ndim != 2 or (ids.shape[1] > max_len and caches is None):
        raise ValueError(f"{title}: {name} must have the shape (B, T), T at most max_len = {max_len}, got {ids.shape}")
    if keep is not None:
        check_mask(title, f"{name}'s keep", keep, "for a token")
        if keep.shape != ids.shape:
            raise ValueError(f"{title}: {name}'s keep must have the shape {ids.shape} of {name}, got {keep.shape}")
    check_ids(title, name, ids if keep is None else np.where(keep, ids, 0), limit=vocab_size)
    if caches is not None:
        if caches[0].begun and len(ids) != len(caches[0].key_slots):
            raise ValueError(f"{title}: {name} has {len(ids)} rows, but the cache {len(caches[0].key_slots)}")
        end = int(caches[0].next_positions(ids.shape[1], keep).max(initial=-1)) + 1
        if end > max_len:
            raise ValueError(f"{title}: {name} reach to token {end} with those in the cache, past max_len = {max_len}")


def counted(targets: Any, keep: Array | None) -> Any:
    """`targets` without those that `keep` hides; cross_entropy refuses what is no array of integers of its shape."""
    if keep is None or not is_array(targets) or targets.dtype.kind not in "iu" or targets.shape != keep.shape:
        return targets
    return np.where(keep, targets.astype(np.int64), NOT_COUNTED)
