"""Hypothesis strategies for the tests of an operation: shapes, arrays, cotangents and masks in which the usual faults show.

Hypothesis draws sizes, kinds and a seed, and the numbers come from a Generator with that seed. So what shrinks is what one
reads in a failing example, which names the call of `array` or `mask` that makes it again.

>>> import numpy as np
>>> from hypothesis import given, strategies as st
>>> from gradcheck import check
>>> from gradcheck.strategies import arrays, shapes
>>> def scale(x, gamma):
...     return x * gamma, lambda dy: (dy * gamma, (dy * x).sum(axis=tuple(range(x.ndim - 1))))
>>> @given(shapes("... D", empty="..."), st.data())
... def test_scale(axes, data):
...     x, gamma = (data.draw(arrays(axes.shape(letters), values="normal")) for letters in ("... D", "D"))
...     check(scale, x, gamma).assert_ok()
>>> test_scale()
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from gradcheck.arrays import dense
from gradcheck.layouts import LAYOUTS
from gradcheck.subject import Array, floating_outputs

try:
    from hypothesis import strategies as st
except ModuleNotFoundError as error:
    raise ImportError("gradcheck.strategies needs Hypothesis: pip install 'npformer[test]'") from error

__all__ = ["Axes", "array", "arrays", "cotangents", "mask", "masks", "shapes"]

Shape = tuple[int, ...]

SIZES = (3, 5, 7, 11, 13, 2, 1)
OTHERWISE_EMPTY = 8  # for each axis that may be 0, so many cases in which none is
SCALES = (1.0, -3.0, 1e3)
SEEDS = st.integers(0, 2**32 - 1)

VALUES: dict[str, Callable[[np.random.Generator, Shape], Array]] = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "small": lambda rng, shape: 1e-2 * rng.standard_normal(shape),
    "wide": lambda rng, shape: 4 * rng.standard_normal(shape),
    "tied": lambda rng, shape: np.round(rng.standard_normal(shape)),
    "offset": lambda rng, shape: 1e3 + rng.standard_normal(shape),
    "saturated": lambda rng, shape: 700 * rng.choice([-1.0, 1.0], shape) + rng.standard_normal(shape),
}


def read_only(array: Array) -> Array:
    array.flags.writeable = False
    return array


def zero_stride(array: Array) -> Array:
    return np.broadcast_to(array[:1], array.shape) if array.ndim else array


MEMORY: dict[str, Callable[[Array], Array]] = {
    "row-major": np.copy,
    "read-only": read_only,
    **LAYOUTS,
    "zero-stride": zero_stride,
}


def random_keep(rng: np.random.Generator, shape: Shape) -> Array:
    return rng.random(shape) < 0.7


def causal(rng: np.random.Generator, shape: Shape) -> Array:
    T, S = shape[-2:]
    return np.tri(T, S, rng.choice([0, S - T]), dtype=bool)  # aligned at the top left or at the bottom right


def band(rng: np.random.Generator, shape: Shape) -> Array:
    T, S = shape[-2:]
    left, right = rng.integers(3, size=2)
    ahead = np.arange(S) - np.arange(T)[:, None]  # (T,S)
    inside: Array = (-left <= ahead) & (ahead <= right)
    return inside


def one_row_hidden(rng: np.random.Generator, shape: Shape) -> Array:
    keep = random_keep(rng, shape)
    rows = keep.reshape(math.prod(shape[:-1]), shape[-1])
    if rows.size:
        rows[:, rng.integers(shape[-1])] = True
        rows[rng.integers(len(rows))] = False
    return keep


MASKS: dict[str, Callable[[np.random.Generator, Shape], Array]] = {
    "all True": lambda rng, shape: np.ones(shape, bool),
    "causal": causal,
    "band": band,
    "random": random_keep,
    "one row all False": one_row_hidden,
    "all False": lambda rng, shape: np.zeros(shape, bool),
}


@dataclass(frozen=True)
class Axes:
    """The size of every letter, `axes["T"]`; `more` are the sizes that "..." stands for."""

    sizes: Mapping[str, int]
    more: Shape = ()

    def __getitem__(self, letter: str) -> int:
        return self.sizes[letter]

    def shape(self, letters: str) -> Shape:
        """The shape of an array with these axes; a number among the letters stands for itself."""
        shape: list[int] = []
        for letter in letters.split():
            if not (letter == "..." or letter.isdigit() or letter in self.sizes):
                raise ValueError(f"there is no axis {letter!r}; there are {', '.join(self.sizes)}")
            shape += self.more if letter == "..." else [int(letter) if letter.isdigit() else self.sizes[letter]]
        return tuple(shape)


def shapes(letters: str, empty: str = "", **choices: int | Sequence[int]) -> st.SearchStrategy[Axes]:
    """Sizes for axis letters, `shapes("B T D")`, all different, odd and prime by preference, so that no swapped axis hides.

    letters  separated by spaces; "..." stands for up to two more axes
    empty    the letters among them of which one may be 0
    choices  the size, or the sizes to choose from, of a letter: shapes("B T D", D=(4, 8))
    """
    names = [letter for letter in dict.fromkeys(letters.split()) if not letter.isdigit()]
    for name in (*choices, *empty.split()):
        if name not in names:
            raise ValueError(f"shapes: {name} is none of the letters {letters!r}")
    sizes = {name: [size] if isinstance(size, int) else list(size) for name, size in choices.items()}
    for name, choice in sizes.items():
        if not choice or min(choice) < 0:
            raise ValueError(f"shapes: {name} must be a size or several, got {choices[name]!r}")
    return drawn_axes(names, empty.split(), sizes)


@st.composite
def drawn_axes(draw: st.DrawFn, names: list[str], empty: list[str], choices: Mapping[str, list[int]]) -> Axes:
    more = [f"axis {i}" for i in range(draw(st.integers(0, 2)))] if "..." in names else []
    letters = [name for name in names if name != "..."]
    sizes: dict[str, int] = {}
    for name in sorted([*letters, *more], key=lambda name: name not in choices):  # those with a choice come first
        choice = choices.get(name, SIZES)
        sizes[name] = draw(st.sampled_from([size for size in choice if size not in sizes.values()] or choice))
    emptied = draw(st.sampled_from([None] * OTHERWISE_EMPTY * len(empty) + empty)) if empty else None
    for name in more[:1] if emptied == "..." else [emptied] if emptied else []:
        sizes[name] = 0
    return Axes({name: sizes[name] for name in letters}, tuple(sizes[name] for name in more))


def arrays(
    shape: str | Sequence[int],
    dtype: DTypeLike = np.float64,
    values: str | Sequence[str] = "normal",
    layout: str | Sequence[str] = "any",
) -> st.SearchStrategy[Array]:
    """Floating arrays.

    shape   sizes, or letters as in `shapes`, whose sizes are then drawn: arrays("B T D")
    values  "normal", "small" (1e-2), "wide" (4), "tied" (whole numbers), "offset" (1e3), "saturated" (±700), several of
            these, or "any"; where a function loses its digits, a check may end as "inconclusive"
    layout  "row-major", "read-only", "column-major", "strided" (every other number of longer rows), "reversed",
            "zero-stride", several of these, or "any"

    For a seed the numbers are the same in each layout but the zero-stride one, which repeats their first slice.
    """
    own = np.dtype(dtype)
    if own.kind != "f":
        raise TypeError(f"arrays: dtype must be floating, got {own}")
    sizes = shapes(shape).map(lambda axes: axes.shape(shape)) if isinstance(shape, str) else st.just(tuple(shape))
    kinds, layouts = one_of("arrays: values", values, VALUES), one_of("arrays: layout", layout, MEMORY)
    return st.builds(array, sizes, st.just(own.name if own.isnative else own.str), kinds, layouts, SEEDS)


def array(shape: Shape, dtype: DTypeLike, values: str, layout: str, seed: int) -> Array:
    """One array of `arrays`."""
    return MEMORY[layout](np.asarray(VALUES[values](np.random.default_rng(seed), shape), dtype))


def cotangents(y: Any) -> st.SearchStrategy[Any]:
    """What backward takes after the output y, dense, of both signs, at the scales 1, −3 and 1e3: an array like y, or for a
    tuple of outputs a tuple with one for each floating array."""
    outputs = floating_outputs(y)

    def cotangent(scale: float, seed: int) -> Any:
        dys = dense(outputs, scale, np.random.default_rng(seed))
        return tuple(dys) if isinstance(y, tuple | list) else dys[0]

    return st.builds(cotangent, st.sampled_from(SCALES), SEEDS)


def masks(shape: Sequence[int], kind: str | Sequence[str] = "any") -> st.SearchStrategy[Array]:
    """Boolean arrays (..., T, S), True where query t may attend to key s.

    kind  "all True", "causal" (up to t, or to t + S − T), "band" (up to two keys to each side), "random", "one row all
          False", "all False", several of these, or "any"
    """
    if len(shape) < 2:
        raise ValueError(f"masks: shape must end with queries and keys, got {tuple(shape)}")
    return st.builds(mask, st.just(tuple(shape)), one_of("masks: kind", kind, MASKS), SEEDS)


def mask(shape: Shape, kind: str, seed: int) -> Array:
    """One array of `masks`."""
    return np.array(np.broadcast_to(MASKS[kind](np.random.default_rng(seed), shape), shape))


def one_of(argument: str, given: str | Sequence[str], known: Iterable[str]) -> st.SearchStrategy[str]:
    names = list(known) if given == "any" else [given] if isinstance(given, str) else list(given)
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise ValueError(f'{argument} must be "any" or among {", ".join(known)}, got {given!r}')
    return st.sampled_from(names)
