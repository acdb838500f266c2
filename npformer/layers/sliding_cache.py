"""A cache for attention in a window: a ring of W slots, in which a token takes the place of the one W before it.

    slot of position p = p mod W        the token in slot s stands at the latest position p < length with p mod W = s

A query that sees W keys, its own included, needs no others: the memory stays the same however long the sequence grows. The
keys lie in no order, but attention asks for none, only where each of them stands.

Source: Beltagy, Peters and Cohan 2020, section 3.1 (the window); Jiang et al. 2023 ("Mistral 7B"), section 2 (the ring).
"""

import numpy as np

from npformer.arguments import check_count
from npformer.layers.kv_cache import KeysAndValues, KVCache
from npformer.operation import Array


class SlidingCache(KVCache):
    """A KVCache that keeps the last `window` tokens of each row. It is never full, and has no backward."""

    def __init__(self, window: int) -> None:
        super().__init__(check_count("SlidingCache", "window", window))
        self.window = window
        self.no_backward = "keeps only the last tokens"

    def append_one(self, k: Array, v: Array) -> KeysAndValues:
        if not self.begun:
            self.make_room(k, v, self.window)
        if self.row_lengths is None:
            slot = self.length % self.window
            self.key_slots[:, :, slot], self.value_slots[:, :, slot] = k, v
        else:
            rows, slots = np.arange(len(k)), self.row_lengths % self.window
            self.key_slots[rows, :, slots], self.value_slots[rows, :, slots] = k, v
            self.row_lengths = self.row_lengths + 1
        self.length += 1
        n_used = min(self.length, self.window)
        return self.key_slots[:, :, :n_used], self.value_slots[:, :, :n_used]

    def slot_positions(self) -> Array:
        slots = np.arange(min(self.length, self.window))
        last = self.length - 1 if self.row_lengths is None else self.row_lengths[:, None] - 1
        places = np.asarray(last - (last - slots) % self.window)
        return np.where(places < 0, -1, places)

    def rewind(self, lengths: int | Array) -> None:
        raise ValueError("SlidingCache.rewind: the tokens before those it would forget are no longer there")

    def check_room(self, length: int) -> None:
        """There always is."""

    def store(self, k: Array, v: Array, keep: Array | None, length: int, row_lengths: Array | None) -> KeysAndValues:
        """The slots as they were and the new tokens behind them: the first of those see what the last push out."""
        self.make_room(k, v, self.window)
        places = np.broadcast_to(self.next_positions(k.shape[2], keep), (len(k), k.shape[2]))  # (B,T)
        old = np.broadcast_to(self.slot_positions(), (len(k), min(self.length, self.window)))
        self.positions = np.concatenate([old, places], 1)  # (B,S)
        keys = np.concatenate([self.key_slots[:, :, : old.shape[1]], k], 2)
        values = np.concatenate([self.value_slots[:, :, : old.shape[1]], v], 2)
        ends = np.broadcast_to(length if row_lengths is None else row_lengths, len(k))
        for b, row in enumerate(places):
            stays = (row >= 0) & (row >= ends[b] - self.window)
            slots = row[stays] % self.window
            self.key_slots[b][:, slots], self.value_slots[b][:, slots] = k[b][:, stays], v[b][:, stays]
        return keys, values
