"""Tables of numbers in plain text, where a Chinese character takes two columns and any other takes one."""

from collections.abc import Sequence

import numpy as np

from npformer.inspection.columns import left, right, width
from npformer.operation import Array

WIDTH = 100
DECIMALS = 4
GAP = 2


def prose(text: str, indent: str = "") -> str:
    """Lines of at most WIDTH columns, which textwrap would count in characters."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".lstrip()
        if not lines[-1] or width(indent + longer) <= WIDTH:
            lines[-1] = longer
        else:
            lines.append(word)
    return "\n".join(indent + line for line in lines)


def decimals_of(array: Array) -> int:
    """As few as show every entry exactly, and at most DECIMALS."""
    finite = array[np.isfinite(array)]
    return next((n for n in range(DECIMALS) if np.array_equal(finite.round(n), finite)), DECIMALS)


def numbers(array: Array) -> list[list[str]]:
    """The entries of an array of two axes, as text."""
    if array.dtype.kind != "f":
        return [[str(entry) for entry in row] for row in array.tolist()]
    n = decimals_of(array)
    tidy = np.where(np.isfinite(array), array.round(n), array) + 0.0  # no −0
    return [[f"{entry:.{n}f}" for entry in row] for row in tidy.tolist()]


def table(title: str, cells: list[list[str]], columns: Sequence[str] = (), rows: Sequence[str] = ()) -> list[str]:
    """The lines of a table, all equally wide: the title, the names of the columns, and a row after its name each."""
    label = max((width(name) for name in rows), default=0)
    column = max((width(cell) for row in [columns, *cells] for cell in row), default=0) + GAP
    names = rows or [""] * len(cells)
    lines = [title, *([" " * label + "".join(right(name, column) for name in columns)] if columns else [])]
    lines += [
        left(name, label) + "".join(right(cell, column) for cell in row) for name, row in zip(names, cells, strict=True)
    ]
    widest = max(map(width, lines))
    return [left(line, widest) for line in lines]


def beside(*tables: list[str], between: str = "     ") -> str:
    """Tables side by side, where they all fit; otherwise one below the other."""
    if sum(width(each[0]) + len(between) for each in tables) - len(between) > WIDTH:
        return "\n\n".join(beside(each) for each in tables)
    height = max(map(len, tables))
    filled = [each + [" " * width(each[0])] * (height - len(each)) for each in tables]
    return "\n".join(between.join(row).rstrip() for row in zip(*filled, strict=True))
