"""The four ways to see an inspection or a comparison."""

from collections.abc import Sequence
from os import PathLike
from typing import Any


class Shown:
    """What has a title, and can be printed, written and shown by a notebook. The views import what they show, and so are
    imported where they are used."""

    title: str

    def show(self, *, kind: str | None = None, layer: int | None = None, head: int | None = None) -> None:
        """Print it for a terminal: all heads, and one of them, the most telling, or of a comparison the most changed, unless
        it is named."""
        from npformer.inspection.terminal import show

        show(self, kind=kind, layer=layer, head=head)  # type: ignore[arg-type]

    def to_html(self, path: str | PathLike[str], *, full: Sequence[tuple[str, int, int]] = ()) -> str:
        """Write it as one page, which needs no network; its path. An old file stays until the new one is whole.

        A page above 8 MB is reduced and says so: heads in `full`, as (kind, layer, head), are the first to stay as they are.
        """
        from npformer.inspection.page import write_page

        return write_page(path, self.title, [self], full=full)

    def to_json(self, path: str | PathLike[str]) -> str:
        """Write tokens, weights and metrics, all digits, and the findings; of a comparison both runs and their changes. Its
        path."""
        from npformer.inspection.json_file import write_json

        return write_json(path, self)  # type: ignore[arg-type]

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        from npformer.inspection.notebook import mimebundle

        return mimebundle(self)
