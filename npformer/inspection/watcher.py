"""Which of a model's layers is at work, and what it was told of who may see whom."""

import threading
from typing import Any, NamedTuple

import numpy as np

from npformer.functional.visibility import visible_pairs, visible_positions
from npformer.layers import DecoderLayer, EncoderLayer, Layer, MultiHeadAttention
from npformer.models.stack import Stack
from npformer.observing import Observer
from npformer.operation import Array


class Visibility(NamedTuple):
    """What a layer was told of who may see whom, where no stack says it: as in MultiHeadAttention. Queries and keys stand at
    these positions, (T,) or (B, T), (S,) or (B, S), −1 for hidden ones, if anybody has said so."""

    queries: Array | None
    keys: Array | None
    keep: Array | None
    causal: Any
    window: Any

    def pairs(self, sizes: tuple[int, ...]) -> Array:
        """The visible ones (B, H, T, S)."""
        B, H, T, S = sizes
        if self.queries is None or self.keys is None:
            visible = visible_pairs("record", (B, H, T, S), self.keep, None, self.causal, self.window)
        else:
            visible = visible_positions("record", self.queries, self.keys, self.causal, self.window)
            others = visible_pairs("record", (B, H, T, S), self.keep, None, None, None)
            visible = visible if others is None else visible & others
        return np.broadcast_to(True if visible is None else visible, sizes)


class Attending(NamedTuple):
    """Which attention it is that offers its weights, where its keys stand, (S,) or (B, S), if a cache says so, and what may
    be seen as it was told."""

    kind: str
    layer: int
    key_positions: Array | None
    visibility: Visibility


class Work(threading.local):
    """What a thread is at: of those that share an observer, as asyncio.to_thread makes them, each runs models by itself."""

    def __init__(self) -> None:
        self.entered: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []
        self.numbers: list[int] = []  # of the layer that each stack has come to: one layer may stand in it twice
        self.loose: list[tuple[str, Any]] = []  # layers outside of any stack, in the order in which they are met
        self.pieces: list[Any] = []  # being read, the innermost last
        self.run: Any = None  # read last
        self.searches: list[Any] = []  # of the rows of a batch so far


class Watcher(Observer):
    """Knows at each moment which of the model's layers is at work."""

    def __init__(self, model: Layer) -> None:
        stacks = [part for part in vars(model).values() if isinstance(part, Stack)]
        of_decoders = [is_decoder(stack) for stack in stacks]
        self.roots = [model, *(stacks if len({*of_decoders}) == len(stacks) else [])]  # else no run is of one of them alone
        self.work = Work()

    def enters(self, layer: Any, inputs: tuple[Any, ...], options: dict[str, Any]) -> None:
        work = self.work
        outer = work.entered[-1][0] if work.entered else None
        if isinstance(outer, Stack) and any(layer is own for own in outer.layers):
            work.numbers[-1] += 1
        if isinstance(layer, Stack):
            work.numbers.append(-1)
        work.entered.append((layer, inputs, options))

    def leaves(self, layer: Any, y: Any) -> None:
        self.work.entered.pop()
        if isinstance(layer, Stack):
            self.work.numbers.pop()

    def attending(self, P: Array) -> Attending | None:
        """None where it is no layer of the model."""
        work = self.work
        if not any(layer is root for layer, _, _ in work.entered for root in self.roots):
            return None
        kind, memory, cache = "encoder", None, None
        whole: Layer | None = None
        number: int | None = None
        told: dict[str, Any] = {}
        for layer, inputs, options in work.entered:
            if isinstance(layer, Stack):
                number = work.numbers[-1]
            elif isinstance(layer, EncoderLayer):
                kind, whole, told = "encoder", layer, options
            elif isinstance(layer, DecoderLayer):
                kind, whole, told = "decoder", layer, {**options, "causal": True, "window": layer.window}
            elif isinstance(layer, MultiHeadAttention):
                memory, cache = inputs[1] if len(inputs) > 1 else options.get("memory"), options.get("cache")
                if whole is None:
                    kind, whole, told = "decoder" if looks_back(options, P.shape) else "encoder", layer, options
        if memory is not None:
            kind, cache = "cross", None
            if isinstance(whole, DecoderLayer):
                told = {"keep": told.get("memory_keep")}
        if number is None:
            whole = whole or work.entered[-1][0]
            alike = [layer for given, layer in work.loose if given == kind]
            number = next((i for i, layer in enumerate(alike) if layer is whole), len(alike))
            if number == len(alike):
                work.loose.append((kind, whole))
        return Attending(kind, number, None if cache is None else cache.positions, visibility(told, memory, cache, P.shape))


def is_decoder(stack: Stack) -> bool:
    return any(isinstance(layer, DecoderLayer) for layer in stack.layers)


def looks_back(options: dict[str, Any], sizes: tuple[int, ...]) -> bool:
    """Whether no query sees a key after itself, where the queries are the last of the keys."""
    causal = options.get("causal")
    if isinstance(causal, bool | np.bool_):  # True is an integer in Python
        return bool(causal)
    return causal is not None and causal <= sizes[3] - sizes[2]


def visibility(told: dict[str, Any], memory: Array | None, cache: Any, sizes: tuple[int, ...]) -> Visibility:
    queries, keep = (None if told.get(name) is None else told[name].copy() for name in ("positions", "keep"))
    T, S = sizes[2:]
    if cache is not None:
        keys = cache.positions
        if queries is None:  # they were the last to come in
            ends = cache.length if cache.row_lengths is None else cache.row_lengths[:, None]
            queries = ends - T + np.arange(T)
    else:
        keys = queries if memory is None else np.arange(S)
    return Visibility(queries, keys, keep, told.get("causal"), told.get("window"))
