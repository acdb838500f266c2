"""Every gradient twice: as the backward computes it, and as gradcheck finds it from the forward alone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

import gradcheck
from demos.by_hand.tables import beside, numbers, prose, table
from npformer.operation import Array

BAR = 1e-12  # for gradients of about the size of 1, as all are here


@dataclass(frozen=True)
class Pair:
    """A gradient of two axes, by the backward, and by gradcheck."""

    name: str
    computed: Array
    found: Array

    @property
    def wrong(self) -> Array:
        close = np.abs(self.computed - self.found) <= BAR * max(1.0, np.abs(self.found).max(initial=0))
        return ~close  # NaN is wrong

    @property
    def right(self) -> bool:
        return not self.wrong.any()

    @property
    def difference(self) -> float:
        return float(np.abs(self.computed - self.found).max(initial=0))

    def __str__(self) -> str:
        return self.shown()

    def shown(self, columns: Sequence[str] = (), rows: Sequence[str] = ()) -> str:
        """Both side by side; what disagrees is marked."""
        cells = numbers(np.concatenate([self.computed, self.found]))
        n = len(self.computed)
        computed = [
            [f"{cell}{'!' if wrong else ' '}" for cell, wrong in zip(*row, strict=True)]
            for row in zip(cells[:n], self.wrong, strict=True)
        ]
        columns = [f"{name} " for name in columns]
        found = [[f"{cell} " for cell in row] for row in cells[n:]]
        return beside(
            table(f"{self.name} by the backward", computed, columns, rows),
            table(f"{self.name} by gradcheck", found, columns),
            between="  |  ",
        )


def found_by_gradcheck(f: Callable[[Array], Array], x: Array) -> Array:
    """The gradient at x of f, which returns one number: one derivative for every entry of x, and no formula."""
    gradient = np.zeros(x.shape)
    for index in np.ndindex(x.shape):
        direction = np.zeros(x.shape)
        direction[index] = 1
        gradient[index] = gradcheck.derivative(f, x, direction, truth="complex").value
    return gradient


def verdict(pairs: Sequence[Pair]) -> str:
    n = sum(pair.computed.size for pair in pairs)
    n_wrong = sum(int(pair.wrong.sum()) for pair in pairs)
    largest = max((pair.difference for pair in pairs), default=0.0)
    if n_wrong:
        names = ", ".join(pair.name for pair in pairs if not pair.right)
        return prose(f"{n_wrong} of {n} numbers disagree, marked with ! ({names}); the largest difference is {largest:.2g}.")
    return prose(f"Every number agrees, {n} of {n}; the largest difference is {largest:.2g}.")
