"""Every entry of every gradient against the truth, and what is to be said of it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gradcheck.arrays import FACTORS, SMALLEST_NUMBER, UNIT, furthest, natural_size, sizes_of
from gradcheck.complex_step import gradients_by_complex_step, lost_in_steps
from gradcheck.decision import MARGIN, RESOLUTION, Judgement, bar_of, distance, judge, largest, over
from gradcheck.differences import excuse, refuse_complex_unsafe
from gradcheck.report import Finding, place
from gradcheck.runs import Runs
from gradcheck.subject import Array

NEGLIGIBLE = 1e-12  # of its natural size: a truth so small may be rounding alone
NOISE_OF_ZERO = 1e-9  # at most, of its natural size
MOST_CONFIRMATIONS = 30  # of wrong entries, in one array


@dataclass(frozen=True)
class Block:
    """The gradient of array i for cotangent k."""

    i: int
    k: int
    actual: Array
    truth: Array
    bar: float
    layout_bar: float  # for the difference that another order of summation makes
    judgement: Judgement

    @property
    def ratios(self) -> Array:
        """Error over bar where that is too much, 0 elsewhere."""
        error = distance(self.actual, self.truth)
        agree = (error <= self.bar) & np.isfinite(error)
        ratios = np.where(np.isinf(error), np.inf, error / (self.bar or SMALLEST_NUMBER))
        return np.where(agree, 0.0, ratios)


def compared(runs: Runs, rtol: float, rng: np.random.Generator) -> list[Block]:
    """Raises ComplexUnsafeError where there is no truth."""
    run, cotangents, skip = runs.subject.run, runs.cotangents, runs.skip
    refuse_complex_unsafe(run, runs.arrays, skip, cotangents[0], rng)
    truths = gradients_by_complex_step(run, runs.arrays, cotangents, skip)
    moved = [gradients_by_complex_step(run, nearby.arrays, cotangents, skip, 1 + rng.random()) for nearby in runs.nearby]
    resolution = max(RESOLUTION, 2 * rtol)
    blocks = []
    for i, array in enumerate(runs.arrays):
        naturals = [natural_size(dys, runs.outputs, array) for dys in cotangents]
        noise = max((runs.noise(k, i) / natural for k, natural in enumerate(naturals) if natural), default=0.0)
        for k, natural in enumerate(naturals):
            actual, truth = np.where(skip[i], 0.0, runs.gradients[k][i]), truths[k][i]
            if np.isfinite(truths[0][i]).all() and not np.isfinite(truth).all():
                continue  # a large cotangent of ours has made it overflow
            wander = furthest(truth, [each[k][i] for each in moved], FACTORS)
            may_be_zero = largest(truth) <= NEGLIGIBLE * natural
            rounding = natural * relative_rounding(truth, wander, may_be_zero)
            if natural or actual.any():
                rounding += lost_in_steps(cotangents[k], array)
            bar = bar_of(truth, wander, rounding, rtol)
            wide = bar + MARGIN * noise * natural
            judgement = judge(actual, truth, bar, natural, resolution)
            if not (may_be_zero or judgement.is_zero):
                wide = bar
            elif judgement.n_wrong:
                bar, judgement = wide, judge(actual, truth, wide, natural, resolution)
            blocks.append(Block(i, k, actual, truth, bar, wide, judgement))
    return blocks


def relative_rounding(truth: Array, wander: float, may_be_zero: bool) -> float:
    """u, or more where the function is sharp: where its truth moves by more than one unit when its arrays do, intermediate
    results cancel, and their rounding does not shrink with the truth."""
    return max(UNIT, min(over(wander, largest(truth)), NOISE_OF_ZERO if may_be_zero else 1.0))


def verdicts(runs: Runs, blocks: Sequence[Block], excused: set[int]) -> Iterator[Finding]:
    """A finding for every array whose gradient is not plainly right; those that may be right nevertheless join `excused`."""
    for i, name in enumerate(runs.subject.names):
        own = [block for block in blocks if block.i == i]
        n_wrong = max(block.judgement.n_wrong for block in own)
        if n_wrong:
            index, why = first_confirmed(runs, own)
            if why:
                excused.add(i)
                yield Finding("inconclusive", f"the gradient of {name}{place(index)}: {why}")
            else:
                at = f", one of them {place(index)}" if index else ""
                yield Finding("fail", f"the gradient of {name}: {n_wrong} of {runs.skip[i].size} entries are wrong{at}")
        elif any(block.judgement.verdict == "inconclusive" for block in own):
            power = max(block.judgement.power for block in own)
            yield Finding("inconclusive", f"the gradient of {name}: a relative error of {power:.1g} would not be seen")
        elif runs.skip[i].size and all(block.judgement.is_zero for block in own):
            yield Finding("pass", f"the gradient of {name} is zero to rounding")


def first_confirmed(runs: Runs, blocks: Sequence[Block]) -> tuple[tuple[int, ...], str | None]:
    """The worst entry that is wrong without an excuse; if there is none, the worst of all and its excuse."""
    ratios = np.stack([block.ratios for block in blocks])
    worst = ratios.max(0)
    excuses = []
    for flat in np.argsort(-worst, axis=None, kind="stable")[:MOST_CONFIRMATIONS]:
        index = tuple(map(int, np.unravel_index(flat, worst.shape)))
        if worst[index] == 0:
            break
        why = excuse_of_entry(runs, blocks[int(ratios.reshape(len(blocks), -1)[:, flat].argmax())], index)
        if why is None:
            return index, None
        excuses.append((index, why))
    return excuses[0]


def excuse_of_entry(runs: Runs, block: Block, index: tuple[int, ...]) -> str | None:
    array = runs.arrays[block.i]
    if not np.isfinite([block.actual[index], array[index]]).all():
        return None
    directions = [np.zeros(each.shape) for each in runs.arrays]
    directions[block.i][index] = sizes_of(array)[index]
    size = float(directions[block.i][index])
    actual, truth = float(block.actual[index]), float(block.truth[index])
    return excuse(
        runs.subject.run, runs.arrays, directions, runs.cotangents[block.k], size * actual, size * truth, size * block.bar
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
    """The block with the largest error over its bar, an excused one only if no other has too large an error."""
    seen = [block for block in blocks if block.actual.size]
    wrong = [block for block in seen if block.judgement.n_wrong and block.i not in excused]
    return max(wrong or seen, key=lambda block: block.judgement.ratio, default=None)
