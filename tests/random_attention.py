"""Attention of random heads, for the views."""

import numpy as np

from npformer.inspection import inspect_arrays


def softmax(scores, keep):
    scores = np.where(keep, scores, -np.inf)
    e = np.exp(scores - scores.max(-1, keepdims=True, initial=-1e9))
    sums = e.sum(-1, keepdims=True)
    return np.divide(e, sums, out=np.zeros_like(e), where=sums > 0)


def inspection(
    L=2, H=3, T=5, S=None, *, kind="decoder", seed=0, tokens=None, keys=None, keep=None, gradient=False, **options
):
    """L layers of H heads with T queries and S keys; `keep` besides what is causal."""
    S = S or T
    rng = np.random.default_rng(seed)
    seen = np.tri(T, S, S - T, dtype=bool) if kind == "decoder" else np.ones((T, S), bool)
    P = softmax(3 * rng.normal(size=(L, H, T, S)), seen if keep is None else seen & keep)
    gradients = rng.normal(size=P.shape) if gradient else None
    return inspect_arrays(P, tokens, keys, kind=kind, keep=keep, gradient=gradients, **options)
