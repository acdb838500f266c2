"""What a diagnosis knows of a check, and what it may ask its subject besides."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gradcheck.arrays import contents, copies
from gradcheck.comparison import Block
from gradcheck.decision import RESOLUTION, distance, largest
from gradcheck.runs import Runs
from gradcheck.side_effects import changed, names_of
from gradcheck.subject import Array, gradients_of

SAME = 1e-10  # of the largest entry: between two results that should be the same
FAR = 5.0  # times what is the same
MOST_DERIVATIVES = 3000  # that are asked for in all


class Gradient:
    """The gradient of array i, wrong or not, for n sets of cotangents, of which `ks` are the places in the check.

    actual  (n, *shape)            what was returned
    truths  (n, len(directions))   the truth along each direction
    bars    (n, 1)
    """

    def __init__(self, runs: Runs, i: int, blocks: Sequence[Block], is_excused: bool) -> None:
        self.i, self.name, self.shape, self.directions = i, runs.subject.names[i], runs.arrays[i].shape, runs.directions[i]
        self.ks = [block.k for block in blocks]
        self.actual = np.array([runs.gradients[k][i] for k in self.ks])
        self.truths = np.array([block.truth for block in blocks])
        self.bars = np.array([[block.bars.max(initial=block.bar)] for block in blocks])
        self.is_wrong = not is_excused and any(block.judgement.n_wrong for block in blocks)

    @property
    def is_sharp(self) -> bool:
        """Are the bars so narrow that what agrees within them does not do so by chance?"""
        finite = np.isfinite(self.truths).all() and np.isfinite(self.bars).all()
        return bool(finite and (self.bars <= RESOLUTION * np.abs(self.truths)).any())

    @property
    def is_far(self) -> bool:
        """Are the errors so far beyond the bars that what is nearly the truth does not explain them?"""
        tolerance = self.bars + SAME * np.abs(self.truths).max(1, initial=0.0, keepdims=True)
        return bool((~(distance(self.along, self.truths) <= FAR * tolerance)).any())

    @cached_property
    def along(self) -> Array:
        """What was returned, along each direction."""
        return self.each_along(self.actual)

    def each_along(self, stack: Array) -> Array:
        return np.array([self.directions.along(array) for array in stack])

    def agrees(self, stack: Array) -> bool:
        """Are these arrays, one for each set of cotangents, the truth?"""
        return bool((distance(self.each_along(stack), self.truths) <= self.bars).all())

    def is_along(self, derivatives: Array) -> bool:
        """Are these, made of the truth, the derivatives along each direction by what was returned?"""
        bars = self.bars + SAME * np.abs(derivatives).max(1, keepdims=True)
        return bool((distance(self.along, derivatives) <= bars).all())

    @cached_property
    def truth(self) -> Array | None:
        """Entry by entry, (n, *shape), where it is known so; 0 where the array is stopped."""
        if not self.directions.single:
            return None
        truth = np.zeros((len(self.ks), *self.shape))
        truth.reshape(len(truth), -1)[:, self.directions.entries] = self.truths / self.directions.weights
        return truth

    @property
    def entry_bars(self) -> Array:
        return self.bars.reshape(-1, *[1] * len(self.shape))

    @cached_property
    def wrong_entries(self) -> Array | None:
        if self.truth is None:
            return None
        compared = np.zeros(self.shape, bool)
        compared.reshape(-1)[self.directions.entries] = True
        wrong: Array = compared & (~(distance(self.actual, self.truth) <= self.entry_bars)).any(0)
        return wrong


class RefusedError(Exception):
    """The subject does not answer."""


@dataclass(frozen=True)
class Response:
    """What a backward returned on the first call after a forward and on the second with the same cotangents, what it left of
    those, and the names of the arrays that the forward and the backward have overwritten."""

    gradients: list[Array]
    again: list[Array]
    dys: list[Array]
    by_forward: list[str]
    by_backward: list[str]


class Evidence:
    """The arrays, outputs, cotangents and gradients of a check; `known` are the arrays and the outputs by name."""

    def __init__(self, runs: Runs, blocks: Sequence[Block], excused: set[int]) -> None:
        self.runs, self.n_asked = runs, 0
        self.arrays, self.outputs, self.cotangents = runs.arrays, runs.outputs, runs.cotangents
        self.names, self.names_of_dys = runs.subject.names, names_of(runs.outputs)
        names = ["output"] if len(runs.outputs) == 1 else [f"output{j}" for j in range(len(runs.outputs))]
        self.named_outputs = list(zip(names, runs.outputs, strict=True))
        self.known = [*zip(self.names, runs.arrays, strict=True), *self.named_outputs]
        own = [[block for block in blocks if block.i == i] for i in range(len(runs.arrays))]
        self.gradients = [Gradient(runs, i, each, i in excused) for i, each in enumerate(own)]

    def dys(self, own: Gradient) -> list[list[Array]]:
        """The sets of cotangents that were compared."""
        return [self.cotangents[k] for k in own.ks]

    def named_dys(self, own: Gradient) -> list[tuple[str, Array]]:
        """The cotangents of each output, (n, *shape of that output)."""
        return [(name, np.array([dys[j] for dys in self.dys(own)])) for j, name in enumerate(self.names_of_dys)]

    def respond(self, dys: Sequence[Array], point: Sequence[Array] | None = None, restored: bool = False) -> Response:
        """To these cotangents after a forward of their own; `restored`, with all arrays put back after it.

        RefusedError where that raises: what there is to say of it, the check has said."""
        subject, given, originals = self.runs.subject, copies(dys), point or self.arrays
        arrays = copies(originals)
        try:
            _, backward = subject.run(arrays)
            by_forward = changed(self.names, arrays, contents(originals))
            if restored:
                for array, original in zip(arrays, originals, strict=True):
                    array[...] = original
            before = contents(arrays)
            gradients = gradients_of(subject, backward, given, arrays)
            by_backward = changed(self.names, arrays, before)
            again = gradients_of(subject, backward, copies(dys), arrays)
        except Exception as error:
            raise RefusedError from error
        return Response(gradients, again, given, by_forward, by_backward)

    @cached_property
    def first_calls(self) -> list[Response]:
        """To each set of cotangents, and to the first set once more."""
        return [self.respond(dys) for dys in (*self.cotangents, self.cotangents[0])]

    @cached_property
    def combined(self) -> list[Response]:
        """To dy, 2·dy, −dy, another, the sum of dy and the other, and what is positive in dy."""
        one, two = self.cotangents[:2]
        multiples = [[np.asarray(factor * dy) for dy in one] for factor in (1, 2, -1)]
        both = [np.asarray(a + b) for a, b in zip(one, two, strict=True)]
        return [self.respond(dys) for dys in (*multiples, two, both, [np.maximum(dy, 0) for dy in one])]

    def derivatives(
        self, own: Gradient, which: Sequence[int], cotangents: Sequence[Sequence[Array]], arrays: Sequence[Array]
    ) -> Array:
        """The true ones along some of the directions, a row for each set of cotangents; NaN at a kink. RefusedError where
        there are none, or where too many have been asked for."""
        self.n_asked += len(which)
        if self.n_asked > MOST_DERIVATIVES:
            raise RefusedError
        try:
            point = self.runs.truth.point(self.runs.subject.run, arrays, cotangents)
            found = [point.slopes(own.i, *own.directions.of(k)) for k in which]
        except Exception as error:  # there the forward may not be defined
            raise RefusedError from error
        known = [[np.nan if each is None or each.differ else each.left for each in slopes] for slopes in found]
        table: Array = np.array(known, np.float64).reshape(len(which), len(cotangents)).T
        return table

    def is_true_for(self, own: Gradient, cotangents: Sequence[Sequence[Array]], arrays: Sequence[Array]) -> bool:
        """Is what was returned the true gradient for other cotangents, or of other arrays?"""
        worst = int(distance(own.along[0], own.truths[0]).argmax())  # it is asked first, and seldom agrees by chance
        try:
            one = self.derivatives(own, [worst], cotangents[:1], arrays)
            may_be = (distance(own.along[0, [worst]], one) <= own.bars[0] + SAME * largest(own.along[0])).all()
            return bool(may_be) and own.is_along(self.derivatives(own, range(len(own.directions)), cotangents, arrays))
        except RefusedError:
            return False


def is_close(one: Array, two: Array, rtol: float = SAME) -> bool:
    return bool((distance(one, two) <= rtol * largest(two)).all())


def is_same(one: Array, two: Array) -> bool:
    """To the last digits."""
    return bool((distance(one, np.broadcast_to(two, one.shape)) <= 1e-14 * np.abs(two)).all())
