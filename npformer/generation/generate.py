"""A text continued: the model is asked for the next id, one is chosen and appended, and so on."""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from npformer.arguments import check_count, check_flag, check_whole
from npformer.functional import softmax
from npformer.generation.constraints import Constraints, check_constraints
from npformer.generation.growing_text import GrowingText
from npformer.generation.prompt import Model, check_prompt, check_room
from npformer.generation.sampling import Choice, check_choice, draw, refuse, usable
from npformer.operation import Array


def generate(
    model: Model,
    ids: Array,
    n: int,
    *,
    keep: Array | None = None,
    source: Array | None = None,
    source_keep: Array | None = None,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
    end_id: int | None = None,
    min_length: int = 0,
    repetition_penalty: float = 1.0,
    cached: bool = True,
    probabilities: bool = False,
) -> Any:
    """Continue `ids` by at most n ids: ids (T,) or (B,T), integers → the new ones alone, (m,) or (B,m) int64.

    m is n, or less where every row has ended before. A row ends with `end_id`, which may come after `min_length` other new
    ids, and is filled up with it. With `probabilities` the answer is (ids, P), P (m,V) or (B,m,V) float64: what the model
    itself expected at each step, the softmax of its logits before anything is done to them; and end_id, certainly, where
    the row had ended.

    T ≥ 1, n ≥ 0. `keep` (T,) or (B,T), boolean, is False where an id is not there: padding, on any side. An encoder–decoder
    needs a `source` (S,) or (B,S), with `source_keep`; ids is then the beginning of what is written, the begin id at least.

    In this order: repetition_penalty > 0 (1 does nothing, more makes ids rarer that the row has, prompt included), as in
    `constraints`; temperature, where 0 takes the largest logit; top_k; top_p: as in `sample`. The same seed gives the same
    ids. A step takes B numbers, one for each row, ended or not: what a row draws depends on the size of the batch and its
    place in it, and not on what its mates are or draw.

    A GPT's prompt that is longer than the context loses ids on the left, with one warning, and a text that grows beyond it
    does silently; each id then costs a run over the whole context. An encoder–decoder needs room for all T + n − 1 ids
    that it reads: ValueError. `cached` = False runs the model whole at each step, which gives the same ids, but where
    rounding decides: the plainest way, and the measure of the faster one. ValueError with the step where logits are not
    finite, or where min_length leaves no id.
    """
    steps = start(
        *("generate", model, ids, n, keep, source, source_keep, temperature, top_k, top_p, seed),
        *(end_id, min_length, repetition_penalty, cached, probabilities),
    )
    lead, V = ids.shape[:-1], model.config.vocab_size
    new, P = [np.empty((*lead, 0), np.int64)], [np.empty((*lead, 0, V))]
    for step in steps:
        if probabilities:
            step, expected = step
            P.append(expected[..., None, :])
        new.append(step[..., None])
    text = np.concatenate(new, -1)  # m × (...,1) → (...,m)
    return (text, np.concatenate(P, -2)) if probabilities else text  # m × (...,1,V) → (...,m,V)


def stream(
    model: Model,
    ids: Array,
    n: int,
    *,
    keep: Array | None = None,
    source: Array | None = None,
    source_keep: Array | None = None,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
    end_id: int | None = None,
    min_length: int = 0,
    repetition_penalty: float = 1.0,
    cached: bool = True,
    probabilities: bool = False,
) -> Iterator[Any]:
    """`generate` one step at a time: each item has the ids of one step, () or (B,) int64, or with `probabilities` the pair
    (ids, P), P (V,) or (B,V). The arguments are checked now."""
    return start(
        *("stream", model, ids, n, keep, source, source_keep, temperature, top_k, top_p, seed),
        *(end_id, min_length, repetition_penalty, cached, probabilities),
    )


def start(
    title: str,
    model: Model,
    ids: Array,
    n: int,
    keep: Array | None,
    source: Array | None,
    source_keep: Array | None,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    seed: int,
    end_id: int | None,
    min_length: int,
    repetition_penalty: float,
    cached: bool,
    probabilities: bool,
) -> Iterator[Any]:
    """The arguments checked, for whoever called `generate` or `stream`."""
    config = model.config
    prompt = check_prompt(title, model, ids, keep, source, source_keep)
    n = check_count(title, "n", n, low=0)
    choice = check_choice(title, temperature, top_k, top_p)
    constraints = check_constraints(title, config.vocab_size, end_id, min_length, repetition_penalty, longest=n)
    check_flag(title, "cached", cached)
    check_flag(title, "probabilities", probabilities)
    if check_whole(title, "seed", seed) < 0:
        raise ValueError(f"{title}: seed must be at least 0, got {seed}")
    length = prompt.ids.shape[1]
    if prompt.source is not None:
        check_room(title, prompt, "n", n, config.max_len)
    elif length > config.max_len:
        warnings.warn(
            f"the prompt has {length} tokens, the context holds {config.max_len}: "
            f"the first {length - config.max_len} are left out",
            UserWarning,
            stacklevel=3,
        )
    text = GrowingText(title, model, prompt, cached=cached)
    rng = np.random.default_rng(int(seed))
    return take_steps(text, n, ids.shape[:-1], choice, constraints, rng, probabilities)


def take_steps(
    text: GrowingText,
    n: int,
    lead: tuple[int, ...],
    choice: Choice,
    constraints: Constraints,
    rng: np.random.Generator,
    probabilities: bool,
) -> Iterator[Any]:
    B, V, end_id = len(text.ids), text.vocab_size, constraints.end_id
    going = np.arange(B)  # the rows that have not ended; the text holds them alone

    def spread(part: Array, fill: Any) -> Array:
        """The rows that go on, among those that have ended."""
        if len(going) == B:
            return part
        whole = np.empty((B, *part.shape[1:]), part.dtype)
        whole[:], whole[going] = fill, part
        return whole

    for step in range(n):
        logits = text.next_logits()
        if not usable(logits):
            refuse(f"{text.title}, step {step}", spread(logits, 0).reshape(*lead, V))
        adjusted = constraints.adjust(logits, text.ids, step)
        if adjusted is not logits and not usable(adjusted):
            row = f" to row {going[np.argmin(np.isfinite(adjusted.max(-1)))]}" if lead else ""
            raise ValueError(f"{text.title}, step {step}: min_length and repetition_penalty leave no id{row}")
        new = draw(adjusted, choice, rng.random(B)[going] if choice.temperature > 0 else None)
        ids = spread(new, end_id).reshape(lead)
        staying = None if end_id is None else np.flatnonzero(new != end_id)
        text.append(new)
        yield (ids, spread(softmax(logits)[0], np.arange(V) == end_id).reshape(*lead, V)) if probabilities else ids
        if staying is not None and len(staying) < len(going):
            if not len(staying):
                return
            going = going[staying]
            text.choose(staying)
