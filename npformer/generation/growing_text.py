"""A text that grows, and what the model expects next in each of its rows."""

from typing import Any

import numpy as np

from npformer.arguments import is_array, kind
from npformer.generation.prompt import Model, Prompt
from npformer.observing import OBSERVERS
from npformer.operation import Array


class GrowingText:
    """The prompt's ids (B,T), to which `append` adds a column; `next_logits` is asked once at each length.

    With a cache the model reads each id once. Without one, and where the text has outgrown the context, it reads the last
    max_len ids of every row at each step: every position has moved then, and nothing computed before holds any more.
    """

    def __init__(self, title: str, model: Model, prompt: Prompt, *, cached: bool) -> None:
        self.title = title
        self.model: Any = model
        self.max_len, self.vocab_size = model.config.max_len, model.config.vocab_size
        self.buffer, self.keep, self.source, self.source_keep = prompt
        self.length = self.buffer.shape[1]
        self.cached = cached and hasattr(model, "new_cache")
        self.cache: Any = None

    @property
    def ids(self) -> Array:
        return self.buffer[:, : self.length]

    def next_logits(self) -> Array:
        """(B,V) float64. ValueError or TypeError where the model gives another shape or no floating numbers."""
        fits = self.length <= self.max_len
        if fits and self.cache is not None:
            logits = self.model.decode_step(self.buffer[:, self.length - 1], self.cache)
            check_logits(self.title, logits, (len(self.buffer), self.vocab_size))
            return self.was_read(logits)
        seen = slice(max(0, self.length - self.max_len), self.length)
        keep = None if self.keep is None else self.keep[:, seen]
        context = Prompt(self.buffer[:, seen], keep, self.source, self.source_keep)
        if fits and self.cached:
            self.cache = self.model.new_cache(*(() if self.source is None else (self.source, self.source_keep)))
            logits = self.model.decode(context.ids, self.cache, **({} if keep is None else {"keep": keep}))
            check_logits(self.title, logits, (*context.ids.shape, self.vocab_size))
        else:
            self.cache = None
            logits = full_pass(self.title, self.model, context)
        return self.was_read(logits[:, -1])  # (B,T,V) → (B,V)

    def was_read(self, logits: Array) -> Array:
        for observer in OBSERVERS.get():
            observer.reads(self)
        return np.asarray(logits, np.float64)

    def append(self, new: Array) -> None:
        """One more id for each row: new (B,)."""
        for observer in OBSERVERS.get():
            observer.writes(self, new)
        if self.length == self.buffer.shape[1]:  # twice the room, so that an id is moved about once
            self.buffer = np.concatenate([self.buffer, np.empty_like(self.buffer)], axis=1)
            if self.keep is not None:
                self.keep = np.concatenate([self.keep, np.ones_like(self.keep)], axis=1)
        self.buffer[:, self.length] = new
        self.length += 1

    def choose(self, rows: Array) -> None:
        """Row r becomes what row rows[r] was: rows (B',)."""
        if np.array_equal(rows, np.arange(len(self.buffer))):
            return
        if self.cache is not None:
            self.cache.reorder(rows)
        else:
            for observer in OBSERVERS.get():
                observer.chooses(self, rows)
        self.buffer = self.buffer[rows]
        self.keep, self.source, self.source_keep = (
            None if array is None else array[rows] for array in (self.keep, self.source, self.source_keep)
        )


def full_pass(title: str, model: Model, text: Prompt) -> Array:
    """The logits (B,T,V) of one pass over the whole text, without a cache."""
    if text.source is not None:
        logits = model(text.source, text.ids, text.source_keep, text.keep)
    else:
        logits = model(text.ids) if text.keep is None else model(text.ids, keep=text.keep)
    return check_logits(title, logits, (*text.ids.shape, model.config.vocab_size))


def check_logits(title: str, logits: Any, expected: tuple[int, ...]) -> Array:
    if not is_array(logits) or logits.dtype.kind != "f":
        raise TypeError(f"{title}: the model's logits must be an array of floating numbers, got {kind(logits)}")
    if logits.shape != expected:
        raise ValueError(f"{title}: the model's logits must have the shape {expected}, got {logits.shape}")
    return logits
