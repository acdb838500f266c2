"""One derivative, of any function with one number as its value, and how far it may be off."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradcheck.arrays import UNIT, nudged
from gradcheck.complex_step import ComplexUnsafeError, derivatives_along
from gradcheck.decision import MARGIN, largest
from gradcheck.differences import slopes_along
from gradcheck.slopes import Slopes
from gradcheck.subject import Array, Outputs
from gradcheck.truth import check_truth


@dataclass(frozen=True)
class Derivative:
    """value ± error_bar, by "complex step" or "differences". At a kink the value is the middle of its two slopes, and the
    bar reaches both."""

    value: float
    error_bar: float
    method: str


def derivative(f: Callable[[Array], Any], x: Array, direction: Array, truth: str = "auto") -> Derivative:
    """The derivative of f(x + t·direction) by t at t = 0, where f returns one number.

    x, direction  float64 arrays of one shape, or two numbers
    truth         "complex", "difference", or "auto": the first where both agree, as they do if f takes complex arrays

    The bar of the complex step is 30 times what the last digits of x and of f(x) move; that of differences is ten times what
    their change from step to step and the noise of f make likely. It is infinite, and the value NaN, where f has no slope.

    Raises TypeError and ValueError for what is not such an array or function, and ValueError where truth is "complex" and f
    does not take complex arrays.
    """
    x, direction = (checked(name, array) for name, array in (("x", x), ("direction", direction)))
    if x.shape != direction.shape:
        raise ValueError(f"direction must have the shape of x, {x.shape}, got {direction.shape}")
    check_truth(truth)

    def run(arrays: Any) -> tuple[Outputs, None]:
        y = np.asarray(f(arrays[0]))
        if y.size != 1 or y.dtype.kind not in "fc":
            raise TypeError(f"f must return one floating number, got {y.dtype} {y.shape}")
        return (y.reshape(()),), None

    size = (largest(x) or 1.0) / (largest(direction) or 1.0)  # steps are relative to x
    one = [[np.ones(())]]
    with np.errstate(all="ignore"):
        (y,), _ = run([x])
        if not np.isfinite(y):
            return Derivative(float("nan"), float("inf"), "none, since f is no number at x")
        slopes = slopes_along(run, [x], [size * direction], one)[0]
        slopes = slopes and slopes.scaled(1 / size)
        if truth != "difference":
            try:
                return by_complex_step(run, x, direction, float(abs(y)), slopes)
            except ComplexUnsafeError as error:
                if truth == "complex":
                    raise ValueError(f"f cannot be differentiated by complex step: {error}") from error
        if slopes is None:
            return Derivative(float("nan"), float("inf"), "differences")
        middle, half = (slopes.left + slopes.right) / 2, abs(slopes.left - slopes.right) / 2
        return Derivative(middle, half + slopes.doubt, "differences")


def by_complex_step(run: Any, x: Array, direction: Array, output: float, slopes: Slopes | None) -> Derivative:
    """`output` is the size of f(x). Raises ComplexUnsafeError where differences give other slopes."""
    rng = np.random.default_rng(0)
    value, *nearby = (
        derivatives_along(run, [at], [direction], [[np.ones(())]])[0] for at in (x, *(nudged([x], rng)[0] for _ in range(3)))
    )
    rounding = UNIT * output * (largest(direction) / (largest(x) or 1.0))
    bar = MARGIN * (max(abs(each - value) for each in nearby) + UNIT * abs(value) + rounding)
    if slopes is None or slopes.differ or not slopes.allow(value, bar):
        raise ComplexUnsafeError(f"it gives {value:.6g}, and differences {slopes or 'no slope'}")
    return Derivative(value, bar, "complex step")


def checked(name: str, array: Any) -> Array:
    if isinstance(array, float | int) and not isinstance(array, bool):
        return np.array(float(array))
    if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray) or array.dtype != np.float64:
        got = f"{array.dtype} {type(array).__name__}" if isinstance(array, np.ndarray) else type(array).__name__
        raise TypeError(f"{name} must be a float64 array, got {got}")
    return array
