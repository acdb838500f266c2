"""The checks of arguments: each raises one sentence with the operation, the argument's name, the rule, and what came."""

import math
from typing import Any

import numpy as np


def check_number(title: str, name: str, value: Any, *, low: float = -math.inf) -> None:
    """A finite real number above `low`."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"{title}: {name} must be a number, got {value!r}")
    if not low < value < math.inf:  # NaN fails too
        rule = "finite" if low == -math.inf else f"finite and above {low:g}"
        raise ValueError(f"{title}: {name} must be {rule}, got {value}")


def check_probability(title: str, name: str, value: Any) -> None:
    """A number p with 0 ≤ p < 1."""
    check_number(title, name, value)
    if not 0 <= value < 1:
        raise ValueError(f"{title}: {name} must be in [0, 1), got {value}")


def check_whole(title: str, name: str, value: Any) -> None:
    """An integer; a bool is not one."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise TypeError(f"{title}: {name} must be an integer, got {value!r}")


def check_count(title: str, name: str, value: Any, *, low: int = 1, high: int | None = None) -> None:
    """An integer from `low` to `high`, both included."""
    check_whole(title, name, value)
    if value < low or (high is not None and value > high):
        rule = f"at least {low}" if high is None else f"in {low} … {high}"
        raise ValueError(f"{title}: {name} must be {rule}, got {value}")


def check_axis(title: str, axis: Any, x: np.ndarray[Any, Any]) -> None:
    """An axis that `x` has, counted from the front or, negative, from the back."""
    check_whole(title, "axis", axis)
    if not -x.ndim <= axis < x.ndim:
        raise ValueError(f"{title}: axis {axis} is not an axis of x, which has {x.ndim}")


def check_filled(title: str, name: str, array: np.ndarray[Any, Any]) -> None:
    """A last axis of at least one entry."""
    if array.shape[-1] == 0:
        raise ValueError(f"{title}: {name}'s last axis must not be empty, got the shape {array.shape}")


def check_integers(title: str, name: str, array: Any) -> None:
    """An array of an integer dtype."""
    if not isinstance(array, np.ndarray) or not np.issubdtype(array.dtype, np.integer):
        came = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
        raise TypeError(f"{title}: {name} must be an array of integers, got {came}")


def check_ids(title: str, name: str, ids: Any, *, limit: int, ignored: int | None = None) -> None:
    """Integers from 0 to limit − 1, or equal to `ignored`; the first other one is named with its place."""
    check_integers(title, name, ids)
    outside = (ids < 0) | (ids >= limit)
    if ignored is not None:
        outside &= ids != ignored
    if outside.any():
        index = tuple(map(int, np.argwhere(outside)[0]))
        place = str(list(index)) if index else ""
        raise ValueError(f"{title}: {name}{place} is {ids[index]}, outside 0 … {limit - 1}")


def check_generator(title: str, name: str, rng: Any) -> None:
    """A numpy.random.Generator, or None for no chance at all."""
    if rng is not None and not isinstance(rng, np.random.Generator):
        raise TypeError(f"{title}: {name} must be a numpy.random.Generator or None, got {type(rng).__name__}")
