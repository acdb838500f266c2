"""Lines as an SVG: axes, and each line with a stroke, a label and a colour of its own, in that order of importance."""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from npformer.inspection.columns import width
from npformer.inspection.page.axis import Axis, axis, number
from npformer.inspection.page.part import escape
from npformer.operation import Array

COLOURS = ("#1f5fbf", "#b24a00", "#17784a", "#9a2f7f", "#7a6200", "#555555")  # page.css has others for dark pages
DASHES = ("", "7 4", "2 4", "11 4 2 4", "15 5")  # five, so that a colour comes back with another dash
WIDE, NARROW = 736, 350  # pixels
ROW, LETTER = 16, 6.7  # pixels: from one label to the next, and of one column of text
MANY = 700  # points of a line, two for each column of a narrow picture


class Curve(NamedTuple):
    """The points of a line that can be drawn; `gaps` counts those before each that cannot. `name` fits beside the line."""

    name: str
    style: int
    x: Array
    y: Array
    gaps: Array

    @property
    def label(self) -> tuple[str, str]:
        return number(self.y[-1]), self.name


class Frame(NamedTuple):
    """Where in the picture the lines are, in pixels, and the axes along it."""

    left: int
    top: int
    right: int
    bottom: int
    across: Axis
    up: Axis

    def x(self, values: Any) -> Array:
        return self.left + self.across.share(values) * (self.right - self.left)

    def y(self, values: Any) -> Array:
        return self.bottom - self.up.share(values) * (self.bottom - self.top)


def alone(title: str, curves: Sequence[Curve], names: tuple[str, str], *, log: bool, notes: Sequence[str]) -> str:
    """A picture for itself, on white, with its title and, below, the notes. `names` are those of the axes."""
    frame = framed(curves, WIDE, top=54, log=log)
    height = frame.bottom + 44 + ROW * len(notes)
    below = [words(frame.left, frame.bottom + 54 + ROW * i, note) for i, note in enumerate(notes)]
    rows = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {form(title, WIDE, height)}>',
        f'<rect width="{WIDE}" height="{height}" fill="#ffffff"/>',
        f'<text x="12" y="24" font-size="14">{escape(title)}</text>',
    ]
    return "\n".join([*rows, *drawn(curves, frame, names, beside=True), *below, "</svg>\n"])


def on_page(title: str, curves: Sequence[Curve], names: tuple[str, str], *, log: bool) -> str:
    """The picture twice: where the page is narrow, page.css shows the second, with the names of the lines below it."""
    pictures = ""
    for size, shape in ((WIDE, 'class="chart-wide"'), (NARROW, 'class="chart-narrow" display="none"')):
        frame = framed(curves, size, top=26, log=log)
        height = frame.bottom + 44 + (0 if size == WIDE else ROW * len(curves) + 8)
        place = f"{frame.left} {frame.top} {frame.right - frame.left} {frame.bottom - frame.top}"
        ends = " ".join(f'data-{name}="{end.low!r} {end.high!r}"' for name, end in (("x", frame.across), ("y", frame.up)))
        head = f'<svg {shape} {form(title, size, height)} data-frame="{place}" {ends}>'
        pictures += "\n".join([head, *drawn(curves, frame, names, beside=size == WIDE), "</svg>\n"])
    return pictures


def form(title: str, width: int, height: int) -> str:
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return f'{size} font-family="sans-serif" font-size="12" role="img" aria-label="{escape(title)}"'


def framed(curves: Sequence[Curve], size: int, *, top: int, log: bool) -> Frame:
    across = axis(np.concatenate([curve.x for curve in curves]), room=0.0)
    up = axis(np.concatenate([curve.y for curve in curves]), room=0.05, log=log)
    beside = 42 + math.ceil(LETTER * max(width("  ".join(curve.label)) for curve in curves))
    return Frame(
        left=16 + math.ceil(LETTER * widest(up)),
        top=top,
        right=size - (beside if size == WIDE else max(20, math.ceil(LETTER * widest(across) / 2) + 2)),
        bottom=top + max(246, ROW * len(curves)) if size == WIDE else top + 216,
        across=across,
        up=up,
    )


def drawn(curves: Sequence[Curve], frame: Frame, names: tuple[str, str], *, beside: bool) -> Iterator[str]:
    yield from axes(frame, *names)
    for curve in curves:
        x, y = frame.x(curve.x), frame.y(curve.y)
        kept = thinned(x, y)
        yield f'<path {stroke(curve)} d="{path(x[kept], y[kept], curve.gaps[kept])}"/>'
    yield from labels(curves, frame, beside)


def axes(frame: Frame, x_name: str, y_name: str) -> Iterator[str]:
    left, top, right, bottom, across, up = frame
    for value, text in up.ticks:
        y = float(frame.y(value))
        yield f'<path class="chart-grid" d="M{left} {y:.1f}H{right}" stroke="#e3e0d9"/>'
        yield words(left - 8, y + 4, text, "end")
    yield f'<path class="chart-axis" d="M{left} {bottom}H{right}" stroke="#8a867d"/>'
    apart = max(1, math.ceil((LETTER * widest(across) + 14) * len(across.ticks) / (right - left)))
    for value, text in across.ticks[::apart]:
        x = float(frame.x(value))
        yield f'<path class="chart-axis" d="M{x:.1f} {bottom}v4" stroke="#8a867d"/>'
        yield words(x, bottom + 18, text, "middle")
    yield words(12, top - 10, y_name)
    yield words(right, bottom + 36, x_name, "end")


def labels(curves: Sequence[Curve], frame: Frame, beside: bool) -> Iterator[str]:
    """For each line, in the order in which they end, its stroke, its last value and its name: `beside` its right end, or
    below the picture."""
    curves = sorted(curves, key=lambda curve: -curve.y[-1])
    ends = [(float(frame.x(curve.x[-1])), float(frame.y(curve.y[-1]))) for curve in curves]
    heights = spread([y for _, y in ends], frame.top, frame.bottom)
    for i, (curve, (end, level), height) in enumerate(zip(curves, ends, heights, strict=True)):
        x, y = (frame.right + 10, height) if beside else (frame.left, frame.bottom + 60.0 + ROW * i)
        if beside and (abs(y - level) > 2 or end < frame.right - 2):
            line = f"M{end + 3:.1f} {level:.1f}L{x - 2} {y:.1f}"
            yield f'<path class="chart-grid" d="{line}" stroke="#b5b0a5" stroke-dasharray="1 3"/>'
        sample = f"M{x} {y:.1f}h20" if len(curve.x) > 1 else f"M{x + 10} {y:.1f}h0"
        yield f'<path {stroke(curve)} d="{sample}"/>'
        value, name = curve.label
        colour = curve.style % len(COLOURS)
        text = f"{value}\u2002{escape(name)}"
        yield f'<text class="chart-name-{colour}" fill="{COLOURS[colour]}" x="{x + 26}" y="{y + 4:.1f}">{text}</text>'


def thinned(x: Array, y: Array) -> Array:
    """The points to draw: all, or of many the lowest and highest in each column of pixels, and the first and last of all."""
    if len(x) <= MANY:
        return np.arange(len(x))
    return extremes(x, y)


def extremes(x: Array, y: Array) -> Array:
    """The lowest and the highest point where `x`, which is not below 0, has the same whole number; the first and last of
    all."""
    starts = np.flatnonzero(np.diff(np.floor(x), prepend=-1.0))
    kept = {0, len(x) - 1}
    for start, end in zip(starts, [*starts[1:], len(x)], strict=True):
        kept |= {start + int(y[start:end].argmin()), start + int(y[start:end].argmax())}
    return np.array(sorted(kept))


def path(x: Array, y: Array, gaps: Array) -> str:
    """A line that breaks where the number of gaps before a point changes; a point alone is a dot."""
    pieces = np.split(np.arange(len(x)), np.flatnonzero(np.diff(gaps)) + 1)
    return "".join(
        "M" + "L".join(f"{x[i]:.1f} {y[i]:.1f}" for i in piece) + ("h0" if len(piece) == 1 else "") for piece in pieces
    )


def spread(heights: list[float], top: float, bottom: float) -> list[float]:
    """The heights, from the top down, moved so that none is less than a row below another."""
    for i in range(1, len(heights)):
        heights[i] = max(heights[i], heights[i - 1] + ROW)
    lowest = bottom
    for i in reversed(range(len(heights))):
        heights[i] = max(min(heights[i], lowest), top)
        lowest = heights[i] - ROW
    return heights


def widest(axis: Axis) -> int:
    return max((width(text) for _, text in axis.ticks), default=0)


def stroke(curve: Curve) -> str:
    colour, dash = curve.style % len(COLOURS), DASHES[curve.style % len(DASHES)]
    width = 7 if len(curve.x) == 1 else 1.8 if len(curve.x) <= MANY else 1.1
    shape = f'fill="none" stroke="{COLOURS[colour]}" stroke-width="{width}" stroke-linecap="round" stroke-linejoin="round"'
    return f'class="chart-line-{colour}" {shape}' + (f' stroke-dasharray="{dash}"' if dash else "")


def words(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text class="chart-words" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="#5f5b54">{escape(text)}</text>'
