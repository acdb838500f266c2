"""A model run again on what it has read, with heads zeroed, or with the gradient of its attention weights.

A head whose weights are 0 finds nothing: its output is 0, and all else is as it was.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from npformer.functional import log_softmax
from npformer.inspection.attention_map import Address
from npformer.inspection.recorder import Recorder
from npformer.inspection.tokens import Token, display_names
from npformer.inspection.watcher import Watcher
from npformer.models import GPT, Encoder, EncoderDecoder
from npformer.observing import Observer, Told, observed_by
from npformer.operation import Array

ROWS_AT_ONCE = 32


class Question(NamedTuple):
    """The input of one row, a call of the model on n copies of it, and what it is asked: at `rows`, how likely the
    `expected` ids are."""

    inputs: tuple[Array | None, ...]
    options: dict[str, Array]
    rows: list[int]
    expected: list[int]

    @classmethod
    def of_text(
        cls,
        model: GPT | EncoderDecoder,
        ids: list[int],
        keep: Array,
        produced: list[int | None],
        source: Array | None,
        source_keep: Array | None,
    ) -> "Question":
        rows = [i for i, id in enumerate(produced) if id is not None]
        expected = [id for id in produced if id is not None]
        if not rows:
            raise ValueError("record: no token was produced whose probability could change")
        given = np.array(ids)
        shown = None if keep.all() else keep
        if isinstance(model, GPT):
            return cls((given,), {} if shown is None else {"keep": shown}, rows, expected)
        return cls((source, given, source_keep, shown), {}, rows, expected)

    @classmethod
    def of_encoder(cls, model: Encoder, ids: Array, keep: Array | None, token_types: Array | None) -> "Question":
        if not model.output:
            raise ValueError("record: an Encoder without outputs says nothing whose probability could change")
        options = {name: array for name, array in (("keep", keep), ("token_types", token_types)) if array is not None}
        question = cls((ids,), options, [], [])
        with observed_by(Observer(), alone=True):
            logits = question.logits(model, 1)[0]
        best = logits.argmax(-1)
        rows = [i for i in range(len(best)) if keep is None or model.config.pooling or keep[i]]
        if not rows:
            raise ValueError("record: all tokens of the row are hidden, so the model says nothing of them")
        return question._replace(rows=rows, expected=best[rows].tolist())

    def logits(self, model: Any, n: int) -> Array:
        """(n, N, V) of n copies of the row; N is 1 where a whole sequence has one answer."""
        inputs, options = self.repeated(n)
        logits = model(*inputs, **options)
        return np.asarray(logits if logits.ndim == 3 else logits[:, None])

    def repeated(self, n: int) -> tuple[list[Array | None], dict[str, Array]]:
        def copies(array: Array) -> Array:
            return np.repeat(array[None], n, 0)

        inputs = [None if array is None else copies(array) for array in self.inputs]
        return inputs, {name: copies(array) for name, array in self.options.items()}


@dataclass(frozen=True, eq=False, repr=False)
class Ablation:
    """One head's output zeroed. The tokens (N,) are those that were produced, or for an Encoder what it says as it is; ln P
    of each (N,) before and after."""

    kind: str
    layer: int
    head: int
    tokens: tuple[Token, ...]
    log_before: Array
    log_after: Array

    @property
    def address(self) -> Address:
        return self.kind, self.layer, self.head

    @property
    def probabilities(self) -> tuple[Array, Array]:
        """(N,) before and (N,) after."""
        return np.exp(self.log_before), np.exp(self.log_after)

    @property
    def loss(self) -> tuple[float, float]:
        """The mean of −ln P, before and after."""
        return float(-self.log_before.mean()), float(-self.log_after.mean())

    @property
    def change(self) -> float:
        before, after = self.loss
        return after - before

    def __str__(self) -> str:
        before, after = self.probabilities
        i = int(abs(after - before).argmax())
        losses = "{:.4f} → {:.4f}".format(*self.loss)
        return (
            f"{self.kind} layer {self.layer} head {self.head} zeroed: loss {losses}, "
            f"P({display_names(self.tokens)[i]}) {before[i]:.4f} → {after[i]:.4f}, the most of all tokens"
        )

    __repr__ = __str__


class Zeroing(Watcher):
    """Row b of the batch goes on without head places[b]."""

    def __init__(self, model: Any, places: Sequence[Address | None]) -> None:
        super().__init__(model)
        self.places = places

    def weighs(self, P: Array) -> tuple[Array, Told]:
        who = self.attending(P)
        rows = [
            (b, place[2])
            for b, place in enumerate(self.places)
            if place is not None and who is not None and place[:2] == (who.kind, who.layer)
        ]
        if rows:
            P = P.copy()
            for b, head in rows:
                P[b, head] = 0
        return super().weighs(P)


def log_probabilities(model: Any, question: Question, places: Sequence[Address | None]) -> list[Array]:
    """ln P (N,) of what is expected, float64, with each of these heads zeroed; None is the model as it is."""
    found: list[Array] = []
    for start in range(0, len(places), ROWS_AT_ONCE):
        some = places[start : start + ROWS_AT_ONCE]
        with observed_by(Zeroing(model, some), alone=True):
            logits = question.logits(model, len(some))
        log_P, _ = log_softmax(logits.astype(np.float64))  # (n,N,V)
        found += list(log_P[:, question.rows, question.expected])
    return found


def weight_gradients(model: Any, question: Question, counted: Sequence[int]) -> dict[Address, Array]:
    """∂L/∂P (T, S) of each head, L = −Σ ln P over the answers `counted`. The parameters' gradients stay as they were."""
    parameters = model.parameters().values()
    before = [parameter.grad.copy() for parameter in parameters]
    recorder = Recorder(model)
    inputs, options = question.repeated(1)
    with observed_by(recorder, alone=True):
        logits, backward = model.forward(*inputs, **options)
    _, log_backward = log_softmax(logits)
    dlog_P = np.zeros_like(logits)
    for i in counted:
        dlog_P[0, question.rows[i], question.expected[i]] -= 1
    try:
        backward(log_backward(dlog_P))
    finally:
        for parameter, gradient in zip(parameters, before, strict=True):
            parameter.grad[...] = gradient
    run = recorder.run
    assert run is not None
    pieces = [piece for row in run.rows for piece in (row.encoder, *(piece for piece, _ in row.parts)) if piece]
    return {
        (kind, layer, h): np.asarray(look.gradient[0, h], np.float64)
        for piece in pieces
        for (kind, layer), look in piece.looks.items()
        if look.gradient is not None
        for h in range(look.P.shape[1])
    }
