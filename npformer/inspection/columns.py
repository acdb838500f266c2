"""The columns of a terminal that text takes: two for a Chinese character and for emoji joined to one, none for a mark."""

import unicodedata
from collections.abc import Iterable, Iterator

JOINER, AS_EMOJI = "\u200d", "\ufe0f"


def width(text: str) -> int:
    """The columns that `text` takes in a terminal."""
    return sum(columns for _, columns in pictures(text))


def left(text: str, columns: int) -> str:
    """`text` at the left of so many columns."""
    return text + " " * (columns - width(text))


def right(text: str, columns: int) -> str:
    """`text` at the right of so many columns."""
    return " " * (columns - width(text)) + text


def clipped(text: str, columns: int, mark: str = "…") -> str:
    """As much of `text` as so many columns hold; where that is not all of it, it ends in `mark`."""
    if width(text) <= columns:
        return text
    if width(mark) >= columns:
        return mark[: max(columns, 0)]
    room, kept = columns - width(mark), ""
    for picture, n in pictures(text):
        room -= n
        if room < 0:
            break
        kept += picture
    return kept + mark


def packed(pieces: Iterable[str], columns: int, *, first: str = "", indent: str = "", gap: str = " ") -> list[str]:
    """Lines of at most so many columns that hold the pieces in their order, with `gap` between two of them.

    `first` begins the first line and `indent` every other. A piece that no line could hold is broken.
    """
    lines, is_empty = [first], True
    for piece in pieces:
        joint = "" if is_empty else gap
        if width(lines[-1] + joint + piece) <= columns:
            lines[-1] += joint + piece
        elif width(indent + piece) <= columns:
            lines.append(indent + piece)
        else:
            lines[-1] += joint
            for picture, n in pictures(piece):
                if width(lines[-1]) + n > columns and lines[-1] not in (first, indent):
                    lines.append(indent)
                lines[-1] += picture
        is_empty = False
    return [line.rstrip() for line in lines]


def pictures(text: str) -> Iterator[tuple[str, int]]:
    """The pieces of `text` that a terminal shows as one, with the columns of each: a character and what is put on it."""
    piece, columns = "", 0
    for character in text:
        if piece and goes_on(piece, character):
            piece += character
            if character == AS_EMOJI and columns == 1 and is_symbol(piece[0]):
                columns = 2
        else:
            if piece:
                yield piece, columns
            piece, columns = character, columns_of(character)
    if piece:
        yield piece, columns


def goes_on(piece: str, character: str) -> bool:
    """Whether a terminal puts `character` on the piece before it, and no column further."""
    if piece[-1] == JOINER and is_symbol(piece[0]):
        return is_symbol(character)
    is_skin = "\U0001f3fb" <= character <= "\U0001f3ff"
    return columns_of(character) == 0 or (is_skin and columns_of(piece[0]) == 2 and is_symbol(piece[0]))


def is_symbol(character: str) -> bool:
    """One that may be drawn as an emoji: symbols, and of the others those of which keycaps are made."""
    return unicodedata.category(character) in ("So", "Sm") or character in "#*0123456789‼⁉"


def columns_of(character: str) -> int:
    if character == "\u00ad":  # the soft hyphen, which terminals show
        return 1
    if (
        unicodedata.category(character) in ("Mn", "Me", "Cf", "Cc") or "\u1160" <= character <= "\u11ff"
    ):  # second half of Hangul
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
