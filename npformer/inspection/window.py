"""What a terminal can show: signs, widths and colours, and tables and grids that are folded to it."""

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from npformer.inspection.columns import clipped, left, packed, right, width
from npformer.inspection.cut_names import CutNames

WIDEST_NAME = 12
SHADES = "·░▒▓█"
SUBSCRIPTS = "₀₁₂₃₄₅₆₇₈₉"
PLAIN = {
    **dict(zip(SHADES, ".:=#@", strict=True)),
    "−": "-",
    "→": "->",
    "×": "x",
    "Σ": "sum",
    "√": "sqrt ",
    "∂": "d",
    "½": "1/2",
    "≥": ">=",
    "≤": "<=",
    "…": "...",
    "–": "-",
    "␣": "_",
    "⏎": "\\n",
    "⇥": "\\t",
    "◌": "*",
    "∅": "(empty)",
    **dict(zip(SUBSCRIPTS, "0123456789", strict=True)),
}
TO_PLAIN = {ord(sign): plain for sign, plain in PLAIN.items()}
ISOLATED, END = "\u2068", "\u2069"
TURNS = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI")


@dataclass(frozen=True)
class Window:
    """What a terminal can show. `blocks`: it has every sign that is used here; otherwise they are spelt in ASCII."""

    width: int
    colour: bool
    blocks: bool
    encoding: str

    def said(self, text: str) -> str:
        """`text` in signs that there are; a character that the encoding lacks, or that moves the cursor, by its number."""
        if not self.blocks:
            text = re.sub(f"[{SUBSCRIPTS}]+", r"_\g<0>", text).translate(TO_PLAIN)
        if text.isprintable() and encodes(self.encoding, text):
            return text
        return "".join(sign if self.has(sign) else f"U+{ord(sign):04X}" for sign in text)

    def has(self, sign: str) -> bool:
        moves = unicodedata.category(sign) == "Cc" or unicodedata.bidirectional(sign) in TURNS
        return not moves and encodes(self.encoding, sign)

    def prose(self, text: str, first: str = "", indent: str = "") -> list[str]:
        words = self.said(" ".join(text.split())).split(" ")
        return packed(words, self.width, first=first or indent, indent=indent)

    def listed(self, pieces: Iterable[str], first: str = "", indent: str = "  ") -> list[str]:
        return packed(map(self.said, pieces), self.width, first=first or indent, indent=indent, gap="   ")

    def clipped(self, name: str, columns: int, number: str = "") -> str:
        """The number of a repeated token stays, and stands after `number`."""
        stem = re.sub(f"[{SUBSCRIPTS}]{{1,4}}$", "", name)
        number += self.said(name[len(stem) :])
        return clipped(self.said(stem), columns - width(number), self.said("…")) + number

    def names(self, *lists: Sequence[str]) -> list[list[str]]:
        """Names of tokens, cut where they are long. Over all lists, names that differ stay different."""
        columns = min(WIDEST_NAME, self.width // 3)
        cut = CutNames(lambda name, number: self.clipped(name, columns, number))
        return [[self.isolated(cut(name)) for name in names] for names in lists]

    def isolated(self, name: str) -> str:
        """A terminal that turns Hebrew round would turn the columns as well."""
        turns = self.blocks and any(unicodedata.bidirectional(sign) in ("R", "AL", "AN") for sign in name)
        return ISOLATED + name + END if turns else name

    def painted(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and code else text


def encodes(encoding: str, text: str) -> bool:
    try:
        text.encode(encoding)
    except (UnicodeError, LookupError):
        return False
    return True


class Column(NamedTuple):
    heading: str
    cells: list[str]
    is_text: bool = False

    @property
    def width(self) -> int:
        return max(map(width, [*self.heading.split(), *self.cells]))

    def lines(self, height: int) -> list[str]:
        heading = self.heading.split()
        align = left if self.is_text else right
        return [align(cell, self.width) for cell in [*[""] * (height - len(heading)), *heading, *self.cells]]


def table(window: Window, title: str, names: Column, columns: Iterable[Column]) -> list[str]:
    """As many columns beside the names as fit, and the others below, with the names once more."""
    lines = window.prose(title)
    rest = list(columns)
    while rest:
        part = [names, rest.pop(0)]
        while rest and sum(2 + column.width for column in [*part, rest[0]]) - 2 <= window.width:
            part.append(rest.pop(0))
        height = max(len(column.heading.split()) for column in part)
        lines += ["  ".join(row).rstrip() for row in zip(*(column.lines(height) for column in part), strict=True)]
        lines += [""] if rest else []
    return lines


def grid(
    window: Window, rows: Sequence[str], columns: Sequence[str], cell: Callable[[int, int, int], str], least: int
) -> list[str]:
    """Cells under the names of their columns, in blocks of as many as fit; cell(i, j, n) takes n columns."""
    label = widest(rows)
    widths = [max(width(name), least) for name in columns]
    lines: list[str] = []
    start = 0
    while start < len(columns):
        end = start + 1
        while end < len(columns) and label + sum(1 + n for n in widths[start : end + 1]) <= window.width:
            end += 1
        part = range(start, end)
        lines += [""] if start else []
        lines.append((" " * label + "".join(" " + left(columns[j], widths[j]) for j in part)).rstrip())
        lines += [left(row, label) + "".join(" " + cell(i, j, widths[j]) for j in part) for i, row in enumerate(rows)]
        start = end
    return lines


def widest(names: Iterable[str]) -> int:
    return max(map(width, names), default=0)
