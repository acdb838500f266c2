"""float32 and float16 as they are, against the same backward in float64, which is proved elsewhere."""

from collections.abc import Iterator, Sequence

import numpy as np

from gradcheck.arrays import FACTORS, contents, copies, dense, furthest, natural_size, neighbours
from gradcheck.decision import bar_of, judge
from gradcheck.report import Finding, place
from gradcheck.subject import Array, Subject, WrongGradientsError, gradients_of

LOW_PRECISION_RTOL = {np.dtype(np.float32): 1e-4, np.dtype(np.float16): 1e-1}


def faults_in_low_precision(
    subject: Subject, skip: Sequence[Array], rtol: float, rng: np.random.Generator
) -> Iterator[Finding]:
    """What is wrong with the gradients of `subject.arrays`, some of which have fewer digits than float64."""
    originals = subject.arrays
    dtype = min((array.dtype for array in originals), key=lambda dtype: dtype.itemsize)
    limits = np.finfo(dtype)
    arrays = copies(originals)
    outputs, backward = subject.run(arrays)
    dys = dense(outputs, 1.0, rng)
    before = contents([*arrays, *dys])
    try:
        gradients = gradients_of(subject, backward, dys, originals)
    except WrongGradientsError as error:
        yield from (Finding("fail", f"in {dtype} {fault}") for fault in error.faults)
        return
    if contents([*arrays, *dys]) != before:
        yield Finding("fail", f"in {dtype} the backward overwrites what it was given")

    def in_float64(arrays: Sequence[Array], dys: Sequence[Array]) -> tuple[list[Array], list[Array]]:
        given, own_backward = subject.run(copies(arrays))
        return copies(given), copies(own_backward(copies(dys)))

    unit = float(limits.eps)
    same, same_dys = ([np.array(each, np.float64) for each in these] for these in (originals, dys))
    known_outputs, known = in_float64(same, same_dys)
    points = neighbours([*same, *same_dys], rng, [-2 * unit, -unit, unit, 2 * unit])
    near = [in_float64(point[: len(same)], point[len(same) :])[1] for point in points]
    for i, (name, actual) in enumerate(zip(subject.names, gradients, strict=True)):
        rounding = unit * natural_size(same_dys, known_outputs, same[i])
        wander = furthest(known[i], [each[i] for each in near], FACTORS)
        # Below `tiny` numbers of this dtype lose digits, and so does what is computed from them.
        bar = float(limits.tiny) + bar_of(known[i], wander, rounding, max(rtol, LOW_PRECISION_RTOL[dtype]))
        representable = np.abs(known[i]) <= float(limits.max)
        truth = np.where(representable, known[i], 0.0)
        judgement = judge(np.where(representable, actual, 0.0), truth, bar)
        if judgement.n_wrong:
            yield Finding(
                "fail",
                f"the gradient of {name} in {dtype}: {judgement.n_wrong} of {truth.size} entries are off, "
                f"at {place(judgement.index)} {judgement.ratio:.2g} × bar {bar:.2g}",
            )
        if np.any(actual[skip[i]]):
            yield Finding("fail", f"the gradient of {name} in {dtype} is not exactly 0 where it is stopped")
