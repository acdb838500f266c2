"""What a model says of a text that is there already: one pass over the whole of it."""

import numpy as np

from npformer.arguments import check_ids
from npformer.functional import log_softmax
from npformer.generation.constraints import check_constraints
from npformer.generation.growing_text import full_pass
from npformer.generation.prompt import Model, check_prompt, check_room
from npformer.generation.sampling import refuse, usable
from npformer.operation import Array


def log_probabilities(
    model: Model,
    ids: Array,
    new: Array,
    *,
    keep: Array | None = None,
    source: Array | None = None,
    source_keep: Array | None = None,
    end_id: int | None = None,
    min_length: int = 0,
    repetition_penalty: float = 1.0,
) -> Array:
    """log P of each id of `new`, given all before it: ids (T,) or (B,T), new (m,) or (B,m) → new's shape, float64.

    P is the softmax of the model's logits once the constraints have acted, as in `generate` and `beam_search`; what stands
    after the first end_id is certain: 0. −inf for what cannot be. ValueError where the model cannot read all T + m − 1 ids
    at once, and with the place where its logits are not finite.
    """
    title = "log_probabilities"
    prompt = check_prompt(title, model, ids, keep, source, source_keep)
    config = model.config
    check_ids(title, "new", new, limit=config.vocab_size)
    if new.ndim != ids.ndim or new.shape[:-1] != ids.shape[:-1]:
        expected = f"({len(ids)}, m)" if ids.ndim == 2 else "(m,)"
        raise ValueError(f"{title}: new must have the shape {expected}, as ids has {ids.shape}, got {new.shape}")
    constraints = check_constraints(title, config.vocab_size, end_id, min_length, repetition_penalty)
    T, (B, m) = prompt.ids.shape[1], np.atleast_2d(new).shape
    check_room(title, prompt, "new", m, config.max_len)
    if m == 0:
        return np.zeros(new.shape)
    text = np.concatenate([prompt.ids, np.atleast_2d(new).astype(np.int64)], axis=1)  # (B,T), (B,m) → (B,T+m)
    shown = None if prompt.keep is None else np.concatenate([prompt.keep, np.ones((B, m), bool)], axis=1)[:, :-1]
    read = prompt._replace(ids=text[:, :-1], keep=shown)
    logits = full_pass(title, model, read)[:, T - 1 :].astype(np.float64)  # (B,T+m−1,V) → (B,m,V)
    ends = text[:, T:] == end_id  # nowhere where there is none
    ended = (ends.cumsum(1) - ends).astype(bool)  # before this id, not by it
    logits[ended] = 0
    if not usable(logits):
        refuse(title, logits.reshape(*new.shape, -1))
    for step in range(m):
        logits[:, step] = constraints.adjust(logits[:, step], text[:, : T + step], step)
    chosen = np.take_along_axis(log_softmax(logits)[0], text[:, T:, None], -1)[..., 0]  # (B,m,V) → (B,m)
    result: Array = np.where(ended, 0.0, chosen).reshape(new.shape)
    return result
