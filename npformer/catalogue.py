"""Every operation by name: its arrays by axis letters, its options, and the numbers that it is tried on.

Whoever tries all operations walks OPERATIONS: the property tests, `python -m npformer check`, the oracle. An entry says
what there is to choose; `draw` draws one case of it, through a `Chooser`, so that a test framework can do the choosing.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

import numpy as np

from npformer import functional
from npformer.operation import Array

T = TypeVar("T")


class Chooser(Protocol):
    """Chance, one choice at a time."""

    def one_of(self, choices: Sequence[T]) -> T: ...


class RandomChooser:
    """Chance from a numpy Generator."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def one_of(self, choices: Sequence[T]) -> T:
        return choices[int(self.rng.integers(len(choices)))]


@dataclass(frozen=True)
class Axes:
    """The sizes that the letters have in one case; "..." stands for any number of axes, and "1" for one of size 1."""

    sizes: Mapping[str, int]
    more: tuple[int, ...] = ()

    def __getitem__(self, letter: str) -> int:
        return self.sizes[letter]

    def shape(self, letters: str) -> tuple[int, ...]:
        shape: list[int] = []
        for letter in letters.split():
            shape += self.more if letter == "..." else [1 if letter == "1" else self.sizes[letter]]
        return tuple(shape)


Option = Callable[[Chooser, Axes, np.random.Generator], Any]


@dataclass(frozen=True)
class Operation:
    """One operation, and what there is to choose when it is tried.

    arrays    the floating arrays in the order of the signature, each with its axes by letter or with a choice of axes;
              the choice "" leaves the array out. An operation without any is a table, and has no gradient
    options   the other arguments: a choice, or a function that draws one; the choice None leaves it out
    sizes     the choice of a letter's size, where it is not SIZES; a letter in it stands for that letter's size
    products  a letter whose size is the product of other letters', or of a number
    empty     the letters that may be 0
    values    the choice of kinds of numbers (VALUES), for all arrays; `own_values` for one
    stopped   by array, where the gradient is 0 by contract though the forward depends on the entry
    units     by how many units in the last place of its largest entry a right result may be off
    """

    function: Callable[..., Any]
    arrays: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    options: Mapping[str, Sequence[Any] | Option] = field(default_factory=dict)
    sizes: Mapping[str, Sequence[int | str]] = field(default_factory=dict)
    products: Mapping[str, Sequence[str | int]] = field(default_factory=dict)
    empty: Sequence[str] = ()
    values: Sequence[str] = ("normal", "small", "wide", "tied")
    own_values: Mapping[str, Sequence[str]] = field(default_factory=dict)
    stopped: Callable[["Case"], dict[str, Array]] = lambda case: {}
    units: Callable[["Case"], float] = lambda case: 64.0

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def differentiable(self) -> bool:
        return bool(self.arrays)

    def draw(self, choose: Chooser, rng: np.random.Generator) -> "Case":
        """One case in float64: sizes, options and kinds of numbers from `choose`, the numbers from `rng`."""
        layout = {name: text if isinstance(text, str) else choose.one_of(text) for name, text in self.arrays.items()}
        layout = {name: text for name, text in layout.items() if text}
        axes = self.draw_axes(choose, " ".join(layout.values()))
        kind = choose.one_of(self.values)
        arrays = {
            name: VALUES[choose.one_of(self.own_values[name]) if name in self.own_values else kind](rng, axes.shape(text))
            for name, text in layout.items()
        }
        options = {}
        for name, option in self.options.items():
            value = option(choose, axes, rng) if callable(option) else choose.one_of(option)
            if value is not None:
                options[name] = value
        return Case(self, arrays, options)

    def draw_axes(self, choose: Chooser, letters: str) -> Axes:
        """Sizes that differ from one another as far as the choice goes, so that no swapped axis hides."""
        more = choose.one_of(MORE_AXES) if "..." in letters.split() else ()
        factors = [factor for product in self.products.values() for factor in product if isinstance(factor, str)]
        sizes: dict[str, int] = {}
        for letter in dict.fromkeys([*letters.split(), *factors, *self.sizes]):
            if letter not in ("...", "1", *self.products):
                choice = self.sizes.get(letter, SIZES)
                size = choose.one_of([n for n in choice if n not in sizes.values()] or choice)
                sizes[letter] = sizes[size] if isinstance(size, str) else size
        emptied = choose.one_of([None] * OTHERWISE_EMPTY + list(self.empty))
        if emptied == "...":
            more = (*more[:-1], 0)
        elif emptied is not None:
            sizes[emptied] = 0
        for letter, product in self.products.items():
            sizes[letter] = int(np.prod([factor if isinstance(factor, int) else sizes[factor] for factor in product]))
        return Axes(sizes, more)


@dataclass(frozen=True)
class Case:
    """An operation with everything that it is called with."""

    operation: Operation
    arrays: Mapping[str, Array]
    options: Mapping[str, Any]

    def run(self) -> Any:
        """What the operation returns. A Generator among the options is copied first, so that every run is the same."""
        return self.operation.function(**self.arrays, **copy.deepcopy(dict(self.options)))

    def with_arrays(self, arrays: Mapping[str, Array]) -> "Case":
        return replace(self, arrays=arrays)

    def __str__(self) -> str:
        arguments = [f"{name} {array.shape}" for name, array in self.arrays.items()]
        for name, value in self.options.items():
            text = f"{value.dtype} {value.shape}" if isinstance(value, np.ndarray) else repr(value)
            arguments.append(f"{name}={text}")
        return f"{self.operation.name}({', '.join(arguments)})"


SIZES: tuple[int | str, ...] = (3, 5, 2, 7, 1)
MORE_AXES = ((), (3,), (5,), (1,), (2, 3), (3, 2))
OTHERWISE_EMPTY = 12  # for each case with an empty axis of one letter, so many without

VALUES: dict[str, Callable[[np.random.Generator, tuple[int, ...]], Array]] = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "small": lambda rng, shape: 1e-2 * rng.standard_normal(shape),
    "wide": lambda rng, shape: 4 * rng.standard_normal(shape),
    "left tail": lambda rng, shape: rng.standard_normal(shape) - 8,
    "offset": lambda rng, shape: 1e3 + rng.standard_normal(shape),
    "far": lambda rng, shape: np.where(rng.random(shape) < 0.2, 1e3, 0.0) + rng.standard_normal(shape),
    "tied": lambda rng, shape: np.round(rng.standard_normal(shape)),
    "with −inf": lambda rng, shape: np.where(rng.random(shape) < 0.3, -np.inf, rng.standard_normal(shape)),
}


def draw_ids(letters: str, limit: str, ignored: int | None = None) -> Option:
    """Integers of some integer dtype in 0 … limit − 1, with repeats, and about a third of `ignored`."""

    def draw(choose: Chooser, axes: Axes, rng: np.random.Generator) -> Array:
        ids = rng.integers(axes[limit], size=axes.shape(letters)).astype(choose.one_of((np.int64, np.int32)))
        return ids if ignored is None else np.where(rng.random(ids.shape) < 0.3, np.asarray(ignored, ids.dtype), ids)

    return draw


def draw_axis(choose: Chooser, axes: Axes, rng: np.random.Generator) -> int | None:
    n = len(axes.shape("... D"))
    choice: list[int | None] = [None, *range(-n, n)]
    return choose.one_of(choice)


def draw_positions(choose: Chooser, axes: Axes, rng: np.random.Generator) -> Array:
    """One row of positions for all, or rows of their own."""
    shape = choose.one_of((axes.shape("T"), axes.shape("... T")))
    return rng.integers(-3, choose.one_of((8, 2000)), size=shape)


def largest_position(case: "Case") -> float:
    """An angle of so many radians is rounded to as many units."""
    return float(np.abs(case.options["positions"]).max(initial=0))


def draw_generator(choose: Chooser, axes: Axes, rng: np.random.Generator) -> np.random.Generator:
    return np.random.default_rng(int(rng.integers(2**32)))


NONE = ("",) * 6  # so that attention without any mask or bias is not rare


def draw_keep(choose: Chooser, axes: Axes, rng: np.random.Generator) -> Array | None:
    letters = choose.one_of((*NONE, "T S", "B H T S", "1 1 T S", "B 1 1 S", "B 1 T S", "1 H T 1"))
    return rng.random(axes.shape(letters)) < choose.one_of((0.7, 0.3)) if letters else None


def draw_causal(choose: Chooser, axes: Axes, rng: np.random.Generator) -> bool | int | None:
    choice: list[bool | int | None] = [None, None, None, False, 0, axes["S"] - axes["T"], -1, 1]
    return choose.one_of([*choice, True, True, True] if axes["T"] == axes["S"] else choice)


def padding_row(case: "Case") -> dict[str, Array]:
    rows = np.zeros(case.arrays["table"].shape, bool)
    if "padding_id" in case.options:
        rows[case.options["padding_id"]] = True
    return {"table": rows}


def count(letter: str) -> Option:
    return lambda choose, axes, rng: axes[letter]


ATTENTION_OPTIONS: dict[str, Sequence[Any] | Option] = {
    "keep": draw_keep,
    "causal": draw_causal,
    "window": (None, None, None, None, None, 1, 2, (0, 1), (1, 0), (2, 1)),
    "scale": (None, None, 0.3, -1.0),
    "softcap": (None, None, 2.0, 0.5),
    "dropout": (None, 0.0, 0.3),
    "rng": draw_generator,
}
ATTENTION_SIZES = {
    "B": (2, 1),
    "G": (1, 2, 3),
    "R": (2, 1, 3),
    "T": (3, 5, 2, 1),
    "S": ("T", "T", 5, 3, 4, 1),
    "K": (3, 2, 1),
}
ATTENTION_BIAS = (*NONE, "T S", "B H T S", "1 H T S", "B 1 1 S", "1 1 T 1", "B H T 1")
ROWS = {"x": "... D"}

OPERATIONS: dict[str, Operation] = {
    operation.name: operation
    for operation in (
        Operation(
            functional.linear,
            arrays={"x": "... D_in", "weight": "D_in D_out", "bias": ("", "D_out")},
            empty=("...",),
        ),
        Operation(
            functional.relu,
            arrays=ROWS,
            empty=("...", "D"),
            values=("normal", "small", "tied", "offset"),
            stopped=lambda case: {"x": case.arrays["x"] == 0},
        ),
        *(
            Operation(function, arrays=ROWS, empty=("...", "D"), values=("normal", "small", "wide", "left tail", "offset"))
            for function in (functional.gelu, functional.gelu_tanh)
        ),
        *(
            Operation(function, arrays=ROWS, empty=("...", "D"))
            for function in (functional.silu, functional.sigmoid, functional.tanh)
        ),
        *(
            Operation(
                function,
                arrays=ROWS,
                options={"axis": draw_axis},
                empty=("...", "D"),
                values=("normal", "small", "wide", "tied", "offset", "far", "with −inf"),
            )
            for function in (functional.softmax, functional.log_softmax)
        ),
        Operation(
            functional.layer_norm,
            arrays={"x": "... D", "gamma": "D", "beta": "D"},
            options={"eps": (None, 1e-3, 1.0)},
            sizes={"D": (3, 5, 7)},
            empty=("...",),
            own_values={"x": ("normal", "wide", "tied", "offset"), "gamma": ("normal",), "beta": ("normal",)},
        ),
        Operation(
            functional.rms_norm,
            arrays={"x": "... D", "gamma": "D"},
            options={"eps": (None, 1e-3, 1.0)},
            sizes={"D": (3, 5, 7)},
            empty=("...",),
            own_values={"x": ("normal", "wide", "tied", "offset"), "gamma": ("normal",)},
        ),
        Operation(
            functional.embedding,
            arrays={"table": "V D"},
            options={"ids": draw_ids("B T", "V"), "padding_id": (None, 0)},
            stopped=padding_row,
            sizes={"B": (2, 1), "T": (3, 5, 1)},
            empty=("B", "T"),
        ),
        Operation(
            functional.dropout,
            arrays=ROWS,
            options={"p": (0.3, 0.0, 0.9), "rng": draw_generator},
            empty=("...", "D"),
        ),
        Operation(
            functional.split_heads,
            arrays={"x": "B T D"},
            options={"n_heads": count("H")},
            products={"D": ("H", "K")},
            empty=("B", "T", "K"),
        ),
        Operation(
            functional.merge_heads,
            arrays={"x": "B H T K"},
            sizes={"B": (2, 1, 3)},
            empty=("B", "T"),
        ),
        Operation(
            functional.attention,
            arrays={"query": "B H T K", "key": "B G S K", "value": "B G S V", "bias": ATTENTION_BIAS},
            options=ATTENTION_OPTIONS,
            sizes={**ATTENTION_SIZES, "V": (2, 3, 1)},
            products={"H": ("G", "R")},
            empty=("B", "T", "S", "V"),
            values=("normal", "normal", "small", "tied"),
            own_values={"bias": ("normal", "with −inf")},
        ),
        Operation(
            functional.attention_weights,
            arrays={"query": "B H T K", "key": "B G S K", "bias": ATTENTION_BIAS},
            options=ATTENTION_OPTIONS,
            sizes=ATTENTION_SIZES,
            products={"H": ("G", "R")},
            empty=("B", "T", "S"),
            values=("normal", "normal", "small", "tied"),
            own_values={"bias": ("normal", "with −inf")},
        ),
        Operation(
            functional.rotary,
            arrays={"x": "... T K"},
            options={"positions": draw_positions, "base": (None, 100.0), "layout": (None, "half", "interleaved")},
            units=lambda case: 64.0 + 4.0 * largest_position(case),
            sizes={"pairs": (1, 2, 3)},
            products={"K": ("pairs", 2)},
            empty=("...", "T"),
        ),
        Operation(
            functional.cross_entropy,
            arrays={"logits": "... V"},
            options={
                "targets": draw_ids("...", "V", ignored=-1),
                "ignore_id": (-1,),
                "label_smoothing": (None, 0.1, 0.9),
            },
            empty=("...",),
            values=("normal", "small", "wide", "tied", "offset", "far"),
        ),
        Operation(
            functional.sinusoidal_positions, options={"length": (7, 1, 0), "d_model": (6, 5, 1), "base": (None, 100.0)}
        ),
        Operation(functional.alibi_slopes, options={"n_heads": (8, 1, 3, 12)}),
        Operation(functional.alibi_bias, options={"n_heads": (3, 2), "T": (2, 0, 3), "S": (5, 1), "offset": (None, 3, -2)}),
    )
}
