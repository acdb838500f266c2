"""What counting gets on a text: how surprised an n-gram model is by it, beside which a neural one must show its worth.

    p(c | the n − 1 before it) = (count of them and c + α) / (count of them + α·V)            α = 0.1

Source: Jurafsky and Martin, Speech and Language Processing, section 3.6 (add-k smoothing).
"""

import numpy as np

ADDED = 0.1


def n_gram_loss(train: np.ndarray, held_out: np.ndarray, vocab_size: int, n: int) -> float:
    """The mean loss in nats of every id of `held_out` that has n − 1 before it there, by counts in `train`."""
    if len(held_out) < n:
        raise ValueError(f"n_gram_loss: held_out must hold at least n = {n} ids, got {len(held_out)}")
    both = np.concatenate([train, held_out])
    n_grams = len(both) - n + 1
    grams = np.zeros(n_grams, np.int64)  # each gram as a number of its own
    for i in range(n):
        contexts = grams
        grams = np.unique(contexts * vocab_size + both[i : i + n_grams], return_inverse=True)[1]
    in_train, in_held_out = slice(max(0, len(train) - n + 1)), slice(len(train), None)  # by where a gram starts
    of_grams = np.bincount(grams[in_train], minlength=n_grams)[grams[in_held_out]]
    of_contexts = np.bincount(contexts[in_train], minlength=n_grams)[contexts[in_held_out]]
    return float(np.log((of_contexts + ADDED * vocab_size) / (of_grams + ADDED)).mean())
