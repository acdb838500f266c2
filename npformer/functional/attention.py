"""Scaled dot-product attention: every query takes a weighted mean of the values, by how well their keys answer it.

    P = softmax over the visible keys of (scale·q kᵀ)        y = (P·m) v        m is dropout's mask, or 1

Backward. y is a product of two matrices, so each gets what arrives times the other:

    d(P·m)_ij = Σ dy_i v_j        dv_j = Σ_i (P·m)_ij·dy_i        dP = d(P·m)·m

dv uses the weights after dropout, for those made y. From dP on it is the backward of `attention_weights`.

The shape comments write the H query heads as G groups of R = H/G, one key and value head to each group.

Source: Vaswani et al. 2017, equation 1.
"""

import numpy as np

from npformer.functional.attention_weights import attention_options, weigh
from npformer.functional.dropout import dropout_factor
from npformer.functional.visibility import sum_visible
from npformer.observing import offer
from npformer.operation import Array, Backwards, operation


@operation(query="B H T K", key="B G S K", value="B G S V", bias="...")
def attention(
    query: Array,
    key: Array,
    value: Array,
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
    """Attend with each query (B, H, T, K) to the keys (B, G, S, K) and take their values (B, G, S, V)
    → y (B, H, T, V), and backward(dy) → dquery, dkey, dvalue, and dbias where a bias was given.

    Query head h uses key and value head h // (H/G); G divides H. T and S may differ, and B, T or S may be 0.

    keep     boolean, True where a query may attend: (T, S), or four axes that broadcast to (B, H, T, S)
    bias     floating, of such a shape; added after scale and soft cap; −inf hides, any finite number is only a bias
    causal   None or False: off. An integer c: query i sees keys j ≤ i + c (0 top-left, S − T bottom-right). True is 0
    window   (left, right): keys i + c − left … i + c + right, c = causal or 0; W means (W − 1, 0)
    scale    1/√K unless given
    softcap  c > 0: scores become c·tanh(scores/c), after scale, before bias and mask
    dropout  the probability that a weight is dropped, where `rng` is given; the mask is drawn in the shape (B, H, T, S)

    A query that may see no key gets 0. A hidden pair contributes exactly nothing, forward or backward, whatever its key,
    value or bias holds. TypeError for a mask that is not boolean; ValueError for shapes, for causal=True where T ≠ S.
    """
    visible, scale, softcap = attention_options(
        "attention", query, key, keep, bias, causal, window, scale, softcap, dropout, rng
    )
    P, weigh_backward = weigh(query, key, visible, bias, scale, softcap)  # (B,G,R,T,S)
    B, H, T = query.shape[:3]
    S, V = value.shape[2:]
    P, weigh_backward = offer(P, weigh_backward, (B, H, T, S))  # to whoever watches; else nothing happens
    m = dropout_factor(P.reshape(B, H, T, S), dropout, rng)
    m = m if isinstance(m, int) else m.reshape(P.shape)  # (B,H,T,S) → (B,G,R,T,S)
    v = value[:, :, None]  # (B,G,S,V) → (B,G,1,S,V)
    y = sum_visible(P * m, v, visible)  # (B,G,R,T,S)(B,G,1,S,V) → (B,G,R,T,V)

    def backward(dy: Array) -> tuple[Array, ...]:
        dy = dy.reshape(y.shape)  # (B,H,T,V) → (B,G,R,T,V)
        seen_by = None if visible is None else visible.swapaxes(-1, -2)
        dv = sum_visible((P * m).swapaxes(-1, -2), dy, seen_by).sum(2)  # (B,G,R,S,T)(B,G,R,T,V) → (B,G,S,V)
        dP = (dy @ v.swapaxes(-1, -2)) * m  # (B,G,R,T,V)(B,G,1,V,S) → (B,G,R,T,S)
        dquery, dkey, *dbias = weigh_backward(dP)
        return dquery, dkey, dv, *dbias

    return y.reshape(B, H, T, V), backward  # (B,G,R,T,V) → (B,H,T,V)
