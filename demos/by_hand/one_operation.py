"""Any operation of the catalogue on a small case: derivation, lines, numbers, and every gradient twice."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

import gradcheck
from demos.by_hand.pairs import Pair, found_by_gradcheck, verdict
from demos.by_hand.quoting import module_of, parts_of, place_of
from demos.by_hand.tables import WIDTH, beside, numbers, prose, table, width
from npformer.catalogue import OPERATIONS, Case, Operation, RandomChooser
from npformer.operation import Array

N_DRAWN, BEST_ROW = 300, 3
MOST_ENTRIES, MOST_TABLES, MOST_OPTIONS = 30, 2, 3


def walk(name: str) -> tuple[list[str], bool]:
    """The steps as text, and whether the gradients are right. ValueError for a name that the catalogue lacks."""
    if name not in OPERATIONS:
        raise ValueError(f"there is no operation {name!r}; there are {', '.join(OPERATIONS)}")
    operation = OPERATIONS[name]
    module = module_of(operation.function)
    heading = f"{name.upper()}, BY HAND ({place_of(module)})\n\n{derivation(module.__doc__ or '')}"
    if not operation.differentiable:
        return [f"{heading}\n\n{name} makes a constant table: no array goes in, so there is no gradient to walk."], True
    case = small_case(operation)
    dys = cotangents(case)
    pairs = pairs_of(case, dys)
    report = gradcheck.check(operation.function, **case.arrays, **case.options)
    return [
        heading,
        *(f"{title}\n\n{lines}" for title, lines in parts_of(operation.function)),
        "A SMALL CASE\n\n" + "\n\n".join([*inputs_shown(case), *(shown("y", y) for y in outputs_of(case))]),
        "\n\n".join(
            [
                "THE GRADIENTS\n\n"
                + prose(
                    "dy, made up here, is how much the loss L grows for each entry of y; dx in the same way for x. The "
                    "backward turns dy into the gradients on the left. gradcheck knows no formula: it moves one entry of an "
                    "input by about 1e-30·i, an imaginary number, runs the forward alone and reads the derivative of L, the "
                    "sum of dy·y, off the imaginary part."
                ),
                *(shown("dy", dy) for dy in dys),
                *map(str, pairs),
                verdict(pairs),
                "gradcheck.check on this case, with cotangents dy of several sizes:\n"
                + "\n".join(prose(line, "    ") for line in str(report).splitlines()),
            ]
        ),
    ], report.ok and all(pair.right for pair in pairs)


def small_case(operation: Operation) -> Case:
    """Of many cases worth a look one whose rows are about BEST_ROW long, and of those the smallest; one decimal each."""
    tame = replace(operation, values=("normal",), own_values={}, empty=())
    cases = []
    for seed in range(N_DRAWN):
        rng = np.random.default_rng(seed)
        case = tame.draw(RandomChooser(rng), rng)
        cases.append(case.with_arrays({name: readable(array) for name, array in case.arrays.items()}))
    fit = [case for case in cases if worth_a_look(case)]
    if not fit:
        raise ValueError(f"{operation.name}: none of the {N_DRAWN} cases drawn is small enough to be read")

    def unhandiness(case: Case) -> tuple[int, int]:
        arrays = case.arrays.values()
        return abs(BEST_ROW - max(array.shape[-1] for array in arrays)), sum(array.size for array in arrays)

    return min(fit, key=unhandiness)


def worth_a_look(case: Case) -> bool:
    """Few numbers; no table of one row or one column, no output that is an input again, no gradient that is 0 everywhere,
    no entry whose gradient is 0 by contract."""
    arrays, outputs = list(case.arrays.values()), outputs_of(case)
    return (
        all(array.size <= MOST_ENTRIES and math.prod(array.shape[:-2]) <= MOST_TABLES for array in arrays)
        and any(array.ndim > 1 for array in arrays)
        and len(case.options) <= MOST_OPTIONS
        and all(min(array.shape[-2:], default=2) > 1 for array in (*arrays, *outputs))
        and not any(np.array_equal(y.ravel(), array.ravel()) for y in outputs for array in arrays)
        and not any(entries.any() for entries in case.operation.stopped(case).values())
        and all(gradient.any() for gradient in gradients_of(case, cotangents(case)))
    )


def cotangents(case: Case) -> list[Array]:
    rng = np.random.default_rng(0)
    return [readable(rng.standard_normal(y.shape)) for y in outputs_of(case)]


def gradients_of(case: Case, dys: Sequence[Array]) -> tuple[Array, ...]:
    gradients = case.run()[1](*dys)
    return gradients if isinstance(gradients, tuple) else (gradients,)


def readable(array: Array) -> Array:
    return array.round(1) + 0.0  # no −0


def outputs_of(case: Case) -> list[Array]:
    """The outputs that have a cotangent."""
    y, _ = case.run()
    outputs = [np.asarray(each) for each in (y if isinstance(y, tuple) else (y,))]
    return [each for each in outputs if each.dtype.kind in "fc"]


def pairs_of(case: Case, dys: Sequence[Array]) -> list[Pair]:
    pairs = []
    for name, gradient in zip(case.arrays, gradients_of(case, dys), strict=True):

        def loss(x: Array, name: str = name) -> Array:
            arrays = {**case.arrays, name: x}
            moved = case.with_arrays({other: array.astype(x.dtype) for other, array in arrays.items()})
            return sum(((dy * y).sum() for dy, y in zip(dys, outputs_of(moved), strict=True)), np.zeros(()))

        found = found_by_gradcheck(loss, case.arrays[name])
        both = zip(blocks(f"d{name}", gradient), blocks(f"d{name}", found), strict=True)
        pairs += [Pair(title, computed, expected) for (title, computed), (_, expected) in both]
    return pairs


def blocks(name: str, array: Array) -> Iterator[tuple[str, Array]]:
    """An array cut into pieces of at most two axes."""
    if array.ndim <= 2:
        yield name, np.atleast_2d(array)
        return
    for index in np.ndindex(array.shape[:-2]):
        yield f"{name}[{', '.join(map(str, index))}]", array[index]


def shown(name: str, array: Array) -> str:
    """The array after its name and shape."""
    pieces = [table(title, numbers(piece)) for title, piece in blocks(name, array)]
    shape = " × ".join(map(str, array.shape))
    return beside(*pieces) if array.ndim < 3 else f"{name}, {shape}\n{beside(*pieces)}"


def inputs_shown(case: Case) -> Iterator[str]:
    for name, value in {**case.arrays, **case.options}.items():
        if isinstance(value, np.ndarray):
            yield shown(name, value)
        elif isinstance(value, np.random.Generator):
            yield f"{name}: a numpy Generator, which gives every run the same numbers"
        else:
            yield f"{name} = {value!r}"


def derivation(text: str) -> str:
    """A module's docstring, its paragraphs and formulas broken where they leave the page."""
    paragraphs = []
    for paragraph in text.strip().split("\n\n"):
        if paragraph.startswith(" "):
            lines = paragraph.splitlines()
            too_long = any(width(line) > WIDTH for line in lines)
            paragraphs.append(re.sub(r"(?<=\S) {4,}", "\n    ", paragraph) if too_long else paragraph)
        else:
            paragraphs.append(prose(paragraph))
    return "\n\n".join(paragraphs)
