"""The ordinary run, with which every unusual one is compared."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradcheck.decision import MARGIN, judge, largest
from gradcheck.subject import Array, Subject


@dataclass(frozen=True)
class Ordinary:
    """The ordinary run that every probe is compared with.

    given          the arrays as they came, in their own layout
    rtol           of the check
    repeat_rtol    how far runs with the same numbers may differ besides, relative to the largest entry
    rounding       f of each gradient, which bounds the difference between two runs of the same code on the same arrays
    output_bars    what another layout, in whose sums the terms come in another order, may change
    gradient_bars  the same of the gradients
    elsewhere      other arrays of the same shapes; None where the subject accepts no others
    """

    subject: Subject
    arrays: Sequence[Array]
    dys: Sequence[Array]
    outputs: Sequence[Array]
    gradients: Sequence[Array]
    given: Sequence[Array]
    rtol: float
    repeat_rtol: float
    rounding: Sequence[float]
    output_bars: Sequence[float]
    gradient_bars: Sequence[float]
    elsewhere: Sequence[Array] | None

    def differing_gradients(
        self, gradients: Sequence[Any], known: Sequence[Array] | None = None, bars: Sequence[float] | None = None
    ) -> list[str]:
        names = [f"the gradient of {name}" for name in self.subject.names]
        return self.differing(names, gradients, known or self.gradients, bars or self.gradient_bars)

    def differing_outputs(
        self, outputs: Sequence[Array], known: Sequence[Array] | None = None, bars: Sequence[float] | None = None
    ) -> list[str]:
        return self.differing(
            names_of_outputs(outputs),
            outputs,
            self.outputs if known is None else known,
            self.output_bars if bars is None else bars,
        )

    @property
    def repeat_bars(self) -> list[float]:
        return [MARGIN * each for each in self.rounding]

    def differing(
        self, names: Sequence[str], new: Sequence[Any], known: Sequence[Array], bars: Sequence[float]
    ) -> list[str]:
        """The names of the arrays that are not the known ones within their bars; infinities and NaN must be the same."""
        differ = []
        for name, given, old, bar in zip(names, new, known, bars, strict=True):
            array = np.asarray(given)
            if array.shape != old.shape or array.dtype != old.dtype:
                differ.append(name)
                continue
            numbers = np.isfinite(old)
            same = np.array_equal(array[~numbers], old[~numbers], equal_nan=True)
            if not same or judge(array[numbers], old[numbers], bar + self.repeat_rtol * largest(old)).n_wrong:
                differ.append(name)
        return differ


def names_of_outputs(outputs: Sequence[Array]) -> list[str]:
    return ["the output"] if len(outputs) == 1 else [f"output {i}" for i in range(len(outputs))]
