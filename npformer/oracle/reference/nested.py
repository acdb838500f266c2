"""Arrays as nested lists: how many axes, what kind of number, one entry, all entries, all rows."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any, TypeAlias

Nested: TypeAlias = Any  # a number, or a list of Nested of one shape


def depth(x: Nested) -> int:
    """The number of axes that can be seen: an empty list hides those behind it."""
    if not isinstance(x, list):
        return 0
    return 1 + (depth(x[0]) if x else 0)


def first(x: Nested) -> Nested:
    """The first number in `x`, or [] where an axis of size 0 leaves none."""
    while isinstance(x, list) and x:
        x = x[0]
    return x


def is_empty(x: Nested) -> bool:
    """Whether `x` has no numbers, and so hides its last axes."""
    return isinstance(first(x), list)


def kind_of(x: Nested) -> type:
    """Decimal or float: the type in which to compute with the numbers in `x`."""
    return Decimal if isinstance(first(x), Decimal) else float


def at(x: Nested, *index: int) -> Nested:
    """The entry of `x` at `index`, where an axis of size 1 serves every index and leading axes may be absent."""
    for i in index[len(index) - depth(x) :]:
        x = x[0] if len(x) == 1 else x[i]
    return x


def each_entry(f: Callable[[Any], Nested], x: Nested) -> Nested:
    """f of every number in `x`."""
    return [each_entry(f, part) for part in x] if isinstance(x, list) else f(x)


def each_row(f: Callable[[list[Any]], list[Any]], x: Nested, axis: int = -1) -> Nested:
    """f of every row of `x` along `axis`: a list of numbers becomes a list of numbers."""
    if is_empty(x):
        return x
    if axis < 0:
        axis += depth(x)
    if axis != 0:
        return [each_row(f, part, axis - 1) for part in x]
    if depth(x) == 1:
        return f(x)
    columns = [each_row(f, list(column), 0) for column in zip(*x, strict=True)]  # (A,B,…) → (B,A,…)
    return [list(row) for row in zip(*columns, strict=True)]  # (B,A,…) → (A,B,…)
