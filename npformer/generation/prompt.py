"""What generation starts from, checked: the text so far, and for an encoder–decoder the source.

A hidden id is as if it were not there. So rows are packed to the right: the last kept id of each stands in the last column,
where the next one is expected, and what is hidden on the left is no longer than the rows differ.
"""

from typing import Any, NamedTuple, Protocol

import numpy as np

from npformer.arguments import check_ids, check_mask, is_array
from npformer.models import Encoder
from npformer.operation import Array


class Config(Protocol):
    @property
    def max_len(self) -> int: ...
    @property
    def vocab_size(self) -> int: ...


class Model(Protocol):
    """A GPT, an EncoderDecoder, or what can be called as they are, with T up to config.max_len and V = config.vocab_size:

        model(ids (B,T), keep=keep)                              → logits (B,T,V), keep only where some id is hidden
        model(source (B,S), ids (B,T), source_keep, keep)        → logits (B,T,V), where it has `encode`

    With new_cache(), or new_cache(source, source_keep), and decode(ids, cache) and decode_step(ids (B,), cache) → (B,V)
    it reads each id once.
    """

    @property
    def config(self) -> Config: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...


class Prompt(NamedTuple):
    """ids (B,T) int64 and keep (B,T), None where nothing is hidden; source (B,S) and source_keep (B,S), or None.

    A hidden place holds the row's own first id, so that `ids` has no id that the row does not have.
    """

    ids: Array
    keep: Array | None
    source: Array | None
    source_keep: Array | None

    def row(self, r: int) -> "Prompt":
        """One row alone, with nothing hidden in its ids."""
        shown = slice(None) if self.keep is None else self.keep[r]
        source, source_keep = (None if array is None else array[r : r + 1] for array in (self.source, self.source_keep))
        return Prompt(self.ids[r : r + 1, shown], None, source, source_keep)


def check_prompt(title: str, model: Model, ids: Array, keep: Any, source: Any, source_keep: Any) -> Prompt:
    """ids (T,) or (B,T), with a source (S,) or (B,S) of as many axes and rows, as a batch. ValueError or TypeError."""
    if isinstance(model, Encoder):
        raise TypeError(f"{title}: the model is an Encoder, which says nothing of what comes next")
    ids, keep = check_text(title, "ids", ids, "keep", keep, model.config.vocab_size)
    if ids.ndim not in (1, 2):
        raise ValueError(f"{title}: ids must have the axes (T) or (B, T), got the shape {ids.shape}")
    if ids.shape[-1] == 0:
        raise ValueError(f"{title}: ids must hold at least one id to continue from, got the shape {ids.shape}")
    if keep is not None and not keep.any(-1).all():
        row = f" of row {int(np.argmin(keep.any(-1)))}" if ids.ndim == 2 else ""
        raise ValueError(f"{title}: keep must leave at least one id to continue from, but hides every id{row}")
    if hasattr(model, "encode") != (source is not None):
        rule = "must be given to a model with an encoder" if source is None else "is given, but the model has no encoder"
        raise TypeError(f"{title}: source {rule}")
    if source is None:
        if source_keep is not None:
            raise TypeError(f"{title}: source_keep is given without source")
        return Prompt(*pack(ids, keep), None, None)
    limit = getattr(model.config, "source_vocab_size", None) or model.config.vocab_size
    rows = ids.shape[:-1]
    source, source_keep = check_text(title, "source", source, "source_keep", source_keep, limit)
    if source.ndim != ids.ndim or source.shape[:-1] != rows:
        expected = f"({rows[0]}, S)" if rows else "(S,)"
        raise ValueError(f"{title}: source must have the shape {expected}, as ids has {ids.shape}, got {source.shape}")
    shape = source.shape
    source, source_keep = pack(source, source_keep)
    if not 1 <= source.shape[1] <= model.config.max_len:
        raise ValueError(f"{title}: source must hold 1 … {model.config.max_len} ids, got the shape {shape}")
    return Prompt(*pack(ids, keep), source, source_keep)


def check_text(title: str, name: str, ids: Any, keep_name: str, keep: Any, limit: int) -> tuple[Array, Array | None]:
    """The ids, 0 where `keep` hides one, and keep, None where it hides none."""
    if keep is None or not is_array(ids):
        check_ids(title, name, ids, limit=limit)
        return ids, None
    check_mask(title, keep_name, keep)
    if keep.shape != ids.shape:
        raise ValueError(f"{title}: {keep_name} must have the shape {ids.shape}, as {name} has, got {keep.shape}")
    shown = np.where(keep, ids, 0) if ids.dtype.kind in "iu" else ids
    check_ids(title, name, shown, limit=limit)
    return shown, None if keep.all() else keep


def pack(ids: Array, keep: Array | None) -> tuple[Array, Array | None]:
    """The kept ids of each row, as they follow one another, at the right; (T) becomes (1,T)."""
    ids = np.atleast_2d(ids).astype(np.int64)
    if keep is None:
        return ids, None
    keep = np.atleast_2d(keep)
    order = np.argsort(keep, axis=1, kind="stable")  # what is hidden comes first
    width = int(keep.sum(1).max(initial=1))  # one column at least: a source may be hidden altogether
    ids, keep = (np.take_along_axis(array, order, 1)[:, ids.shape[1] - width :] for array in (ids, keep))
    first = np.take_along_axis(ids, keep.argmax(1)[:, None], 1)  # (B,T) → (B,1)
    return np.where(keep, ids, first), None if keep.all() else keep


def check_room(title: str, prompt: Prompt, name: str, n: int, max_len: int) -> None:
    """Room for all that the model reads; the last new id only comes out."""
    length = prompt.ids.shape[1]
    if length + n - 1 > max_len:
        raise ValueError(
            f"{title}: {length} ids and {name} = {n} more need a context of {length + n - 1}, but max_len is {max_len}"
        )
