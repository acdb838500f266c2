"""What a decoder keeps of the tokens that it has read: each layer's keys and values, and the memory that they look at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from npformer.layers import KVCache, Layer
from npformer.layers.kv_cache import check_rows
from npformer.observing import OBSERVERS
from npformer.operation import Array

if TYPE_CHECKING:
    from npformer.models.one_token import OneToken


class DecoderCache:
    """The caches of a model's decoder layers, moved together; made by the model's `new_cache`, and of use to it alone.

    memory  (B, S, D), what an encoder made of the source; memory_keep (B, S)
    """

    def __init__(
        self, model: Any, layers: Sequence[KVCache], memory: Array | None = None, memory_keep: Array | None = None
    ) -> None:
        self.model = model
        self.layers = list(layers)
        self.memory, self.memory_keep = memory, memory_keep
        self.one_token: OneToken | None = None  # the model made ready for decode_step, and its keys and values of the memory
        if memory is not None:
            for observer in OBSERVERS.get():
                observer.begins(self.layers, memory)

    @property
    def n_rows(self) -> int | None:
        """B; None before the first token, where there is no memory either."""
        return len(self.memory) if self.memory is not None else None if self.lengths is None else len(self.lengths)

    @property
    def length(self) -> int:
        """How many tokens the longest row has had."""
        return self.layers[0].length

    @property
    def lengths(self) -> Array | None:
        """How many tokens each row has had (B,); None before the first."""
        return self.layers[0].lengths

    @property
    def no_backward(self) -> str:
        """Why a pass with this cache has no backward; empty where it has one."""
        return self.layers[0].no_backward

    @property
    def nbytes(self) -> int:
        """The bytes of all keys and values, with the room not used yet, and of the memory."""
        of_memory = 0 if self.memory is None else self.memory.nbytes
        of_cross = 0 if self.one_token is None else self.one_token.nbytes
        return sum(cache.nbytes for cache in self.layers) + of_memory + of_cross

    def check(self, title: str, model: Layer) -> None:
        if self.model is not model:
            raise ValueError(f"{title}: the cache was made by another model's new_cache")

    def reorder(self, rows: Array) -> None:
        """Row i becomes what row rows[i] was: rows (B′,) integers, of which some may come twice and others not at all."""
        check_rows("DecoderCache", rows, self.n_rows or 0)
        for observer in OBSERVERS.get():
            observer.moves(self.layers, rows)
        for cache in self.layers:
            if cache.begun:
                cache.reorder(rows)
        if self.memory is not None:
            self.memory = self.memory[rows]
            self.memory_keep = None if self.memory_keep is None else self.memory_keep[rows]
        if self.one_token is not None:
            self.one_token.reorder(rows)

    def fork(self) -> DecoderCache:
        """Another cache that holds the same; what one takes in later, the other does not."""
        other = DecoderCache(self.model, [cache.fork() for cache in self.layers], self.memory, self.memory_keep)
        other.one_token = None if self.one_token is None else self.one_token.fork()
        for observer in OBSERVERS.get():
            observer.forks(self.layers, other.layers)
        return other

    def rewind(self, lengths: int | Array) -> None:
        """Forget all but the first `lengths` tokens of each row: one number for all, or (B,) integers."""
        for cache in self.layers:
            cache.rewind(lengths)
        left = self.lengths
        if left is not None:
            for observer in OBSERVERS.get():
                observer.rewinds(self.layers, left)
