"""Tokens as a reader sees them: a readable name for each, bytes merged to characters, characters to words."""

import codecs
import unicodedata
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:  # it names its tokens by this file
    from npformer.inspection.attention_map import AttentionMap

Token: TypeAlias = str | bytes
Spans: TypeAlias = list[tuple[int, int]]

SIGNS = {" ": "␣", "\n": "⏎", "\t": "⇥"}
JOINERS = "\u200c\u200d"
MERGED = "Bytes of one character are merged: weights are summed over its keys and averaged over its queries."
SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


def display_names(tokens: Sequence[Token]) -> tuple[str, ...]:
    """One readable name for each token, all of them different and none empty.

    A space is ␣, a newline ⏎, a tab ⇥, "" is ∅; any other character that shows nothing by itself is its number, as U+0007;
    a mark that has nothing to stand on stands on ◌. Bytes are read as UTF-8, and what is none of it is written as \\xe6.
    Repeats are told apart in their order: 春, 春₂, 春₃.
    """
    plain = [readable(token) for token in tokens]
    taken = set(plain)
    count: Counter[str] = Counter()
    names = []
    for name in plain:
        count[name] += 1
        if count[name] > 1:
            while (numbered := name + str(count[name]).translate(SUBSCRIPTS)) in taken:
                count[name] += 1
            taken.add(numbered)
            names.append(numbered)
        else:
            names.append(name)
    return tuple(names)


def text_of(token: Token) -> str:
    return token.decode(errors="backslashreplace") if isinstance(token, bytes) else token


def readable(token: Token) -> str:
    """The name of a token alone."""
    shown, stands = "", False  # stands: what was shown last can carry a mark
    text = text_of(token)
    for i, character in enumerate(text):
        category = unicodedata.category(character)
        inside = stands and (
            (character in JOINERS and i + 1 < len(text)) or "\U000e0020" <= character <= "\U000e007f"  # a flag's letters
        )
        if character in SIGNS:
            shown, stands = shown + SIGNS[character], False
        elif is_variation(character) and stands:
            shown += character
        elif category[0] == "M" and not is_variation(character):
            shown, stands = shown + ("" if stands else "◌") + character, True
        elif category[0] in "MZ" or category in ("Cc", "Cf", "Cs", "Co"):
            shown, stands = (shown + character, True) if inside else (f"{shown}U+{ord(character):04X}", False)
        else:
            shown, stands = shown + character, True
    return shown or "∅"


def is_variation(character: str) -> bool:
    return "\ufe00" <= character <= "\ufe0f" or "\U000e0100" <= character <= "\U000e01ef"


def characters_of(tokens: Sequence[Token]) -> Spans | None:
    """Spans of the tokens that are bytes of one character together; None where every token stands alone.

    Bytes that are no UTF-8 stand alone.
    """
    spans: Spans = []
    while (start := spans[-1][1] if spans else 0) < len(tokens):
        spans.append((start, end_of_character(tokens, start)))
    return spans if len(spans) < len(tokens) else None


def end_of_character(tokens: Sequence[Token], start: int) -> int:
    decoder = codecs.getincrementaldecoder("utf-8")()
    for i in range(start, len(tokens)):
        token = tokens[i]
        if isinstance(token, str):
            break
        try:
            decoder.decode(token)
        except UnicodeDecodeError:
            break
        if not decoder.getstate()[0]:
            return i + 1
    return start + 1


def words_of(tokens: Sequence[Token], words: Collection[str]) -> Spans:
    """Where tokens make up one of `words`, alone or together: their spans from left to right, the longest that fits first.

    White space before a word belongs to it, if it is part of the word's first token.
    """
    wanted = {word.encode(errors="surrogatepass").strip() for word in words} - {b""}
    longest = max(map(len, wanted), default=0)
    raw = [token.encode(errors="surrogatepass") if isinstance(token, str) else token for token in tokens]
    spans: Spans = []
    start = 0
    while start < len(raw):
        end, piece = start, b""
        for i in range(start, len(raw)):
            piece += raw[i] if piece else raw[i].lstrip()
            if not piece or len(piece) > longest:
                break
            if piece in wanted:
                end = i + 1
        if end > start:
            spans.append((start, end))
        start = max(end, start + 1)
    return spans


def merged(map: "AttentionMap", groups: tuple[Spans, Spans]) -> "AttentionMap":
    """The map of merged tokens, where `groups` are spans of the queries and of the keys, in order; a token in none stays.

    A weight is summed over the keys of a group and averaged over its queries that see any key; a key can be seen where any
    of its tokens can. The gradient is left out: a merged weight can move in more ways than one.
    """
    if not map.weights.size:
        return map
    queries, keys = (gapless(spans, n) for spans, n in zip(groups, map.weights.shape, strict=True))
    first_queries, first_keys = [start for start, _ in queries], [start for start, _ in keys]
    sees = map.keep.any(1, keepdims=True)
    weights = np.add.reduceat(np.add.reduceat(map.weights * sees, first_keys, 1), first_queries, 0)
    seeing = np.add.reduceat(sees.astype(int), first_queries, 0)
    after = np.logical_and.reduceat(np.logical_and.reduceat(map.future, first_keys, 1), first_queries, 0)
    return replace(
        map,
        names=names_of_merged(map, queries, keys),
        after=None if map.kind == "cross" else after,
        weights=weights / np.maximum(seeing, 1),
        query_tokens=tuple(joined(map.query_tokens[start:end]) for start, end in queries),
        key_tokens=tuple(joined(map.key_tokens[start:end]) for start, end in keys),
        keep=np.logical_or.reduceat(np.logical_or.reduceat(map.keep, first_keys, 1), first_queries, 0),
        gradient=None,
    )


def names_of_merged(map: "AttentionMap", queries: Spans, keys: Spans) -> tuple[str, ...] | None:
    """A decoder's merged queries by the names of the keys that they produce; "…" before what is no key as a whole."""
    _, first = map.text
    if map.kind == "cross" or not first:
        return None
    of_keys = display_names([joined(map.key_tokens[start:end]) for start, end in keys])
    by_span = dict(zip(keys, of_keys, strict=True))
    own = display_names([joined(map.query_tokens[start:end]) for start, end in queries])
    return tuple(
        by_span.get((start + first, end + first), f"…{name}") for (start, end), name in zip(queries, own, strict=True)
    )


def in_characters(map: "AttentionMap") -> "AttentionMap":
    """The map with the bytes of each character merged; the map itself where there is nothing to merge."""
    queries, keys = characters_of(map.query_tokens), characters_of(map.key_tokens)
    return map if queries is None and keys is None else merged(map, (queries or [], keys or []))


def gapless(spans: Spans, n: int) -> Spans:
    """The spans, and one for each of n tokens that is in none."""
    inside = {i for start, end in spans for i in range(start, end)}
    return sorted([*spans, *((i, i + 1) for i in range(n) if i not in inside)])


def joined(tokens: Sequence[Token]) -> Token:
    if len(tokens) == 1:
        return tokens[0]
    pieces = [token for token in tokens if isinstance(token, bytes)]
    return b"".join(pieces) if len(pieces) == len(tokens) else "".join(map(text_of, tokens))
