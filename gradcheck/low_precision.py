"""float32 and float16 as they are, against the same code in float64, which is proved elsewhere."""

from collections.abc import Iterator, Sequence

import numpy as np

from gradcheck.arrays import FACTORS, contents, copies, dense, furthest, natural_size, neighbours
from gradcheck.decision import MARGIN, bar_of, judge, largest
from gradcheck.report import Finding, place
from gradcheck.subject import Array, Subject, WrongGradientsError, gradients_of

LOW_PRECISION_RTOL = {np.dtype(np.float32): 1e-4, np.dtype(np.float16): 1e-1}
SCALES = {np.dtype(np.float32): (1.0, -30.0, 1e-3), np.dtype(np.float16): (1.0,)}


def faults_in_low_precision(
    subject: Subject, skip: Sequence[Array], rtol: float, rng: np.random.Generator
) -> Iterator[Finding]:
    """What is wrong with the outputs and gradients of `subject.arrays`, some of which have fewer digits than float64."""
    dtype = min((array.dtype for array in subject.arrays), key=lambda dtype: dtype.itemsize)
    for scale in SCALES[dtype]:
        arrays = copies(subject.arrays)
        given, backward = subject.run(arrays)
        outputs = copies(given)
        dys = dense(outputs, scale, rng)
        before = contents([*arrays, *dys])
        try:
            gradients = gradients_of(subject, backward, dys, subject.arrays)
        except WrongGradientsError as error:
            yield from (Finding("fail", f"in {dtype} {fault}") for fault in error.faults)
            return
        if contents([*arrays, *dys]) != before:
            yield Finding("fail", f"in {dtype} the backward overwrites what it was given")
            return
        faults = list(differences(subject, skip, dtype, rtol, rng, dys, outputs, gradients))
        if faults:
            yield from faults
            return


def differences(
    subject: Subject,
    skip: Sequence[Array],
    dtype: "np.dtype[np.floating]",
    rtol: float,
    rng: np.random.Generator,
    dys: Sequence[Array],
    outputs: Sequence[Array],
    gradients: Sequence[Array],
) -> Iterator[Finding]:
    """Where the outputs and gradients in low precision are not those in float64."""

    def in_float64(arrays: Sequence[Array], dys: Sequence[Array]) -> tuple[list[Array], list[Array]]:
        given, own_backward = subject.run(copies(arrays))
        return copies(given), copies(own_backward(copies(dys)))

    limits = np.finfo(dtype)
    unit, rtol = float(limits.eps), max(rtol, LOW_PRECISION_RTOL[dtype])
    same, same_dys = ([np.array(each, np.float64) for each in these] for these in (subject.arrays, dys))
    known_outputs, known = in_float64(same, same_dys)
    points = neighbours([*same, *same_dys], rng, [-2 * unit, -unit, unit, 2 * unit])
    near = [in_float64(point[: len(same)], point[len(same) :]) for point in points]

    def fault(name: str, actual: Array, truth: Array, bar: float) -> Iterator[Finding]:
        representable = np.isfinite(truth) & (np.abs(truth) <= float(limits.max))
        judgement = judge(np.where(representable, actual, 0.0), np.where(representable, truth, 0.0), bar)
        if judgement.n_wrong:
            text = f"{name} in {dtype}: {judgement.n_wrong} of {truth.size} entries are off"
            yield Finding("fail", f"{text}, at {place(judgement.index)} {judgement.ratio:.2g} × bar {bar:.2g}")

    # Below `tiny` numbers of this dtype lose digits, and so does what is computed from them.
    tiny = float(limits.tiny)
    for i, (actual, truth) in enumerate(zip(outputs, known_outputs, strict=True)):
        name = "the output" if len(outputs) == 1 else f"output {i}"
        yield from fault(
            name, actual, truth, tiny + bar_of(truth, furthest(truth, [y[i] for y, _ in near], FACTORS), 0.0, rtol)
        )
    for i, (name, actual, truth) in enumerate(zip(subject.names, gradients, known, strict=True)):
        rounding = unit * natural_size(same_dys, known_outputs, same[i])
        bar = tiny + bar_of(truth, furthest(truth, [each[i] for _, each in near], FACTORS), rounding, rtol)
        if largest(truth) <= bar and largest(actual) > bar:  # zero to rounding, or wrong
            bar += MARGIN * wander_of(subject, dys, gradients, rng, unit)[i]
        yield from fault(f"the gradient of {name}", actual, truth, bar)
        if np.any(actual[skip[i]]):
            yield Finding("fail", f"the gradient of {name} in {dtype} is not exactly 0 where it is stopped")


def wander_of(
    subject: Subject, dys: Sequence[Array], gradients: Sequence[Array], rng: np.random.Generator, unit: float
) -> list[float]:
    """How far the gradients in low precision move when every number does by a few units."""
    moved = []
    for point in neighbours(subject.arrays, rng, [-2 * unit, -unit, unit, 2 * unit]):
        _, backward = subject.run([np.asarray(each, array.dtype) for each, array in zip(point, subject.arrays, strict=True)])
        moved.append(copies(backward(copies(dys))))
    return [furthest(gradient, [each[i] for each in moved], FACTORS) for i, gradient in enumerate(gradients)]
