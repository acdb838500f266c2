"""Models that generation can be tried on exactly: what comes next is read off a table, by a number made of all ids before.

    state ← (7·state + id + 1) mod M  for every id that is not hidden,        logits = table[state]

Integers alone, so that a cache and a full pass give the same bits, and a row the same as with other mates.
"""

from types import SimpleNamespace

import numpy as np

M = 101


class ToyCache:
    def __init__(self, states=None):
        self.states, self.lengths = states, None

    def reorder(self, rows):
        self.states, self.lengths = self.states[rows], self.lengths[rows]


class ToyGPT:
    """`calls` has the name and the shape of the ids of each time that it was asked."""

    def __init__(self, V=5, max_len=13, seed=0, scale=1.0):
        self.config = SimpleNamespace(max_len=max_len, vocab_size=V)
        self.table = scale * np.random.default_rng(seed).standard_normal((M, V))
        self.calls = []

    def run(self, states, ids, keep):
        assert ids.dtype == np.int64
        keep = np.ones(ids.shape, bool) if keep is None else keep
        logits = np.zeros((*ids.shape, self.table.shape[1]))
        for t in range(ids.shape[1]):
            states = np.where(keep[:, t], (7 * states + ids[:, t] + 1) % M, states)
            logits[:, t] = np.where(keep[:, t, None], self.table[states], 0)
        return logits, states

    def full(self, states, ids, keep):
        self.calls.append(("full", ids.shape))
        assert ids.shape[1] <= self.config.max_len
        return self.run(states, ids, keep)[0]

    def __call__(self, ids, keep=None):
        return self.full(np.zeros(len(ids), int), ids, keep)

    def new_cache(self):
        return ToyCache()

    def decode(self, ids, cache, keep=None):
        self.calls.append(("decode", ids.shape))
        return self.read(ids, cache, keep)

    def decode_step(self, ids, cache):
        self.calls.append(("step", ids.shape))
        return self.read(ids[:, None], cache, None)[:, 0]

    def read(self, ids, cache, keep):
        if cache.lengths is None:
            cache.lengths = np.zeros(len(ids), int)
            cache.states = np.zeros(len(ids), int) if cache.states is None else cache.states
        cache.lengths = cache.lengths + (ids.shape[1] if keep is None else keep.sum(1))
        assert (cache.lengths <= self.config.max_len).all()
        logits, cache.states = self.run(cache.states, ids, keep)
        return logits


class ToyEncoderDecoder(ToyGPT):
    """The target's first state is the source's last."""

    def __init__(self, V=5, source_V=7, max_len=13, seed=0):
        super().__init__(V, max_len, seed)
        self.config.source_vocab_size = source_V

    def encode(self, source, source_keep=None):
        return self.run(np.full(len(source), 3), source, source_keep)[1]

    def __call__(self, source, target, source_keep=None, target_keep=None):
        return self.full(self.encode(source, source_keep), target, target_keep)

    def new_cache(self, source, source_keep=None):
        return ToyCache(self.encode(source, source_keep))


def padded(rows, width, rng):
    """The rows as (ids, keep): each in its order at random places of `width`, with anything in between."""
    ids, keep = rng.integers(-99, 99, (len(rows), width)), np.zeros((len(rows), width), bool)
    for r, row in enumerate(rows):
        places = np.sort(rng.choice(width, len(row), replace=False))
        ids[r, places], keep[r, places] = row, True
    return ids, keep
