"""Attention maps as the scripts of a page read them: names and masks once, weights as base64, and less of a map where the
page would grow too large."""

import base64
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from npformer.inspection.attention_map import AttentionMap
from npformer.inspection.page.part import embedded, escape
from npformer.operation import Array

LIMIT = 8_000_000  # bytes of a page
# Cells of a reduced map, each way, and the keys of each row that it has exactly.
REDUCTIONS = ((64, 8), (32, 8), (16, 8), (16, 4), (16, 2), (16, 1))
VISIBLE, FUTURE, PADDING = 0, 1, 2
NO_KEY = 65535


class Lists:
    """Lists that many maps share, each stored once: `place` is where one stands in `all`."""

    def __init__(self) -> None:
        self.all: list[Any] = []
        self.places: dict[str, int] = {}

    def place(self, value: Any) -> int:
        key = json.dumps(value)
        if key not in self.places:
            self.places[key] = len(self.all)
            self.all.append(value)
        return self.places[key]


def codes_of(map: AttentionMap) -> Array:
    """(T, S): what the view does with each pair."""
    return np.where(map.keep, VISIBLE, np.where(map.future, FUTURE, PADDING))


def runs(codes: Array) -> list[int]:
    """Codes in reading order as code, length, code, length, …"""
    flat = codes.ravel()
    if not flat.size:
        return []
    starts = np.flatnonzero(np.diff(flat, prepend=-1))
    lengths = np.diff(starts, append=flat.size)
    return [int(x) for pair in zip(flat[starts], lengths, strict=True) for x in pair]


def uint16(weights: Array) -> str:
    """Weights 0 … 1 with an error below 8e-6."""
    return encoded(np.rint(65535 * np.clip(weights, 0, 1)), "<u2")


def float32(values: Array) -> str:
    return encoded(values, "<f4")


def encoded(values: Array, dtype: str) -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype).tobytes()).decode()


def pooled(values: Array, keep: Array, side: int) -> Array:
    """The means of `values` over the visible pairs of each block, at most `side` blocks each way; 0 where there are none."""
    rows, columns = (range(0, n, block_of(n, side)) for n in values.shape)
    sums, counts = (
        np.add.reduceat(np.add.reduceat(x, rows, 0), columns, 1) for x in (np.where(keep, values, 0), keep.astype(float))
    )
    return np.asarray(sums / np.maximum(counts, 1))


def pooled_codes(codes: Array, side: int) -> Array:
    """What is said of a block: that it is visible if any of its pairs is."""
    rows, columns = (range(0, n, block_of(n, side)) for n in codes.shape)
    return np.asarray(np.minimum.reduceat(np.minimum.reduceat(codes, rows, 0), columns, 1))


def block_of(n: int, side: int) -> int:
    """How many of n rows one row of a reduced map stands for."""
    return max(1, -(-n // side))


def top_keys(size: Array, keep: Array, n: int) -> Array:
    """(T, ≤ n), the visible keys of each row by `size`, largest first; NO_KEY where there are no more."""
    shown = np.where(keep, size, -np.inf)
    keys = np.argsort(-shown, axis=1, kind="stable")[:, :n]
    return np.where(np.take_along_axis(keep, keys, 1), keys, NO_KEY)


def at(values: Array, keys: Array) -> Array:
    """`values` at each row's `keys`, 0 where there is no key."""
    there = keys != NO_KEY
    return np.where(there, np.take_along_axis(values, np.where(there, keys, 0), 1), 0)


def size_in_base64(n: int) -> int:
    return 4 * -(-n // 3)


def fill(
    data: dict[str, Any],
    room: int,
    wanted: Sequence[int],
    sizes: Sequence[int],
    whole: Callable[[int], dict[str, Any]],
    reduced: Callable[[int, int, int], dict[str, Any]],
    largest: str,
) -> None:
    """Give the heads of `data` their weights, so that it fits into `room` bytes, and say in it what had to be left out.

    wanted   all heads, in the order in which they are to stay whole
    sizes    the bytes of each as `whole(i)` gives it
    reduced  head i with a picture of so many cells each way at most, and so many exact keys of each row. All heads have as
             many as leave a quarter of the room to those that stay whole
    largest  what such a head has of each row
    """
    heads = data["heads"]
    total = size_of(data) + sum(sizes)
    chosen = set(wanted)
    if total > room:
        for side, n in REDUCTIONS:
            small = [reduced(i, side, n) for i in range(len(heads))]
            used = size_of(data) + size_of(small)
            if used <= 0.75 * room:
                break
        costs = [size - size_of(least) for size, least in zip(sizes, small, strict=True)]
        chosen = {i for i in wanted if costs[i] <= 0}
        used += sum(costs[i] for i in chosen)
        for i in wanted:
            if i not in chosen and used + costs[i] <= room:
                chosen.add(i)
                used += costs[i]
        data["reduced"] = said(total, len(heads), len(chosen), side, f"the {n} {largest}")
    for i, head in enumerate(heads):
        head |= whole(i) if i in chosen else small[i]


def said(total: int, n_heads: int, n_whole: int, side: int, exact: str) -> str:
    """What was left out, in numbers."""
    return (
        f"In full this view would take {total / 1e6:.1f} MB, and a page stays below {LIMIT / 1e6:.0f} MB: "
        f"{n_whole or 'none'} of the {n_heads} heads {'is' if n_whole == 1 else 'are'} here in full. Of "
        f"{'the others' if n_whole else 'them'}, {n_heads - n_whole}, there is a picture of at most {side} × {side} cells, "
        f"each the mean of a block of pairs, and of each row {exact}, exactly."
    )


def notice(data: dict[str, Any]) -> str:
    """What was left out, as HTML; nothing where nothing was."""
    return f'<p class="reduced">{escape(data["reduced"])}</p>\n' if data["reduced"] else ""


def size_of(data: Any) -> int:
    return len(embedded(data).encode())
