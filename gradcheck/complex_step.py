"""The truth: derivatives of a forward by complex step, which needs no backward and cancels nothing.

    Im f(x + ih) / h = f′(x) − h²·f‴(x)/6 + …                                           with h = 2⁻¹⁰⁰ ≈ 1e-30

An ordinary difference f(x + h) − f(x) subtracts two nearly equal numbers. Here the derivative arrives alone in the
imaginary part, so h may be so small that the error term is far below the last digit.

Sources: Squire and Trapp 1998; Martins, Sturdza and Alonso 2003.
"""

import warnings
from collections.abc import Sequence

import numpy as np

from gradcheck.arrays import SMALLEST_NUMBER, flattened, sizes_of
from gradcheck.subject import Array, Run, said

STEP_EXPONENT = -100
SMALLEST_STEP_EXPONENT = -900  # below it, step times slope would be lost among the smallest numbers


class ComplexUnsafeError(Exception):
    """The forward cannot be differentiated by complex step; the text says why."""


def steps_of(array: Array) -> Array:
    """h for every entry: 2⁻¹⁰⁰, less in proportion for an entry below 1, so that h is small beside the entry as well."""
    exponents = np.minimum(np.frexp(sizes_of(array))[1], 0) + STEP_EXPONENT
    steps: Array = np.ldexp(1.0, np.maximum(exponents, SMALLEST_STEP_EXPONENT))
    return steps


def lost_in_steps(dys: Sequence[Array], array: Array | None = None) -> float:
    """How large a derivative with respect to an entry of `array`, or along a direction, may be and still be lost, because
    step times slope is too small a number."""
    step = 2.0**STEP_EXPONENT if array is None else float(steps_of(array).min(initial=1.0))
    return SMALLEST_NUMBER / step * float(np.abs(flattened(dys)).sum())


class ComplexPoint:
    """The arrays as complex ones, of which few entries at a time are moved: nothing of the size of all of them is copied.

    Steps that are stretched give the same derivatives with other roundings.
    """

    def __init__(
        self, run: Run, arrays: Sequence[Array], cotangents: Sequence[Sequence[Array]], stretch: float = 1.0
    ) -> None:
        self.run = run
        self.cotangents = [flattened(dys) for dys in cotangents]
        self.moved = [array.astype(np.complex128) for array in arrays]
        self.steps = [stretch * steps_of(array).reshape(-1) for array in arrays]

    def derivatives(self, i: int, entries: Array, weights: Array) -> list[float]:
        """The derivative of each Σ dy·y where the entries of array i move by their weights: one forward."""
        flat, step = self.moved[i].reshape(-1), self.steps[i][entries].min()
        kept = flat[entries]
        flat[entries] = kept + 1j * (step * weights)
        slopes = imaginary_parts(self.run, self.moved, len(self.cotangents[0])) / step
        flat[entries] = kept
        return [float(dy @ slopes) for dy in self.cotangents]


def derivatives_along(
    run: Run, arrays: Sequence[Array], directions: Sequence[Array], cotangents: Sequence[Sequence[Array]]
) -> list[float]:
    """The derivative of each Σ dy·y along `directions`; an output where dy is 0 does not count, even where it is NaN."""
    step = 2.0**STEP_EXPONENT
    moved = [array + 1j * step * v for array, v in zip(arrays, directions, strict=True)]
    weights = [flattened(dys) for dys in cotangents]
    slopes = imaginary_parts(run, moved, weights[0].size) / step
    return [float(each[each != 0] @ slopes[each != 0]) for each in weights]


def imaginary_parts(run: Run, arrays: Sequence[Array], size: int) -> Array:
    """The imaginary part of all floating outputs, `size` numbers in one vector."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", np.exceptions.ComplexWarning)
            outputs, _ = run(arrays)
    except Exception as error:
        raise ComplexUnsafeError(f"on complex arrays it raises {said(error)}") from error
    if not any(np.iscomplexobj(output) for output in outputs):
        raise ComplexUnsafeError("on complex arrays it returns a real one")
    flat = flattened([output.imag for output in outputs])  # an output that nothing moves may stay real
    if flat.size != size:
        raise ComplexUnsafeError("on complex arrays it returns outputs of other shapes")
    return flat
