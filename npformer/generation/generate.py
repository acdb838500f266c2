"""A text continued: the model is asked for the next id, one is drawn and appended, and so on.

Each step runs the model on the last `max_len` ids, whole: the plainest way, and the measure of faster ones.
"""

import warnings
from collections.abc import Iterator
from typing import Protocol

import numpy as np

from npformer.arguments import check_count, check_ids, check_whole
from npformer.generation.sampling import Choice, check_choice, draw
from npformer.operation import Array


class Config(Protocol):
    @property
    def max_len(self) -> int: ...
    @property
    def vocab_size(self) -> int: ...


class Model(Protocol):
    """ids (B, T) → logits (B, T, V), with T up to config.max_len and V = config.vocab_size."""

    @property
    def config(self) -> Config: ...
    def __call__(self, ids: Array, /) -> Array: ...


def generate(
    model: Model,
    ids: Array,
    n: int,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
) -> Array:
    """Continue `ids` by `n` ids: ids (T,) or (B, T), integers → the new ones alone, (n,) or (B, n) int64.

    T ≥ 1, n ≥ 0; temperature, top_k and top_p as in `sample`. The same seed gives the same ids. What does not fit into the
    context is left out from the left: with one warning where the prompt itself is too long, silently as the text grows.
    ValueError with the step where the logits are not finite.
    """
    steps = start("generate", model, ids, n, check_choice("generate", temperature, top_k, top_p), seed)
    new = np.empty((*ids.shape[:-1], n), np.int64)
    for t, step in enumerate(steps):
        new[..., t] = step
    return new


def stream(
    model: Model,
    ids: Array,
    n: int,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
) -> Iterator[Array]:
    """`generate` one step at a time: each item has the ids of one step, () or (B,) int64. The arguments are checked now."""
    return start("stream", model, ids, n, check_choice("stream", temperature, top_k, top_p), seed)


def start(title: str, model: Model, ids: Array, n: int, choice: Choice, seed: int) -> Iterator[Array]:
    """The arguments checked and the prompt cropped, for whoever called `generate` or `stream`."""
    config = model.config
    check_ids(title, "ids", ids, limit=config.vocab_size)
    if ids.ndim not in (1, 2):
        raise ValueError(f"{title}: ids must have the axes (T) or (B, T), got the shape {ids.shape}")
    length = ids.shape[-1]
    if length == 0:
        raise ValueError(f"{title}: ids must hold at least one id to continue from, got the shape {ids.shape}")
    n = check_count(title, "n", n, low=0)
    if check_whole(title, "seed", seed) < 0:
        raise ValueError(f"{title}: seed must be at least 0, got {seed}")
    left_out = length - config.max_len
    if left_out > 0:
        warnings.warn(
            f"the prompt has {length} tokens, the context holds {config.max_len}: the first {left_out} are left out",
            UserWarning,
            stacklevel=3,
        )
    context = np.array(ids[..., -config.max_len :], np.int64)
    return take_steps(title, model, context, n, choice, np.random.default_rng(int(seed)))


def take_steps(title: str, model: Model, ids: Array, n: int, choice: Choice, rng: np.random.Generator) -> Iterator[Array]:
    config = model.config
    context = np.atleast_2d(ids)  # (T) → (1,T)
    for step in range(n):
        logits = model(context)
        expected = (*context.shape, config.vocab_size)
        if logits.shape != expected:
            raise ValueError(f"{title}: the model's logits must have the shape {expected}, got {logits.shape}")
        rows = logits[:, -1].reshape(*ids.shape[:-1], config.vocab_size)  # (B,T,V) → (B,V) or (V)
        new = draw(f"{title}, step {step}", rows, choice, rng)
        context = np.concatenate([context, new.reshape(-1, 1)], axis=1)[:, -config.max_len :]
        yield new
