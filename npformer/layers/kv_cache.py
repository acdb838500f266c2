"""The keys and values of one attention layer, kept so that a sequence can be read in pieces.

A decoder's token sees itself and what came before, and the keys and values of those never change. So each is made once:

    (keys, values), backward = cache.append(k, v)        keys = the earlier keys, then k        values likewise

Backward. A row of `keys` is an earlier row or one of k, and its gradient goes where the row came from: the first part of
dkeys to the earlier tokens, the rest is dk. Tokens of later pieces see these keys too. What those owe comes out of their own
backward, for the caller to hand on to the piece before, where it is added:

    later = 0;  for each piece, from the last to the first:  dkeys = what the piece's own attention gives + later
                                                             later, dk = the two parts of dkeys

Only a plain sequence has a backward. Rows of unequal length, and a cache that was reordered, forked or rewound, are for
generation; there it is an error that says so.

Source: Shazeer 2019 ("Fast Transformer Decoding"), section 2.3.
"""

import copy
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from npformer.arguments import check_count, check_integers, check_mask, is_array, kind
from npformer.operation import Array

KeysAndValues: TypeAlias = tuple[Array, Array]
AppendBackward: TypeAlias = Callable[[Array, Array], tuple[Array, Array, Array, Array]]
FIRST_SIZE = 16  # slots


class KVCache:
    """Room for `max_len` tokens in each row, taken as it is needed: at least twice as much each time. SlidingCache is for
    a window.

    length     how many tokens the longest row has had
    positions  where in their rows the keys stand that `append` returned last: (S,), or (B, S) with −1 for no token
    """

    def __init__(self, max_len: int) -> None:
        self.max_len = check_count("KVCache", "max_len", max_len)
        self.length = 0
        self.row_lengths: Array | None = None  # (B,) where rows may differ
        self.positions: Array = np.arange(0)
        self.key_slots: Array = np.zeros(0)  # (B,G,slots,K) from the first token on; 0 where no token is
        self.value_slots: Array = np.zeros(0)  # (B,G,slots,V)
        self.no_backward = ""  # why there is none

    @property
    def begun(self) -> bool:
        return self.key_slots.ndim == 4

    @property
    def lengths(self) -> Array | None:
        """How many tokens each row has had (B,); None before the first `append`."""
        if not self.begun:
            return None
        return np.full(len(self.key_slots), self.length) if self.row_lengths is None else self.row_lengths

    @property
    def nbytes(self) -> int:
        """The bytes of keys and values, with the room that is not used yet."""
        return self.key_slots.nbytes + self.value_slots.nbytes

    def next_positions(self, T: int, keep: Array | None = None) -> Array:
        """Where the next T tokens will stand: (T,), or (B, T) where rows differ; −1 for those that `keep` (B, T) hides."""
        if keep is None and self.row_lengths is None:
            return self.length + np.arange(T)
        before = self.length if self.row_lengths is None else self.row_lengths[:, None]  # (B,1)
        return np.asarray(before + np.arange(T)) if keep is None else np.where(keep, before + keep.cumsum(1) - 1, -1)

    def append(self, k: Array, v: Array, keep: Array | None = None) -> tuple[KeysAndValues, AppendBackward]:
        """Take in k (B, G, T, K) and v (B, G, T, V) → the keys (B, G, S, K) and values (B, G, S, V) of all tokens so far,
        and backward(dkeys, dvalues) → dkeys and dvalues of the earlier tokens, dk, dv.

        With `keep` (B, T), boolean, a row takes only the tokens that are True, and places them side by side; S is that of
        the longest row. What is returned may be views, in whose slots nobody writes as long as there is a backward.

        ValueError or TypeError, and nothing is changed, where k and v do not fit what the cache holds, or it is full.
        """
        self.check(k, v, keep)
        before = self.length
        length, row_lengths = before + k.shape[2], self.row_lengths
        if keep is not None or row_lengths is not None:
            starts = np.full(len(k), before) if row_lengths is None else row_lengths
            row_lengths = starts + (k.shape[2] if keep is None else keep.sum(1))
            length = int(row_lengths.max(initial=0))
        self.check_room(length)
        keys, values = self.store(k, v, keep, length, row_lengths)
        self.length, self.row_lengths = length, row_lengths
        if row_lengths is not None:
            self.no_backward = self.no_backward or "may have rows of unequal length"
        return (keys, values), self.backward_of(before, length)

    def backward_of(self, before: int, length: int) -> AppendBackward:
        reason = self.no_backward
        of_keys, of_values = ((*x.shape[:2], length, x.shape[3]) for x in (self.key_slots, self.value_slots))

        def refuse(*cotangents: Array) -> Any:
            raise ValueError(f"KVCache: no backward: the cache {reason}, which is for generation")

        def backward(dkeys: Array, dvalues: Array) -> tuple[Array, Array, Array, Array]:
            for name, d, shape in (("dkeys", dkeys, of_keys), ("dvalues", dvalues, of_values)):
                if d.shape != shape:
                    raise ValueError(f"KVCache: {name} has the shape {d.shape}, but what was returned has {shape}")
            return dkeys[:, :, :before], dvalues[:, :, :before], dkeys[:, :, before:], dvalues[:, :, before:]

        return refuse if reason else backward

    def append_one(self, k: Array, v: Array) -> KeysAndValues:
        """`append` of one token a row, k (B, G, K) and v (B, G, V), unchecked and without a backward: all slots in use."""
        n = self.length
        if not self.begun or n == self.key_slots.shape[2]:
            self.check_room(n + 1)
            self.make_room(k, v, n + 1)
        keys, values = self.key_slots, self.value_slots
        if self.row_lengths is None:
            keys[:, :, n], values[:, :, n] = k, v
        else:
            rows = np.arange(len(k))
            keys[rows, :, self.row_lengths], values[rows, :, self.row_lengths] = k, v
            self.row_lengths = self.row_lengths + 1
        self.length = n + 1
        return keys[:, :, : n + 1], values[:, :, : n + 1]

    def slot_positions(self) -> Array:
        """Where in their rows the tokens in the slots in use stand: (S,), or (B, S) with −1 for none where rows differ."""
        places = np.arange(self.length)
        return places if self.row_lengths is None else np.where(places < self.row_lengths[:, None], places, -1)

    # For generation.

    def reorder(self, rows: Array) -> None:
        """Row i becomes what row rows[i] was: rows (B′,) integers, of which some may come twice and others not at all."""
        check_rows("KVCache", rows, len(self.key_slots))
        self.key_slots, self.value_slots = self.key_slots[rows], self.value_slots[rows]
        if self.row_lengths is not None:
            self.row_lengths = self.row_lengths[rows]
            self.length = int(self.row_lengths.max(initial=0))
        self.no_backward = "was reordered"

    def fork(self) -> "KVCache":
        """Another cache that holds the same; what one takes in later, the other does not."""
        other = copy.copy(self)
        other.key_slots, other.value_slots = self.key_slots.copy(), self.value_slots.copy()
        other.no_backward = "is a fork"
        return other

    def rewind(self, lengths: int | Array) -> None:
        """Forget all but the first `lengths` tokens of each row: one number for all, or (B,) integers."""
        had = self.lengths
        given = np.asarray(lengths)
        check_integers("KVCache.rewind", "lengths", given)
        had = np.zeros((), np.int64) if had is None else had
        if given.shape not in ((), had.shape) or ((given < 0) | (given > had)).any():
            raise ValueError(f"KVCache.rewind: lengths must be in 0 … {had.tolist()}, which it holds, got {lengths}")
        if not self.begun:
            return
        self.length = int(given.max(initial=0))
        alike = given.ndim == 0 or bool((given == self.length).all())
        self.row_lengths = None if alike else given.astype(np.int64)
        stays = (self.slot_positions() >= 0)[..., None]  # (S,1) or (B,S,1)
        stays = stays if alike else stays[:, None]  # (B,1,S,1)
        kept = self.key_slots[:, :, : self.length], self.value_slots[:, :, : self.length]
        # New slots: a backward may still read the old ones.
        self.key_slots, self.value_slots = np.zeros_like(self.key_slots), np.zeros_like(self.value_slots)
        self.key_slots[:, :, : self.length], self.value_slots[:, :, : self.length] = (np.where(stays, x, 0) for x in kept)
        self.no_backward = "was rewound"

    # How slots are filled.

    def check_room(self, length: int) -> None:
        if length > self.max_len:
            more = length - self.length
            raise ValueError(f"KVCache: full: it holds {self.length} tokens, and {more} more pass max_len = {self.max_len}")

    def store(self, k: Array, v: Array, keep: Array | None, length: int, row_lengths: Array | None) -> KeysAndValues:
        """Write the tokens behind those of their rows, and return all; what `length` and `row_lengths` will be is given."""
        self.make_room(k, v, length)
        if row_lengths is None:
            self.key_slots[:, :, self.length : length], self.value_slots[:, :, self.length : length] = k, v
            self.positions = np.arange(length)
        else:
            places = self.next_positions(k.shape[2], keep)
            for b, row in enumerate(np.broadcast_to(places, (len(k), k.shape[2]))):
                self.key_slots[b][:, row[row >= 0]] = k[b][:, row >= 0]
                self.value_slots[b][:, row[row >= 0]] = v[b][:, row >= 0]
            self.positions = np.where(np.arange(length) < row_lengths[:, None], np.arange(length), -1)
        return self.key_slots[:, :, :length], self.value_slots[:, :, :length]

    def make_room(self, k: Array, v: Array, length: int) -> None:
        """Slots for `length` tokens with keys and values like k (B, G, …, K) and v."""
        n_slots = self.key_slots.shape[2] if self.begun else 0
        if self.begun and length <= n_slots:
            return
        n_slots = min(self.max_len, max(length, 2 * n_slots, FIRST_SIZE))
        used = slice(self.length)
        held = self.key_slots, self.value_slots
        self.key_slots, self.value_slots = (np.zeros((*x.shape[:2], n_slots, x.shape[-1]), x.dtype) for x in (k, v))
        if self.length:
            self.key_slots[:, :, used], self.value_slots[:, :, used] = (x[:, :, used] for x in held)

    def check(self, k: Any, v: Any, keep: Any) -> None:
        for name, array in (("k", k), ("v", v)):
            if not is_array(array) or array.dtype.kind not in "fc":
                raise TypeError(f"KVCache: {name} must be an array of floating numbers, got {kind(array)}")
            if array.ndim != 4:
                raise ValueError(f"KVCache: {name} must have the axes (B, G, T, K), got the shape {array.shape}")
        if k.shape[:3] != v.shape[:3] or k.dtype != v.dtype:
            raise ValueError(f"KVCache: k is {k.dtype} {k.shape}, but v is {v.dtype} {v.shape}")
        if keep is not None:
            check_mask("KVCache", "keep", keep, "for a token")
            if keep.shape != (k.shape[0], k.shape[2]):
                raise ValueError(f"KVCache: keep must have the shape (B, T) = {(k.shape[0], k.shape[2])}, got {keep.shape}")
        if self.begun:
            for name, array, held in (("k", k, self.key_slots), ("v", v, self.value_slots)):
                for axis, what in ((0, "rows"), (1, "heads"), (3, "features")):
                    if array.shape[axis] != held.shape[axis]:
                        raise ValueError(
                            f"KVCache: {name} has {array.shape[axis]} {what}, but the cache was begun with "
                            f"{held.shape[axis]}, by another batch or model"
                        )
                if array.dtype != held.dtype:
                    raise TypeError(f"KVCache: {name} is {array.dtype}, but the cache holds {held.dtype}")


def check_rows(title: str, rows: Any, n_rows: int) -> None:
    """`rows` (B′,) integers of 0 … n_rows − 1, for reorder."""
    check_integers(f"{title}.reorder", "rows", rows)
    if rows.ndim != 1 or ((rows < 0) | (rows >= n_rows)).any():
        raise ValueError(f"{title}.reorder: rows must be a list of some of the {n_rows} rows, got {rows.tolist()}")
