"""The features of each position are dealt out to the heads, which then attend each on its own.

    y[b, h, t, k] = x[b, t, h·K + k]

Head h takes the K columns from h·K on. Nothing is computed, entries only change places, so the backward puts each gradient
back in the place its entry came from: it is `merge_heads`.

Source: Vaswani et al. 2017, section 3.2.2.
"""

from npformer.arguments import check_count
from npformer.operation import Array, Backward, operation


@operation(x="B T D")
def split_heads(x: Array, n_heads: int) -> tuple[Array, Backward]:
    """x (B, T, H·K) → y (B, H, T, K), a view of x, and backward(dy) → dx (B, T, H·K), a view of dy where there is one.

    ValueError where n_heads does not divide the features.
    """
    n_heads = check_count("split_heads", "n_heads", n_heads)
    B, T, D = x.shape
    if D % n_heads:
        raise ValueError(f"split_heads: n_heads = {n_heads} does not divide x's {D} features")
    y = x.reshape(B, T, n_heads, D // n_heads).swapaxes(1, 2)  # (B,T,H·K) → (B,T,H,K) → (B,H,T,K)

    def backward(dy: Array) -> Array:
        dx: Array = dy.swapaxes(1, 2).reshape(B, T, D)  # (B,H,T,K) → (B,T,H,K) → (B,T,H·K)
        return dx

    return y, backward
