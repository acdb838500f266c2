"""What the heads found is laid side by side again, the features of one position in one row.

    y[b, t, h·K + k] = x[b, h, t, k]

Entries only change places, so the backward puts each gradient back: it is `split_heads`.

Source: Vaswani et al. 2017, section 3.2.2, "Concat".
"""

from npformer.operation import Array, Backward, operation


@operation(x="B H T K")
def merge_heads(x: Array) -> tuple[Array, Backward]:
    """x (B, H, T, K) → y (B, T, H·K), and backward(dy) → dx (B, H, T, K), a view of dy."""
    B, H, T, K = x.shape
    y = x.swapaxes(1, 2).reshape(B, T, H * K)  # (B,H,T,K) → (B,T,H,K) → (B,T,H·K)

    def backward(dy: Array) -> Array:
        dx: Array = dy.reshape(B, T, H, K).swapaxes(1, 2)  # (B,T,H·K) → (B,T,H,K) → (B,H,T,K)
        return dx

    return y, backward
