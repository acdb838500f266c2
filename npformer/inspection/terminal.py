"""Attention in a terminal: the heads as a table, one of them as a map, and its largest weights in numbers.

A map is drawn with shades where the terminal has them, and with letters of ASCII elsewhere.
"""

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TextIO, TypeAlias

import numpy as np

from npformer.inspection.attention_map import LEAK, AttentionMap
from npformer.inspection.columns import left
from npformer.inspection.comparison import Comparison, HeadChange
from npformer.inspection.diagnosis import Finding, labels_of, summary
from npformer.inspection.inspection import Inspection
from npformer.inspection.metrics import METRICS
from npformer.inspection.tokens import MERGED, in_characters
from npformer.inspection.who_attends import WhoAttends
from npformer.inspection.window import PLAIN, SHADES, Column, Window, encodes, grid, table, widest
from npformer.operation import Array

Shown: TypeAlias = Inspection | Comparison | WhoAttends

MAIN = ("entropy", "confidence", "query_dependence", "sink", "distance", "importance", "ablation")
N_TOP_KEYS, N_TOP_PAIRS, N_CHANGED, N_SAID, MOST_NAMED = 3, 5, 10, 20, 12
MOST_DRAWN = 128  # queries or keys of a map
NARROWEST = 24

LEVELS = (0.01, 0.1, 0.3, 0.6)
AFTER, OUTSIDE, LEAKS = ("/", "90"), ("x", "90"), ("!", "1;91")
HIDDEN = {"/": "after the query", "x": "padding, or outside the window", "!": "weight where none may be"}
# Of a terminal's 256 colours those nearest to cividis, to orange, to purple.
CIVIDIS = (17, 59, 244, 143, 221)
MORE, LESS = (244, 180, 173, 172, 166), (244, 146, 104, 97, 91)


def show(
    shown: Shown,
    *,
    kind: str | None = None,
    layer: int | None = None,
    head: int | None = None,
    file: TextIO | None = None,
) -> None:
    """Print `text` to `file`, stdout if it is not given, as wide as the window and with the signs that it has.

    Colours are for a terminal alone, and not where NO_COLOR is set. A stream that is closed or lost is no error.
    """
    stream = sys.stdout if file is None else file
    encoding = getattr(stream, "encoding", None) or "utf-8"
    said = text(
        shown,
        kind=kind,
        layer=layer,
        head=head,
        width=shutil.get_terminal_size().columns,
        colour=has_colours(stream),
        blocks=True,
        encoding=encoding,
    )
    with suppress(OSError, ValueError):
        print(said, file=stream, flush=True)


def has_colours(stream: Any) -> bool:
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    if os.name == "nt" and "WT_SESSION" not in os.environ:  # the old console prints the codes
        return False
    with suppress(OSError, ValueError, AttributeError):
        return bool(stream.isatty())
    return False


def text(
    shown: Shown,
    *,
    kind: str | None = None,
    layer: int | None = None,
    head: int | None = None,
    width: int,
    colour: bool,
    blocks: bool,
    encoding: str = "utf-8",
) -> str:
    """What there is to see, in lines of at most `width` columns, or 24: the findings, the heads, and of one head the map.

    The head is that of `kind`, `layer` and `head`; where they leave several, the most telling one. ValueError where they
    leave none. `colour` adds the escape codes of a terminal's 256 colours. Without `blocks`, and where `encoding` lacks
    any of the signs used, they are spelt in ASCII; a token's character that it lacks is its number, as U+6625.
    """
    window = Window(max(width, NARROWEST), colour, blocks and encodes(encoding, "".join(PLAIN)), encoding)
    if isinstance(shown, WhoAttends):
        return "\n".join(answered(window, shown))
    maps = chosen(shown.good if isinstance(shown, Comparison) else shown, kind, layer, head)
    sections = compared(window, shown, maps) if isinstance(shown, Comparison) else inspected(window, shown, maps)
    return "\n\n".join("\n".join(lines) for lines in sections if lines)


def chosen(inspection: Inspection, kind: str | None, layer: int | None, head: int | None) -> list[AttentionMap]:
    if kind is not None and layer is not None and head is not None:
        return [inspection.find(kind, layer, head)]
    asked = {"kind": kind, "layer": layer, "head": head}
    wanted = {name: value for name, value in asked.items() if value is not None}
    maps = [map for map in inspection.maps if all(getattr(map, name) == value for name, value in wanted.items())]
    if wanted and not maps:
        said = ", ".join(f"{name}={value!r}" for name, value in wanted.items())
        there = ", ".join(f"{map.kind} {map.layer}.{map.head}" for map in inspection.maps[:MOST_NAMED])
        more = " and more" if len(inspection.maps) > MOST_NAMED else ""
        raise ValueError(f"show: there is no head with {said}; there are, by layer.head, {there or 'none'}{more}")
    return maps


def inspected(window: Window, inspection: Inspection, maps: Sequence[AttentionMap]) -> Iterator[list[str]]:
    yield window.prose(inspection.title)
    if not maps:
        yield window.prose("There are no heads.")
        return
    yield window.prose(f"Layers and heads are counted from 0. {' '.join(what_rows_are(maps))} {inspection.note}")
    findings = [finding for finding in inspection.diagnose() if any(finding.is_about(map) for map in maps)]
    yield what_was_found(window, findings)
    for kind in dict.fromkeys(map.kind for map in maps):
        heads = [map for map in maps if map.kind == kind]
        yield table_of_heads(window, inspection, heads, findings)
    map, why = most_telling(inspection, maps, findings)
    yield from detail(window, inspection, map, why)


def what_rows_are(maps: Sequence[AttentionMap]) -> Iterator[str]:
    yield "A row is a query, a column a key: a query attends to a key."
    for named_by in dict.fromkeys(map.named_by for map in maps):
        kinds = dict.fromkeys(map.kind for map in maps if map.named_by == named_by)
        yield f"In {' and '.join(kinds)} attention a row is named by the token that its query {named_by}."


def what_was_found(window: Window, findings: Sequence[Finding]) -> list[str]:
    lines = ["FINDINGS"]
    said = summary(findings)
    rest = sum(not finding.is_fault for finding, _ in said)
    for finding, sentence in said[: len(said) - rest + N_SAID]:
        lines += window.prose(sentence, first="  fault: " if finding.is_fault else "  ", indent="    ")
    if not findings:
        lines.append("  none")
    if rest > N_SAID:
        lines += window.prose(f"and {rest - N_SAID} more, none of them a fault", indent="  ")
    return lines


def table_of_heads(
    window: Window, inspection: Inspection, maps: Sequence[AttentionMap], findings: Sequence[Finding]
) -> list[str]:
    measured = [inspection.metrics(map) for map in maps]
    names = Column("layer.head", [f"{map.layer}.{map.head}" for map in maps], is_text=True)
    columns = [
        Column(name.replace("_", " "), [number(metrics[name]) for metrics in measured])
        for name in MAIN
        if any(metrics[name] is not None for metrics in measured)
    ]
    labels = [", ".join(labels_of(map, findings)) for map in maps]
    if any(labels):
        room = window.width - names.width - 2
        columns.append(Column("findings", [window.clipped(label, room) for label in labels], is_text=True))
    return table(window, f"{maps[0].kind.upper()}, {count(len(maps), 'head')}", names, columns)


def count(n: int, thing: str) -> str:
    return f"{n} {thing}" + ("" if n == 1 else "s")


def number(value: float | None) -> str:
    if value is None:
        return "none"
    return f"{value:.1e}" if 0 < abs(value) < 5e-4 else f"{value:.3f}"


def most_telling(
    inspection: Inspection, maps: Sequence[AttentionMap], findings: Sequence[Finding]
) -> tuple[AttentionMap, str]:
    """One of `maps`, and why that one."""
    if len(maps) == 1:
        return maps[0], ""
    for finding in findings:
        if finding.is_fault:
            return next(map for map in maps if finding.is_about(map)), f"shown because of the fault {finding.label}"
    best = max(maps, key=lambda map: inspection.metrics(map)["confidence"] or 0.0)
    return best, f"shown because of {len(maps)} heads it is the most confident"


def detail(window: Window, inspection: Inspection, map: AttentionMap, why: str) -> Iterator[list[str]]:
    measured = inspection.metrics(map)
    metrics = [f"{METRICS[name].title} {number(value)}" for name, value in measured.items() if value is not None]
    yield window.prose(f"{map.kind.upper()}, {map.name}{why and ': ' + why}") + window.listed(metrics)
    whole = in_characters(map)
    lines = drawn(window, whole, whole.weights, weight_sign, [0, *LEVELS])
    yield lines if whole is map else [*window.prose(MERGED), *lines]
    yield top_keys(window, whole)
    if map.gradient is not None:
        yield top_gradients(window, map, map.gradient, inspection.loss_name)


Sign: TypeAlias = Callable[[int, float], tuple[str, str]]


def weight_sign(level: int, value: float) -> tuple[str, str]:
    """The sign of a weight and its colour. On a terminal with colours the cell is filled, and the sign is there to copy."""
    return SHADES[level], f"38;5;{CIVIDIS[level]};48;5;{CIVIDIS[level]}"


def change_sign(level: int, value: float) -> tuple[str, str]:
    if level == 0:
        return SHADES[0], ""
    return ("+" if value > 0 else "−") + SHADES[level], f"38;5;{(MORE if value > 0 else LESS)[level]}"


def drawn(window: Window, map: AttentionMap, values: Array, sign: Sign, samples: Sequence[float]) -> list[str]:
    """`values` (T, S) in the place of the map's weights, as the cells that `sign` gives, with a legend of its `samples`."""
    T, S = values.shape
    if max(T, S) > MOST_DRAWN:
        return window.prose(f"The map, {T} queries × {S} keys, is too large to be drawn here; to_html draws it.")
    future, leaks = map.future, ~map.keep & (abs(values) > LEAK)
    levels = np.digitize(abs(values), LEVELS)
    legend = {
        sign(int(np.digitize(abs(x), LEVELS)), x): f"from {abs(x):g}" if x else f"under {LEVELS[0]:g}" for x in samples
    }
    least = widest(mark for mark, _ in legend)

    def cell(q: int, k: int, columns: int) -> str:
        if map.keep[q, k]:
            mark, code = sign(int(levels[q, k]), float(values[q, k]))
        else:
            mark, code = LEAKS if leaks[q, k] else AFTER if future[q, k] else OUTSIDE
            legend[mark, code] = HIDDEN[mark]
        mark = window.said(mark)
        return window.painted(mark + mark[-1] * (columns - len(mark)), code)

    rows, columns = window.names(map.query_names, map.key_names)
    lines = grid(window, rows, columns, cell, least)
    said = {f"{window.said(mark)} {meaning}": code for (mark, code), meaning in legend.items()}
    below = "\n".join(window.listed(said))
    for entry, code in said.items():
        mark, space, meaning = entry.partition(" ")
        below = below.replace(entry, window.painted(mark, code) + space + meaning)
    return [*lines, *below.split("\n")]


def top_keys(window: Window, map: AttentionMap) -> list[str]:
    queries, keys = window.names(map.query_names, map.key_names)
    label = widest(queries)
    lines = window.prose(f"What each query attends to most, at most {count(N_TOP_KEYS, 'key')}:")
    for q, query in enumerate(queries):
        weights, keep = map.weights[q], map.keep[q]
        best = [k for k in np.argsort(-weights, kind="stable") if keep[k] or weights[k] > LEAK][:N_TOP_KEYS]
        said = [f"{keys[k]} {weights[k]:.4f}{'' if keep[k] else ' (hidden!)'}" for k in best]
        lines += window.listed(said or ["sees no key"], first=f"  {left(query, label)}  ", indent=" " * 4)
    return lines


def top_gradients(window: Window, map: AttentionMap, gradient: Array, loss_name: str) -> list[str]:
    effect = map.weights * gradient
    title = f"Where P·∂L/∂P is largest{loss_name and ', L = ' + loss_name}:"
    return window.prose(title) + top_pairs(
        *(window, map, effect),
        lambda q, k: [signed(effect[q, k]), f"P {map.weights[q, k]:.4f}", f"∂L/∂P {signed(gradient[q, k])}"],
    )


def top_pairs(window: Window, map: AttentionMap, values: Array, said: Callable[[int, int], list[str]]) -> list[str]:
    """The pairs with the largest values, of either sign."""
    queries, keys = window.names(map.query_names, map.key_names)
    order = np.argsort(-abs(values), axis=None, kind="stable")[:N_TOP_PAIRS]
    lines: list[str] = []
    for q, k in (divmod(int(i), values.shape[1]) for i in order if values.flat[i] != 0):
        lines += window.listed([f"{queries[q]} → {keys[k]}", *said(q, k)], first="  ", indent="    ")
    return lines or ["  nowhere: all are 0"]


def signed(value: float) -> str:
    """Four decimals, or four digits where that would show none, or too many."""
    form = "+.4f" if value == 0 or 5e-5 <= abs(value) < 1e6 else "+.3e"
    return format(value, form).replace("-", "−")


def compared(window: Window, comparison: Comparison, maps: Sequence[AttentionMap]) -> Iterator[list[str]]:
    yield window.prose(f"A: {comparison.good.title}") + window.prose(f"B: {comparison.bad.title}")
    heads = {map.address: map for map in maps}
    changes = [change for change in comparison.changes if change.address in heads]
    if not changes:
        yield window.prose("There are no heads.")
        return
    yield window.prose(f"Layers and heads are counted from 0. {' '.join(what_rows_are(maps))}")
    yield what_was_found(window, [f for f in comparison.diagnose() if any(f.is_about(map) for map in maps)])
    yield table_of_changes(window, changes)
    most = changes[0]
    a, b = (in_characters(run.find(*most.address)) for run in (comparison.good, comparison.bad))
    difference = b.weights - a.weights
    both = replace(a, keep=a.keep | b.keep)
    why = f": shown because of {len(maps)} heads it has changed most" if len(maps) > 1 else ""
    yield [
        *window.prose(f"{a.kind.upper()}, {a.name}, B − A{why}"),
        *(window.prose(MERGED) if a is not heads[most.address] else []),
        *drawn(window, both, difference, change_sign, [0, *LEVELS, *(-level for level in LEVELS)]),
    ]
    yield window.prose("What has changed most, A → B:") + top_pairs(
        *(window, both, difference),
        lambda q, k: [f"{a.weights[q, k]:.4f} → {b.weights[q, k]:.4f}", signed(difference[q, k])],
    )


def table_of_changes(window: Window, changes: Sequence[HeadChange]) -> list[str]:
    most = changes[:N_CHANGED]
    names = Column("kind layer.head", [f"{change.kind} {change.layer}.{change.head}" for change in most], is_text=True)
    columns = [Column("change", [f"{change.distance:.4f}" for change in most])]
    for name in MAIN:
        values = [change.metrics[name] for change in most]
        if any(value is not None for pair in values for value in pair):
            heading = name.replace("_", " ")
            columns += [Column(f"{heading} {run}", [number(pair[i]) for pair in values]) for i, run in enumerate("AB")]
    title = (
        f"MOST CHANGED, {len(most)} of {count(len(changes), 'head')}; change is the share of the weight that went elsewhere"
    )
    return table(window, title, names, columns)


def answered(window: Window, answer: WhoAttends) -> list[str]:
    names = Column("layer.head", [f"{row.layer}.{row.head}" for row in answer.rows], is_text=True)
    columns = [
        Column(window.said(heading), [window.said(cell) for cell in cells])
        for heading, *cells in list(zip(answer.columns, *answer.cells(), strict=True))[2:]  # after layer and head
    ]
    return [*table(window, answer.title, names, columns), *window.prose(answer.note)]
