"""Attention maps as the scripts of a page read them: names and masks once, weights as base64, and less of a map where the
page would grow too large."""

import base64
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from npformer.inspection.attention_map import AttentionMap
from npformer.inspection.cut_names import CutNames
from npformer.inspection.page.part import embedded, escape
from npformer.operation import Array

LIMIT = 8_000_000  # bytes of a page
# Cells of a reduced map, each way, and the keys of each row that it has exactly.
REDUCTIONS = ((64, 8), (32, 8), (16, 8), (16, 4), (16, 2), (16, 1))
VISIBLE, FUTURE, PADDING = 0, 1, 2
NO_KEY = 65535
HIDDEN = 32768  # is added to an exact key that may not be seen
LONGEST_NAME, LONGEST_SENTENCE = 200, 2000


class Lists:
    """What many maps share, each stored once: `place` is where one stands in `all`."""

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


def mask(codes: Array) -> list[int] | str:
    """Codes in reading order as code, length, code, length, …; where that would be longer, two bits for each, in base64."""
    flat = codes.ravel()
    starts = np.flatnonzero(np.diff(flat, prepend=-1))
    if 4 * len(starts) > size_in_base64(-(-flat.size // 4)):
        fours = np.pad(flat, (0, -flat.size % 4)).reshape(-1, 4)
        return encoded(fours @ [1, 4, 16, 64], "u1")
    lengths = np.diff(starts, append=flat.size)
    return [int(x) for pair in zip(flat[starts], lengths, strict=True) for x in pair]


def cut_names() -> CutNames:
    """Names for a page, which stay different: those of more than LONGEST_NAME characters lack the rest."""

    def cut(name: str, number: str) -> str:
        return name + number if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…" + number

    return CutNames(cut)


def cut_sentence(sentence: str) -> str:
    """A sentence may name a token, however long that is."""
    half = LONGEST_SENTENCE // 2
    return sentence if len(sentence) <= LONGEST_SENTENCE else f"{sentence[:half]} … {sentence[-half:]}"


def uint16(weights: Array) -> str:
    """Weights 0 … 1 with an error below 8e-6."""
    return encoded(np.rint(65535 * np.clip(weights, 0, 1)), "<u2")


def float32(values: Array) -> str:
    return encoded(values, "<f4")


def encoded(values: Array, dtype: str) -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype).tobytes()).decode()


def pooled(values: Array, keep: Array, side: int) -> Array:
    """The means of `values` over each block's pairs in `keep`, at most `side` blocks each way; 0 where there are none."""
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
    """(T, ≤ n), the keys in `keep` of each row by `size`, largest first; NO_KEY where there are no more."""
    shown = np.where(keep, size, -np.inf)
    keys = np.argsort(-shown, axis=1, kind="stable")[:, :n]
    return np.where(np.take_along_axis(keep, keys, 1), keys, NO_KEY)


def marked(keys: Array, keep: Array) -> Array:
    """Keys that may not be seen, with the mark that they are HIDDEN."""
    hidden = (keys != NO_KEY) & ~np.take_along_axis(keep, np.where(keys == NO_KEY, 0, keys), 1)
    return np.where(hidden, keys + HIDDEN, keys)


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
    masks: Sequence[list[int] | str],
    whole: Callable[[int], dict[str, Any]],
    reduced: Callable[[int, int, int, Lists], dict[str, Any]],
    largest: str,
    lost: str,
) -> None:
    """Give the heads of `data` their weights, so that it fits into `room` bytes, and say in it what had to be left out.

    wanted   all heads, in the order in which they are to stay whole
    sizes    the bytes of each as `whole(i)` gives it
    masks    of each; those of whole heads are listed in data["masks"]
    reduced  head i with a picture of so many cells each way at most, and so many exact keys of each row; what heads share
             goes into the list. All heads have as many as leave a quarter of the room to those that stay whole
    largest  what such a head has of each row, and `lost` what it has not at all
    """
    heads = data["heads"]
    texts = [json.dumps(mask, separators=(",", ":")) for mask in masks]
    total = size_of(data) + sum(sizes) + sum(map(len, set(texts)))
    chosen, listed = set(wanted), Lists()
    if total > room:
        for side, n in REDUCTIONS:
            listed = Lists()
            small = [reduced(i, side, n, listed) for i in range(len(heads))]
            used = size_of(data) + size_of(small) + size_of(listed.all)
            if used <= 0.75 * room:
                break
        more = [size - size_of(least) for size, least in zip(sizes, small, strict=True)]
        chosen, there = set(), set()
        for only_smaller in (True, False):
            for i in wanted:
                cost = more[i] + (0 if texts[i] in there else len(texts[i]) + 1)
                if i not in chosen and (cost <= 0 if only_smaller else used + cost <= room):
                    chosen.add(i)
                    there.add(texts[i])
                    used += cost
        exact = f"the {n} {largest}s" if n > 1 else f"the {largest}"
        data["reduced"] = said(total, len(heads), len(chosen), side, exact, lost)
    for i, head in enumerate(heads):
        head |= whole(i) | {"mask": listed.place(masks[i])} if i in chosen else small[i]
    data["masks"] = listed.all


def said(total: int, n_heads: int, n_whole: int, side: int, exact: str, lost: str) -> str:
    """What was left out, in numbers."""
    others = "the others" if n_whole else "them"
    return (
        f"In full this view would take {total / 1e6:.1f} MB, and a page stays below {LIMIT / 1e6:.0f} MB: "
        f"{n_whole or 'none'} of the {n_heads} heads {'is' if n_whole == 1 else 'are'} here in full. Of "
        f"{others}, {n_heads - n_whole}, there is a picture of at most {side} × {side} cells, "
        f"each the mean of a block of pairs, and of each row {exact}, exactly."
        + (f" {lost} of {others} is not here." if lost else "")
    )


def notice(data: dict[str, Any]) -> str:
    """What was left out, as HTML; nothing where nothing was."""
    return f'<p class="reduced">{escape(data["reduced"])}</p>\n' if data["reduced"] else ""


def size_of(data: Any) -> int:
    return len(embedded(data).encode())
