"""Rotary positions: pairs of features are turned by an angle that grows with the position.

    a′ = a·cos(pθ) − b·sin(pθ)        b′ = a·sin(pθ) + b·cos(pθ)        θ_i = base^(−2i/K) for pair i = 0 … K/2 − 1

A turn by pθ and then the scalar product with a turn by qθ leaves the turn by (p − q)θ: scores see only how far apart two
positions are, not where they stand.

Backward. A rotation keeps lengths and its transpose turns back, so dx is dy turned by −pθ.

Source: Su et al. 2021, section 3.2.2.
"""

import numpy as np

from npformer.arguments import check_integers, check_number, shown
from npformer.operation import Array, Backward, operation


@operation(x="... T K")
def rotary(x: Array, positions: Array, base: float = 10000.0, layout: str = "half") -> tuple[Array, Backward]:
    """Turn the pairs of the last axis of `x` by their positions.

    x (..., T, K) with K even, positions integers (T,) or of a shape that broadcasts to x's without its last axis
    → y (..., T, K), and backward(dy) → dx (..., T, K).

    layout "half" pairs feature i with i + K/2 (Llama as published by Hugging Face, GPT-NeoX), "interleaved" pairs 2i with
    2i + 1 (the paper, Llama as published by Meta). Weights made for one give plausible wrong numbers with the other.
    Angles are computed in float64 for every dtype.
    """
    base = check_number("rotary", "base", base, low=0)
    check_integers("rotary", "positions", positions)
    K = x.shape[-1]
    if K % 2:
        raise ValueError(f"rotary: x's last axis must be even to be paired, got {K}")
    if positions.ndim > x.ndim - 1 or any(
        size not in (1, full) for size, full in zip(positions.shape[::-1], x.shape[-2::-1], strict=False)
    ):
        raise ValueError(f"rotary: positions {positions.shape} does not broadcast to x's {x.shape[:-1]}")
    if not isinstance(layout, str) or layout not in ("half", "interleaved"):
        raise ValueError(f'rotary: layout must be "half" or "interleaved", got {shown(layout)}')
    angles = positions[..., None] * base ** (-np.arange(0, K, 2) / K)  # (..., T) → (..., T, K/2)
    cos, sin = (part.astype(x.real.dtype) for part in (np.cos(angles), np.sin(angles)))
    half = slice(0, K // 2), slice(K // 2, K)
    interleaved = slice(0, K, 2), slice(1, K, 2)
    first, second = half if layout == "half" else interleaved

    def turn(x: Array, sin: Array) -> Array:
        a, b = x[..., first], x[..., second]
        y = np.empty_like(x)
        y[..., first] = a * cos - b * sin
        y[..., second] = a * sin + b * cos
        return y

    def backward(dy: Array) -> Array:
        return turn(dy, -sin)

    return turn(x, sin), backward
