"""The truth: derivatives of a forward by complex step, which needs no backward and cancels nothing.

    Im f(x + ih) / h = f′(x) − h²·f‴(x)/6 + …                                           with h = 1e-30

An ordinary difference f(x + h) − f(x) subtracts two nearly equal numbers. Here the derivative arrives alone in the
imaginary part, so h may be so small that the error term is far below the last digit.

Sources: Squire and Trapp 1998; Martins, Sturdza and Alonso 2003.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from gradcheck.subject import Array, Outputs

Run: TypeAlias = Callable[[Sequence[Array]], tuple[Outputs, Any]]

STEP = 1e-30


class ComplexUnsafeError(Exception):
    """The forward cannot be differentiated by complex step; the text says why."""


def gradients_by_complex_step(
    run: Run, arrays: Sequence[Array], cotangents: Sequence[Sequence[Array]], skip: Sequence[Array]
) -> list[list[Array]]:
    """For each set of cotangents, the gradient of Σ dy·y with respect to each array, entry by entry.

    Entries where `skip` is True are not moved and get 0. One forward an entry, whatever the number of cotangents.
    """
    weights = np.stack([np.concatenate([dy.ravel() for dy in dys]) for dys in cotangents])
    moved = [array.astype(np.complex128) for array in arrays]
    truths = [[np.zeros(array.shape) for array in arrays] for _ in cotangents]
    for i, array in enumerate(moved):
        flat = array.reshape(-1)
        for entry in np.flatnonzero(~skip[i].reshape(-1)):
            kept = flat[entry]
            flat[entry] = kept + 1j * STEP
            slopes = weights @ imaginary_parts(run, moved)
            flat[entry] = kept
            for truth, slope in zip(truths, slopes, strict=True):
                truth[i].reshape(-1)[entry] = slope
    return truths


def imaginary_parts(run: Run, arrays: Sequence[Array]) -> Array:
    """Im f / h of all floating outputs in one vector."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("error", np.exceptions.ComplexWarning)
            outputs, _ = run(arrays)
    except Exception as error:
        raise ComplexUnsafeError(f"on complex arrays it raises {type(error).__name__}: {error}") from error
    if not all(np.iscomplexobj(output) for output in outputs):
        raise ComplexUnsafeError("on complex arrays it returns a real one")
    flat: Array = np.concatenate([output.imag.ravel() for output in outputs]) / STEP
    return flat


def refuse_complex_unsafe(run: Run, arrays: Sequence[Array], directions: Sequence[Array], dys: Sequence[Array]) -> None:
    """Raise ComplexUnsafeError where the complex step contradicts ordinary differences along `directions`.

    The derivative must lie between the slopes on both sides, which differ at a kink, widened by what halving the step
    changes and by rounding.
    """
    weights = np.concatenate([dy.ravel() for dy in dys])

    def outputs_at(step: float) -> Array:
        with np.errstate(all="ignore"):
            outputs, _ = run([array + step * v for array, v in zip(arrays, directions, strict=True)])
        flat: Array = np.concatenate([output.ravel() for output in outputs])
        return flat

    here = outputs_at(0)
    numbers = np.isfinite(here)
    weights = weights[numbers]

    def slope(step: float) -> float:
        return float(weights @ (outputs_at(step) - here)[numbers]) / step

    with np.errstate(invalid="ignore"):
        moved = [array + 1j * STEP * v for array, v in zip(arrays, directions, strict=True)]
    derivative = float(weights @ imaginary_parts(run, moved)[numbers])
    step = 2.0**-17
    slopes, doubts = [], []
    with np.errstate(invalid="ignore"):
        for side in (step, -step):
            coarse, fine = slope(side), slope(side / 2)
            slopes.append(2 * fine - coarse)
            doubts.append(2 * abs(fine - coarse))
    doubt = max(doubts) + 2.0**-48 / step * float(np.abs(weights) @ np.abs(here[numbers]))
    low, high = min(slopes) - doubt, max(slopes) + doubt
    if derivative < low or derivative > high:
        raise ComplexUnsafeError(
            f"along a random direction the complex step gives {derivative:.6g}, differences {low:.6g} … {high:.6g}; "
            "abs, conj, np.var, math.*, a maximum with 0 or a cast to float drops the imaginary part"
        )
