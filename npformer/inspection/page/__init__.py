"""Pages: one HTML file that needs nothing else, for whoever opens it from a disk or a mail.

A page is a title and parts. Each part stands there as plain HTML first, tables and pictures that need no script, and a
script of the page's own then draws the view that can be asked. A Content-Security-Policy lets that script and the page's
own style through, by their checksums, and nothing else: no part of the page can ask a network for anything.
"""

import base64
import hashlib
import os
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from npformer.archive import Path
from npformer.arguments import check_path
from npformer.inspection.attention_map import AttentionMap
from npformer.inspection.comparison import Comparison
from npformer.inspection.inspection import Inspection
from npformer.inspection.page import line_chart, maps, tables  # noqa: F401  (they say how things are shown)
from npformer.inspection.page.comparison import part_of_comparison
from npformer.inspection.page.heads import part_of_inspection
from npformer.inspection.page.opened import Opened
from npformer.inspection.page.part import Part, embedded, escape, part_of
from npformer.whole_file import write_whole

__all__ = ["Opened", "Part", "page_html", "part_of", "write_page"]

GENERATOR = '<meta name="generator" content="npformer">'
SHARED = ("kit.js", "heat_map.js")  # all views see their names
VIEWS = ("heads.js", "comparison.js", "line_chart.js")


def write_page(path: Path, title: str, parts: Sequence[Any], *, full: Sequence[tuple[str, int, int]] = ()) -> str:
    """Write a page to `path`, whole or not at all, and return the path.

    `parts` are inspections and comparisons, also Opened at a head, charts, answers to who_attends, findings, and prose. A
    page above 8 MB is reduced and says so: heads named in `full`, as (kind, layer, head), are the first to stay as they are.

    TypeError for what no page can show, ValueError for a head in `full` that no part has.
    """
    check_path("write_page", path)
    if not isinstance(parts, list | tuple):
        raise TypeError(f"write_page: parts must be a list of what the page shows, got {type(parts).__name__}")
    data = page_html(title, parts, full=full).encode()
    write_whole(path, lambda file: file.write(data))
    return os.fspath(path)


def page_html(title: str, parts: Sequence[Any], *, full: Sequence[tuple[str, int, int]] = ()) -> str:
    """The page as one string, the same for the same parts."""
    style, script = source("page.css"), script_of_page()
    ours = f"style-src {checksum(style)}; script-src {checksum(script)}"
    policy = f"default-src 'none'; {ours}; base-uri 'none'; form-action 'none'"
    room = maps.LIMIT - len(style.encode()) - len(script.encode()) - 5_000  # for what stands around the parts
    body = "\n".join(section(i, part, title) for i, part in enumerate(fitted(parts, room, full)))
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
{GENERATOR}
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<style>{style}</style>
</head>
<body>
<main>
<h1>{escape(title)}</h1>
{body}
</main>
<script>{script}</script>
</body>
</html>
"""


def fitted(parts: Sequence[Any], room: int, full: Sequence[tuple[str, int, int]]) -> list[Part]:
    """The parts in their order. Those with maps share the room that the others leave, the small ones first."""
    opened = {i: part.place for i, part in enumerate(parts) if isinstance(part, Opened)}
    parts = [part.shown if isinstance(part, Opened) else part for part in parts]
    large = {i: maps_of(part) for i, part in enumerate(parts) if isinstance(part, Inspection | Comparison)}
    there = {map.address for shown in large.values() for map in shown}
    for place in full:
        if tuple(place) not in there:
            raise ValueError(f"write_page: full names {tuple(place)}, which is in none of the parts")
    made = {i: part_of(part) for i, part in enumerate(parts) if i not in large}
    waiting = sorted(large, key=lambda i: sum(map.weights.size for map in large[i]))
    for n, i in enumerate(waiting):
        left = room - sum(len(section(j, part).encode()) for j, part in made.items())
        show = part_of_comparison if isinstance(parts[i], Comparison) else part_of_inspection
        first = [(str(at["kind"]), int(at["layer"]), int(at["head"])) for at in [opened.get(i)] if at]
        made[i] = show(parts[i], left // (len(waiting) - n), [*first, *full])
        made[i].data["opened"] = opened.get(i)
    return [made[i] for i in range(len(parts))]


def maps_of(thing: Inspection | Comparison) -> tuple[AttentionMap, ...]:
    return (thing.good if isinstance(thing, Comparison) else thing).maps


def section(i: int, part: Part, title: str = "") -> str:
    """A part, without its heading where the page's `title` says the same."""
    static = part.static.replace(f"<h2>{escape(title)}</h2>\n", "", 1)
    if not part.script:
        return f'<section id="part-{i}">\n{static}</section>'
    shown = f'<section data-script="{part.script}" id="part-{i}">\n{static}</section>'
    return f'{shown}\n<script type="application/json" id="data-{i}">{embedded(part.data)}</script>'


def script_of_page() -> str:
    shared = "\n".join(source(name) for name in SHARED)
    views = "\n".join(f"{{\n{source(name)}}}" for name in VIEWS)  # each in a block: what it names is its own
    return f'"use strict";\n(() => {{\n{shared}\n{views}\nstart();\n}})();\n'


def source(name: str) -> str:
    return (files(__name__) / name).read_text(encoding="utf-8")


def checksum(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
