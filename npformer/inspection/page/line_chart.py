"""Lines over steps: a loss, a learning rate, the norm of a gradient, of one run or of several over one another."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from npformer.archive import Path
from npformer.arguments import kind
from npformer.inspection.columns import clipped, width
from npformer.inspection.cut_names import CutNames
from npformer.inspection.page.axis import number
from npformer.inspection.page.line_drawing import MANY, Curve, alone, extremes, on_page
from npformer.inspection.page.part import UNPRINTABLE, Part, escape, part_of, table
from npformer.operation import Array

MOST_SENT = 20_000  # points of all lines, for the script of a page
LONGEST_NAME = 24  # columns, beside a line
LARGEST = 1e250  # beyond it, and below its inverse, the axes' own numbers overflow


@dataclass(frozen=True, eq=False)
class LineChart:
    """`lines` are, by name, the x and the y of each point; x never goes back.

    A y that is NaN or infinite, or not above 0 on a logarithmic axis, is a gap, and the chart says so. ValueError, which
    names the line, where x and y differ in length, where there is no point, and where no point can be drawn.
    """

    title: str
    lines: Mapping[str, tuple[Sequence[float] | Array, Sequence[float] | Array]]
    x: str = field(default="step", kw_only=True)
    y: str = field(default="loss", kw_only=True)
    log: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.lines, Mapping) or not self.lines:
            raise ValueError(f"LineChart: lines must hold at least one line by its name, got {self.lines!r}")
        points = {}
        for name, line in self.lines.items():
            if not isinstance(name, str):
                raise TypeError(f"LineChart: the names of lines must be str, got {name!r}")
            if not isinstance(line, tuple | list) or len(line) != 2:
                raise ValueError(f"LineChart: line {name!r} must be a pair, the x and the y of its points")
            x, y = points[name] = floats(name, "x", line[0]), floats(name, "y", line[1])
            if len(x) != len(y):
                raise ValueError(f"LineChart: line {name!r} has {len(x)} x but {len(y)} y")
            if not len(x):
                raise ValueError(f"LineChart: line {name!r} has no points")
            if not (abs(x) <= LARGEST).all():  # NaN is not
                raise ValueError(
                    f"LineChart: line {name!r} has an x that is no finite number, at point {first(~(abs(x) <= LARGEST))}"
                )
            back = np.diff(x, prepend=x[0]) < 0
            if back.any():
                i = first(back)
                raise ValueError(f"LineChart: line {name!r} goes back from x = {x[i - 1]:g} to {x[i]:g}, at point {i}")
            if not self.can_be_drawn(y).any():
                above = " above 0" if self.log and np.isfinite(y).any() else ""
                raise ValueError(f"LineChart: line {name!r} has no finite y{above}, so nothing of it can be drawn")
        object.__setattr__(self, "lines", points)

    def can_be_drawn(self, y: Array) -> Array:
        return (abs(y) <= LARGEST) & ((y >= 1 / LARGEST) | (not self.log))

    def points(self) -> list[tuple[str, Array, Array]]:
        """The name, in one line of characters that can be shown, the x and the y of each line. Names stay different."""
        shown = CutNames(lambda name, number: f"{in_one_line(name)} {number}" if number else in_one_line(name))
        return [(shown(name), np.asarray(x), np.asarray(y)) for name, (x, y) in self.lines.items()]

    def curves(self) -> list[Curve]:
        kept = [self.can_be_drawn(y) for _, _, y in self.points()]
        short = CutNames(lambda name, number: clipped(name, LONGEST_NAME - width(number)) + number)
        return [
            Curve(short(name), i, x[keep], y[keep], np.cumsum(~keep)[keep])
            for i, ((name, x, y), keep) in enumerate(zip(self.points(), kept, strict=True))
        ]

    def summary(self) -> list[tuple[str, ...]]:
        """A row for each line: its name, the number of its points, and four of them in words."""

        def at(curve: Curve, i: Any) -> str:
            return f"{number(curve.y[i])} at {self.x} {number(curve.x[i])}"

        return [
            (name, str(len(y)), at(curve, 0), at(curve, -1), at(curve, curve.y.argmin()), at(curve, curve.y.argmax()))
            for (name, _, y), curve in zip(self.points(), self.curves(), strict=True)
        ]

    def notes(self) -> list[str]:
        """What a reader must know of points that are not in the picture."""
        notes = []
        for name, x, y in self.points():
            gaps = ~self.can_be_drawn(y)
            if gaps.any():
                what = "not finite or not above 0" if self.log else "not finite"
                where = f"the first at {self.x} {number(x[first(gaps)])}"
                notes.append(f"{name}: {gaps.sum():,} of {len(y):,} points are {what} and left out, {where}.")
        return notes

    def __str__(self) -> str:
        rows = [
            f"{name}: {n} points, {self.y} first {begin}, last {end}, lowest {low}, highest {high}"
            for name, n, begin, end, low, high in self.summary()
        ]
        return "\n".join([in_one_line(self.title), *map(in_one_line, rows), *map(in_one_line, self.notes())])

    def svg(self) -> str:
        """A picture for itself, on white: the same text for the same lines."""
        return alone(self.title, self.curves(), (self.x, self.y), log=self.log, notes=self.notes())

    def to_html(self, path: Path) -> str:
        """Write a page with this chart alone, and return its path."""
        from npformer.inspection.page import write_page

        return write_page(path, self.title, [self])

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        from npformer.inspection.notebook import mimebundle

        return mimebundle(self)


@part_of.register
def _(chart: LineChart) -> Part:
    notes = chart.notes()
    most = max(len(curve.x) for curve in chart.curves())
    total = sum(len(y) for _, _, y in chart.points())
    columns = max(1, MOST_SENT // (2 * len(chart.lines)))
    if most > MANY:
        sent = f"of each {columns:,}th of a line the lowest and the highest as well" if total > MOST_SENT else "all of them"
        notes.append(
            f"Of up to {most:,} points a line, the picture has the lowest and the highest in each column of pixels; "
            f"what is read, copied and listed has {sent}."
        )
    said = "".join(f'<p class="chart-note">{escape(note)}</p>\n' for note in notes)
    head = ["line", "points", f"first {chart.y}", "last", "lowest", "highest"]
    static = (
        f"<h2>{escape(chart.title)}</h2>\n"
        f'<div class="chart">\n{on_page(chart.title, chart.curves(), (chart.x, chart.y), log=chart.log)}</div>\n'
        f"{said}{table(f'{chart.y} over {chart.x}', head, chart.summary())}"
    )
    lines = []
    for name, x, y in chart.points():
        drawn = chart.can_be_drawn(y)
        if total > MOST_SENT:
            x, y = thinned_to(columns, x[drawn], y[drawn])
        else:
            y = np.where(drawn, y, np.nan)
        lines.append({"name": name, "x": exact(x), "y": exact(y)})
    return Part("line_chart", {"title": chart.title, "x": chart.x, "y": chart.y, "log": chart.log, "lines": lines}, static)


def thinned_to(columns: int, x: Array, y: Array) -> tuple[Array, Array]:
    """The lowest and the highest point in each of so many equal columns, and the first and the last point."""
    if len(x) <= 2 * columns:
        return x, y
    along = x / 2 - x[0] / 2  # halves, whose difference cannot overflow
    kept = extremes(np.minimum(along / (along[-1] or 1.0) * columns, columns - 1), y)
    return x[kept], y[kept]


def in_one_line(text: str) -> str:
    return " ".join(UNPRINTABLE.sub("\ufffd", text).split())


def floats(name: str, which: str, values: Any) -> Array:
    try:
        array = np.asarray(values)
    except ValueError:  # rows of different lengths
        array = np.array(None)
    if array.ndim != 1 or (array.dtype.kind not in "iuf" and array.size):
        raise ValueError(f"LineChart: the {which} of line {name!r} must be numbers along one axis, got {kind(values)}")
    return array.astype(np.float64)


def first(where: Array) -> int:
    return int(np.flatnonzero(where)[0])


def exact(values: Array) -> list[float | int | None]:
    """As JSON has them, without loss; None where there is no number."""
    return [
        None if not math.isfinite(value) else int(value) if value.is_integer() and abs(value) < 2**53 else value
        for value in values.tolist()
    ]
