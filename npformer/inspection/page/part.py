"""A part of a page: what a script draws from, and what stands there where no script runs."""

import html
import json
import re
from collections.abc import Iterable, Sequence
from functools import singledispatch
from typing import Any, NamedTuple

UNPRINTABLE = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")  # no HTML, or not UTF-8
UNSAFE = re.compile("[<\u2028\u2029\ud800-\udfff]")  # in JSON inside HTML


class Part(NamedTuple):
    """`script` names what a script file registered ("" for none), `data` is the JSON that it is called with, `static` the
    HTML that it replaces."""

    script: str
    data: dict[str, Any]
    static: str


@singledispatch
def part_of(thing: object) -> Part:
    """The part of a page that shows `thing`. TypeError for what no page can show."""
    raise TypeError(f"write_page: cannot show a {type(thing).__name__}")


@part_of.register
def _(part: Part) -> Part:
    return part


def embedded(data: Any) -> str:
    """JSON in which no character can end the element that holds it, or be half of one."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return UNSAFE.sub(lambda character: f"\\u{ord(character[0]):04x}", text)


def escape(text: str) -> str:
    """`text` in HTML, in an element or an attribute in double quotes."""
    return html.escape(UNPRINTABLE.sub("\ufffd", text))


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of plain text; the first cell of each row is its header."""
    columns = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    body = ""
    for first, *rest in rows:
        cells = "".join(f"<td><bdi>{escape(cell)}</bdi></td>" for cell in rest)
        body += f'<tr><th scope="row"><bdi>{escape(first)}</bdi></th>{cells}</tr>\n'
    title = f"<caption>{escape(caption)}</caption>"
    return f'<div class="wide"><table>{title}<thead><tr>{columns}</tr></thead>\n<tbody>\n{body}</tbody></table></div>\n'
