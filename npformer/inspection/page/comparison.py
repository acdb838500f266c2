"""The part of a page that compares two runs: A, B and B − A of a head side by side, and which heads changed most."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from npformer.inspection.attention_map import Address, AttentionMap
from npformer.inspection.comparison import Comparison, HeadChange
from npformer.inspection.page import maps
from npformer.inspection.page.heads import Names, entry, finding_data, metrics_there, note, number
from npformer.inspection.page.part import Part, escape, part_of, table
from npformer.inspection.tokens import in_characters
from npformer.operation import Array


@part_of.register
def part_of_comparison(comparison: Comparison, room: int = maps.LIMIT, full: Sequence[Address] = ()) -> Part:
    """All of `comparison` where its part fits into `room` bytes. Otherwise the heads in `full` are the first to stay whole,
    and then those that have changed most."""
    findings = comparison.diagnose()
    static = static_part(comparison)
    names = Names()
    pairs = [pair(comparison, change) for change in comparison.changes]
    data: dict[str, Any] = {
        "title": comparison.title,
        "runs": [comparison.good.title, comparison.bad.title],
        "scale": max((float(abs(b.weights - a.weights).max(initial=0)) for a, b in pairs), default=0.0),
        "note": note(comparison.good, [in_characters(map) for map in comparison.good.maps]),
        "metrics": metrics_there(comparison.good),
        "findings": [finding_data(finding) for finding in findings],
        "names": names.all,
        "heads": [
            entry(seen_by_either(a, b), {}, findings, names)
            | {"metrics": {name: list(both) for name, both in change.metrics.items()}, "change": change.distance}
            | {"apart": not np.array_equal(a.keep, b.keep)}  # then a rank would be of keys that one run may not see
            for change, (a, b) in zip(comparison.changes, pairs, strict=True)
        ],
        "reduced": "",
    }
    wanted = {tuple(place) for place in full}
    maps.fill(
        data,
        room - len(static.encode(errors="replace")),
        sorted(range(len(pairs)), key=lambda i: pairs[i][0].address not in wanted),
        [32 + maps.size_in_base64(2 * a.weights.size) + maps.size_in_base64(4 * a.weights.size) for a, _ in pairs],
        [maps.mask(maps.codes_of(seen_by_either(a, b))) for a, b in pairs],
        lambda i: whole_data(*pairs[i]),
        lambda i, side, n, listed: reduced_data(*pairs[i], side, n, listed),
        "largest change",
        "",
    )
    return Part("comparison", data, maps.notice(data) + static)


def pair(comparison: Comparison, change: HeadChange) -> tuple[AttentionMap, AttentionMap]:
    a, b = (in_characters(run.find(*change.address)) for run in (comparison.good, comparison.bad))
    return a, b


def seen_by_either(a: AttentionMap, b: AttentionMap) -> AttentionMap:
    return replace(a, keep=np.asarray(a.keep | b.keep))


def whole_data(a: AttentionMap, b: AttentionMap) -> dict[str, Any]:
    return {"weights": maps.uint16(a.weights), "difference": maps.float32(b.weights - a.weights)}


def reduced_data(a: AttentionMap, b: AttentionMap, side: int, n: int, listed: maps.Lists) -> dict[str, Any]:
    both = seen_by_either(a, b)
    difference: Array = b.weights - a.weights
    shown = both.keep | both.leaks | replace(both, weights=b.weights).leaks
    keys = maps.top_keys(abs(difference), shown, n)
    return {
        "visible": listed.place(maps.encoded(both.n_visible, "<u2")),
        "pooled": {
            "blocks": [maps.block_of(n, side) for n in a.weights.shape],
            "mask": listed.place(maps.mask(maps.pooled_codes(maps.codes_of(both), side))),
            "weights": maps.uint16(maps.pooled(a.weights, shown, side)),
            "difference": maps.float32(maps.pooled(difference, shown, side)),
        },
        "top": {
            "keys": maps.encoded(maps.marked(keys, both.keep), "<u2"),
            "weights": maps.uint16(maps.at(a.weights, keys)),
            "difference": maps.float32(maps.at(difference, keys)),
        },
    }


def static_part(comparison: Comparison) -> str:
    names = [metric["name"] for metric in metrics_there(comparison.good)]
    rows = [
        [f"{change.kind} layer {change.layer} head {change.head}", f"{change.distance:.4f}"]
        + [" → ".join(map(number, change.metrics[name])) for name in names]
        for change in comparison.changes
    ]
    head = ["head", "change", *(metric["title"] for metric in metrics_there(comparison.good))]
    caption = "The most changed heads first; change is the mean over the queries of ½ Σ |B − A|, and each metric is A → B"
    return f"<h2>{escape(comparison.title)}</h2>\n" + table(caption, head, rows)
