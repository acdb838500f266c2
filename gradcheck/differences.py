"""The derivative along a line by ordinary differences, with an error bar that was measured: for any forward whatever.

Along x + tv the function is φ(t) = Σ dy·y(x + tv). Steps h go from coarse to fine by halves. Of the fourth-order stencil

    D(h) = (8·(φ(h) − φ(−h)) − (φ(2h) − φ(−2h))) / 12h = φ′ + O(h⁴)

the error is bounded by the change since the step before and by 1.5·noise/h; the step with the smallest bound counts, unless
a finer one contradicts it. Ten times the bound is the doubt, since such bounds are now and then too small.

The noise of φ is read off a table of differences at steps so small that, from the third difference on, a smooth function is
silent in it and only its rounding speaks. A function that computes with fewer digits stands still at such steps; then they
are widened until it moves.

At a kink the stencil gives the mean of two slopes, with confidence. So the slope on each side is taken as well, as
2·s(h/2) − s(h) with s(h) = (φ(h) − φ(0))/h: where the two differ by more than their doubts, both are the answer.

Sources: Moré and Wild 2011 (the noise); Fornberg 1988 (the stencil).
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gradcheck.arrays import SMALLEST_NUMBER, flattened
from gradcheck.slopes import Slopes
from gradcheck.subject import Array, Run

COARSEST_STEP = 2.0**-3
FINEST_STEP = 2.0**-46
PROBE_RATIO = 1024
PROBE_NOISE = 0.05
CAUTION = 10.0
# At the finest a part may stand still, as in float32. A step may happen to be as long as so many roundings, and silent then;
# none is a simple multiple of another.
NOISE_STEPS = ((1.5028 * 2.0**-44,), (1.3028 * 2.0**-24, 1.8393 * 2.0**-24))
# Where all stands still, as in float16; several, for in float32 much is silent.
WIDE_NOISE_STEPS = ((1.4656 * 2.0**-14, 1.1937 * 2.0**-13, 1.7549 * 2.0**-12), (1.618 * 2.0**-9,))
MOST_NOISE = 2.0**-9  # of the outputs; what is louder than float16 is no noise
SILENCE = 1e-6  # of the moves; the roundings of what stands still at the finer steps are larger
NOISE_POINTS = np.arange(-3, 4)
NOISE_ORDERS = (3, 4, 5)
USELESS, NEGLIGIBLE = 0.5, 1e-6
MANY_TURNS, FAR_BEYOND, SETTLED = 3, 300.0, 1e-5
UNIT_ROUNDING = 2.0**-53
SMALLEST_ROUNDING = 2.0**-1068  # of products that are too small for all their digits


class Line:
    """φ along x + tv, one for every set of cotangents; one forward for each number t."""

    def __init__(
        self, run: Run, arrays: Sequence[Array], directions: Sequence[Array], cotangents: Sequence[Sequence[Array]]
    ) -> None:
        self.run, self.arrays, self.directions = run, arrays, directions
        v, x = flattened(directions), flattened(arrays)
        moving = (v != 0) & np.isfinite(x)
        self.t_rounding = UNIT_ROUNDING * float(over(lengths(x[moving]), lengths(v[moving])))
        self.here = self.outputs_at(0.0)
        self.numbers = np.isfinite(self.here)
        self.weights = np.where(self.numbers, np.stack([flattened(dys) for dys in cotangents]), 0.0)
        self.smallest_rounding = np.where(self.weights.any(-1), SMALLEST_ROUNDING, 0.0)
        self.moved = np.zeros(self.here.shape, bool)
        self.bends = np.zeros(len(self.weights), bool)
        self.changes = {0.0: np.zeros(len(self.weights))}
        self.roundings: dict[float, Array] = {}  # until another output moves
        self.sizes = {0.0: np.where(self.numbers, np.abs(self.here), 0)}

    def outputs_at(self, t: float) -> Array:
        """What lies outside the function's domain, where it may raise, is no number."""
        try:
            outputs, _ = self.run([array + t * v for array, v in zip(self.arrays, self.directions, strict=True)])
        except Exception:
            if t == 0:
                raise
            return np.full(self.here.shape, np.nan)
        there = flattened(outputs)
        return there if t == 0 or there.shape == self.here.shape else np.full(self.here.shape, np.nan)

    def at(self, t: float) -> Array:
        """φ(t) − φ(0), NaN where an output that counts is no number."""
        if t not in self.changes:
            there = self.outputs_at(t)
            changes = np.where(np.isfinite(there) & self.numbers, there - np.where(self.numbers, self.here, 0), 0)
            lost = (self.weights != 0) @ ~np.isfinite(there)
            self.changes[t] = np.where(lost, np.nan, self.weights @ changes)
            self.sizes[t] = np.where(self.numbers, np.maximum(np.abs(there), np.abs(self.here)), 0) + SMALLEST_NUMBER
            if ((changes != 0) & ~self.moved).any():
                self.moved |= changes != 0
                self.roundings.clear()
        return self.changes[t]

    def rounding(self, t: float) -> Array:
        """Half a unit of every output that moves anywhere on the line: it may stand still between two roundings."""
        if t not in self.roundings:
            sizes = lengths(self.weights * np.where(self.moved, self.sizes[t], 0))
            self.roundings[t] = UNIT_ROUNDING * sizes + self.smallest_rounding
        return self.roundings[t]

    def noise(self) -> tuple[Array, Array]:
        """The deviation of φ by its rounding: at the finest steps at which it moves, and the loudest of all."""
        quiet, loud = np.zeros(len(self.weights)), np.zeros(len(self.weights))
        still = np.ones(len(self.weights), bool)
        for steps in (*NOISE_STEPS, *WIDE_NOISE_STEPS):
            if steps in WIDE_NOISE_STEPS and not still.any():
                break
            tables = np.stack([[self.at(step * i) for i in NOISE_POINTS] for step in steps])
            found, unheard = np.max([deviation(table) for table in tables], axis=0), still.copy()
            if steps == WIDE_NOISE_STEPS[-1]:  # still on one side alone: a kink close by, which looks like noise
                moves = np.abs(tables) > CAUTION * self.rounding(steps[0] * NOISE_POINTS[-1])
                left, right = (moves[:, side].any((0, 1)) for side in (NOISE_POINTS < 0, NOISE_POINTS > 0))
                self.bends = still & (left != right)
            quiet = np.where(still, np.maximum(quiet, found), quiet)
            loud = np.where(still | (steps in NOISE_STEPS), np.maximum(loud, found), loud)
            still &= (np.diff(tables, axis=1) != 0).mean((0, 1)) < 0.4
            if steps != NOISE_STEPS[0]:
                still |= unheard & (found <= SILENCE * np.abs(tables).max((0, 1)))
        most = MOST_NOISE * lengths(self.weights * np.where(self.moved, self.here, 0))
        return np.minimum(quiet, most), np.minimum(loud, most)

    def slopes(self) -> list[Slopes | None]:
        """None where nothing can be said: φ is no number beside the point, jumps there, or is so loud at some steps that its
        slope at finer ones is another; or where the doubt is as large as φ is steep anywhere, and no trifle beside φ."""
        quiet, loud = self.noise()
        steps, probes = self.ladder(COARSEST_STEP, quiet), []
        probe = steps[-1]
        while probe > FINEST_STEP and (quiet < PROBE_NOISE * self.moves(probe)).any():
            middle, doubt = settled(*self.centres(steps, quiet))
            probe /= PROBE_RATIO
            probes.append(probe)
            (slope,), (error,) = self.centres([probe], quiet)
            heard = error * probe < PROBE_NOISE * self.moves(probe)
            if (heard & (np.abs(slope - middle) > doubt + CAUTION * error)).any():
                steps += self.ladder(PROBE_RATIO / 2 * probe, quiet)
                probe = steps[-1]
        lost = self.jumps([*steps, *probes], quiet) | self.bends & (quiet > 0) | restless(*self.centres(steps, quiet))
        by_quiet, by_loud = (self.slopes_at(steps, noise) for noise in (quiet, loud))
        found = [None if nothing else agreed(a, b) for a, b, nothing in zip(by_quiet, by_loud, lost, strict=True)]
        steepest = np.nan_to_num(np.max([self.moves(h) / h for h in (*steps, *probes)], axis=0))
        trifle = NEGLIGIBLE * lengths(self.weights * np.where(self.numbers, self.here, 0))
        most = np.where(steepest, np.maximum(USELESS * steepest, trifle), np.inf)
        return [each if each and each.doubt <= limit else None for each, limit in zip(found, most, strict=True)]

    def slopes_at(self, steps: Sequence[float], noise: Array) -> list[Slopes | None]:
        """If that is the noise."""
        h = np.array(steps)[:, None]
        values, errors = self.centres(steps, noise)
        middle, doubt = settled(values, errors)
        sides = [np.stack([self.at(side * step) for step in steps]) / (side * h) for side in (-1, 1)]
        (left, p), (right, q) = (settled(2 * side[1:] - side[:-1], 4 * errors[1:]) for side in sides)
        kink = np.abs(left - right) > 2 * np.maximum(p, q)
        left, right = np.where(kink, left, middle), np.where(kink, right, middle)
        doubt = np.where(kink, np.maximum(p, q), doubt) + self.unmoved() / COARSEST_STEP
        return [
            Slopes(float(a), float(b), float(c)) if np.isfinite([a, b, c]).all() else None
            for a, b, c in zip(left, right, doubt, strict=True)
        ]

    def ladder(self, step: float, noise: Array) -> list[float]:
        """Steps by halves from `step`, until none finer can have a smaller bound."""
        steps, best = [step], np.full(len(self.weights), np.inf)
        while step > FINEST_STEP:
            step /= 2
            steps.append(step)
            values, errors = self.centres(steps[-2:], noise)
            best = np.fmin(best, np.abs(values[1] - values[0]) + errors[1])
            if len(steps) > 3 and (errors[1] >= best).all():
                break
        return steps

    def centres(self, steps: Sequence[float], noise: Array) -> tuple[Array, Array]:
        """D(h) and 1.5·noise/h for each step. The noise of outputs that are larger there is larger as well; and none is less
        than what the rounding of x + tv makes of the slope."""
        values, errors, here = [], [], self.rounding(0.0)
        for h in steps:
            values.append((8 * (self.at(h) - self.at(-h)) - (self.at(2 * h) - self.at(-2 * h))) / (12 * h))
            rounding = np.maximum(self.rounding(2 * h), self.rounding(-2 * h))
            grown = noise * np.maximum(1, over(rounding, CAUTION * here))
            errors.append(1.5 * np.max([grown, rounding, self.t_rounding * self.moves(h) / h], axis=0) / h)
        return np.stack(values), np.stack(errors)

    def jumps(self, steps: Sequence[float], noise: Array) -> Array:
        """Does φ move nearly as far at the finest step at which it is heard as at one that is 64 times as wide?"""
        jumps, open_ = np.zeros(len(self.weights), bool), np.ones(len(self.weights), bool)
        for h in sorted(steps):
            if h > COARSEST_STEP / 64 or not open_.any():
                break
            heard = open_ & (self.centres([h], noise)[1][0] * h < PROBE_NOISE * self.moves(h))
            jumps |= heard & (self.moves(h) > self.moves(64 * h) / 2)
            open_ &= ~heard
        return jumps

    def moves(self, h: float) -> Array:
        return np.maximum(np.abs(self.at(h)), np.abs(self.at(-h)))

    def unmoved(self) -> Array:
        """A unit of every output that nothing has moved: it may move by less."""
        return 2 * UNIT_ROUNDING * lengths(self.weights * np.where(self.moved | ~self.numbers, 0, self.here))


def agreed(quiet: Slopes | None, loud: Slopes | None) -> Slopes | None:
    """The slopes by the louder noise, with a doubt that reaches those by the other; None where the two contradict."""
    if not quiet or not loud:
        return None
    middle = (quiet.left + quiet.right) / 2
    if not loud.allow(middle, quiet.doubt):
        return None
    return replace(loud, doubt=max(loud.doubt, abs(middle - loud.nearest(middle))))


def lengths(rows: Array) -> Array:
    largest: Array = np.abs(rows).max(-1, keepdims=True, initial=SMALLEST_NUMBER)  # of numbers whose squares may underflow
    roots: Array = largest[..., 0] * np.sqrt(((rows / largest) ** 2).sum(-1))
    return roots


def over(rounding: Array, here: Array) -> Array:
    """How many times larger: not infinitely, also than 0."""
    return rounding / np.maximum(np.maximum(here, 2.0**-40 * rounding), SMALLEST_NUMBER)


def deviation(table: Array) -> Array:
    """Of the noise in a table of equidistant values, column by column: its k-th differences have the variance
    (2k)!/(k!)² times that of the noise."""
    size = np.nan_to_num(np.abs(table)).max(0, initial=SMALLEST_NUMBER)  # of numbers whose squares may underflow
    estimates = [
        np.sqrt((np.diff(table / size, n=k, axis=0) ** 2).mean(0) * math.factorial(k) ** 2 / math.factorial(2 * k))
        for k in NOISE_ORDERS
    ]
    largest: Array = size * np.nan_to_num(np.max(estimates, axis=0), nan=0.0)
    return largest


def restless(values: Array, errors: Array) -> Array:
    """Do the slopes settle, and at finer steps go back and forth by far more than their errors? Then part of φ moves by
    steps of its own, too coarse for the table of noise, and what settles last is the slope of the rest."""
    changes = np.diff(values, axis=0)
    near = np.maximum(CAUTION * errors[1:], SETTLED * np.abs(values[1:]))
    settles = np.logical_or.accumulate(np.abs(changes) <= near, axis=0)
    moves = settles & (np.abs(changes) > FAR_BEYOND * errors[1:])
    turns = moves[1:] & moves[:-1] & (changes[1:] * changes[:-1] < 0)
    restless: Array = turns.sum(0) >= MANY_TURNS
    return restless


def settled(values: Array, rounding: Array) -> tuple[Array, Array]:
    """For every column the value with the smallest bound, from coarse to fine, and its doubt."""
    bounds = np.full(values.shape, np.inf)
    bounds[1:] = np.abs(np.diff(values, axis=0)) + rounding[1:]
    for k in range(len(values) - 1):
        finer = np.abs(values[k + 1 :] - values[k]) > CAUTION * (bounds[k] + rounding[k + 1 :])
        bounds[k] = np.where(finer.any(0), np.inf, bounds[k])
    bounds = np.where(np.isfinite(bounds), bounds, np.inf)
    best, each = bounds.argmin(0), np.arange(values.shape[1])
    return values[best, each], CAUTION * bounds[best, each]


def slopes_along(
    run: Run, arrays: Sequence[Array], directions: Sequence[Array], cotangents: Sequence[Sequence[Array]]
) -> list[Slopes | None]:
    """The slopes of each Σ dy·y along `directions`; None where the function is not a number beside the point."""
    return Line(run, arrays, directions, cotangents).slopes()
