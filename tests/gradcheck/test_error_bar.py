"""The error bar of differences: measured on npformer's operations at many scales, it is never too small.

A restriction is φ(t) = Σ dy·y(x + tv) of one case of the catalogue, whose numbers are those of the case times 10^k with k
from −8 to 10. v moves all entries, each by about its own size, or one entry alone.
"""

from collections import Counter
from dataclasses import dataclass, field
from decimal import Decimal, localcontext

import numpy as np
import pytest

from gradcheck.arrays import UNIT, dense, nudged, random_directions, sizes_of
from gradcheck.complex_step import derivatives_along
from gradcheck.differences import FINEST_STEP, slopes_along
from gradcheck.subject import subject_of_op
from npformer import functional
from npformer.catalogue import OPERATIONS, RandomChooser
from npformer.oracle import reference

SCALED = ("x", "logits", "query", "key", "table")
MOST_EVALUATIONS = 130


@dataclass
class Study:
    n: int = 0
    nothing_said: int = 0
    kinks: int = 0
    too_small: list = field(default_factory=list)
    errors: list = field(default_factory=list)  # relative, as are
    bars: list = field(default_factory=list)
    evaluations: list = field(default_factory=list)

    def __str__(self):
        wide = np.mean(np.array(self.bars) > 1e-6)
        return (
            f"{self.n} restrictions: {len(self.too_small)} bars too small, of {self.nothing_said} nothing said, "
            f"{self.kinks} kinks; median error {np.median(self.errors):.1e} and bar {np.median(self.bars):.1e} of the "
            f"derivative, {wide:.1%} of the bars above 1e-6 of it; {np.median(self.evaluations):.0f} evaluations in the "
            f"median, {max(self.evaluations)} at most"
        )


def restriction(name, seed):
    """run, arrays, directions and cotangents; None where there is nothing to move."""
    rng = np.random.default_rng(seed)
    case = OPERATIONS[name].draw(RandomChooser(rng), rng)
    scale = 10.0 ** rng.integers(-8, 11)
    drawn = {key: array * scale if key in SCALED else array for key, array in case.arrays.items()}
    subject = subject_of_op(case.operation.function, (), {**drawn, **case.options})
    arrays = [np.asarray(array) for array in subject.arrays]
    outputs, _ = subject.run(arrays)
    if any(array.size == 0 for array in (*arrays, *outputs)):
        return None
    dys = [np.where(np.isfinite(y), dy, 0) for dy, y in zip(dense(outputs, 1.0, rng), outputs, strict=True)]
    if rng.random() < 0.5:
        directions = random_directions(arrays, [np.zeros(array.shape, bool) for array in arrays], rng)
    else:
        directions = [np.zeros(array.shape) for array in arrays]
        i = rng.integers(len(arrays))
        entry = rng.integers(arrays[i].size)
        directions[i].flat[entry] = sizes_of(arrays[i]).flat[entry] if np.isfinite(arrays[i].flat[entry]) else 0
    return subject.run, arrays, directions, dys, rng


def several_kinks_meet(name, arrays, directions):
    """Several exact zeros of relu that move together: what relu declares need not lie between the slopes of the sides."""
    return name == "relu" and np.count_nonzero((arrays[0] == 0) & (directions[0] != 0)) > 1


def is_a_jump(run, arrays, dys, truth):
    """Within the finest step φ would move by a thousandth of itself: so steep a part is not seen."""
    outputs, _ = run(arrays)
    own = sum(np.abs(dy[dy != 0] * y[dy != 0]).sum() for dy, y in zip(dys, outputs, strict=True))
    return abs(truth) * FINEST_STEP > 1e-3 * own


def by_complex_step(run, arrays, directions, dys, stretch=1.0):
    """Stretched steps give the same derivative with other roundings."""
    return derivatives_along(run, arrays, [stretch * v for v in directions], [dys])[0] / stretch


def lost_by_the_complex_step(truth, found, directions, dys):
    """Its imaginary parts cancelled to exactly 0, as real parts may: what is below their last place it cannot see."""
    largest = max(np.abs(v).max() for v in directions) * sum(np.abs(dy).sum() for dy in dys)
    return truth == 0 and max(abs(found.left), abs(found.right)) <= UNIT * largest


def studied(seeds):
    study = Study()
    for seed in seeds:
        for name, operation in OPERATIONS.items():
            drawn = operation.differentiable and restriction(name, seed)
            if not drawn:
                continue
            run, arrays, directions, dys, rng = drawn
            n_evaluations = Counter()

            def counted(given, run=run, counter=n_evaluations):
                counter["forward"] += 1
                return run(given)

            with np.errstate(all="ignore"):
                stretches = (1.0, *(1 + rng.random(8)))
                truth = np.median([by_complex_step(run, arrays, directions, dys, stretch) for stretch in stretches])
                near = [by_complex_step(run, nudged(arrays, rng), directions, dys, 1 + rng.random()) for _ in range(9)]
                (found,) = slopes_along(counted, arrays, directions, [dys])
            if not np.isfinite(truth) or several_kinks_meet(name, arrays, directions) or is_a_jump(run, arrays, dys, truth):
                continue
            study.evaluations.append(n_evaluations["forward"])
            study.n += 1
            if found is None:
                study.nothing_said += 1
                continue
            if lost_by_the_complex_step(truth, found, directions, dys):
                continue
            study.kinks += found.differ
            error = abs(found.nearest(truth) - truth)  # at a kink any slope between those of the sides is right
            wander = max((abs(each - truth) for each in near if np.isfinite(each)), default=0.0)
            if not error <= found.doubt + 2 * wander:
                study.too_small.append((name, seed, truth, found, wander))
            if truth:
                study.errors.append(error / abs(truth))
                study.bars.append(found.doubt / abs(truth))
    return study


def is_good(study):
    assert study.too_small == []
    assert study.nothing_said < 0.02 * study.n, study
    assert np.median(study.errors) < 1e-10, study
    assert np.median(study.bars) < 1e-10, study
    assert max(study.evaluations) < MOST_EVALUATIONS, study
    return True


def test_the_bar_is_never_too_small():
    study = studied(range(36))
    assert study.n >= 500
    assert is_good(study)


@pytest.mark.long
def test_the_bar_is_never_too_small_on_many_restrictions(capsys):
    study = studied(range(3000, 3330))
    with capsys.disabled():
        print(f"\n{study}")
    assert study.n >= 5000
    assert is_good(study)


@pytest.mark.parametrize("divided_by", [100.0, 3e3])
def test_a_bar_that_is_too_small_would_be_seen(monkeypatch, divided_by):
    """Ten times the bound, as the bar is, has a margin; a hundredth of it has none."""
    monkeypatch.setattr("gradcheck.differences.CAUTION", 10.0 / divided_by)
    study = studied(range(12))
    assert len(study.too_small) > 3, study


# The complex step is not the only judge: sixty digits, of the references that share nothing with the operations.

ROWS = ((3, 5),)
IN_SIXTY_DIGITS = {
    "softmax": ROWS,
    "log_softmax": ROWS,
    "gelu": ROWS,
    "gelu_tanh": ROWS,
    "silu": ROWS,
    "sigmoid": ROWS,
    "tanh": ROWS,
    "layer_norm": (*ROWS, (5,), (5,)),
    "rms_norm": (*ROWS, (5,)),
    "linear": (*ROWS, (5, 2), (2,)),
    "attention": ((1, 2, 3, 5), (1, 1, 2, 5), (1, 1, 2, 3)),
}


def decimals(array):
    return [decimals(part) for part in array] if array.ndim else Decimal(float(array))


def flat(nested):
    return [number for part in nested for number in flat(part)] if isinstance(nested, list) else [nested]


def moved(nested, v, t):
    if isinstance(nested, list):
        return [moved(part, own, t) for part, own in zip(nested, v, strict=True)]
    return nested + t * v


def derivative_in_sixty_digits(name, arrays, directions, dy):
    """By a difference whose step leaves forty digits."""
    step = Decimal("1e-20")
    x, v, weights = [decimals(each) for each in arrays], [decimals(each) for each in directions], flat(decimals(dy))

    def value(t):
        y = getattr(reference, name)(*(moved(each, own, t) for each, own in zip(x, v, strict=True)))
        return sum(weight * number for weight, number in zip(weights, flat(y), strict=True))

    with localcontext() as context:
        context.prec = 60
        return (value(step) - value(-step)) / (2 * step)


@pytest.mark.parametrize("scale", [1e-7, 1.0, 11.0])
@pytest.mark.parametrize("name", IN_SIXTY_DIGITS)
def test_the_bar_against_sixty_digits(name, scale):
    for seed in range(4):
        rng = np.random.default_rng(seed)
        arrays = [scale * rng.normal(size=shape) for shape in IN_SIXTY_DIGITS[name]]
        directions = random_directions(arrays, [np.zeros(array.shape, bool) for array in arrays], rng)

        def run(given):
            return (getattr(functional, name)(*given)[0],), None

        dy = rng.normal(size=run(arrays)[0][0].shape)
        truth = derivative_in_sixty_digits(name, arrays, directions, dy)
        (found,) = slopes_along(run, arrays, directions, [[dy]])
        error = abs(Decimal(found.left) - truth)
        assert not found.differ
        assert error <= Decimal(found.doubt) <= abs(truth) / 10**5, (seed, truth, found)
