"""Which keys a query may attend to: masks, alignment and windows, and arithmetic that a hidden pair cannot touch.

A pair (i, j) of query and key is visible where all of these hold that were asked for:

    keep[i, j] is True        bias[i, j] is not −inf        j ≤ i + c        i + c − left ≤ j ≤ i + c + right

c says which key stands where the query stands: 0 if both count from the same start (top-left), S − T if both end at the
same place (bottom-right, a decoder that has seen S − T keys before). causal=True does not guess it where T ≠ S: libraries
that guessed have guessed differently. A window without `causal` has c = 0.

Booleans are combined once. Masks that are added as large negative numbers overflow when two of them meet, and a large
negative number is not a mask: a row in which every key has the same bias still attends to all of them.
"""

from typing import Any

import numpy as np

from npformer.arguments import check_mask, check_offset, check_whole
from npformer.operation import Array


def visible_pairs(
    title: str, sizes: tuple[int, int, int, int], keep: Any, bias: Array | None, causal: Any, window: Any
) -> Array | None:
    """The visible pairs as booleans of four axes that broadcast to `sizes` = (B, H, T, S); None where nothing is hidden."""
    T, S = sizes[2:]
    conditions = []
    if keep is not None:
        check_mask(title, "keep", keep, "where a query may attend")
        conditions.append(four_axes(title, "keep", keep, sizes))
    if bias is not None:
        shut = four_axes(title, "bias", bias, sizes).real == -np.inf
        if shut.any():
            conditions.append(~shut)
    c = causal_offset(title, causal, T, S)
    ahead = np.arange(S) - np.arange(T)[:, None] - (c or 0)  # (T,S): how far key j lies beyond query i's own place
    if c is not None:
        conditions.append((ahead <= 0)[None, None])
    if window is not None:
        left, right = window_sides(title, window)
        conditions.append(((-left <= ahead) & (ahead <= right))[None, None])
    visible: Array | None = None
    for condition in conditions:
        visible = condition if visible is None else visible & condition
    return visible


def four_axes(title: str, name: str, array: Array, sizes: tuple[int, int, int, int]) -> Array:
    """A (T, S) array, or one of four axes each full or of size 1, with four axes."""
    if array.ndim == 2 and array.shape == sizes[2:]:
        return array[None, None]
    if array.ndim == 4 and all(size in (1, full) for size, full in zip(array.shape, sizes, strict=True)):
        return array
    raise ValueError(
        f"{title}: {name} must have the shape (T, S) = {sizes[2:]}, or four axes that broadcast to (B, H, T, S) = {sizes}, "
        f"got {array.shape}"
    )


def causal_offset(title: str, causal: Any, T: int, S: int) -> int | None:
    """c of j ≤ i + c, None where `causal` is off. True is decided before the integers, for True is one in Python."""
    if causal is None or isinstance(causal, bool | np.bool_):
        if not causal:
            return None
        if T != S:
            raise ValueError(
                f"{title}: causal=True needs as many queries as keys, got T = {T} and S = {S}; "
                f"say causal=0 for top-left alignment or causal={S - T} for bottom-right"
            )
        return 0
    return check_offset(title, "causal", causal)


def window_sides(title: str, window: Any) -> tuple[int, int]:
    """(left, right) of a window; W stands for (W − 1, 0), which is W keys with the query's own."""
    if isinstance(window, tuple | list):
        if len(window) != 2:
            raise ValueError(f"{title}: window must be W or (left, right), got {window!r}")
        left = check_whole(title, "window's left", window[0])
        right = check_whole(title, "window's right", window[1])
    else:
        window = check_whole(title, "window", window)
        left, right = window - 1, 0
    if left < 0 or right < 0:
        raise ValueError(f"{title}: window must leave room for the query's own place, got {window!r}")
    return left, right


def visible_positions(title: str, query_positions: Array, key_positions: Array, causal: Any, window: Any) -> Array:
    """The visible pairs (1 or B, 1, T, S) of queries at positions (T,) or (B, T) and keys at (S,) or (B, S), where −1 is no
    token: a query sees a key that is there, if `causal` no later than itself, and within its window."""
    if causal is not None and not isinstance(causal, bool | np.bool_):
        raise TypeError(f"{title}: causal must be True or False where tokens have positions, got {causal!r}")
    i, j = query_positions[..., :, None], key_positions[..., None, :]  # (…,T,1), (…,1,S)
    visible = (j >= 0) & (j - i <= 0 if causal else True)
    if window is not None:
        left, right = window_sides(title, window)
        visible = visible & (-left <= j - i) & (j - i <= right)
    visible = np.broadcast_to(visible, np.broadcast_shapes(i.shape, j.shape))  # (T,S) or (B,T,S)
    return visible[None, None] if visible.ndim == 2 else visible[:, None]  # → (1 or B,1,T,S)


def by_group(array: Array, n_groups: int) -> Array:
    """Heads (b, H or 1, T, S) as groups of heads (b, G or 1, H/G or 1, T, S): head h belongs to group h // (H/G)."""
    b, h, T, S = array.shape
    return array[:, :, None] if h == 1 else array.reshape(b, n_groups, h // n_groups, T, S)


def zero_hidden(pairs: Array, visible: Array | None) -> Array:
    """`pairs`, exactly 0 where hidden, for pairs that are 0 there already unless infinities or NaN were met."""
    if visible is None or np.isfinite(pairs).all():
        return pairs
    return np.where(visible, pairs, 0)


def sum_visible(pairs: Array, rows: Array, visible: Array | None) -> Array:
    """pairs @ rows, (..., T, S)(..., S, D) → (..., T, D), where a hidden pair is 0 and adds nothing whatever its row holds.

    In floating point 0·NaN is NaN, so rows that are not finite are left out of the product and added pair by pair.
    """
    rows = np.ascontiguousarray(rows)  # another layout is summed in another order, and poison must not change a bit
    y: Array = pairs @ rows
    if visible is None or np.isfinite(y).all():
        return y
    poison = ~np.isfinite(rows)
    y = pairs @ np.where(poison, 0, rows)
    visible = np.broadcast_to(visible, pairs.shape)
    poison, rows = (np.broadcast_to(array, (*pairs.shape[:-2], *rows.shape[-2:])) for array in (poison, rows))
    for j in np.flatnonzero(poison.any(axis=(*range(pairs.ndim - 2), -1))):
        column = pairs[..., :, j, None] * rows[..., None, j, :]  # (..., T, D): what key j adds to every query
        np.add(y, column, out=y, where=visible[..., :, j, None] & poison[..., None, j, :])
    return y
