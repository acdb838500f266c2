"""What an exercise is tried on: a plain case, the same with one thing changed at a time, and mixtures.

Everything is drawn from the catalogue, whose choices begin with the plainest.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from npformer.catalogue import OPERATIONS, VALUES, Case, RandomChooser

T = TypeVar("T")

N_MIXED = 10
NUMBERS = {
    "normal": "on ordinary numbers",
    "small": "where the numbers are small",
    "wide": "where the numbers are large",
    "left tail": "where the numbers are far below 0",
    "offset": "where the numbers lie around 1000",
    "far": "where some numbers lie around 1000",
    "tied": "where some numbers are equal or 0",
    "with −inf": "where some numbers are −inf",
}


@dataclass(frozen=True)
class Trial:
    case: Case
    words: str  # what is special about it

    def __str__(self) -> str:
        return f"{self.words}, {described(self.case)}"


class OneChange:
    """The first of every choice, but for one, at `place`; of shapes that may have no axis the second, which shows rows."""

    def __init__(self, place: int = -1, which: int = 0) -> None:
        self.place, self.which = place, which
        self.lengths: list[int] = []
        self.picked: Any = None

    def one_of(self, choices: Sequence[T]) -> T:
        self.lengths.append(len(choices))
        if choices[0] == ():
            choices = [choices[1], choices[0], *choices[2:]]
        if len(self.lengths) - 1 != self.place:
            return choices[0]
        self.picked = choices[self.which]
        return choices[self.which]


def trials(name: str) -> list[Trial]:
    """The cases of an operation, the easy ones first, always the same."""
    plain_choice = OneChange()
    plain = drawn(name, plain_choice)
    found = [Trial(plain, "in the plainest case")]
    known = {contents(plain)}
    for place, n_choices in enumerate(plain_choice.lengths):
        for which in range(1, n_choices):
            choice = OneChange(place, which)
            case = drawn(name, choice)
            if contents(case) not in known:
                known.add(contents(case))
                found.append(Trial(case, difference(plain, case, choice.picked)))
    found.sort(key=lambda trial: (is_empty(trial.case), trial.words.startswith("with ")))
    single = plain.with_arrays({name: array.astype(np.float32) for name, array in plain.arrays.items()})
    return [*found, Trial(single, "in float32"), *mixed(name)]


def drawn(name: str, choice: OneChange) -> Case:
    return OPERATIONS[name].draw(choice, np.random.default_rng(0))


def mixed(name: str) -> Iterator[Trial]:
    for seed in range(N_MIXED):
        rng = np.random.default_rng(seed)
        yield Trial(OPERATIONS[name].draw(RandomChooser(rng), rng), "with everything mixed")


def contents(case: Case) -> tuple[Any, ...]:
    """Equal for equal cases."""
    given = [*case.arrays.items(), *case.options.items()]
    return tuple(
        (name, value.dtype, value.shape, value.tobytes()) if isinstance(value, np.ndarray) else (name, str(value))
        for name, value in given
        if not isinstance(value, np.random.Generator)
    )


def difference(plain: Case, case: Case, picked: Any) -> str:
    if isinstance(picked, str) and picked in VALUES:
        return NUMBERS.get(picked, f"where the numbers are {picked}")
    added = [f"a {name}" for name in case.arrays if name not in plain.arrays]
    for name, value in case.options.items():
        if name not in plain.options:
            added.append(name if isinstance(value, np.ndarray) else f"{name}={value!r}")
        elif isinstance(value, bool | int | float | str | tuple) and value != plain.options[name]:
            added.append(f"{name}={value!r}")
    if added:
        return f"with {', '.join(added)}"
    return "on an empty array" if is_empty(case) else "on other arrays"


def is_empty(case: Case) -> bool:
    return any(array.size == 0 for array in case.arrays.values())


def described(case: Case) -> str:
    """The arguments of a case, as one reads them."""
    words = [f"{name} {array.shape}" for name, array in case.arrays.items()]
    for name, value in case.options.items():
        if isinstance(value, np.ndarray):
            words.append(f"{name} {value.dtype} {value.shape}")
        elif not isinstance(value, np.random.Generator):
            words.append(f"{name}={value!r}")
    return ", ".join(words)
