"""The checks of arguments: each raises one sentence with the operation, the argument's name, the rule, and what came."""

import math
import os
from collections.abc import Collection
from typing import Any, TypeGuard

import numpy as np

LONGEST_AXIS = 2**31 - 1
NO_NUMBERS = (bool, np.bool_, np.timedelta64)  # though Python or NumPy counts them among the integers


def is_array(value: Any) -> TypeGuard[np.ndarray[Any, Any]]:
    """A NumPy array, and neither a matrix nor a masked array, in which the same signs mean other things."""
    if type(value) is np.ndarray:
        return True
    return isinstance(value, np.ndarray) and not isinstance(value, np.matrix | np.ma.MaskedArray)


def shown(value: Any) -> str:
    """What came, on one line."""
    if isinstance(value, int) and value.bit_length() > 10_000:  # Python itself refuses to print it
        return f"an integer of {value.bit_length()} bits"
    return f"an array of the shape {value.shape}" if isinstance(value, np.ndarray) else repr(value)


def kind(value: Any) -> str:
    """The dtype of an array, the type of anything else."""
    if is_array(value):
        return str(value.dtype)
    return f"a single {value.dtype}" if isinstance(value, np.generic) else type(value).__name__


def check_number(title: str, name: str, value: Any, *, low: float = -math.inf) -> float:
    """A finite real number above `low`, as Python's float: a NumPy number would impose its dtype on what it meets."""
    if isinstance(value, NO_NUMBERS) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"{title}: {name} must be a number, got {shown(value)}")
    try:
        number = float(value)
    except OverflowError:  # an int beyond every float
        number = math.inf
    if not low < number < math.inf:  # NaN fails too
        rule = "finite" if low == -math.inf else f"finite and above {low:g}"
        raise ValueError(f"{title}: {name} must be {rule}, got {shown(value) if isinstance(value, int) else value}")
    return number


def check_probability(title: str, name: str, value: Any) -> float:
    """A number p with 0 ≤ p < 1."""
    p = check_number(title, name, value)
    if not 0 <= p < 1:
        raise ValueError(f"{title}: {name} must be in [0, 1), got {value}")
    return p


def check_whole(title: str, name: str, value: Any) -> int:
    """An integer, as Python's int, which never overflows; a bool is not one."""
    if isinstance(value, NO_NUMBERS) or not isinstance(value, int | np.integer):
        raise TypeError(f"{title}: {name} must be an integer, got {shown(value)}")
    return int(value)


def check_count(title: str, name: str, value: Any, *, low: int = 1, high: int | None = None) -> int:
    """An integer from `low` to `high`, both included."""
    count = check_whole(title, name, value)
    if not low <= count <= (LONGEST_AXIS if high is None else high):
        bound = f"at least {low}" if count < low else f"at most {LONGEST_AXIS}"
        rule = bound if high is None else f"in {low} … {high}"
        raise ValueError(f"{title}: {name} must be {rule}, got {shown(count)}")
    return count


def check_offset(title: str, name: str, value: Any) -> int:
    """An integer that float64 holds exactly, as it does all of them up to 2^53."""
    return check_count(title, name, value, low=-(2**53), high=2**53)


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
    if not is_array(array) or array.dtype.kind not in "iu":
        raise TypeError(f"{title}: {name} must be an array of integers, got {kind(array)}")


def check_ids(title: str, name: str, ids: Any, *, limit: int, ignored: int | None = None) -> None:
    """Integers from 0 to limit − 1, or equal to `ignored`; the first other one is named with its place."""
    check_integers(title, name, ids)
    outside = (ids < 0) | (ids >= limit)
    if ignored is not None:
        outside &= ids != ignored
    if outside.any():
        index = tuple(map(int, np.argwhere(outside)[0]))
        place = str(list(index)) if index else ""
        rule = f"outside 0 … {limit - 1}" if limit else "but there is none to choose from"
        raise ValueError(f"{title}: {name}{place} is {ids[index]}, {rule}")


def check_mask(title: str, name: str, mask: Any, meaning: str = "") -> None:
    """An array of booleans; `meaning` says of which they are True, such as "for a token"."""
    if not is_array(mask) or mask.dtype != np.bool_:
        rule = f"a boolean array, True {meaning}" if meaning else "a boolean array"
        raise TypeError(f"{title}: {name} must be {rule}, got {kind(mask)}")


def check_generator(title: str, name: str, rng: Any) -> None:
    """A numpy.random.Generator, or None for no chance at all."""
    if rng is not None and not isinstance(rng, np.random.Generator):
        raise TypeError(f"{title}: {name} must be a numpy.random.Generator or None, got {type(rng).__name__}")


def check_name(title: str, name: str, value: Any, names: Collection[str]) -> None:
    """One of `names`."""
    if not isinstance(value, str) or value not in names:
        raise ValueError(f"{title}: {name} must be one of {', '.join(names)}, got {shown(value)}")


def check_flag(title: str, name: str, value: Any) -> None:
    """True or False; nothing that only counts as one of them."""
    if not isinstance(value, bool):
        raise TypeError(f"{title}: {name} must be True or False, got {shown(value)}")


def check_path(title: str, path: Any) -> None:
    """A str or an object that stands for a path; no file descriptor, no bytes."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"{title}: path must be a str or a path, got {type(path).__name__}")


def check_dtype(title: str, dtype: Any) -> np.dtype[Any]:
    """float32 or float64, in which parameters are kept."""
    try:
        given: np.dtype[Any] = np.dtype(dtype)
    except TypeError:
        given = np.dtype(object)
    if given not in (np.float32, np.float64):
        raise TypeError(f"{title}: dtype must be float32 or float64, got {shown(dtype)}")
    return given
