"""What a wrong gradient is instead, in sentences that were verified.

Most hypotheses say what would make the returned gradient the true one: turn its sign, transpose it, subtract the mean of
every row. Whether that holds can be asked along directions as well as entry by entry. Others say what the returned gradient
was made of. A sentence is said only where the numbers bear it out within the bars, in all entries and for all cotangents; of
the hypotheses that hold, the first in HYPOTHESES is the one that is said.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property, partial
from itertools import permutations
from math import e, log, pi, prod, sqrt
from typing import TypeAlias

import numpy as np

from gradcheck.arrays import contents, copies, random_directions
from gradcheck.comparison import Block
from gradcheck.decision import RESOLUTION, distance, largest
from gradcheck.directions import Directions
from gradcheck.places import ordinal, whereabouts
from gradcheck.runs import Runs
from gradcheck.side_effects import changed, names_of
from gradcheck.subject import Array, gradients_of

MOST_SENTENCES = 4
MOST_NAMES = 4  # of arrays in one sentence
SAME = 1e-10  # of the largest entry: between two results that should be the same
NOT_LINEAR = 1e-3  # likewise, for a backward that is not linear in dy; float32 inside makes 1e-7
EARLIER_POINT = 1e-6  # likewise, at a point where there is no bar
OF_ROWS = 1e-4  # of what is missing: a bar wider than that proves nothing about it
MOST_AXES = 5  # of an array whose axes are tried in every order
MOST_SHIFTS = 16  # along one axis
MOST_COTANGENTS = 1_000_000  # numbers in all that are tried in place of dy
MOST_DERIVATIVES = 3000  # that are asked for in all
LARGEST_CONSTANT = 1e6  # beyond it, every number is a whole one to within a bar
SPECIAL = {"π": pi, "2π": 2 * pi, "√π": sqrt(pi), "√(2π)": sqrt(2 * pi), "√(2/π)": sqrt(2 / pi), "ln 2": log(2), "e": e}

PerDy: TypeAlias = list[Array]  # one array for each cotangent that was compared
Change: TypeAlias = Callable[[Array], Array]


@dataclass(frozen=True, eq=False)
class Gradient:
    """The gradient of array i, wrong or not: for every cotangent (of the numbers `ks`) what was returned, and along the
    directions the truth and the bar."""

    i: int
    name: str
    shape: tuple[int, ...]
    ks: list[int]
    actual: PerDy
    truths: PerDy
    bars: list[float]
    directions: Directions
    is_wrong: bool

    @property
    def is_sharp(self) -> bool:
        """Are the bars so narrow that what agrees within them does not do so by chance?"""
        pairs = list(zip(self.truths, self.bars, strict=True))
        finite = all(np.isfinite(truth).all() and np.isfinite(bar) for truth, bar in pairs)
        return finite and any(bar <= RESOLUTION * largest(truth) for truth, bar in pairs)

    def agrees(self, arrays: Sequence[Array]) -> bool:
        """Are `arrays`, one for each cotangent, the truth?"""
        along = map(self.directions.along, arrays)
        return all(
            bool((distance(own, truth) <= bar).all()) for own, truth, bar in zip(along, self.truths, self.bars, strict=True)
        )

    @cached_property
    def along(self) -> PerDy:
        return [self.directions.along(actual) for actual in self.actual]

    @cached_property
    def truth(self) -> PerDy | None:
        """Entry by entry, where it is known so; 0 where the array is stopped."""
        if not self.directions.single:
            return None
        arrays = [np.zeros(self.shape) for _ in self.truths]
        for array, truth in zip(arrays, self.truths, strict=True):
            array.reshape(-1)[self.directions.entries] = truth / self.directions.weights
        return arrays

    @cached_property
    def wrong_entries(self) -> Array | None:
        if self.truth is None:
            return None
        pairs = zip(self.actual, self.truth, self.bars, strict=True)
        compared = np.zeros(self.shape, bool)
        compared.reshape(-1)[self.directions.entries] = True
        wrong: Array = compared & np.any([~(distance(actual, truth) <= bar) for actual, truth, bar in pairs], axis=0)
        return wrong

    def is_made_of(self, arrays: Sequence[Array]) -> bool:
        """Are `arrays`, made of the truth, what was returned?"""
        made = [self.directions.along(array) for array in arrays]
        return all(
            bool((distance(own, other) <= bar + SAME * largest(other)).all())
            for own, other, bar in zip(self.along, made, self.bars, strict=True)
        )


@dataclass(frozen=True)
class Response:
    """What a backward returned on the first call after a forward and on the second with the same cotangents, what it left of
    those, and the names of the arrays that the forward and the backward have overwritten."""

    gradients: PerDy
    again: PerDy
    dys: PerDy
    by_forward: list[str]
    by_backward: list[str]


@dataclass(frozen=True)
class Elsewhere:
    """Of one array: the gradients here and at another point, and here again once the forward has run there. `is_true_there`
    is said of the one at the other point."""

    name: str
    here: Array
    there: Array
    late: Array
    is_true_there: bool


@dataclass(frozen=True)
class Evidence:
    """What a diagnosis may ask.

    gradients    of every array
    respond      the gradients for other cotangents after a forward of their own, on demand with all arrays put back after
                 it; None where that raises
    elsewhere    of every array; none where there is no other point
    derivatives  (i, which, cotangents, arrays): the true derivatives along some of the directions in array i, a row for each
                 set of cotangents; None where there are none
    """

    names: Sequence[str]
    arrays: Sequence[Array]
    outputs: Sequence[Array]
    cotangents: Sequence[Sequence[Array]]
    gradients: Sequence[Gradient]
    respond: Callable[[Sequence[Array], bool], Response | None]
    derivatives: Callable[[int, Sequence[int], Sequence[Sequence[Array]], Sequence[Array]], Array | None]
    elsewhere: Callable[[], Sequence[Elsewhere]]

    def dys(self, gradient: Gradient) -> list[Sequence[Array]]:
        return [self.cotangents[k] for k in gradient.ks]

    @cached_property
    def responses(self) -> list[Response] | None:
        """To every set of cotangents."""
        return self.all_responses(self.cotangents)

    @cached_property
    def combined(self) -> list[Response] | None:
        """To dy, 2·dy, −dy, another, the sum of dy and the other, and what is positive in dy."""
        one, two = self.cotangents[:2]
        both = [a + b for a, b in zip(one, two, strict=True)]
        changed = [[factor * dy for dy in one] for factor in (1, 2, -1)]
        return self.all_responses([*changed, two, both, [np.maximum(dy, 0) for dy in one]])

    def all_responses(self, cotangents: Sequence[Sequence[Array]]) -> list[Response] | None:
        responses = [self.respond(list(map(np.asarray, dys)), False) for dys in cotangents]
        whole = [response for response in responses if response is not None]
        return whole if len(whole) == len(responses) else None

    def known(self) -> Iterator[tuple[str, Array]]:
        yield from zip(self.names, self.arrays, strict=True)
        yield from zip(self.names_of_outputs, self.outputs, strict=True)

    @property
    def names_of_outputs(self) -> list[str]:
        return ["output"] if len(self.outputs) == 1 else [f"output{i}" for i in range(len(self.outputs))]


def diagnosis_of(runs: Runs, blocks: Sequence[Block], excused: set[int]) -> list[str]:
    """The diagnosis of a check that has failed."""
    return diagnose(evidence_of(runs, blocks, excused)) if blocks else []


def diagnose(evidence: Evidence) -> list[str]:
    """A few sentences about the gradients that are wrong; none where nothing is plain."""
    sentences: list[str] = []
    said: dict[str, list[str]] = {}
    with np.errstate(all="ignore"):
        swapped = pairs_swapped(evidence)
        for first, second in swapped:
            sentences.append(f"the gradients of {first.name} and {second.name} are swapped")
        explained = {gradient.name for pair in swapped for gradient in pair}
        for gradient in evidence.gradients:
            if gradient.is_wrong and gradient.name not in explained:
                hypotheses = HYPOTHESES if gradient.is_sharp else OF_BLUNT
                what = next(filter(None, (hypothesis(evidence, gradient) for hypothesis in hypotheses)), None)
                if what:
                    said.setdefault(what, []).append(gradient.name)
        if not any(gradient.is_wrong for gradient in evidence.gradients):
            for own in evidence.elsewhere():
                what = stale(own)
                if what:
                    said.setdefault(what, []).append(own.name)
    sentences += [f"the gradient of {listed(names)} {what}" for what, names in said.items()]
    return sentences[:MOST_SENTENCES]


def listed(names: Sequence[str]) -> str:
    if len(names) > MOST_NAMES:
        return f"{', of '.join(names[: MOST_NAMES - 1])} and of {len(names) - MOST_NAMES + 1} more"
    return " and of ".join(filter(None, [", of ".join(names[:-1]), names[-1]]))


# What a gradient is instead. Each hypothesis returns what follows "the gradient of x", or None.


def not_a_number(evidence: Evidence, own: Gradient) -> str | None:
    strange = np.any([~np.isfinite(actual) for actual in own.actual], axis=0)
    return f"is not a number {whereabouts(strange)}" if strange.any() else None


def truth_is_zero(evidence: Evidence, own: Gradient) -> str | None:
    for actual, truth, bar in zip(own.actual, own.truths, own.bars, strict=True):
        small = min(bar, RESOLUTION * largest(actual)) if np.isfinite(bar) else -1.0
        if not (np.isfinite(truth).all() and largest(truth) <= small):
            return None
    return "should be zero everywhere"


def zero(evidence: Evidence, own: Gradient) -> str | None:
    if not any(actual.any() for actual in own.actual):
        return "is zero everywhere; the truth is not"
    is_zero = all(largest(actual) <= bar for actual, bar in zip(own.actual, own.bars, strict=True))
    return "is zero to rounding everywhere; the truth is not" if is_zero else None


def argument(evidence: Evidence, own: Gradient) -> str | None:
    """One of the arguments, unchanged."""
    candidates = [(name, [array] * len(own.ks)) for name, array in evidence.known()]
    for j, name in enumerate(names_of(evidence.outputs)):
        candidates.append((name, [dys[j] for dys in evidence.dys(own)]))
    for name, arrays in candidates:
        if arrays[0].size == prod(own.shape) and all(map(is_same, own.actual, (a.reshape(own.shape) for a in arrays))):
            return f"is {name} itself" + ("" if arrays[0].shape == own.shape else ", read in another shape")
    return None


def state(evidence: Evidence, own: Gradient) -> str | None:
    """What hangs on earlier calls and on what they overwrote."""
    responses, i = evidence.responses, own.i
    if responses is None:
        return None
    again = evidence.respond(evidence.cotangents[0], False)
    if again is None:
        return None
    if not is_close(again.gradients[i], responses[0].gradients[i]):
        return "changes from one forward and backward to the next, with the same arrays and the same dy"
    left = [response.dys for response in responses]
    overwritten = not all(map(np.array_equal, flat(left), flat(evidence.cotangents)))
    if overwritten and is_true_for(evidence, own, [left[k] for k in own.ks], evidence.arrays):
        return "is the true one for what the backward leaves of dy, which it overwrites"
    is_right_at_first = own.agrees([responses[k].gradients[i] for k in own.ks])
    if is_right_at_first and not is_right(own, own.ks[0]):
        found = [stale(other) for other in evidence.elsewhere() if other.name == own.name]
        return found[0] if found else None
    if is_right_at_first:
        totals, total_bars = np.cumsum(own.truths, axis=0), np.cumsum(own.bars)
        if own.ks == [*range(len(own.ks))] and all(map(close_to, own.along, totals, total_bars)):
            return "adds up: a backward that is called again returns the sum of all its calls so far"
        if all(is_same(actual, own.actual[0]) for actual in own.actual):
            return "is that of the first dy again when the backward is called with another"
        why = f", which overwrites {' and '.join(responses[0].by_backward)}" if responses[0].by_backward else ""
        return f"is right for the first call of a backward{why}, and wrong when it is called again"
    if not is_close(responses[0].again[i], responses[0].gradients[i]) and not responses[0].by_backward:
        return "changes from one call of a backward to the next, with the same dy"
    by_forward = responses[0].by_forward
    if by_forward:
        restored = [response for k in own.ks if (response := evidence.respond(evidence.cotangents[k], True))]
        if len(restored) == len(own.ks) and own.agrees([response.gradients[i] for response in restored]):
            return f"is right once {' and '.join(by_forward)}, which the forward overwrites, is put back before the backward"
    return None


def not_linear(evidence: Evidence, own: Gradient) -> str | None:
    """A backward that does other things with dy than to multiply and to add."""
    if evidence.combined is None:
        return None
    once, twice, turned, other, both, positive = (response.gradients[own.i] for response in evidence.combined)
    if all(is_same(each, once) for each in (twice, turned, other, *own.actual)):
        return "is the same whatever dy is"
    pairs = ((twice, 2 * once), (turned, -once), (both, once + other))
    if all(is_close(actual, linear, NOT_LINEAR) for actual, linear in pairs):
        return None
    if is_close(turned, once) and is_close(twice, 4 * once):
        return "is not linear in dy: as if dy were squared, it is the same for −dy and 4 times as large for 2·dy"
    if is_close(turned, once) and is_close(twice, 2 * once):
        return "is not linear in dy: as if |dy| stood for dy, it is the same for −dy"
    if is_close(positive, once) and is_close(twice, 2 * once):
        return "is not linear in dy: what is negative in dy does not count"
    right = [k for k in own.ks if is_right(own, k)]
    sizes = {k: max(map(largest, evidence.cotangents[k])) for k in own.ks}
    if right and max(sizes[k] for k in right) < min((sizes[k] for k in own.ks if k not in right), default=0.0):
        return "is not linear in dy: it is right where dy is small and wrong where dy is larger, as if dy were clipped"
    if is_close(twice, once):
        return "is not linear in dy: as if dy were normalised, it is the same for 2·dy"
    fixed = 2 * once - twice
    if is_close(turned, 2 * fixed - once) and is_close(both, once + other - fixed):
        return "is not linear in dy: a part of it does not depend on dy"
    if not is_close(twice, 2 * once):
        return "is not linear in dy: for 2·dy it is not twice as large"
    if not is_close(turned, -once):
        return "is not linear in dy: for −dy it is not the opposite"
    return "is not linear in dy: for the sum of two cotangents it is not the sum of theirs"


def another_gradient(evidence: Evidence, own: Gradient) -> str | None:
    for other in evidence.gradients:
        if other is not own and is_that_of(own, other):
            return f"is that of {other.name}"
    return None


def constant_ratio(evidence: Evidence, own: Gradient) -> str | None:
    ratio = fitted(own.along, own.truths)
    if ratio is None:
        return None
    if own.agrees([actual / ratio for actual in own.actual]):
        for known, text, sizes in constants(ratio):
            if own.agrees([actual / known for actual in own.actual]):
                return times(text) + sizes_said(evidence, own, sizes, text)
        return f"is {ratio:.10g} times the truth"
    return None


def ratio_in_places(evidence: Evidence, own: Gradient) -> str | None:
    """The same of the wrong entries, where they are not all."""
    wrong = own.wrong_entries
    if own.truth is None or wrong is None or wrong.all():
        return None
    where = "where it is wrong"
    if is_plain(wrong):
        where += f", {whereabouts(wrong)}"
    actual, truth = [each[wrong] for each in own.actual], [each[wrong] for each in own.truth]
    if not any(each.any() for each in actual):
        return f"is zero {where}"
    if all(largest(each) <= bar for each, bar in zip(truth, own.bars, strict=True)):
        return f"should be zero {where}"
    ratio = fitted(actual, truth)
    if ratio is None or wrong.sum() < 2:
        return None

    def holds(ratio: float) -> bool:
        return all(
            bool((distance(one / ratio, two) <= bar).all()) for one, two, bar in zip(actual, truth, own.bars, strict=True)
        )

    for known, text, sizes in constants(ratio):
        if holds(known):
            return f"{times(text)} {where}" + sizes_said(evidence, own, sizes, text)
    return f"is {ratio:.10g} times the truth {where}" if holds(ratio) else None


def order(evidence: Evidence, own: Gradient) -> str | None:
    """The right numbers at other places."""
    for text, undo in [*other_axes(own.shape), *moved_along(own.shape)]:
        if own.agrees([undo(actual) for actual in own.actual]):
            return text
    if own.truth and prod(own.shape) > 2:
        pairs = zip(own.actual, own.truth, own.bars, strict=True)
        if all(bool((distance(np.sort(a, None), np.sort(t, None)) <= bar).all()) for a, t, bar in pairs):
            return "has the right numbers, at other places"
    return None


def sums(evidence: Evidence, own: Gradient) -> str | None:
    """A sum or a mean too many or too few."""
    for axis, size in enumerate(own.shape):
        if size < 2:
            continue
        for name, factor in (("mean", 1), ("sum", size)):
            if own.truth and own.is_made_of([factor * averaged(axis, truth) for truth in own.truth]):
                return f"is the {name} of the truth over axis {axis}, at every index of that axis"
            if own.agrees([factor * averaged(axis, actual) for actual in own.actual]):
                return f"lacks a {name} over axis {axis}: its own {name} there, at every index, is the truth"
    return None


def missing_term(evidence: Evidence, own: Gradient) -> str | None:
    for axis, size in enumerate(own.shape):
        if size < 2:
            continue
        if own.agrees([centred(axis, actual) for actual in own.actual]):
            return f"lacks the subtraction of its mean over axis {axis}"
        for name, y in zip(evidence.names_of_outputs, evidence.outputs, strict=True):
            if y.shape == own.shape and own.agrees([a - y * a.sum(axis, keepdims=True) for a in own.actual]):
                return f"lacks the subtraction of {name} times its own sum over axis {axis}"
    missing = [truth - along for truth, along in zip(own.truths, own.along, strict=True)]
    for name, terms in known_terms(evidence, own):
        factor = fitted(missing, [own.directions.along(term) for term in terms])
        if factor is None or not own.agrees([a + factor * term for a, term in zip(own.actual, terms, strict=True)]):
            continue
        for known, text, _ in constants(factor):
            if own.agrees([a + known * term for a, term in zip(own.actual, terms, strict=True)]):
                return lacking(known, text.lstrip("−"), name)
        if prod(own.shape) > 2 and "·" not in name:  # of a product, almost any factor would do in an array of few numbers
            return lacking(factor, f"{abs(factor):.6g}", name)
    return None


def factor(evidence: Evidence, own: Gradient) -> str | None:
    """A factor that is known, and missing or too much."""
    for name, z in factors(evidence, own.shape):
        if own.agrees([actual * z for actual in own.actual]):
            return f"lacks the factor {name}"
        if own.agrees([actual / z for actual in own.actual]):
            return f"has the factor {name} too much"
    return None


def another_cotangent(evidence: Evidence, own: Gradient) -> str | None:
    """The true gradient for something else in place of dy."""
    candidates = list(other_cotangents(evidence, own))
    n_numbers = sum(dy.size for dy in evidence.cotangents[0])
    if not candidates or len(candidates) * n_numbers > MOST_COTANGENTS:
        return None
    first = suspects(own)
    few = evidence.derivatives(own.i, first, [dys[0] for _, dys in candidates], evidence.arrays)
    if few is None:
        return None
    for (text, cotangents), some in zip(candidates, few, strict=True):
        may_be = close_to(own.along[0][first], some, own.bars[0])
        if may_be and is_true_for(evidence, own, cotangents, evidence.arrays):
            return f"is the true one for {text}"
    return None


def another_point(evidence: Evidence, own: Gradient) -> str | None:
    """The true gradient at something else in place of an array."""
    first = suspects(own)[:1]
    for text, arrays in other_points(evidence, own):
        some = evidence.derivatives(own.i, first, evidence.dys(own)[:1], arrays)
        if some is None or not close_to(own.along[0][first], some[0], own.bars[0]):
            continue
        if is_true_for(evidence, own, evidence.dys(own), arrays):
            return f"is the true one at {text}"
    return None


def is_true_for(evidence: Evidence, own: Gradient, cotangents: Sequence[Sequence[Array]], arrays: Sequence[Array]) -> bool:
    truths = evidence.derivatives(own.i, range(len(own.directions)), cotangents, arrays)
    return truths is not None and all(map(close_to, own.along, truths, own.bars))


def suspects(own: Gradient) -> list[int]:
    """Few directions that are asked first: the worst, and the first."""
    worst = np.argsort(-distance(own.along[0], own.truths[0]), kind="stable")[:3]
    return list(dict.fromkeys([*map(int, worst), *range(min(3, len(own.directions)))]))


def rows(evidence: Evidence, own: Gradient) -> str | None:
    """In each row a multiple of something known is missing."""
    if own.truth is None:
        return None
    missing = [truth - actual for truth, actual in zip(own.truth, own.actual, strict=True)]
    if not any(bar <= OF_ROWS * largest(each) for each, bar in zip(missing, own.bars, strict=True)):
        return None
    vectors: list[tuple[str, PerDy]] = [("a number of its own", [np.ones(own.shape)] * len(own.ks))]
    for name, z in evidence.known():
        if is_broadcast(z.shape, own.shape):
            vectors.append((f"a multiple of {name}", [np.broadcast_to(z, own.shape)] * len(own.ks)))
    for j, name in enumerate(names_of(evidence.outputs)):
        if evidence.outputs[j].shape == own.shape:
            vectors.append((f"a multiple of {name}", [dys[j] for dys in evidence.dys(own)]))
    for axis in reversed(range(len(own.shape))):
        if own.shape[axis] < 3:
            continue
        deviations = [
            (f"a multiple of {name}, less its mean over axis {axis},", [centred(axis, z)] * len(own.ks))
            for name, z in evidence.known()
            if z.shape == own.shape
        ]
        for name, each in [*vectors, *deviations]:
            if is_rank_one(missing, each, own.bars, axis):
                return f"is off by {name} in each row along axis {axis}"
    return None


def is_rank_one(missing: PerDy, vectors: PerDy, bars: Sequence[float], axis: int) -> bool:
    for own, vector, bar in zip(missing, vectors, bars, strict=True):
        size = (vector * vector).sum(axis, keepdims=True)
        share = (own * vector).sum(axis, keepdims=True) / np.where(size == 0, 1.0, size)
        if not bool((distance(own, share * vector) <= bar).all()):
            return False
    return True


def single_precision(evidence: Evidence, own: Gradient) -> str | None:
    for kind in (np.float32, np.float16):
        if all(is_same(actual, actual.astype(kind).astype(np.float64)) for actual in own.actual):
            return f"holds numbers of {np.dtype(kind)} only, as if that were used inside"
    pairs = zip(own.along, own.truths, strict=True)
    errors = np.concatenate([(along - truth) / np.where(truth == 0, np.inf, truth) for along, truth in pairs])
    errors = errors[errors != 0]
    both_signs = errors.size > 3 and min((errors > 0).mean(), (errors < 0).mean()) > 0.2
    usual = (np.abs(errors) > 2.0**-30) & (np.abs(errors) < 2.0**-20)
    if both_signs and usual.mean() > 0.9 and off_by(own) < 2.0**-21 and own_factors(evidence, own) is None:
        return f"agrees with the truth to {digits_of(own)} digits, as if float32 were used inside"
    return None


def own_factors(evidence: Evidence, own: Gradient) -> str | None:
    """The truth times factors that are the same for every dy."""
    if own.truth is None or len(own.ks) < 3 or prod(own.shape) < 2:
        return None
    weights = [1 / (largest(truth) or np.inf) for truth in own.truth]
    above = sum(w * w * a * t for w, a, t in zip(weights, own.actual, own.truth, strict=True))
    below = sum(w * w * t * t for w, t in zip(weights, own.truth, strict=True))
    axes = tuple(range(len(own.shape)))
    each_of: list[tuple[tuple[int, ...], str]] = [
        (tuple(other for other in axes if other != axis), f"each index of axis {axis}") for axis in axes
    ]
    each_of += [((axis,), f"each row along axis {axis}") for axis in reversed(axes)] if len(axes) > 2 else []
    for reduced, what in [*each_of, ((), "each entry")]:
        if reduced and prod(own.shape[axis] for axis in reduced) == 1:
            continue
        size = np.sum(below, axis=reduced, keepdims=True)
        ratios = np.sum(above, axis=reduced, keepdims=True) / np.where(size == 0, 1.0, size)
        if own.is_made_of([ratios * truth for truth in own.truth]):
            counted = ratios[size != 0]
            return f"is the truth times a factor of its own for {what}, from {counted.min():.4g} to {counted.max():.4g}"
    return None


def digits(evidence: Evidence, own: Gradient) -> str | None:
    return f"agrees with the truth to {digits_of(own)} digits" if off_by(own) < 1e-3 else None


def only_somewhere(evidence: Evidence, own: Gradient) -> str | None:
    if own.wrong_entries is None or not is_plain(own.wrong_entries):
        return None
    where = whereabouts(own.wrong_entries)
    return f"is wrong {where}" if where.startswith("everywhere") else f"is wrong only {where}"


def is_plain(wrong: Array) -> bool:
    """Does it say something where they lie?"""
    where = whereabouts(wrong)
    return wrong.sum() > 1 and where != "everywhere" and not where.startswith("in scattered places")


Hypothesis: TypeAlias = Callable[[Evidence, Gradient], str | None]

# Where bars are wide, what agrees within them says nothing, and only these are asked.
OF_BLUNT: list[Hypothesis] = [not_a_number, truth_is_zero]
HYPOTHESES: list[Hypothesis] = [
    *OF_BLUNT,
    zero,
    argument,
    state,
    not_linear,
    another_gradient,
    constant_ratio,
    order,
    ratio_in_places,
    missing_term,
    factor,
    sums,
    another_cotangent,
    another_point,
    rows,
    single_precision,
    digits,
    own_factors,
    only_somewhere,
]


def pairs_swapped(evidence: Evidence) -> list[tuple[Gradient, Gradient]]:
    wrong = [own for own in evidence.gradients if own.is_wrong and own.is_sharp]
    return [
        (own, other)
        for i, own in enumerate(wrong)
        for other in wrong[i + 1 :]
        if is_that_of(own, other) and is_that_of(other, own)
    ]


def is_that_of(own: Gradient, other: Gradient) -> bool:
    return own.shape == other.shape and own.ks == other.ks and other.is_sharp and other.agrees(own.actual)


def stale(own: Elsewhere) -> str | None:
    if is_close(own.here, own.there):
        return None if own.is_true_there else "is at a second point that of the first point again"
    return (
        "is always that of the last forward, whichever forward the backward is of" if is_close(own.late, own.there) else None
    )


# What the hypotheses try.


def constants(value: float) -> Iterator[tuple[float, str, tuple[int, ...]]]:
    """What `value` may be exactly, in words, and the size that would stand in it."""
    size, sign = abs(value), "−" if value < 0 else ""
    for power, root in ((1, ""), (2, "√")):
        near = size**power
        if not 1 / LARGEST_CONSTANT <= near <= LARGEST_CONSTANT:
            continue
        for fraction in (Fraction(round(near)), Fraction(1, round(1 / near)) if round(1 / near) else 0, simple(near)):
            if not fraction or abs(float(fraction) / near - 1) > RESOLUTION:
                continue
            above, below = fraction.as_integer_ratio()
            if root and min(above, below) > 1:
                continue
            exact = float(np.copysign(float(fraction) ** (1 / power), value))
            text = f"{root if above > 1 else ''}{above}" + (f"/{root}{below}" if below > 1 else "")
            yield exact, sign + text, tuple({above, below} - {1}) if min(above, below) == 1 else ()
    for name, known in SPECIAL.items():
        for exact, text in ((known, name), (1 / known, f"1/{name}" if name != "2π" else "1/(2π)")):
            if abs(exact / size - 1) <= RESOLUTION:
                yield float(np.copysign(exact, value)), sign + text, ()


def simple(value: float) -> Fraction:
    return Fraction(value).limit_denominator(32) if 1 / 64 < value < 64 else Fraction(0)


def times(text: str) -> str:
    if text == "−1":
        return "is the truth with its sign turned"
    return f"is {text} of the truth" if text.lstrip("−").startswith("1/") else f"is {text} times the truth"


def sizes_said(evidence: Evidence, own: Gradient, sizes: tuple[int, ...], text: str) -> str:
    """Of what a constant is the size, if of anything."""
    if not sizes:
        return ""
    size, places = sizes[0], []
    outputs = [(f"the {name}", y) for name, y in zip(evidence.names_of_outputs, evidence.outputs, strict=True)]
    arrays = sorted(zip(evidence.names, evidence.arrays, strict=True), key=lambda each: each[0] != own.name)
    for name, y in outputs:
        if y.ndim == len(own.shape):
            pairs = enumerate(zip(y.shape, own.shape, strict=True))
            places += [f"axis {axis} of {name} over that of {own.name}" for axis, (n, m) in pairs if m > 1 and n == size * m]
    for name, array in [*outputs, *arrays]:
        places += [f"axis {axis} of {name}" for axis, n in enumerate(array.shape) if n == size]
        if array.ndim > 2 and prod(array.shape[:-1]) == size:
            places.append(f"all axes but the last of {name}")
        if array.ndim > 1 and array.size == size:
            places.append(f"the whole of {name}")
    if not places:
        return ""
    rows = [y.size for _, y in outputs if size in (*y.shape, prod(y.shape[:-1]))]
    is_sum = bool(rows) and (size not in own.shape or max(rows) >= size * prod(own.shape))
    mean = ", as if a mean stood for a sum" if text == f"1/{size}" and is_sum else ""
    return f"{mean}; {size} is the size of {' and of '.join(places[:2])}"


def other_axes(shape: tuple[int, ...]) -> Iterator[tuple[str, Change]]:
    """Axes in another order, and how that is undone."""
    if len(shape) > MOST_AXES or len([size for size in shape if size > 1]) < 2:
        return
    for axes in list(permutations(range(len(shape))))[1:]:
        moved = tuple(shape[axis] for axis in axes)
        changed = [axis for axis, other in enumerate(axes) if axis != other]
        what = "transposed" if len(shape) == 2 else f"with its axes {' and '.join(map(str, changed))} swapped"
        if len(changed) > 2:
            what = f"with its axes in the order {', '.join(map(str, axes))}"
        read = "" if moved == shape else ", but read in the shape of before"
        yield f"is the truth {what}{read}", partial(moved_back, moved, tuple(map(int, np.argsort(axes))))


def moved_back(moved: tuple[int, ...], axes: tuple[int, ...], array: Array) -> Array:
    back: Array = array.reshape(moved).transpose(axes)
    return back


def moved_along(shape: tuple[int, ...]) -> Iterator[tuple[str, Change]]:
    for axis, size in enumerate(shape):
        if size > 1:
            yield f"is the truth in reverse order along axis {axis}", partial(np.flip, axis=axis)
        for by in sorted({*range(1, min(size, MOST_SHIFTS)), size - 1} - {0}):
            shift = f"{by}" if by <= size / 2 else f"−{size - by}"
            yield f"is the truth shifted by {shift} along axis {axis}, cyclically", partial(np.roll, shift=-by, axis=axis)


def known_terms(evidence: Evidence, own: Gradient) -> Iterator[tuple[str, PerDy]]:
    """Terms that a sum of this shape may lack, with what they are called."""
    for j, name in enumerate(names_of(evidence.outputs)):
        dys = [each[j] for each in evidence.dys(own)]
        if is_broadcast(own.shape, dys[0].shape):
            how = "" if own.shape == dys[0].shape else ", summed to its shape"
            yield f"{name}{how}", [summed_to(dy, own.shape) for dy in dys]
            for known, z in evidence.known():
                if z.size > 1 and is_broadcast(z.shape, dys[0].shape):
                    yield f"{name}·{known}{how}", [summed_to(dy * z, own.shape) for dy in dys]
    for axis, size in enumerate(own.shape):
        if size > 1:
            yield f"the mean of itself over axis {axis}", [averaged(axis, actual) for actual in own.actual]
    for other in evidence.gradients:
        if other is not own and other.shape == own.shape and other.ks == own.ks:
            yield f"the returned gradient of {other.name}", other.actual
    for known, z in evidence.known():
        if z.shape == own.shape:
            yield known, [z] * len(own.ks)


def lacking(factor: float, size: str, name: str) -> str:
    term = name if size == "1" else f"{size}·{name}" if not name.startswith("the ") else f"{size} times {name}"
    return f"lacks the term {term}" if factor > 0 else f"has the term {term} too much"


def factors(evidence: Evidence, shape: tuple[int, ...]) -> Iterator[tuple[str, Array]]:
    for name, z in evidence.known():
        if z.size > 1 and is_broadcast(z.shape, shape):
            yield name, z
            yield f"1 − {name}", 1 - z
            yield f"({name})²", z * z
            yield f"1 − ({name})²", 1 - z * z


def other_cotangents(evidence: Evidence, own: Gradient) -> Iterator[tuple[str, list[list[Array]]]]:
    """What may have been taken for dy, for every cotangent that was compared."""
    all_dys = evidence.dys(own)
    for j, name in enumerate(names_of(evidence.outputs)):

        def with_other(change: Change, j: int = j) -> list[list[Array]]:
            return [[np.asarray(change(dy)) if o == j else dy for o, dy in enumerate(dys)] for dys in all_dys]

        for text, change in changes_of(evidence.outputs[j].shape, name):
            yield text, with_other(change)
        for known, z in evidence.known():
            if z.size > 1 and is_broadcast(z.shape, evidence.outputs[j].shape):
                yield f"{name} / {known} in place of {name}", with_other(partial(np.multiply, 1 / z))
                yield f"{name}·{known} in place of {name}", with_other(partial(np.multiply, z))


def other_points(evidence: Evidence, own: Gradient) -> Iterator[tuple[str, list[Array]]]:
    """What may have been taken for an array, in what was saved for the backward."""

    def with_other(i: int, other: Array) -> list[Array]:
        return [other if j == i else array for j, array in enumerate(evidence.arrays)]

    for i, (name, array) in enumerate(zip(evidence.names, evidence.arrays, strict=True)):
        for output, y in zip(evidence.names_of_outputs, evidence.outputs, strict=True):
            if y.shape == array.shape:
                yield f"{output} in place of {name}", with_other(i, y)
        if array.ndim > 1 and array.shape[-1] == array.shape[-2] > 1:
            yield f"{name} transposed in place of {name}", with_other(i, array.swapaxes(-1, -2))
        yield f"{name} rounded to float32", with_other(i, rounded(array))
        if (array < 0).any():
            yield f"|{name}| in place of {name}", with_other(i, np.abs(array))


def changes_of(shape: tuple[int, ...], name: str) -> Iterator[tuple[str, Change]]:
    yield f"{name} rounded to float32", rounded
    n_rows = prod(shape[:-1])
    if len(shape) > 2 and n_rows > 1:
        for text, row in (("first", 0), ("last", n_rows - 1)):
            alone = (np.arange(n_rows) == row).reshape(*shape[:-1], 1)
            yield f"the {text} row of {name} alone", partial(np.multiply, alone)
    for axis, size in enumerate(shape):
        if size < 2:
            continue
        for text, indices in slices(size):
            kept = np.zeros([size if other == axis else 1 for other in range(len(shape))])
            kept.reshape(-1)[indices] = 1
            yield f"{text} of {name} along axis {axis} alone", partial(np.multiply, kept)
        yield f"{name} less its mean over axis {axis} in place of {name}", partial(centred, axis)
        yield f"the mean of {name} over axis {axis} in place of {name}", partial(averaged, axis)
        yield f"{name} in reverse order along axis {axis}", partial(np.flip, axis=axis)


def rounded(array: Array) -> Array:
    return array.astype(np.float32).astype(np.float64)


def averaged(axis: int, array: Array) -> Array:
    return np.broadcast_to(array.mean(axis, keepdims=True), array.shape)


def centred(axis: int, array: Array) -> Array:
    return np.asarray(array - averaged(axis, array))


def slices(size: int) -> Iterator[tuple[str, slice]]:
    yield "the first slice", np.s_[:1]
    yield "the last slice", np.s_[-1:]
    if size > 2:
        yield "all slices but the first", np.s_[1:]
        yield "all slices but the last", np.s_[:-1]
    for step in range(2, size // 2 + 1):
        if size % step == 0:
            yield f"every {ordinal(step)} slice from 0", np.s_[::step]
            yield f"every {ordinal(step)} slice from {step - 1}", np.s_[step - 1 :: step]


# Comparisons.


def fitted(above: PerDy, below: PerDy) -> float | None:
    """The one number c with above ≈ c·below, all cotangents weighing the same; None where there is none."""
    weights = [1 / largest(each) if largest(each) else 0.0 for each in below]
    size = sum(float((w * each).ravel() @ (w * each).ravel()) for w, each in zip(weights, below, strict=True))
    product = sum(
        float((w * each).ravel() @ (w * other).ravel()) for w, each, other in zip(weights, below, above, strict=True)
    )
    ratio = product / size if size else 0.0
    return ratio if ratio and np.isfinite(ratio) else None


def is_same(one: Array, two: Array) -> bool:
    """To the last digits."""
    return bool((distance(one, two) <= 1e-14 * np.abs(two)).all())


def is_close(one: Array, two: Array, rtol: float = SAME) -> bool:
    return bool((distance(one, two) <= rtol * largest(two)).all())


def close_to(one: Array, truth: Array, bar: float) -> bool:
    return bool((distance(one, truth) <= bar + SAME * largest(truth)).all())


def is_right(own: Gradient, k: int) -> bool:
    place = own.ks.index(k)
    return bool((distance(own.directions.along(own.actual[place]), own.truths[place]) <= own.bars[place]).all())


def flat(cotangents: Sequence[Sequence[Array]]) -> list[Array]:
    return [dy for dys in cotangents for dy in dys]


def off_by(own: Gradient) -> float:
    """The largest error of all, relative to the largest entry for the same cotangent."""
    pairs = zip(own.along, own.truths, strict=True)
    return max(largest(along - truth) / (largest(truth) or np.inf) for along, truth in pairs)


def digits_of(own: Gradient) -> int:
    return int(-np.log10(off_by(own)))


def is_broadcast(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    try:
        return bool(np.broadcast_shapes(shape, to) == to)
    except ValueError:
        return False


def summed_to(array: Array, shape: tuple[int, ...]) -> Array:
    """What broadcasting to an array's shape is undone by."""
    leading = array.ndim - len(shape)
    repeated = tuple(axis for axis, size in enumerate(array.shape) if axis < leading or shape[axis - leading] < size)
    total: Array = array.sum(repeated, keepdims=True).reshape(shape)
    return total


# From the runs of a check.


def evidence_of(runs: Runs, blocks: Sequence[Block], excused: set[int]) -> Evidence:
    """Asks the subject for more only where a hypothesis needs it."""
    subject = runs.subject
    gradients = [
        gradient_of(runs, i, [block for block in blocks if block.i == i], i in excused) for i in range(len(subject.names))
    ]

    def respond(dys: Sequence[Array], put_back: bool) -> Response | None:
        arrays, given = copies(runs.arrays), copies(dys)
        try:
            before = contents(arrays)
            _, backward = subject.run(arrays)
            by_forward = changed(subject.names, arrays, before)
            if put_back:
                for array, original in zip(arrays, runs.arrays, strict=True):
                    array[...] = original
            before = contents(arrays)
            gradients = gradients_of(subject, backward, given, arrays)
            by_backward = changed(subject.names, arrays, before)
            again = gradients_of(subject, backward, copies(dys), arrays)
            return Response(gradients, again, given, by_forward, by_backward)
        except Exception:
            return None  # what there was to say of it, the check has said

    n_asked = 0

    def derivatives(
        i: int, which: Sequence[int], cotangents: Sequence[Sequence[Array]], arrays: Sequence[Array]
    ) -> Array | None:
        nonlocal n_asked
        n_asked += len(which)
        if n_asked > MOST_DERIVATIVES:
            return None
        try:
            point = runs.truth.point(subject.run, arrays, cotangents)
            found = [point.slopes(i, *runs.directions[i].of(k)) for k in which]
        except Exception:
            return None  # there the forward may not be defined
        known = [[np.nan if each is None or each.differ else each.left for each in slopes] for slopes in found]
        table: Array = np.array(known, np.float64).reshape(len(which), len(cotangents)).T
        return table

    return Evidence(
        names=subject.names,
        arrays=runs.arrays,
        outputs=runs.outputs,
        cotangents=runs.cotangents,
        gradients=gradients,
        respond=respond,
        derivatives=derivatives,
        elsewhere=cache(lambda: elsewhere(runs)),
    )


def gradient_of(runs: Runs, i: int, blocks: Sequence[Block], excused: bool) -> Gradient:
    return Gradient(
        i=i,
        name=runs.subject.names[i],
        shape=runs.arrays[i].shape,
        ks=[block.k for block in blocks],
        actual=[runs.gradients[block.k][i] for block in blocks],
        truths=[block.truth for block in blocks],
        bars=[float(block.bars.max(initial=block.bar)) for block in blocks],
        directions=runs.directions[i],
        is_wrong=not excused and any(block.judgement.n_wrong for block in blocks),
    )


def elsewhere(runs: Runs) -> list[Elsewhere]:
    subject, point, dys = runs.subject, runs.elsewhere, runs.cotangents[0]
    if point is None:
        return []
    try:
        _, backward = subject.run(copies(runs.arrays))
        here = gradients_of(subject, backward, copies(dys), runs.arrays)
        _, other_backward = subject.run(copies(point))
        there = gradients_of(subject, other_backward, copies(dys), point)
        values = copies(runs.arrays)[len(runs.arrays) - len(subject.parameters) :]
        for parameter, value in zip(subject.parameters, values, strict=True):  # which a backward may read again
            parameter.value = value
        late = gradients_of(subject, backward, copies(dys), runs.arrays)
        found = []
        for i, name in enumerate(subject.names):
            steps = random_directions(point, runs.skip, np.random.default_rng(0))
            alone = [step if j == i else np.zeros(step.shape) for j, step in enumerate(steps)]
            truth = runs.truth.along(subject.run, point, alone, [dys])[0]
            terms = (there[i] * alone[i])[alone[i] != 0]
            is_true = truth is None or truth.allow(float(terms.sum()), EARLIER_POINT * float(np.abs(terms).sum()))
            found.append(Elsewhere(name, here[i], there[i], late[i], is_true))
        return found
    except Exception:
        return []  # what there was to say of it, the check has said
