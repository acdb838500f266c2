"""Who attends to a word: every head's weight on it while another word is said, and what is said without that head.

Words are summed over their keys and averaged over their queries.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from npformer.inspection.attention_map import AttentionMap
from npformer.inspection.columns import right, width
from npformer.inspection.tokens import Token, display_names, words_of
from npformer.operation import Array

SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")


class HeadAnswer(NamedTuple):
    """A head's `weight` on the key, and on the other word; rank 1 is the most of `n_visible` keys; `uniform` is what a head
    that looks at all alike would give; `probability` of the query's word with this head zeroed."""

    layer: int
    head: int
    weight: float
    against: float | None
    rank: int
    n_visible: int
    uniform: float
    probability: float | None


@dataclass(frozen=True, repr=False)
class WhoAttends:
    """Every head of one kind, the largest weight on `key` first. `probability` is that of the query's word as it is."""

    query: str
    key: str
    against: str | None
    kind: str
    rows: tuple[HeadAnswer, ...]
    probability: float | None
    note: str
    named_by: str = "produces"

    @property
    def columns(self) -> tuple[str, ...]:
        names = ["layer", "head", f"on {self.key}"]
        names += [f"on {self.against}"] if self.against is not None else []
        names += ["rank", "uniform"]
        return (*names, f"P({self.query}) without it") if self.probability is not None else tuple(names)

    def cells(self) -> list[tuple[str, ...]]:
        """The table as text, a row for each head."""
        table = []
        for row in self.rows:
            cells = [str(row.layer), str(row.head), f"{row.weight:.4f}"]
            cells += [f"{row.against:.4f}"] if row.against is not None else []
            cells += [f"{row.rank} of {row.n_visible}" if row.uniform else "hidden", f"{row.uniform:.4f}"]
            table.append((*cells, f"{row.probability:.4f}") if row.probability is not None else tuple(cells))
        return table

    @property
    def title(self) -> str:
        where = f'from "{self.query}"' if self.named_by == "reads" else f'while "{self.query}" is said'
        said = "" if self.probability is None else f"; P({self.query}) = {self.probability:.4f}"
        return f'who attends to "{self.key}" {where} ({self.kind} attention){said}'

    def __str__(self) -> str:
        rows = [self.columns, *self.cells()]
        widths = [max(width(row[i]) for row in rows) for i in range(len(self.columns))]
        lines = ["  ".join(right(cell, n) for cell, n in zip(row, widths, strict=True)) for row in rows]
        return "\n".join(filter(None, [self.title, *lines, self.note]))

    __repr__ = __str__

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        from npformer.inspection.notebook import mimebundle

        return mimebundle(self)


class Word(NamedTuple):
    name: str
    spans: list[tuple[int, int]]

    @property
    def places(self) -> list[int]:
        return [place for start, end in self.spans for place in range(start, end)]


def find_word(tokens: Sequence[Token], names: Sequence[str], word: str) -> Word | None:
    """Where `word` stands among tokens that are shown by `names`: everywhere, or with a subscript (北京₂) at that occurrence
    alone; None where it does not."""
    spans = words_of(tokens, [word])
    if spans:
        return Word(word, spans)
    if word in names:  # of what is no word, such as ␣, or one of several
        place = names.index(word)
        alike = [i for i, token in enumerate(tokens) if token == tokens[place]]
        several = word == display_names([tokens[place]])[0]
        return Word(word, [(i, i + 1) for i in alike] if several else [(place, place + 1)])
    numbered = re.fullmatch(r"(.+?)([₀-₉]+)", word)
    if numbered:
        spans = words_of(tokens, [numbered[1]])
        n = int(numbered[2].translate(SUBSCRIPTS))
        if 1 <= n <= len(spans):
            return Word(word, [spans[n - 1]])
    return None


def find_row(map: AttentionMap, word: str) -> Word | None:
    """Counted as in the text: the second 北京 is the same among the rows as among the keys."""
    if map.names is not None:
        return without_padding(find_word(map.query_tokens, map.query_names, word), map.keep.sum(1) > 0)
    tokens, first = map.text
    word_there = find_word(tokens, display_names(tokens), word)
    if word_there is None:
        return None
    spans = [(start - first, end - first) for start, end in word_there.spans if start >= first]
    return without_padding(Word(word, spans), map.keep.sum(1) > 0) if spans else None


def find_key(map: AttentionMap, word: str) -> Word | None:
    return without_padding(find_word(map.key_tokens, map.key_names, word), map.keep.sum(0) > 0)


def without_padding(word: Word | None, visible: Array) -> Word | None:
    """Padding may have any id, a word's too."""
    if word is None:
        return None
    spans = [(start, end) for start, end in word.spans if visible[start:end].any()]
    return word._replace(spans=spans or word.spans)


def answer(map: AttentionMap, query: Word, key: Word, against: Word | None, probability: float | None) -> HeadAnswer:
    rows, keys = query.places, key.places
    weights, V = map.weights[rows], map.n_visible[rows]
    of_keys = weights.mean(0)  # (S,), over the queries
    best = float(of_keys[keys].max())
    visible = map.keep[rows].any(0)
    return HeadAnswer(
        map.layer,
        map.head,
        float(weights[:, keys].sum(1).mean()),
        None if against is None else float(weights[:, against.places].sum(1).mean()),
        1 + int((of_keys[visible] > best).sum()),
        int(visible.sum()),
        float((map.keep[rows][:, keys].sum(1) / np.maximum(V, 1)).mean()),
        probability,
    )


def note_of(map: AttentionMap, query: Word, key: Word, against: Word | None, ablated: bool) -> str:
    def said(word: Word, what: str) -> str:
        places = ", ".join(str(a) if b == a + 1 else f"{a}–{b - 1}" for a, b in word.spans)
        return f"{word.name} is {what} {places}"

    words = [said(query, "row"), said(key, "key")] + ([] if against is None else [said(against, "key")])
    how = "weights are summed over a word's keys and averaged over its rows, the rank is that of its best key"
    clue = "attention is a clue, and ablation the evidence: P is with that head's output zeroed" if ablated else ""
    clue += ", the product over the rows" if ablated and len(query.places) > 1 else ""
    return "; ".join(filter(None, [*words, f"a row is named by the token that the query {map.named_by}", how, clue]))
