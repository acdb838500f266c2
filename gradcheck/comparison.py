"""Every entry of every gradient against the truth, and what is to be said of it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np

from gradcheck.arrays import FACTORS, UNIT, furthest, natural_size, sizes_of
from gradcheck.complex_safety import excuse
from gradcheck.complex_step import lost_in_steps
from gradcheck.decision import MARGIN, RESOLUTION, Judgement, bar_of, distance, judge, largest, over, ratios
from gradcheck.directions import Directions
from gradcheck.report import Finding, place
from gradcheck.runs import Runs
from gradcheck.slopes import Slopes
from gradcheck.subject import Array
from gradcheck.truth import COMPLEX_STEP, DIFFERENCES, UNKNOWN, ComplexSteps, Known, known_along

NEGLIGIBLE = 1e-12  # of its natural size: a truth so small may be rounding alone
NOISE_OF_ZERO = 1e-9  # at most, of its natural size
CERTAIN = 1e-3  # of a truth: it moves by less, and is no rounding of what cancels
JUMP = 1e-3  # of a gradient
COARSE = 0.01  # of a gradient: a doubt so wide is as good as none known
UNKNOWN_SLOPE = "at some entries differences find no slope, for the forward jumps there, or is rounded too coarsely"
MOST_CONFIRMATIONS = 30  # of wrong entries, in one array,
FEW_CONFIRMATIONS = 4  # where they are dear


@dataclass(frozen=True)
class Block:
    """The gradient of array i for cotangent k: its derivatives along the directions in that array.

    `bar` is that of rounding, to which the doubt of what is known of each truth adds; layout_bar is for the difference that
    another order of summation makes.
    """

    i: int
    k: int
    actual: Array
    truth: Array
    bar: float
    known: Known
    layout_bar: float
    jumps: bool  # when the arrays move in their last places
    judgement: Judgement

    @property
    def bars(self) -> Array:
        return self.bar + self.known.doubt

    @property
    def ratios(self) -> Array:
        """Error over bar where that is too much, 0 elsewhere."""
        error = distance(self.actual, self.truth)
        agree = (error <= self.bars) & np.isfinite(error)
        return np.where(agree, 0.0, ratios(error, self.bars))


@dataclass(frozen=True)
class Part:
    """Some entries of array i, or one alone, moved by weights; the derivative along them for cotangent k."""

    i: int
    k: int
    entries: Array
    weights: Array
    actual: float
    truth: float
    bar: float
    at_kink: bool = False

    @property
    def error(self) -> float:
        return float(distance(np.array(self.actual), np.array(self.truth)))


@dataclass(frozen=True)
class Entry:
    """A wrong entry. `seen` is where it was seen: alone, or together with others if each alone is wrong by too little."""

    index: tuple[int, ...]
    actual: float
    truth: float
    bar: float
    seen: Part


def compared(runs: Runs, rtol: float, rng: np.random.Generator) -> list[Block]:
    """Raises ComplexUnsafeError where there is no truth."""
    cotangents, skip = runs.cotangents, runs.skip
    known = known_along(runs.truth.point(runs.subject.run, runs.arrays, cotangents), runs.directions, len(cotangents))
    truths = [
        [own.nearest(actual) for own, actual in zip(each, along, strict=True)]
        for each, along in zip(known, runs.along, strict=True)
    ]
    wanders = wanders_of(runs, truths, rng)
    blocks = []
    for i, (array, own) in enumerate(zip(runs.arrays, runs.directions, strict=True)):
        stretch = lengthening(own, array)
        naturals = [stretch * natural_size(dys, runs.outputs, array) for dys in cotangents]
        noise = max((runs.noise(k, i) / natural for k, natural in enumerate(naturals) if natural), default=0.0)
        for k, natural in enumerate(naturals):
            actual, truth, seen, wander = runs.along[k][i], truths[k][i], known[k][i], wanders[k][i]
            if runs.truth is DIFFERENCES:
                moves = natural or sum(float(np.abs(dy).sum()) for dy in cotangents[k])  # of outputs of 0
                seen = seen.unless_wider(COARSE * max(largest(truth), RESOLUTION * moves))
                truth = seen.nearest(actual)
            doubt = seen.doubt
            if np.isfinite(truths[0][i]).all() and not np.isfinite(truth).all():
                continue  # a large cotangent of ours has made it overflow
            may_be_zero = bool((np.abs(truth) <= NEGLIGIBLE * natural + doubt).all(where=np.isfinite(truth)))
            rounding = natural * relative_rounding(truth, wander, may_be_zero)
            if runs.truth is COMPLEX_STEP and (natural or actual.any()):
                rounding += lost_in_steps(cotangents[k], array) * own.length**2
            bar = bar_of(truth, wander, rounding, rtol)
            wide = bar + MARGIN * noise * natural
            entry = largest(truth) if own.single else largest(runs.gradients[k][i][~skip[i]]) or largest(truth) / own.length
            size, zero = own.smallest_weight * entry, own.smallest_weight * natural / stretch
            if runs.truth is DIFFERENCES and natural == 0:
                zero = moves
            if runs.truth is COMPLEX_STEP and truth.any() and wander <= CERTAIN * largest(own.summed(truth)):
                zero = size  # small, but no rounding: it stays the same when the last places move
            resolution = max(RESOLUTION, 2 * rtol, 2 * over(rtol * largest(truth), size))
            judgement = judge(actual, truth, bar + doubt, zero, resolution, size)
            if not (may_be_zero or judgement.is_zero):
                wide = bar
            elif judgement.n_wrong:
                bar, judgement = wide, judge(actual, truth, wide + doubt, zero, resolution, size)
            blocks.append(Block(i, k, actual, truth, bar, seen, wide, wander > JUMP * largest(truth), judgement))
    return blocks


def wanders_of(runs: Runs, truths: Sequence[Sequence[Array]], rng: np.random.Generator) -> list[list[float]]:
    """w of each block: how far the truth moves when all numbers move by units in the last place.

    Differences have too much doubt to show it. There it is how far the gradient moves that is to be proved, which may only
    make the bar wider, and the verdict "inconclusive".
    """
    if runs.truth is DIFFERENCES:
        return [
            [furthest(along, [near.along[k][i] for near in runs.nearby], FACTORS) for i, along in enumerate(each)]
            for k, each in enumerate(runs.along)
        ]
    sums = [own.sums() for own in runs.directions]
    moved = []
    for near in runs.nearby:
        point = ComplexSteps(runs.subject.run, near.arrays, runs.cotangents, 1 + rng.random())
        moved.append(known_along(point, sums, len(runs.cotangents)))
    return [
        [
            furthest(own.summed(truth), [each[k][i].low for each in moved], FACTORS)
            for i, (own, truth) in enumerate(zip(runs.directions, each, strict=True))
        ]
        for k, each in enumerate(truths)
    ]


def lengthening(directions: Directions, array: Array) -> float:
    """How many times larger a derivative along a direction may be than one with respect to the largest entry, if the array
    as a whole makes the output: by the length of the direction, over the length of the array in units of that entry."""
    size = largest(array)
    numbers = array[np.isfinite(array)] / size if size else np.ones(array.size)  # zeros are as large as 1
    return max(1.0, directions.length / float(np.sqrt((numbers**2).sum()) or 1.0))


def relative_rounding(truth: Array, wander: float, may_be_zero: bool) -> float:
    """u, or more where the function is sharp: where its truth moves by more than one unit when its arrays do, intermediate
    results cancel, and their rounding does not shrink with the truth."""
    return max(UNIT, min(over(wander, largest(truth)), NOISE_OF_ZERO if may_be_zero else 1.0))


def verdicts(runs: Runs, blocks: Sequence[Block], excused: set[int], named: dict[int, Entry]) -> Iterator[Finding]:
    """A finding for every array whose gradient is not plainly right; those that may be right nevertheless join `excused`.

    A wrong entry of each joins `named`.
    """
    for i, name in enumerate(runs.subject.names):
        own = [block for block in blocks if block.i == i]
        n_wrong = max(block.judgement.n_wrong for block in own)
        if n_wrong:
            entry, why = first_confirmed(runs, own)
            named[i] = entry
            if why:
                excused.add(i)
                at = place(entry.index) if len(entry.seen.entries) == 1 else ""
                yield Finding("inconclusive", f"the gradient of {name}{at}: {why}")
            elif runs.directions[i].single:
                at = f", one of them {place(entry.index)}" if entry.index else ""
                yield Finding("fail", f"the gradient of {name}: {n_wrong} of {runs.skip[i].size} entries are wrong{at}")
            else:
                seen = f"{n_wrong} of {len(runs.directions[i])} directions show it"
                yield Finding("fail", f"the gradient of {name} is wrong, for one at {place(entry.index)}: {seen}")
        elif any(block.judgement.verdict == "inconclusive" for block in own):
            least = max(own, key=lambda block: block.judgement.power)
            text = f"the gradient of {name}: a relative error of {least.judgement.power:.1g} would not be seen"
            if any(np.isinf(block.known.doubt).any() for block in own):
                text = f"the gradient of {name}: {UNKNOWN_SLOPE}"
            elif least.jumps:
                text += ": it jumps when the arrays move in their last places, as where numbers tie"
            yield Finding("inconclusive", text)
        elif runs.skip[i].size and all(block.judgement.is_zero for block in own):
            yield Finding("pass", f"the gradient of {name} is zero to rounding")
        n_kinks = max(block.known.n_kinks for block in own)
        if n_kinks:
            at = "entries of" if runs.directions[i].single else "directions in"
            yield Finding("pass", f"{n_kinks} {at} {name} meet a kink, where every slope between those of its sides passes")


def first_confirmed(runs: Runs, blocks: Sequence[Block]) -> tuple[Entry, str | None]:
    """The worst entry that is wrong without an excuse; if there is none, the worst of all and its excuse."""
    worst = np.max([block.ratios for block in blocks], axis=0)
    suspects = chain.from_iterable(
        wrong_entries(runs, blocks, int(direction)) for direction in np.argsort(-worst, kind="stable") if worst[direction]
    )
    excuses = []
    for entry in islice(suspects, MOST_CONFIRMATIONS if runs.truth is COMPLEX_STEP else FEW_CONFIRMATIONS):
        why = excuse_of(runs, entry.seen)
        if why is None:
            return entry, None
        excuses.append((entry, why))
    return excuses[0]


def wrong_entries(runs: Runs, blocks: Sequence[Block], direction: int) -> Iterator[Entry]:
    """The entries that make a direction wrong, the worst first as far as halving finds it: each once the one before has an
    excuse, as long as the direction is wrong without it."""
    i = blocks[0].i
    entries, weights = runs.directions[i].of(direction)
    length = float(np.sqrt((weights**2).sum()))
    point = runs.truth.point(runs.subject.run, runs.arrays, [runs.cotangents[block.k] for block in blocks])

    def parts(entries: Array, weights: Array, slopes: Sequence[Slopes | None] | None = None) -> list[Part]:
        """One for each block."""
        share = float(np.sqrt((weights**2).sum())) / length
        found = []
        for block, known in zip(blocks, slopes or point.slopes(i, entries, weights), strict=True):
            actual, known = float(weights @ runs.gradients[block.k][i].reshape(-1)[entries]), known or UNKNOWN
            bar = share * block.bar + known.doubt
            found.append(Part(i, block.k, entries, weights, actual, known.nearest(actual), bar, known.differ))
        return found

    wholes = parts(entries, weights, [block.known.slopes(direction) for block in blocks])
    wrong_by = [float(block.ratios[direction]) for block in blocks]
    while max(wrong_by):
        one, seen = narrowed(wholes, int(np.argmax(wrong_by)), parts)
        entry, weight = int(one.entries[0]), float(one.weights[0])
        index = tuple(map(int, np.unravel_index(entry, runs.arrays[i].shape)))
        yield Entry(index, one.actual / weight, one.truth / weight, one.bar / abs(weight), seen)
        others = entries != entry
        entries, weights = entries[others], weights[others]
        if not len(entries):
            return
        wholes = parts(entries, weights)
        wrong_by = [0.0 if whole.error <= whole.bar else over(whole.error, whole.bar) for whole in wholes]


def narrowed(wholes: list[Part], k: int, parts: Callable[..., list[Part]]) -> tuple[Part, Part]:
    """One entry, and the smallest wrong part of the direction with that entry in it, both for the k-th block.

    Found by halving: the errors of two halves add up to that of the whole, so that the larger is at least half of it.
    """
    wrong, seen = wholes, wholes[k]
    while len(wrong[k].entries) > 1:
        entries, weights = wrong[k].entries, wrong[k].weights
        middle = len(entries) // 2
        left = parts(entries[:middle], weights[:middle])
        right = parts(entries[middle:], weights[middle:])
        wrong = left if left[k].error >= right[k].error else right
        if len(wrong[k].entries) == 1:  # with all its digits
            wrong = parts(wrong[k].entries, wrong[k].weights)
        if not wrong[k].error <= wrong[k].bar:
            seen = wrong[k]
    return wrong[k], seen


def excuse_of(runs: Runs, wrong: Part) -> str | None:
    if runs.truth is DIFFERENCES:
        together = wrong.at_kink and len(wrong.entries) > 1
        return f"{len(wrong.entries)} entries that move together meet several kinks" if together else None
    array = runs.arrays[wrong.i]
    if not (np.isfinite(wrong.actual) and np.isfinite(array.reshape(-1)[wrong.entries]).all()):
        return None
    size = float(sizes_of(array).reshape(-1)[wrong.entries].min())
    directions = [np.zeros(each.shape) for each in runs.arrays]
    directions[wrong.i].reshape(-1)[wrong.entries] = size * wrong.weights
    return excuse(
        runs.subject.run,
        runs.arrays,
        directions,
        runs.cotangents[wrong.k],
        size * wrong.actual,
        size * wrong.truth,
        size * wrong.bar,
    )


def without_truth(runs: Runs) -> Iterator[Finding]:
    """Where there is no truth, every entry must at least be a number."""
    for i, name in enumerate(runs.subject.names):
        strange = np.any([~np.isfinite(each[i]) & ~runs.skip[i] for each in runs.gradients], axis=0)
        if strange.any():
            index = tuple(map(int, np.argwhere(strange)[0]))
            yield Finding("fail", f"the gradient of {name}{place(index)} is not a number")


def stopped_entries_moved(runs: Runs) -> Iterator[Finding]:
    for i, name in enumerate(runs.subject.names):
        moving = np.any([(each[i] != 0) & runs.skip[i] for each in runs.gradients], axis=0)
        if moving.any():
            index = tuple(map(int, np.argwhere(moving)[0]))
            yield Finding("fail", f"the gradient of {name}{place(index)} is not exactly 0 where it is stopped")


def worst_of(blocks: Sequence[Block], excused: set[int]) -> Block | None:
    """The block with the largest error over its bar, an excused one only if no other has too large an error; of the first
    cotangents for which something is wrong, which are of ordinary size."""
    seen = [block for block in blocks if block.actual.size]
    wrong = [block for block in seen if block.judgement.n_wrong and block.i not in excused]
    first = min((block.k for block in wrong), default=None)
    return max([block for block in wrong if block.k == first] or seen, key=lambda block: block.judgement.ratio, default=None)
