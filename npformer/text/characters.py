"""The simplest tokenizer: every character is a token, and its id is its place in the vocabulary.

A character is one code point of Unicode. A letter and the accent that combines with it are two, and so are an emoji and its
variation selector; nothing is normalised, so that decoding gives back exactly the text that was encoded.
"""

import unicodedata
from typing import Any

import numpy as np

from npformer.arguments import check_ids
from npformer.operation import Array

SHOWN = 10  # unknown characters that an error lists


class CharacterTokenizer:
    """A vocabulary of characters; `characters[i]` is the one with the id i.

    ValueError if `characters` is empty or holds one twice. Two tokenizers are equal if their ids mean the same characters.
    """

    def __init__(self, characters: str) -> None:
        title = "CharacterTokenizer"
        check_text(title, "characters", characters)
        if not characters:
            raise ValueError(f"{title}: characters must not be empty")
        twice = next((character for character in characters if characters.count(character) > 1), None)
        if twice is not None:
            raise ValueError(f"{title}: characters must all differ, but {readable(twice)} is there more than once")
        self.characters = characters
        self._codes = code_points(characters)
        self._ids = np.full(int(self._codes.max()) + 2, -1, np.int64)  # by code point, and −1 for all beyond the last
        self._ids[self._codes] = np.arange(len(characters))

    @classmethod
    def from_text(cls, text: str) -> "CharacterTokenizer":
        """The characters that occur in `text`, sorted by code point. ValueError for an empty text."""
        check_text("CharacterTokenizer.from_text", "text", text)
        if not text:
            raise ValueError("CharacterTokenizer.from_text: text must not be empty")
        return cls("".join(sorted(set(text))))

    @property
    def vocab_size(self) -> int:
        return len(self.characters)

    def encode(self, text: str) -> Array:
        """text of n characters → ids (n,) int64. ValueError, which lists them, for characters outside the vocabulary."""
        title = "CharacterTokenizer.encode"
        check_text(title, "text", text)
        codes = code_points(text)
        ids: Array = self._ids[np.minimum(codes, len(self._ids) - 1)]
        unknown = np.flatnonzero(ids < 0)
        if unknown.size:
            names = list(dict.fromkeys(text[i] for i in unknown))
            more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
            raise ValueError(
                f"{title}: text has characters outside the vocabulary, "
                f"the first at position {unknown[0]}: {', '.join(map(readable, names[:SHOWN]))}{more}"
            )
        return ids

    def decode(self, ids: Array) -> str:
        """ids (n,), or a single one (), integers in 0 … vocab_size − 1 → a text of n characters."""
        title = "CharacterTokenizer.decode"
        check_ids(title, "ids", ids, limit=self.vocab_size)
        if ids.ndim > 1:
            raise ValueError(f"{title}: ids must have one axis, got the shape {ids.shape}")
        return self._codes[ids].tobytes().decode("utf-32-le", "surrogatepass")

    def __eq__(self, other: object) -> bool:
        return self.characters == other.characters if isinstance(other, CharacterTokenizer) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.characters)


def code_points(text: str) -> Array:
    """Half of a surrogate pair, alone, is a character like any other: Python's own texts may hold it."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")


def readable(character: str) -> str:
    """A combining mark as its number: printed, it would sit on the quotation mark before it."""
    return ascii(character) if unicodedata.category(character).startswith("M") else repr(character)


def check_text(title: str, name: str, value: Any) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{title}: {name} must be a str, got {type(value).__name__}")
