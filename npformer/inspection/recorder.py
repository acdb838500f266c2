"""Watches a model read, and puts together what each row of it has attended to, however it was read.

A model reads a sequence in one pass, or in pieces over a cache, whose rows may be reordered on the way. Each pass of a stack
is a Piece. A Row is a chain of pieces, with the number that the row had in each. A Run is the rows that began together.
"""

import copy
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from weakref import ReferenceType, WeakKeyDictionary, ref

import numpy as np

from npformer.inspection.watcher import Visibility, Watcher, Work, is_decoder
from npformer.layers import Layer
from npformer.models.stack import Stack, positions_of
from npformer.observing import Told
from npformer.operation import Array


@dataclass(eq=False)
class Look:
    """P (B, H, T, S) of one attention, and ∂L/∂P once a backward has come by. `is_one_of_many`: it attended before."""

    P: Array
    key_positions: Array | None
    visibility: Visibility
    is_one_of_many: bool
    gradient: Array | None = None


@dataclass(eq=False)
class Piece:
    """One pass of a stack over ids (B, T), which stand at `positions` (B, T), −1 for padding, after `starts` (B,) tokens:
    its looks by kind and layer. `is_whole` unless a cache holds what came before."""

    ids: Array | None
    positions: Array | None
    starts: Array | None
    keep: Array | None
    memory_keep: Array | None
    token_types: Array | None
    windows: list[int | None]
    is_decoder: bool
    is_whole: bool
    looks: dict[tuple[str, int], Look] = field(default_factory=dict)

    def read(self, b: int) -> list[int]:
        """The ids of row b, without padding."""
        assert self.ids is not None and self.positions is not None
        ids: list[int] = self.ids[b][self.positions[b] >= 0].tolist()
        return ids


class Row(NamedTuple):
    """`origin` is its number in the first batch, `source` its row of the encoder's pass, `written` the id that follows, and
    `length` how much of it there still is, if the rest was forgotten."""

    origin: int
    encoder: Piece | None
    source: int
    parts: tuple[tuple[Piece, int], ...]
    written: int | None = None
    length: int | None = None


@dataclass(eq=False)
class Run:
    """`settled`: what a search has found, and `searches` are those of all rows of its batch."""

    rows: list[Row]
    finished: list[Row] = field(default_factory=list)
    settled: Array | None = None
    searches: list["Run"] = field(default_factory=list)

    def move(self, rows: Array) -> None:
        """Row i becomes what row rows[i] was."""
        stay = set(rows.tolist())
        self.finished += [row for r, row in enumerate(self.rows) if r not in stay]
        self.rows = [self.rows[r] for r in rows.tolist()]


class Recorder(Watcher):
    """`run` is the one that was read last; `version` is another with everything that is seen.

    Nothing is refused here: the model runs as if nobody watched. Where it cannot be told what a row has read, its row says
    so once it is asked (stitching.py).
    """

    def __init__(self, model: Layer) -> None:
        super().__init__(model)
        self.run: Run | None = None
        self.version = object()
        self.has_decoder = any(isinstance(root, Stack) and is_decoder(root) for root in self.roots)
        self.forget()

    def forget(self) -> None:
        """What goes on from here is not known."""
        self.encoded: list[tuple[ReferenceType[Any], Piece]] = []  # with what came of it, as long as somebody has that
        self.runs: WeakKeyDictionary[Any, Run] = WeakKeyDictionary()  # by their first cache
        self.texts: WeakKeyDictionary[Any, Run] = WeakKeyDictionary()  # by the GrowingText

    def __getstate__(self) -> dict[str, Any]:
        """A copy keeps what was seen, and goes on by itself."""
        return {name: value for name, value in vars(self).items() if name not in ("work", "encoded", "runs", "texts")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.work = Work()
        self.forget()

    def as_it_is(self) -> "Recorder":
        """One that what is read from now on does not change."""
        other = copy.copy(self)
        other.run = None if self.run is None else replace(self.run, rows=[*self.run.rows], finished=[*self.run.finished])
        return other

    def changed(self) -> None:
        self.version = object()

    def enters(self, layer: Any, inputs: tuple[Any, ...], options: dict[str, Any]) -> None:
        super().enters(layer, inputs, options)
        if self.is_piece(layer):
            self.work.pieces.append(piece_of(layer, inputs, options))

    def is_piece(self, layer: Any) -> bool:
        return any(layer is root for root in self.roots) and (isinstance(layer, Stack) or len(self.roots) == 1)

    def leaves(self, layer: Any, y: Any) -> None:
        _, inputs, options = self.work.entered[-1]
        super().leaves(layer, y)
        if not self.is_piece(layer):
            return
        piece = self.work.pieces.pop()
        if y is None:
            return
        if piece.ids is None or not piece.is_decoder:
            run = self.encoder_run(piece, y)
        else:
            run = self.decoder_run(piece, options.get("caches"), inputs[1] if len(inputs) > 1 else options.get("memory"))
        self.run = self.work.run = run
        self.changed()

    def encoder_run(self, piece: Piece, features: Any) -> Run:
        if self.has_decoder:
            self.encoded = [(made, each) for made, each in self.encoded if made() is not None] + [(ref(features), piece)]
        n_rows = len(next(iter(piece.looks.values())).P) if piece.looks else 0
        return Run([Row(b, piece, b, ()) for b in range(n_rows)])

    def decoder_run(self, piece: Piece, caches: Any, memory: Array | None) -> Run:
        assert piece.ids is not None
        run = None if caches is None else self.runs.get(caches[0])
        if run is not None and len(run.rows) == len(piece.ids):
            begins = not any(row.parts for row in run.rows)  # rows have no number before the first of them is read
            run.finished = [] if begins else run.finished
            run.rows = [
                row._replace(origin=b if begins else row.origin, parts=(*row.parts, (piece, b)), written=None, length=None)
                for b, row in enumerate(run.rows)
            ]
            return run
        encoder = self.encoder_of(memory)
        run = Run([Row(b, encoder, b, ((piece, b),)) for b in range(len(piece.ids))])
        if caches is not None:
            self.runs[caches[0]] = run
        return run

    def encoder_of(self, memory: Array | None) -> Piece | None:
        """The encoder's pass that made the memory."""
        return next((piece for made, piece in self.encoded if memory is not None and made() is memory), None)

    def weighs(self, P: Array) -> tuple[Array, Told]:
        who = self.attending(P)
        if who is None or not self.work.pieces:
            return super().weighs(P)
        looks, place = self.work.pieces[-1].looks, (who.kind, who.layer)
        look = looks[place] = Look(P, who.key_positions, who.visibility, place in looks)

        def take(gradient: Array) -> None:
            look.gradient = gradient
            self.changed()

        return P, take

    def begins(self, caches: Any, memory: Array) -> None:
        encoder = self.encoder_of(memory)
        if encoder is not None:
            self.runs[caches[0]] = Run([Row(b, encoder, b, ()) for b in range(len(memory))])

    def moves(self, caches: Any, rows: Array) -> None:
        run, lengths = self.runs.get(caches[0]), caches[0].lengths
        if run is None:
            return
        n = len(run.rows)
        if rows.max(initial=-1) < n and (lengths is None or len(lengths) == n):
            run.move(rows)
            self.changed()
        else:
            del self.runs[caches[0]]  # they were moved where nobody watched

    def forks(self, caches: Any, others: Any) -> None:
        if caches[0] in self.runs:
            run = self.runs[caches[0]]
            self.runs[others[0]] = replace(run, rows=list(run.rows), finished=list(run.finished))

    def rewinds(self, caches: Any, lengths: Array) -> None:
        run = self.runs.get(caches[0])
        if run is not None and len(run.rows) == len(lengths):
            run.rows = [row._replace(written=None, length=n) for row, n in zip(run.rows, lengths.tolist(), strict=True)]
            self.changed()

    def reads(self, text: Any) -> None:
        run, before = self.work.run, self.texts.get(text)
        if text.model is not self.roots[0] or run is None or len(run.rows) != len(text.ids):
            return
        if before is not None and before is not run and len(before.rows) == len(run.rows):
            run.rows = [new._replace(origin=old.origin) for new, old in zip(run.rows, before.rows, strict=True)]
            run.finished = before.finished
            self.changed()
        self.texts[text] = run

    def writes(self, text: Any, ids: Array) -> None:
        run = self.texts.get(text)
        if run is not None and len(run.rows) == len(ids):
            run.rows = [row._replace(written=int(id)) for row, id in zip(run.rows, ids, strict=True)]
            self.changed()

    def chooses(self, text: Any, rows: Array) -> None:
        run = self.texts.get(text)
        if run is not None and len(run.rows) == len(text.ids):
            run.move(rows)
            self.changed()

    def settles(self, model: Any, row: int, ids: Array) -> None:
        run, work = self.work.run, self.work
        if model is self.roots[0] and run is not None:
            run.settled, run.searches = ids, [*work.searches[:row], run]
            work.searches = run.searches
            self.changed()


def piece_of(stack: Layer, inputs: tuple[Any, ...], options: dict[str, Any]) -> Piece:
    if not isinstance(stack, Stack):
        return Piece(None, None, None, None, None, None, [], is_decoder=False, is_whole=True)
    ids = (inputs[0] if inputs else options["ids"]).copy()  # the caller may use his array again
    keep, memory_keep, token_types = (
        None if options.get(name) is None else options[name].copy() for name in ("keep", "memory_keep", "token_types")
    )
    caches = options.get("caches")
    starts = None if caches is None else caches[0].lengths
    positions = positions_of(ids, keep, caches)
    positions = np.broadcast_to(np.arange(ids.shape[1]) if positions is None else positions, ids.shape)
    return Piece(
        *(ids, positions, np.zeros(len(ids), int) if starts is None else starts, keep, memory_keep, token_types),
        windows=[getattr(layer, "window", None) for layer in stack.layers],
        is_decoder=is_decoder(stack),
        is_whole=caches is None,
    )
