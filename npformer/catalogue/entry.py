"""An entry of the catalogue: what there is to choose when an operation or a layer is tried, and how a case is drawn.

`draw` draws one case through a `Chooser`, so that a test framework can do the choosing.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

import numpy as np

from npformer.layers import Layer
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
    "with −inf": lambda rng, shape: np.where(
        (rng.random(shape) < 0.3) | (rng.random((*shape[:-1], 1)) < 0.2),  # entries, and whole rows
        -np.inf,
        rng.standard_normal(shape),
    ),
}


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
    """One operation or layer, and what there is to choose when it is tried.

    function  the operation, or the class of the layer
    arrays    the floating arrays in the order of the signature, each with its axes by letter or with a choice of axes;
              the choice "" leaves the array out. An operation without any is a table, and has no gradient
    options   the other arguments: a choice, or a function that draws one; the choice None leaves it out
    sizes     the choice of a letter's size, where it is not SIZES; a letter in it stands for that letter's size
    products  a letter whose size is the product of other letters', or of a number
    empty     the letters that may be 0
    values    the choice of kinds of numbers (VALUES), for all arrays; `own_values` for one
    stopped   by array, where the gradient is 0 by contract though the forward depends on the entry
    units     by how many units in the last place of its largest entry a right result may be off
    build     for a layer: makes one in float64 of the class `function`, for the sizes drawn
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
    build: Callable[[Callable[..., Layer], Chooser, Axes, np.random.Generator], Layer] | None = None

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def differentiable(self) -> bool:
        return bool(self.arrays) or self.build is not None

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
        if self.build is None:
            return Case(self, arrays, options)
        layer = self.build(self.function, choose, axes, rng)
        for parameter_name, parameter in layer.parameters().items():
            z = rng.standard_normal(parameter.value.shape)
            if z.ndim == 2:
                arrays[parameter_name] = z / np.sqrt(len(z))  # so that no softmax saturates
            else:
                arrays[parameter_name] = parameter.value + 0.3 * z  # or gains near 0 make all tokens alike
        return Case(replace(self, function=as_operation(layer)), arrays, options, layer)

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
    """An operation with everything that it is called with; the arrays of a layer are its inputs and its parameters."""

    operation: Operation
    arrays: Mapping[str, Array]
    options: Mapping[str, Any]
    layer: Layer | None = None

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


def as_operation(layer: Layer) -> Callable[..., tuple[Any, Callable[..., Any]]]:
    """`layer` as a function of its inputs and parameters, by name, whose backward returns the gradients of all of them."""

    def operation(**arguments: Any) -> tuple[Any, Callable[..., Any]]:
        parameters = layer.parameters()
        for name, parameter in parameters.items():
            parameter.value = arguments.pop(name)
        y, backward = layer.forward(**arguments)

        def backward_of_all(*cotangents: Array) -> tuple[Array, ...]:
            for parameter in parameters.values():
                parameter.grad = np.zeros_like(parameter.value)
            gradients = backward(*cotangents)
            if not isinstance(gradients, tuple):
                gradients = () if gradients is None else (gradients,)
            return *gradients, *(parameter.grad for parameter in parameters.values())

        return y, backward_of_all

    operation.__name__ = type(layer).__name__
    return operation
