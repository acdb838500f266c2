"""One head's weights: which query attends to which key, with the tokens' names, and what may be seen at all."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from npformer.inspection.tokens import Token, display_names
from npformer.operation import Array

Address: TypeAlias = tuple[str, int, int]  # of a head: its kind, layer and number, as Inspection.find takes them

KINDS = ("encoder", "decoder", "cross")
NAMED_BY = ("reads", "produces")
MOST_TOKENS = 4096
LEAK = 1e-6  # a weight where none may be counts as one above this
TOLERANCE = 5e-3  # of the sum of a row: half precision has three digits


@dataclass(frozen=True, eq=False)
class AttentionMap:
    """What one head does with one sequence: weights (T, S), a row for each query, a column for each key.

    kind          "encoder", "decoder" (causal self-attention) or "cross"
    layer, head   counted from 0, as in the parameters' names
    query_tokens  (T,) as the model saw them; named_by says what they are: the token that a query "reads", or the one that
                  it "produces", which is how a decoder's rows are named
    key_tokens    (S,)
    keep          (T, S) boolean, True where the query may attend
    gradient      (T, S), ∂L/∂P, or None

    Of merged tokens only, whose places no longer tell:

    names         (T,), the queries' names
    after         (T, S) boolean, keys after the query
    """

    kind: str
    layer: int
    head: int
    weights: Array
    query_tokens: tuple[Token, ...]
    key_tokens: tuple[Token, ...]
    keep: Array
    gradient: Array | None = None
    named_by: str = "reads"
    names: tuple[str, ...] | None = None
    after: Array | None = None

    @property
    def name(self) -> str:
        return f"layer {self.layer} head {self.head}"

    @cached_property
    def key_names(self) -> tuple[str, ...]:
        """(S,), as a reader sees them."""
        return display_names(self.key_tokens)

    @cached_property
    def query_names(self) -> tuple[str, ...]:
        """(T,), and a token that is a key as well has the same name there: a decoder produces what it reads next."""
        if self.names is not None:
            return self.names
        tokens, start = self.text
        return display_names(tokens)[start:]

    @property
    def text(self) -> tuple[tuple[Token, ...], int]:
        """The tokens among which the queries' are counted, and where the first query's is. In self-attention those are the
        keys' and, if a query is named by what it produces, the last that was produced; otherwise the queries' own."""
        T, S = self.weights.shape
        if self.kind == "decoder" and self.named_by == "produces":
            if 0 < T <= S and self.query_tokens[:-1] == self.key_tokens[S - T + 1 :]:
                return (*self.key_tokens, self.query_tokens[-1]), S - T + 1
        elif self.kind != "cross" and T <= S and self.query_tokens == self.key_tokens[S - T :]:
            return self.key_tokens, S - T
        return self.query_tokens, 0

    @property
    def address(self) -> Address:
        return self.kind, self.layer, self.head

    @property
    def place(self) -> tuple[int, int, int]:
        """By which heads are sorted."""
        return KINDS.index(self.kind), self.layer, self.head

    @property
    def n_visible(self) -> Array:
        """(T,), how many keys each query may see."""
        return np.asarray(self.keep.sum(1))

    @property
    def positions(self) -> Array:
        """(T,), at which key each query stands: in self-attention the T queries are the last of the S tokens."""
        T, S = self.weights.shape
        return np.arange(T) + (0 if self.kind == "cross" else S - T)

    @property
    def future(self) -> Array:
        """(T, S) boolean: keys after the query, which only a decoder must not see."""
        T, S = self.weights.shape
        if self.after is not None:
            return self.after
        if self.kind != "decoder":
            return np.zeros((T, S), bool)
        return np.asarray(np.arange(S) > self.positions[:, None])

    @property
    def leaks(self) -> Array:
        """(T, S) boolean: weights where none may be."""
        return np.asarray(~self.keep & (self.weights > LEAK))

    def sentence(self, q: int, k: int) -> str:
        """What one pair does: layer 5 head 2 · 春 → 海 = 0.3012 (rank 1 of 14, uniform 0.0714)."""
        query, key = self.query_names[q], self.key_names[k]
        weight, V = self.weights[q, k], int(self.n_visible[q])
        if not self.keep[q, k]:
            why = "after the query" if self.future[q, k] else "padding or outside the window"
            said = f"hidden: {why}"
        else:
            rank = 1 + int((self.weights[q, self.keep[q]] > weight).sum())
            said = f"rank {rank} of {V}, uniform {1 / V:.4f}"
        return f"{self.name} · {query} → {key} = {weight:.4f} ({said})"


def check_map(title: str, map: AttentionMap) -> None:
    """ValueError, which names the layer and the head and says what mends it, for weights that are no attention."""
    name = f"{title}: {map.kind} {map.name}"
    weights = map.weights
    if np.isnan(weights).any():
        q, k = np.argwhere(np.isnan(weights))[0]
        raise ValueError(f"{name}: the weight of query {q} on key {k} is NaN: find where the run left finite numbers")
    if (weights < 0).any():
        q, k = np.argwhere(weights < 0)[0]
        raise ValueError(
            f"{name}: the weight of query {q} on key {k} is {weights[q, k]:.4g}: give weights after the softmax, not scores"
        )
    if map.gradient is not None and not np.isfinite(map.gradient).all():
        q, k = np.argwhere(~np.isfinite(map.gradient))[0]
        raise ValueError(
            f"{name}: the gradient of query {q} on key {k} is {map.gradient[q, k]}: find where the run left finite numbers"
        )
    sums = weights.sum(1)
    wrong = (abs(sums - 1) > TOLERANCE) & (sums != 0)
    if wrong.any():
        q = int(wrong.argmax())
        of_keys = weights.sum(0)
        columns_do = bool(((abs(of_keys - 1) <= TOLERANCE) | (of_keys == 0)).all())
        mend = (
            "its columns do: swap the last two axes"
            if columns_do
            else "give the weights after the softmax and before dropout"
        )
        raise ValueError(f"{name}: the weights of query {q} sum to {sums[q]:.4g} and not to 1 (or 0, fully masked); {mend}")


def check_tokens(title: str, name: str, tokens: Any, n: int, axis: str) -> tuple[Token, ...]:
    """`tokens`, n strings or byte strings, as a tuple; numbers where None was given."""
    if tokens is None:
        return tuple(map(str, range(n)))
    if isinstance(tokens, str | bytes) or not isinstance(tokens, Iterable):
        raise TypeError(f"{title}: {name} must be a list of strings, one for each token, got {type(tokens).__name__}")
    given: Sequence[Any] = [token.item() if isinstance(token, np.generic) else token for token in tokens]
    for i, token in enumerate(given):
        if not isinstance(token, str | bytes):
            raise TypeError(f"{title}: {name} must be strings or bytes, but number {i} is {type(token).__name__}")
    if len(given) != n:
        raise ValueError(f"{title}: layer 0 head 0 has {n} {axis}, but there are {len(given)} {name}: give one for each")
    return tuple(given)
