"""The part of a page that shows an inspection: all heads, and of the one that is chosen its map, numbers and sentences."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from npformer.inspection.attention_map import Address, AttentionMap
from npformer.inspection.cut_names import CutNames
from npformer.inspection.diagnosis import Finding, labels_of, summary
from npformer.inspection.inspection import Inspection
from npformer.inspection.metrics import METRICS
from npformer.inspection.page import maps
from npformer.inspection.page.part import Part, escape, part_of, table
from npformer.inspection.tokens import MERGED, in_characters
from npformer.operation import Array

STATIC_HEADS, STATIC_TOKENS = 12, 40  # more than these are drawn by the script alone
SHADES = 32
SMALLEST_GRADIENT, LARGEST_GRADIENT = 1e-30, 1e30  # single precision has fewer digits below, and soon none above


@part_of.register
def part_of_inspection(inspection: Inspection, room: int = maps.LIMIT, full: Sequence[Address] = ()) -> Part:
    """All of `inspection` where its part fits into `room` bytes; heads in `full` are the first to stay whole otherwise.

    ValueError, which names the head, for a gradient beyond what single precision holds.
    """
    check_gradients(inspection)
    findings = inspection.diagnose()
    shown = [in_characters(map) for map in inspection.maps]
    static = "".join(static_parts(inspection, shown, findings))
    names = Names()
    data: dict[str, Any] = {
        "title": inspection.title,
        "loss_name": inspection.loss_name,
        "note": note(inspection, shown),
        "metrics": metrics_there(inspection),
        "findings": [finding_data(finding) for finding in findings],
        "said": [finding_data(finding, sentence) for finding, sentence in summary(findings)],
        "names": names.all,
        "heads": [
            entry(map, inspection.metrics(own), findings, names) for own, map in zip(inspection.maps, shown, strict=True)
        ],
        "reduced": "",
    }
    maps.fill(
        data,
        room - len(static.encode(errors="replace")),
        order_of(inspection, data["heads"], full),
        [whole_size(map) for map in shown],
        [maps.mask(maps.codes_of(map)) for map in shown],
        lambda i: whole_data(shown[i]),
        lambda i, side, n, listed: reduced_data(shown[i], side, n, listed),
        "largest weight",
        "∂L/∂P" if any(map.gradient is not None for map in shown) else "",
    )
    return Part("heads", data, maps.notice(data) + static)


class Names(maps.Lists):
    """The names of queries and of keys."""

    def __init__(self) -> None:
        super().__init__()
        self.cut = maps.cut_names()

    def place(self, value: Sequence[str]) -> int:
        return super().place([self.cut(name) for name in value])


def check_gradients(inspection: Inspection) -> None:
    for map in inspection.maps:
        largest = 0.0 if map.gradient is None else float(abs(map.gradient).max(initial=0))
        if largest > LARGEST_GRADIENT:
            raise ValueError(
                f"write_page: {map.kind} {map.name} has a gradient of {largest:.4g}, and a page shows those up to "
                f"{LARGEST_GRADIENT:g}: divide the loss by a constant"
            )


def entry(map: AttentionMap, metrics: dict[str, float | None], findings: Sequence[Finding], names: Names) -> dict[str, Any]:
    """What a page knows of a head besides its weights."""
    return {
        "kind": map.kind,
        "layer": map.layer,
        "head": map.head,
        "named_by": map.named_by,
        "queries": names.place(map.query_names),
        "keys": names.place(map.key_names),
        "metrics": metrics,
        "labels": labels_of(map, findings),
    }


def note(inspection: Inspection, shown: Sequence[AttentionMap]) -> str:
    """What was done to the maps that are shown."""
    merged = any(map is not own for map, own in zip(shown, inspection.maps, strict=True))
    long = any(len(name) > maps.LONGEST_NAME for map in shown for name in (*map.query_names, *map.key_names))
    cut = f"Of a name that is longer, the first {maps.LONGEST_NAME} characters are shown." if long else ""
    return " ".join(filter(None, [inspection.note, MERGED if merged else "", cut]))


def finding_data(finding: Finding, sentence: str = "") -> dict[str, Any]:
    names = ("label", "kind", "layer", "head", "cause", "is_fault")
    said = {"sentence": maps.cut_sentence(sentence or finding.sentence)}
    return {name: getattr(finding, name) for name in names} | said


def metrics_there(inspection: Inspection) -> list[dict[str, str]]:
    """The metrics that apply to any of the heads."""
    there = {name for map in inspection.maps for name, value in inspection.metrics(map).items() if value is not None}
    return [
        {"name": name, "title": metric.title, "formula": metric.formula, "source": metric.source}
        for name, metric in METRICS.items()
        if name in there
    ]


def order_of(inspection: Inspection, entries: Sequence[dict[str, Any]], full: Sequence[Address]) -> list[int]:
    """By which heads stay whole: those asked for, those with findings, then by confidence."""
    wanted = {tuple(place) for place in full}

    def rank(i: int) -> tuple[bool, bool, float]:
        map = inspection.maps[i]
        asked = map.address in wanted
        return not asked, not entries[i]["labels"], -(inspection.metrics(map)["confidence"] or 0)

    return sorted(range(len(entries)), key=rank)


def whole_size(map: AttentionMap) -> int:
    cells = map.weights.size
    return 16 + maps.size_in_base64(2 * cells) + (0 if map.gradient is None else 64 + 2 * maps.size_in_base64(4 * cells))


def whole_data(map: AttentionMap) -> dict[str, Any]:
    data: dict[str, Any] = {"weights": maps.uint16(map.weights)}
    if map.gradient is not None:
        largest = float(abs(map.gradient).max(initial=0))
        unit = largest if 0 < largest < SMALLEST_GRADIENT else 1
        data["unit"] = unit
        data["gradient"] = maps.float32(map.gradient / unit)
        data["product"] = maps.float32(map.weights * (map.gradient / unit))  # of the weights before they were rounded
    return data


def reduced_data(map: AttentionMap, side: int, n: int, listed: maps.Lists) -> dict[str, Any]:
    shown = map.keep | map.leaks
    keys = maps.top_keys(map.weights, shown, n)
    return {
        "visible": listed.place(maps.encoded(map.n_visible, "<u2")),
        "loses_gradient": map.gradient is not None,
        "pooled": {
            "blocks": [maps.block_of(n, side) for n in map.weights.shape],
            "mask": listed.place(maps.mask(maps.pooled_codes(maps.codes_of(map), side))),
            "weights": maps.uint16(maps.pooled(map.weights, shown, side)),
        },
        "top": {
            "keys": maps.encoded(maps.marked(keys, map.keep), "<u2"),
            "weights": maps.uint16(maps.at(map.weights, keys)),
        },
    }


# What stands there without a script.


def static_parts(inspection: Inspection, shown: Sequence[AttentionMap], findings: Sequence[Finding]) -> Iterator[str]:
    yield f"<h2>{escape(inspection.title)}</h2>\n"
    said = note(inspection, shown)
    yield f"<p>{escape(said)}</p>\n" if said else ""
    if findings:
        sentences = "".join(
            f"<li>{'Fault: ' if f.is_fault else ''}{escape(maps.cut_sentence(s))}</li>\n" for f, s in summary(findings)
        )
        yield f'<ul class="findings">\n{sentences}</ul>\n'
    else:
        yield "<p>No findings: no head and no layer has numbers that call for a look.</p>\n"
    metrics = metrics_there(inspection)
    rows = [
        [f"{map.kind} {map.name}", ", ".join(labels_of(map, findings)) or "–"]
        + [number(inspection.metrics(map)[metric["name"]]) for metric in metrics]
        for map in inspection.maps
    ]
    yield table(f"The heads of {inspection.title}", ["head", "findings", *(metric["title"] for metric in metrics)], rows)
    small = all(max(map.weights.shape) <= STATIC_TOKENS for map in inspection.maps)
    if small and len(inspection.maps) <= STATIC_HEADS:
        yield '<div class="pictures">\n'
        yield from map(picture, shown)
        yield "</div>\n"


def number(value: float | None) -> str:
    """A metric, which is not 0 unless it says so."""
    if value is None:
        return "–"
    return f"{value:.4f}" if value == 0 or abs(value) >= 5e-4 else f"{value:.3e}"


def picture(map: AttentionMap) -> str:
    """A heat map as SVG: a row for each query, a column for each key, and no cell where none may be seen."""
    T, S = map.weights.shape
    codes = maps.codes_of(map)
    level = np.rint(np.sqrt(np.clip(map.weights, 0, 1)) * (SHADES - 1)).astype(int)
    shapes = [
        f'<path fill="{cividis(i / (SHADES - 1))}" d="{squares((codes == maps.VISIBLE) & (level == i))}"/>'
        for i in range(SHADES)
        if ((codes == maps.VISIBLE) & (level == i)).any()
    ]
    shapes += [f'<path class="padding" d="{squares(codes == maps.PADDING)}"/>'] if (codes == maps.PADDING).any() else []
    if (codes == maps.FUTURE).any():
        lines = "".join(f"M{k} {q + 1}l1-1" for q, k in np.argwhere(codes == maps.FUTURE))
        shapes.append(f'<path class="future" d="{lines}"/>')
    leaks = map.leaks
    shapes += [
        f'<path fill="{cividis(i / (SHADES - 1))}" d="{squares(leaks & (level == i), 0.25)}"/>'
        for i in range(SHADES)
        if (leaks & (level == i)).any()
    ]
    cut = CutNames(clipped)
    rows, columns = ([escape(cut(name)) for name in names] for names in (map.query_names, map.key_names))
    names = [f'<text x="-0.3" y="{q + 0.75}" text-anchor="end">{name}</text>' for q, name in enumerate(rows)]
    names += [f'<text x="{k + 0.5}" y="-0.3" class="upright">{name}</text>' for k, name in enumerate(columns)]
    title = f"{map.kind} {map.name}: query attends to key; a row's query is named by the token that it {map.named_by}"
    return (
        f'<figure><svg class="picture" viewBox="-5 -5 {S + 6} {T + 6}" role="img" aria-label="{escape(title)}">'
        f"{''.join(shapes)}{''.join(names)}</svg><figcaption>{escape(title)}</figcaption></figure>\n"
    )


def clipped(name: str, number: str) -> str:
    return name + number if len(name + number) <= 8 else name[: 7 - len(number)] + "…" + number


def squares(where: Array, inset: float = 0) -> str:
    """`inset` is what a square lacks of its cell, on each side."""
    side = f"{1 - 2 * inset:g}"
    return "".join(f"M{k + inset:g} {q + inset:g}h{side}v{side}h-{side}z" for q, k in np.argwhere(where))


def cividis(t: float) -> str:
    """The colour of a weight, as in kit.js."""
    red = -4.54 - t * (35.34 - t * (2381.73 - t * (6402.7 - t * (7024.72 - t * 2710.57))))
    green = 32.49 + t * (170.73 + t * (52.82 - t * (131.46 - t * (176.58 - t * 67.37))))
    blue = 81.24 + t * (442.36 - t * (2482.43 - t * (6167.24 - t * (6614.94 - t * 2475.67))))
    return "#" + "".join(f"{round(min(255, max(0, c))):02x}" for c in (red, green, blue))
