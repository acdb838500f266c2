"""What a notebook shows: a view in a frame of its own, and below it the same in tables, for where no frame or script is."""

import html
from typing import Any

from npformer.inspection.comparison import Comparison
from npformer.inspection.inspection import Inspection
from npformer.inspection.page import page_html, part_of
from npformer.inspection.page.part import escape
from npformer.inspection.terminal import text

HEIGHTS = {"heads": 860, "comparison": 1000, "line_chart": 720}  # pixels; a reader can drag the frame's lower edge
COLUMNS = 100


def mimebundle(thing: Any) -> dict[str, str]:
    """`thing`, anything that a page can show, as "text/plain" and "text/html".

    The frame has the whole page in itself and asks for nothing. It cannot reach the notebook, nor the notebook it, so two
    outputs do not disturb one another. Where a viewer takes out frames or scripts, the tables and pictures below it stay;
    and what needs no script is nothing but its table.
    """
    part = part_of(thing)
    if isinstance(thing, Inspection | Comparison):
        plain = text(thing, width=COLUMNS, colour=False, blocks=True)
    else:
        plain = "\n".join(map(str, thing)) if isinstance(thing, list) else str(thing)
    if not part.script:
        return {"text/plain": plain, "text/html": part.static}
    title = part.data["title"]
    frame = (
        f'<iframe srcdoc="{html.escape(page_html(title, [thing]))}" title="{escape(title)}" sandbox="allow-scripts" '
        f'allow="clipboard-write" width="100%" height="{HEIGHTS[part.script]}" style="border: 0; resize: vertical"></iframe>'
    )
    still = f'<div style="padding: 0.5em; overflow: auto; color: #222; background: #fff">\n{part.static}</div>'
    return {
        "text/plain": plain,
        "text/html": f"{frame}\n<details><summary>{escape(title)}, without scripts</summary>\n{still}</details>\n",
    }
