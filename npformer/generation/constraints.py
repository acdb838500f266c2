"""What is done to the logits before one chooses: an end that may not come yet, and ids that stand there already.

    logit_i ← logit_i / θ  where logit_i > 0,   logit_i·θ  where it is not     for every id i that the text has
    logit_end ← −inf                                                           for the first min_length new ids

Source: Keskar et al. 2019, section 4.1 (the repetition penalty θ). The paper divides every logit, by which a negative one
would rise; multiplied by θ it falls, as in Hugging Face.
"""

from typing import Any, NamedTuple

import numpy as np

from npformer.arguments import check_count, check_number
from npformer.operation import Array

SMALLEST = 1e-3  # penalty


class Constraints(NamedTuple):
    """As checked."""

    end_id: int | None
    min_length: int
    repetition_penalty: float

    def adjust(self, logits: Array, text: Array, step: int) -> Array:
        """The logits (B,V) of new id number `step` after the text (B,T); the same array where nothing changes."""
        may_not_end, repeats = step < self.min_length, self.repetition_penalty != 1
        if not (may_not_end or repeats):
            return logits
        adjusted: Array = logits.copy()
        if repeats:
            places = np.arange(len(text))[:, None], text
            x = adjusted[places]  # (B,T)
            with np.errstate(all="ignore"):
                adjusted[places] = np.where(x > 0, x / self.repetition_penalty, x * self.repetition_penalty)
        if may_not_end:
            adjusted[:, self.end_id] = -np.inf
        return adjusted


def check_constraints(
    title: str, vocab_size: int, end_id: Any, min_length: Any, repetition_penalty: Any, *, longest: int | None = None
) -> Constraints:
    """min_length ≤ longest. ValueError or TypeError."""
    if end_id is not None:
        end_id = check_count(title, "end_id", end_id, low=0, high=vocab_size - 1)
    min_length = check_count(title, "min_length", min_length, low=0, high=longest)
    if min_length and end_id is None:
        raise ValueError(f"{title}: min_length = {min_length} says when the text may end, so it needs end_id")
    penalty = check_number(title, "repetition_penalty", repetition_penalty, low=0)
    if not SMALLEST <= penalty <= 1 / SMALLEST:  # or logits may leave the range of numbers
        raise ValueError(f"{title}: repetition_penalty must be in [{SMALLEST}, {1 / SMALLEST:g}], got {penalty}")
    return Constraints(end_id, min_length, penalty)
