"""What one row has read, put together from its pieces: its text, what may be seen in it, and the weights.

What may be seen follows from padding, order and window, and not from the mask that the model used, which may be wrong.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from npformer.inspection.attention_map import AttentionMap
from npformer.inspection.recorder import Look, Row
from npformer.inspection.tokens import Token
from npformer.operation import Array


class Text(NamedTuple):
    """What a row has read: ids (N,) with `keep` (N,), and what follows each of them, None where that is not known."""

    ids: list[int]
    keep: Array
    produced: list[int | None]


def text_of(row: Row) -> Text:
    """What the row has read and still knows: one pass with its padding, several without."""
    first, b = row.parts[0]
    assert first.ids is not None and first.positions is not None
    if first.is_whole:
        ids, keep = first.ids[b].tolist(), first.positions[b] >= 0
    else:
        by_place: dict[int, int] = {}
        for piece, b in row.parts:
            assert piece.positions is not None and piece.starts is not None
            places = piece.positions[b][piece.positions[b] >= 0].tolist()
            if not by_place.keys() >= {*range(piece.starts[b])}:
                raise ValueError(
                    "record: the cache held tokens that were not recorded: from before the `with` block, or of a pass that "
                    "was interrupted"
                )
            by_place = {place: by_place[place] for place in range(piece.starts[b])}  # the rest was forgotten
            by_place.update(zip(places, piece.read(b), strict=True))
        ids, keep = list(by_place.values()), np.ones(len(by_place), bool)
    ids, keep = ids[: row.length], keep[: row.length]
    produced: list[int | None] = [None] * len(ids)
    kept = np.flatnonzero(keep).tolist()
    for place, after in pairwise(kept):
        produced[place] = ids[after]
    if kept:
        produced[kept[-1]] = row.written
    return Text(ids, keep, produced)


def causal(row: Row, text: Text, layer: int) -> Array:
    """(N, N), which tokens of the text a decoder's layer may see: those that are there, up to its own, in its window."""
    first, _ = row.parts[0]
    order = text.keep.cumsum()
    distance = order[:, None] - order
    seen = text.keep & text.keep[:, None] & (np.arange(len(order)) <= np.arange(len(order))[:, None])
    window = first.windows[layer] if layer < len(first.windows) else None
    return np.asarray(seen if window is None else seen & (distance < window))


def stitched(row: Row, kind: str, layer: int, T: int, S: int) -> tuple[Array, Array | None]:
    """P (H, T, S) of all pieces, each at its place, and ∂L/∂P if each piece has it."""
    parts = [(piece, b, piece.looks[kind, layer]) for piece, b in row.parts if (kind, layer) in piece.looks]
    H = parts[0][2].P.shape[1]
    P, dP = np.zeros((H, T, S)), np.zeros((H, T, S))
    for piece, b, look in parts:
        assert piece.positions is not None
        n_queries, n_keys = look.P.shape[2:]
        queries = np.arange(n_queries) if piece.is_whole else piece.positions[b]
        positions = look.key_positions
        keys = np.arange(n_keys) if positions is None else positions if positions.ndim == 1 else positions[b]
        from_q, from_k = (np.flatnonzero((at >= 0) & (at < n)) for at, n in ((queries, T), (keys, S)))
        place = np.ix_(np.arange(H), queries[from_q], keys[from_k])
        taken = np.ix_(np.arange(H), from_q, from_k)
        P[:, queries[from_q]] = 0  # what a rewound cache has forgotten
        P[place] = look.P[b].real[taken]
        if look.gradient is not None:
            dP[place] = look.gradient[b].real[taken]
    return P, dP if all(look.gradient is not None for _, _, look in parts) else None


def alone(kind: str, layer: int, look: Look, b: int) -> list[AttentionMap]:
    """The maps of a layer that no stack holds, of its last pass: of what is seen by what the layer was told. With a cache
    the tokens have the numbers of their positions, in whose order the keys stand."""
    H, T, S = look.P.shape[1:]
    queries, keys = (
        np.arange(n) if at is None else at if at.ndim == 1 else at[b]
        for at, n in ((look.visibility.queries, T), (look.key_positions, S))
    )
    rows, columns = np.arange(T), np.arange(S)
    if look.key_positions is not None:
        rows = np.flatnonzero(queries >= 0)
        columns = np.argsort(keys, kind="stable")[(keys < 0).sum() :]
        queries, keys = queries[rows], keys[columns]
        names = [tuple(map(str, at.tolist())) for at in (queries, keys)]
    else:
        names = [tuple(map(str, range(n))) for n in (T, S)]
    taken = np.ix_(np.arange(H), rows, columns)
    row_keep = queries >= 0
    keep = look.visibility.pairs(look.P.shape)[b][taken] & row_keep[:, None]
    dP = None if look.gradient is None else look.gradient[b][taken]
    return maps_of(kind, layer, look.P[b][taken], dP, names[0], names[1], keep, row_keep, "reads")


def maps_of(
    kind: str,
    layer: int,
    P: Array,
    dP: Array | None,
    queries: tuple[Token, ...],
    keys: tuple[Token, ...],
    keep: Array,
    row_keep: Array,
    named_by: str,
) -> list[AttentionMap]:
    """A map for each head of P (H, T, S), of which `keep`, (T, S) or (H, T, S), may be seen. What padding asks is nobody's
    question, and not shown."""
    keep = np.broadcast_to(keep, P.shape)
    P = np.where(row_keep[:, None], P.real, 0).astype(np.float64)
    gradients = None if dP is None else np.where(row_keep[:, None], dP.real, 0).astype(np.float64)
    return [
        AttentionMap(kind, layer, h, P[h], queries, keys, keep[h], None if gradients is None else gradients[h], named_by)
        for h in range(len(P))
    ]
