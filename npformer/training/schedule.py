"""The learning rate over time: up in a straight line, then down along half a cosine.

    η_t = η·(t + 1)/(w + 1)                                              for t < w, the warm-up
    η_t = η_end + (η − η_end)·½·(1 + cos(π·(t − w)/(n − w)))             for w ≤ t < n

Sources: Vaswani et al. 2017, section 5.3 (warm-up); Loshchilov and Hutter 2017, equation 5 (cosine).
"""

import math


def warmup_cosine(step: int, *, peak: float, end: float, n_warmup: int, n_steps: int) -> float:
    """The learning rate of step 0 … n_steps − 1; `end` from there on."""
    if step >= n_steps:
        return end
    if step < n_warmup:
        return peak * (step + 1) / (n_warmup + 1)
    return end + (peak - end) * 0.5 * (1 + math.cos(math.pi * (step - n_warmup) / (n_steps - n_warmup)))
