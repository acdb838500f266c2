"""Attention weights: how much each query attends to each key.

    s_ij = scale·Σ q_i k_j        s′ = c·tanh(s/c) + bias        P_i = softmax of s′_i over the keys that i may see

The scalar product of two independent rows of K entries with mean 0 and variance 1 has variance K; the scale 1/√K brings it
back to 1, so that softmax neither saturates nor fades as heads get wider. The soft cap keeps scores within ±c.

Backward, from the last line to the first. Softmax gives ds′; the bias was added, so dbias is ds′, summed over the axes
along which it was repeated; the cap multiplies by its slope, 1 − tanh²; and s is a matrix product, so that

    dq_i = scale·Σ_j ds_ij·k_j        dk_j = scale·Σ_i ds_ij·q_i

A key and value head may serve a group of query heads; its gradient is the sum over the group. A hidden pair has P = 0 and
ds = 0. A query that may see no key has a row of zeros, and is not read.

Sources: Vaswani et al. 2017, equation 1; grouped heads: Ainslie et al. 2023; soft cap: Gemma Team 2024 ("Gemma 2"),
section 2.
"""

import math
from typing import Any

import numpy as np

from npformer.arguments import check_filled, check_generator, check_number, check_probability
from npformer.functional.softmax import softmax
from npformer.functional.tanh import tanh_slope
from npformer.functional.visibility import by_group, sum_visible, visible_pairs, zero_hidden
from npformer.operation import Array, Backwards, operation


@operation(query="B H T K", key="B G S K", bias="...")
def attention_weights(
    query: Array,
    key: Array,
    *,
    keep: Array | None = None,
    bias: Array | None = None,
    causal: bool | int | None = None,
    window: int | tuple[int, int] | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    dropout: float = 0.0,
    rng: np.random.Generator | None = None,
) -> tuple[Array, Backwards]:
    """The weights P (B, H, T, S) of `attention` under the same options, and backward(dP) → dquery, dkey, and dbias where a
    bias was given.

    They are the weights before dropout: `dropout` and `rng` may be given, as to `attention`, and change nothing.
    """
    visible, scale, softcap = attention_options(
        "attention_weights", query, key, keep, bias, causal, window, scale, softcap, dropout, rng
    )
    P, weigh_backward = weigh(query, key, visible, bias, scale, softcap)
    B, H, T = query.shape[:3]

    def backward(dP: Array) -> tuple[Array, ...]:
        return weigh_backward(dP.reshape(P.shape))  # (B,H,T,S) → (B,G,R,T,S)

    return P.reshape(B, H, T, key.shape[2]), backward  # (B,G,R,T,S) → (B,H,T,S)


def weigh(
    query: Array, key: Array, visible: Array | None, bias: Array | None, scale: float, softcap: float | None
) -> tuple[Array, Backwards]:
    """P (B, G, R, T, S), the R = H/G query heads of a group beside one another, and its backward."""
    B, H, T, K = query.shape
    G = key.shape[1]
    q = scale * query.reshape(B, G, H // G, T, K)  # (B,H,T,K) → (B,G,R,T,K)
    k = key[:, :, None]  # (B,G,S,K) → (B,G,1,S,K)
    s = q @ k.swapaxes(-1, -2)  # (B,G,R,T,K)(B,G,1,K,S) → (B,G,R,T,S)
    ratio: Array | None = None
    if softcap is not None:
        ratio = s / softcap
        s = softcap * np.tanh(ratio)
    if bias is not None:
        s = s + by_group(bias if bias.ndim == 4 else bias[None, None], G)
    if visible is not None:
        np.copyto(s, -np.inf, where=~visible)
    P, softmax_backward = softmax(s)
    P = zero_hidden(P, visible)

    def backward(dP: Array) -> tuple[Array, ...]:
        ds = zero_hidden(softmax_backward(zero_hidden(dP, visible)), visible)
        dbias = () if bias is None else (sum_repeated(ds.reshape(B, H, *ds.shape[-2:]), bias),)
        if ratio is not None:
            ds = zero_hidden(ds * tanh_slope(ratio), visible)
        dq = scale * sum_visible(ds, k, visible)  # (B,G,R,T,S)(B,G,1,S,K) → (B,G,R,T,K)
        seen_by = None if visible is None else visible.swapaxes(-1, -2)
        dk = sum_visible(ds.swapaxes(-1, -2), q, seen_by).sum(2)  # (B,G,R,S,T)(B,G,R,T,K) → (B,G,R,S,K) → (B,G,S,K)
        return dq.reshape(query.shape), dk, *dbias

    return P, backward


def sum_repeated(dbias: Array, bias: Array) -> Array:
    """The gradient (B, H, T, S) of `bias`, summed over the axes along which bias was repeated."""
    repeated = (0, 1) if bias.ndim == 2 else tuple(axis for axis, size in enumerate(bias.shape) if size == 1)
    summed: Array = dbias.sum(repeated, keepdims=bias.ndim == 4)
    return summed


def attention_options(
    title: str,
    query: Array,
    key: Array,
    keep: Any,
    bias: Array | None,
    causal: Any,
    window: Any,
    scale: Any,
    softcap: Any,
    dropout: Any,
    rng: Any,
) -> tuple[Array | None, float, float | None]:
    """The options checked: the visible pairs (b, G or 1, R or 1, T, S) or None, the scale, and the soft cap or None."""
    B, H, T, K = query.shape
    G, S = key.shape[1:3]
    if G == 0 or H % G:
        raise ValueError(f"{title}: key has {G} heads, which does not divide query's {H}")
    check_filled(title, "query", query)
    scale = 1 / math.sqrt(K) if scale is None else check_number(title, "scale", scale)
    softcap = None if softcap is None else check_number(title, "softcap", softcap, low=0)
    check_probability(title, "dropout", dropout)
    check_generator(title, "rng", rng)
    visible = visible_pairs(title, (B, H, T, S), keep, bias, causal, window)
    return None if visible is None else by_group(visible, G), scale, softcap
