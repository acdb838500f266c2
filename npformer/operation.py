"""What every operation promises about its arrays, kept once, so that functional/ holds only the mathematics.

`@operation(x="... D", gamma="D")` names the axes of each floating array. The decorated function then

- refuses, by name, an array that is not one, not floating, of another dtype than its mates, of the wrong rank, or whose
  axis of one letter differs in size from the same letter elsewhere;
- gives float16 arrays to the mathematics as float32 and rounds what comes back;
- lets infinities and NaN pass without a warning, as IEEE arithmetic defines them;
- returns its outputs as arrays, and a `backward` that refuses a cotangent of another shape or dtype than its output.

The backward keeps what it needs, which may be an argument or the output itself: until it has been called for the last time,
nobody writes into those.
"""

import math
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, TypeAlias, TypeVar, cast

import numpy as np

from npformer.arguments import is_array

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Backward: TypeAlias = Callable[[Array], Array]
Backwards: TypeAlias = Callable[[Array], tuple[Array, ...]]  # where several arrays have a gradient
LastBackward: TypeAlias = Callable[[Array], None]  # where only parameters have one: what came in was integers

P = ParamSpec("P")
R = TypeVar("R")

DTYPES = frozenset(map(np.dtype, (np.float16, np.float32, np.float64, np.complex128)))


def operation(**axes: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Declare the floating arrays of an operation and their axes, by letters; "..." stands for any number of axes."""
    letters = {name: tuple(text.split()) for name, text in axes.items()}

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        code = function.__code__
        names = code.co_varnames[: code.co_argcount]  # those that may be given by position
        title = function.__name__
        optional = {name for name, parameter in signature(function).parameters.items() if parameter.default is None}

        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            arrays: dict[str, Any] = {
                name: array
                for name, array in (*zip(names, args, strict=False), *kwargs.items())
                if name in letters and not (array is None and name in optional)
            }
            dtype = common_dtype(title, arrays)
            match_axes(title, arrays, letters)
            half = dtype == np.float16
            call: Callable[..., Any] = function
            with np.errstate(all="ignore"):
                if half:
                    outputs, backward = call(*map(widen, args), **{name: widen(value) for name, value in kwargs.items()})
                else:
                    outputs, backward = call(*args, **kwargs)
                results = tuple(as_result(y, half) for y in (outputs if isinstance(outputs, tuple) else (outputs,)))
            shapes = [y.shape for y in results if isinstance(y, np.ndarray)]

            def checked_backward(*cotangents: Array) -> Any:
                dys = match_cotangents(title, cotangents, shapes, dtype)
                with np.errstate(all="ignore"):
                    gradients = backward(*(map(widen, dys) if half else dys))
                    if isinstance(gradients, tuple):
                        return tuple(as_result(gradient, half) for gradient in gradients)
                    return as_result(gradients, half)

            return cast(R, (results if isinstance(outputs, tuple) else results[0], checked_backward))

        return checked

    return decorate


def common_dtype(title: str, arrays: Mapping[str, Any]) -> np.dtype[Any]:
    first = ""
    dtype = np.dtype(np.float64)
    for name, array in arrays.items():
        if not is_array(array):
            raise TypeError(f"{title}: {name} must be a NumPy array, got {type(array).__name__}")
        if array.dtype not in DTYPES:
            raise TypeError(f"{title}: {name} must be float16, float32 or float64 in native byte order, got {array.dtype}")
        if not first:
            first, dtype = name, array.dtype
        elif array.dtype != dtype:
            raise TypeError(f"{title}: {name} is {array.dtype}, but {first} is {dtype}; all floating arrays share one dtype")
    return dtype


def match_axes(title: str, arrays: Mapping[str, Array], letters: Mapping[str, tuple[str, ...]]) -> None:
    sizes: dict[str, tuple[int, str]] = {}
    for name, array in arrays.items():
        axes = letters[name]
        named = axes[1:] if axes[:1] == ("...",) else axes
        if array.ndim < len(named) or (named is axes and array.ndim > len(named)):
            raise ValueError(f"{title}: {name} must have the axes ({', '.join(axes)}), got the shape {array.shape}")
        for letter, size in zip(named, array.shape[array.ndim - len(named) :], strict=True):
            known, owner = sizes.setdefault(letter, (size, name))
            if size != known:
                raise ValueError(
                    f"{title}: {name} {array.shape} has {letter} = {size}, "
                    f"but {owner} {arrays[owner].shape} has {letter} = {known}"
                )


def match_cotangents(
    title: str, cotangents: tuple[Any, ...], shapes: list[tuple[int, ...]], dtype: np.dtype[Any]
) -> list[Array]:
    if len(cotangents) != len(shapes):
        raise TypeError(f"{title}: backward takes {len(shapes)} cotangent(s), got {len(cotangents)}")
    dys: list[Array] = []
    for dy, shape in zip(cotangents, shapes, strict=True):
        if shape == () and isinstance(dy, int | float) and not isinstance(dy, bool):
            if abs(dy) > sys.float_info.max and dy not in (math.inf, -math.inf):
                raise ValueError(f"{title}: backward's dy is an integer beyond every float")
            with np.errstate(all="ignore"):
                dy = np.asarray(dy, dtype)
        if not is_array(dy) and not isinstance(dy, np.generic):
            raise TypeError(f"{title}: backward's dy must be a NumPy array, got {type(dy).__name__}")
        if dy.shape != shape:
            raise ValueError(f"{title}: backward's dy has the shape {dy.shape}, but the output has {shape}")
        if dy.dtype != dtype:
            raise TypeError(f"{title}: backward's dy is {dy.dtype}, but the output is {dtype}")
        dys.append(np.asarray(dy))
    return dys


def widen(value: Any) -> Any:
    return value.astype(np.float32) if isinstance(value, np.ndarray) and value.dtype == np.float16 else value


def as_result(value: Any, half: bool) -> Any:
    """A floating output or gradient as an array, float16 again if it came as that; anything else as it is."""
    if not isinstance(value, np.ndarray | np.inexact):
        return value
    return np.asarray(value, np.float16) if half else np.asarray(value)
