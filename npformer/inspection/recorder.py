"""Watches a model read, and puts together what each row of it has attended to, however it was read.

A model reads a sequence in one pass, or in pieces over a cache, whose rows may be reordered on the way. Each pass of a stack
is a Piece. A Row is a chain of pieces, with the number that the row had in each. A Run is the rows that began together.
"""

import copy
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from npformer.layers import DecoderLayer, EncoderLayer, Layer, MultiHeadAttention
from npformer.models.stack import Stack, positions_of
from npformer.observing import Observer, Told
from npformer.operation import Array


class Attending(NamedTuple):
    """Which attention it is that offers its weights, and where its keys stand, (S,) or (B, S), if a cache says so."""

    kind: str
    layer: int
    key_positions: Array | None


class Watcher(Observer):
    """Knows at each moment which of the model's layers is at work."""

    def __init__(self, model: Layer) -> None:
        self.roots = [model, *(part for part in vars(model).values() if isinstance(part, Stack))]
        self.loose: list[tuple[str, Any]] = []  # layers outside of any stack, in the order in which they are met
        self.entered: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []
        self.numbers: list[int] = []  # of the layer that each stack has come to: one layer may stand in it twice

    def enters(self, layer: Any, inputs: tuple[Any, ...], options: dict[str, Any]) -> None:
        outer = self.entered[-1][0] if self.entered else None
        if isinstance(outer, Stack) and any(layer is own for own in outer.layers):
            self.numbers[-1] += 1
        if isinstance(layer, Stack):
            self.numbers.append(-1)
        self.entered.append((layer, inputs, options))

    def leaves(self, layer: Any, y: Any) -> None:
        self.entered.pop()
        if isinstance(layer, Stack):
            self.numbers.pop()

    def attending(self) -> Attending | None:
        """None where it is no layer of the model."""
        if not any(layer is root for layer, _, _ in self.entered for root in self.roots):
            return None
        kind, memory, cache = "encoder", None, None
        whole: Layer | None = None
        number: int | None = None
        for layer, inputs, options in self.entered:
            if isinstance(layer, Stack):
                number = self.numbers[-1]
            elif isinstance(layer, EncoderLayer | DecoderLayer):
                kind, whole = "decoder" if isinstance(layer, DecoderLayer) else "encoder", layer
            elif isinstance(layer, MultiHeadAttention):
                memory, cache = inputs[1] if len(inputs) > 1 else options.get("memory"), options.get("cache")
                if whole is None:
                    kind, whole = "encoder" if options.get("causal") in (None, False) else "decoder", layer
        kind = kind if memory is None else "cross"
        if number is None:
            whole = whole or self.entered[-1][0]
            alike = [layer for given, layer in self.loose if given == kind]
            number = next((i for i, layer in enumerate(alike) if layer is whole), len(alike))
            if number == len(alike):
                self.loose.append((kind, whole))
        return Attending(kind, number, None if memory is not None or cache is None else cache.positions)


@dataclass(eq=False)
class Look:
    """P (B, H, T, S) of one attention, and ∂L/∂P once a backward has come by."""

    P: Array
    key_positions: Array | None
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
    features: Any = None

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

    def goes_on_as(self, other: "Row") -> bool:
        """Whether `other`, read anew, is this text, of which the beginning may be lost, with what was written after it."""
        ids, mine = ([id for piece, b in row.parts for id in piece.read(b)] for row in (other, self))
        return self.written is not None and bool(ids) and [*mine, self.written][-len(ids) :] == ids


@dataclass(eq=False)
class Run:
    rows: list[Row]
    finished: list[Row] = field(default_factory=list)
    settled: Array | None = None

    def move(self, rows: Array) -> None:
        """Row i becomes what row rows[i] was."""
        stay = set(rows.tolist())
        self.finished += [row for r, row in enumerate(self.rows) if r not in stay]
        self.rows = [self.rows[r] for r in rows.tolist()]


class Recorder(Watcher):
    """`run` is the one that was read last; `version` changes with everything that is seen."""

    def __init__(self, model: Layer) -> None:
        super().__init__(model)
        self.run: Run | None = None
        self.before: Run | None = None  # the one before the source that was read last
        self.searches: list[Run] = []  # of each row of a batch
        self.version = 0
        stacks = [root for root in self.roots if isinstance(root, Stack)]
        self.has_decoder = any(isinstance(layer, DecoderLayer) for stack in stacks for layer in stack.layers)
        self.pieces: list[Piece] = []  # being read, the innermost last
        self.encoded: list[Piece] = []
        self.runs: WeakKeyDictionary[Any, Run] = WeakKeyDictionary()  # by their first cache

    def enters(self, layer: Any, inputs: tuple[Any, ...], options: dict[str, Any]) -> None:
        super().enters(layer, inputs, options)
        if not any(layer is root for root in self.roots):
            return
        if isinstance(layer, Stack):
            self.pieces.append(piece_of(layer, inputs, options))
            caches = options.get("caches")
            if caches is not None and caches[0].length == 0:
                self.runs.pop(caches[0], None)
            elif caches is not None and caches[0] not in self.runs:
                raise ValueError("record: the cache held tokens before the recording began; make it in the `with` block")
        elif len(self.roots) == 1:
            self.pieces.append(Piece(None, None, None, None, None, None, [], False, True))

    def leaves(self, layer: Any, y: Any) -> None:
        _, inputs, options = self.entered[-1]
        super().leaves(layer, y)
        if not any(layer is root for root in self.roots) or not (isinstance(layer, Stack) or len(self.roots) == 1):
            return
        piece = self.pieces.pop()
        if y is None:
            return
        self.version += 1
        if piece.ids is None or not piece.is_decoder:
            piece.features = y
            self.take_encoder(piece)
        else:
            self.take(piece, options.get("caches"), inputs[1] if len(inputs) > 1 else options.get("memory"))

    def take_encoder(self, piece: Piece) -> None:
        if self.has_decoder:
            self.encoded.append(piece)
        n_rows = len(next(iter(piece.looks.values())).P) if piece.looks else 0
        self.before, self.run = self.run, Run([Row(b, piece, b, ()) for b in range(n_rows)])

    def take(self, piece: Piece, caches: Any, memory: Array | None) -> None:
        if caches is not None and caches[0] in self.runs:
            self.run = self.runs[caches[0]]
            self.run.rows = [
                row._replace(parts=(*row.parts, (piece, b)), written=None, length=None)
                for b, row in enumerate(self.run.rows)
            ]
            return
        assert piece.ids is not None
        encoder, sources = self.find_source(memory, len(piece.ids))
        before = self.run if memory is None else self.before
        self.run = Run([Row(b, encoder, sources[b], ((piece, b),)) for b in range(len(piece.ids))])
        if caches is not None:
            self.runs[caches[0]] = self.run
            return
        self.encoded = [other for other in self.encoded if other is not encoder]  # it is of no use to another pass
        if before is not None and len(before.rows) == len(self.run.rows):
            pairs = list(zip(before.rows, self.run.rows, strict=True))
            if all(old.goes_on_as(new) for old, new in pairs):
                self.run = Run([new._replace(origin=old.origin) for old, new in pairs], before.finished)

    def find_source(self, memory: Array | None, n_rows: int) -> tuple[Piece | None, list[int]]:
        """The encoder's pass that made the memory, and which of its rows each row is, for a cache may have moved them."""
        if memory is not None:
            for piece in reversed(self.encoded):
                if piece.features is memory:
                    return piece, list(range(len(memory)))
            for piece in reversed(self.encoded):
                if piece.features.shape[1:] == memory.shape[1:]:
                    equal = [[np.array_equal(row, other) for other in piece.features] for row in memory]
                    if all(map(any, equal)):
                        return piece, [row.index(True) for row in equal]
        return None, [0] * n_rows

    def as_it_is(self) -> "Recorder":
        """One that what is read from now on does not change."""
        other = copy.copy(self)
        other.run = None if self.run is None else replace(self.run, rows=[*self.run.rows], finished=[*self.run.finished])
        return other

    def weighs(self, P: Array) -> tuple[Array, Told]:
        who = self.attending()
        if who is None or not self.pieces:
            return super().weighs(P)
        look = Look(P, who.key_positions)
        self.pieces[-1].looks[who.kind, who.layer] = look

        def take(gradient: Array) -> None:
            look.gradient = gradient
            self.version += 1

        return P, take

    def moves(self, caches: Any, rows: Array) -> None:
        if caches[0] in self.runs:
            self.runs[caches[0]].move(rows)
            self.version += 1

    def forks(self, caches: Any, others: Any) -> None:
        if caches[0] in self.runs:
            run = self.runs[caches[0]]
            self.runs[others[0]] = replace(run, rows=list(run.rows), finished=list(run.finished))

    def rewinds(self, caches: Any, lengths: Array) -> None:
        if caches[0] in self.runs:
            run = self.runs[caches[0]]
            run.rows = [row._replace(written=None, length=n) for row, n in zip(run.rows, lengths.tolist(), strict=True)]
            self.version += 1

    def writes(self, model: Any, ids: Array) -> None:
        if model is self.roots[0] and self.run is not None and len(self.run.rows) == len(ids):
            self.run.rows = [row._replace(written=int(id)) for row, id in zip(self.run.rows, ids, strict=True)]
            self.version += 1

    def chooses(self, model: Any, rows: Array) -> None:
        if model is self.roots[0] and self.run is not None:
            self.run.move(rows)
            self.version += 1

    def settles(self, model: Any, row: int, ids: Array) -> None:
        if model is self.roots[0] and self.run is not None:
            self.run.settled = ids
            self.searches = [*self.searches[:row], self.run]
            self.version += 1


def piece_of(stack: Stack, inputs: tuple[Any, ...], options: dict[str, Any]) -> Piece:
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
        is_decoder=any(isinstance(layer, DecoderLayer) for layer in stack.layers),
        is_whole=caches is None,
    )
