"""AdamW: every number moves by its mean gradient, in units of how large its gradients are.

    m ← β₁·m + (1 − β₁)·g        v ← β₂·v + (1 − β₂)·g²
    x ← x − η·(m̂ / (√v̂ + ε) + λ·x)          m̂ = m / (1 − β₁ᵗ),  v̂ = v / (1 − β₂ᵗ)

m and v start at 0 and are too small by exactly those factors at first. The decay λ·x is decoupled: it is no part of g, so
that it is not divided by √v̂. It acts on matrices only; gains and offsets have no reason to be small.

Sources: Kingma and Ba 2015, algorithm 1; Loshchilov and Hutter 2019, algorithm 2.
"""

import math

import numpy as np

from npformer.operation import Array


class AdamW:
    """The two moments of a vector of parameters (n,), of which the first `n_decayed` decay."""

    def __init__(
        self, like: Array, n_decayed: int, *, beta1: float = 0.9, beta2: float = 0.99, eps: float = 1e-8, decay: float = 0.1
    ) -> None:
        self.first_moment, self.second_moment = np.zeros_like(like), np.zeros_like(like)
        self.n_decayed, self.beta1, self.beta2, self.eps, self.decay = n_decayed, beta1, beta2, eps, decay

    def step(self, values: Array, gradients: Array, learning_rate: float, t: int) -> None:
        """Step t = 1, 2, … of `values`, in place."""
        m, v = self.first_moment, self.second_moment
        m *= self.beta1
        m += (1 - self.beta1) * gradients
        v *= self.beta2
        v += (1 - self.beta2) * (gradients * gradients)
        m_unbiased = 1 / (1 - self.beta1**t)
        v_unbiased = 1 / (1 - self.beta2**t)
        update = np.sqrt(v)
        update *= math.sqrt(v_unbiased)
        update += self.eps
        np.divide(m, update, out=update)
        update *= learning_rate * m_unbiased
        update[: self.n_decayed] += learning_rate * self.decay * values[: self.n_decayed]
        values -= update
