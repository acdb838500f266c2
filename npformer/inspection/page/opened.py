"""An inspection or a comparison that a page shows opened at one of its heads, so that one need not look for it."""

from typing import NamedTuple

from npformer.inspection.comparison import Comparison
from npformer.inspection.inspection import Inspection


class Opened(NamedTuple):
    """`shown`, opened at a head and the row `query`, which is counted from 0. ValueError when the page is made, if there is
    no such head or row."""

    shown: Inspection | Comparison
    kind: str
    layer: int
    head: int
    query: int = 0

    @property
    def place(self) -> dict[str, str | int]:
        run = self.shown.good if isinstance(self.shown, Comparison) else self.shown
        T = len(run.find(self.kind, self.layer, self.head).query_tokens)
        if not 0 <= self.query < T:
            raise ValueError(f"Opened: query must be in 0 … {T - 1}, got {self.query}")
        return {"kind": self.kind, "layer": self.layer, "head": self.head, "query": self.query}
