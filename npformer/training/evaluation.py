"""The loss on a text that was held out."""

import numpy as np

from npformer.arguments import check_ids
from npformer.models import GPT
from npformer.models.stack import NOT_COUNTED
from npformer.operation import Array

WINDOWS_AT_ONCE = 32


def held_out_loss(model: GPT, tokens: Array) -> float:
    """The mean loss, in nats, of every token of `tokens` (n,) but the first, each predicted once.

    The text is cut into windows of the model's context side by side, so that a token is predicted from those before it in
    its window, from none to max_len − 1 of them besides the one before it. ValueError for fewer than two tokens.
    """
    check_ids("held_out_loss", "tokens", tokens, limit=model.config.vocab_size)
    if tokens.ndim != 1 or len(tokens) < 2:
        raise ValueError(f"held_out_loss: tokens must be at least 2 in one axis, got the shape {tokens.shape}")
    length = min(model.config.max_len, len(tokens) - 1)
    n_windows = -(-(len(tokens) - 1) // length)
    ids, targets = np.zeros(n_windows * length, np.int64), np.full(n_windows * length, NOT_COUNTED)
    ids[: len(tokens) - 1], targets[: len(tokens) - 1] = tokens[:-1], tokens[1:]
    total, count = 0.0, 0
    for start in range(0, n_windows, WINDOWS_AT_ONCE):
        rows = slice(start * length, (start + WINDOWS_AT_ONCE) * length)
        (part, counted), _ = model.loss(ids[rows].reshape(-1, length), targets[rows].reshape(-1, length))  # (B,T)
        total, count = total + float(part), count + counted
    return total / count
