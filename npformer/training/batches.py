"""Batches of a long text: windows of tokens, and for each token the one that comes next.

The text is cut into windows side by side, from a random start, and they come in random order; then it is cut anew. So a
token is met once in a pass, each time in another place of its window, but for fewer than two windows of them at the ends.
"""

import numpy as np

from npformer.arguments import check_count, check_integers
from npformer.operation import Array


class Batches:
    """Batch i of `tokens` (n,), for any i ≥ 0: nothing has to be remembered to go on where a run stopped.

    ValueError where the text is too short for one window, which needs length + 1 tokens.
    """

    def __init__(self, tokens: Array, length: int, batch_size: int, seed: int = 0) -> None:
        check_integers("Batches", "tokens", tokens)
        self.length = check_count("Batches", "length", length)
        self.batch_size = check_count("Batches", "batch_size", batch_size)
        self.seed = check_count("Batches", "seed", seed, low=0, high=2**64)
        if tokens.ndim != 1 or len(tokens) <= length:
            raise ValueError(
                f"Batches: tokens must be at least {length + 1} in one axis, a window of {length} and what comes next, "
                f"got the shape {tokens.shape}"
            )
        self.tokens = tokens
        self.n_windows = max(1, len(tokens) // length - 1)  # of a pass
        self.cut = (-1, np.zeros(0, np.int64))  # the last pass that was cut, and where its windows start

    def batch(self, i: int) -> tuple[Array, Array]:
        """ids and targets (batch_size, length) of batch i."""
        first = check_count("Batches", "i", i, low=0) * self.batch_size
        starts = np.array([self.start_of(window) for window in range(first, first + self.batch_size)])
        places = starts[:, None] + np.arange(self.length)  # (B,1)+(T,) → (B,T)
        return self.tokens[places], self.tokens[places + 1]

    def start_of(self, window: int) -> int:
        number, place = divmod(window, self.n_windows)
        if self.cut[0] != number:
            rng = np.random.default_rng([self.seed, number, 1])  # neither the model's nor dropout's numbers
            room = len(self.tokens) - 1 - self.n_windows * self.length
            starts = int(rng.integers(room + 1)) + self.length * rng.permutation(self.n_windows)
            self.cut = number, starts
        return int(self.cut[1][place])
