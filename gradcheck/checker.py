"""The three entrances: an operation, a pair of functions, a layer.

A check runs the backward on dense random cotangents of several sizes, compares every entry of every gradient with the
derivative that the forward alone defines, and then looks for what numbers do not show (side_effects.py).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gradcheck.complex_step import ComplexUnsafeError, gradients_by_complex_step, refuse_complex_unsafe
from gradcheck.decision import MARGIN, Judgement, Verdict, bar_of, judge, largest
from gradcheck.report import Finding, Report, Worst
from gradcheck.side_effects import Ordinary, copies, side_effects
from gradcheck.subject import (
    Array,
    GradientCountError,
    Layer,
    Subject,
    parameters_put_back,
    subject_of_layer,
    subject_of_op,
    subject_of_pair,
)

# One-hot or unit cotangents cannot see a backward that squares, clips, rectifies or normalises dy.
COTANGENT_SCALES = (1.0, -3.0, 1e3)
RTOL = 1e-10
LOW_PRECISION_RTOL = {np.dtype(np.float32): 1e-4, np.dtype(np.float16): 1e-1}
UNIT = 2.0**-52


def check(
    op: Callable[..., tuple[Any, Callable[..., Any]]],
    *arrays: Any,
    stopped: Mapping[Any, Array] | None = None,
    truth: str = "auto",
    rtol: float | None = None,
    seed: int = 0,
    **options: Any,
) -> Report:
    """Check the backward of `op`, where op(*arrays, **options) returns (y, backward).

    y is an array or a tuple of arrays. backward takes one cotangent for each floating output and returns one gradient for
    each floating array among the arguments, keywords included, in the order of the signature; a None in the place of an
    integer or boolean array is accepted. A numpy.random.Generator among the arguments is copied afresh for every call.

    stopped  {argument's index or name: boolean array}: entries whose gradient is exactly 0 by contract
    truth    "complex", or "auto", which is the same where the forward accepts complex arrays; where it does not, the
             verdict is "inconclusive" and says why
    rtol     agreement relative to the largest entry of a gradient, 1e-10 unless given
    seed     of the cotangents; the report depends on nothing else

    Arrays of float32 or float16 are checked as float64 copies, then once as they are.

    Raises ValueError where no argument is a floating array, and whatever the op itself raises on its arguments.
    """
    return examine(subject_of_op(op, arrays, options), stopped, truth, rtol, seed)


def check_pair(
    forward: Callable[..., Any],
    backward: Callable[..., Any],
    *arrays: Any,
    stopped: Mapping[Any, Array] | None = None,
    truth: str = "auto",
    rtol: float | None = None,
    seed: int = 0,
    **options: Any,
) -> Report:
    """Check two separate functions: forward(*arrays) → y, backward(dy, *arrays) → a gradient or a tuple of them.

    Both are given the options. With several floating outputs their cotangents come first. Otherwise as `check`.
    """
    return examine(subject_of_pair(forward, backward, arrays, options), stopped, truth, rtol, seed)


def check_layer(
    layer: Layer,
    *arrays: Any,
    stopped: Mapping[Any, Array] | None = None,
    truth: str = "auto",
    rtol: float | None = None,
    seed: int = 0,
    **options: Any,
) -> Report:
    """Check layer.forward(*arrays) → (y, backward): the gradients of its inputs and of every parameter.

    layer.parameters() is {name: object with .value and .grad}; one object under two names is one parameter. The backward
    returns the gradients of the inputs and adds the parameters' to `.grad`. During the check `.value` and `.grad` are
    replaced; afterwards the layer has its own back, whatever happened. Otherwise as `check`.
    """
    subject = subject_of_layer(layer, arrays, options)
    with parameters_put_back(subject.parameters):
        return examine(subject, stopped, truth, rtol, seed)


def examine(subject: Subject, stopped: Mapping[Any, Array] | None, truth: str, rtol: float | None, seed: int) -> Report:
    if truth not in ("auto", "complex"):
        raise ValueError(f'truth must be "auto" or "complex", got {truth!r}')
    if rtol is not None and not 0 < rtol < 1:
        raise ValueError(f"rtol must be between 0 and 1, got {rtol}")
    if not subject.arrays:
        raise ValueError(f"{subject.title} has no differentiable input: none of its arguments is a floating array")
    for name, array in zip(subject.names, subject.arrays, strict=True):
        if array.dtype not in (np.float64, *LOW_PRECISION_RTOL):
            raise TypeError(f"{name} must be float64, float32 or float16 to be checked, got {array.dtype}")
    skip = stopped_entries(subject, stopped or {})
    return Examination(subject, skip, RTOL if rtol is None else rtol, seed).report()


def stopped_entries(subject: Subject, stopped: Mapping[Any, Array]) -> list[Array]:
    skip = [np.zeros(array.shape, bool) for array in subject.arrays]
    for key, entries in stopped.items():
        place = next((i for i, (n, s) in enumerate(zip(subject.names, subject.slots, strict=True)) if key in (n, s)), None)
        if place is None:
            raise ValueError(f"stopped names {key!r}, which is none of {', '.join(subject.names)}")
        entries = np.asarray(entries)
        if entries.dtype != np.bool_ or entries.shape != skip[place].shape:
            raise ValueError(
                f"stopped[{key!r}] must be boolean of the shape {skip[place].shape}, got {entries.dtype} {entries.shape}"
            )
        skip[place] = entries
    return skip


class Examination:
    """One check, from the first call to the report."""

    def __init__(self, subject: Subject, skip: list[Array], rtol: float, seed: int) -> None:
        self.n_evaluations = 0
        self.findings: list[Finding] = []
        self.blocks: list[tuple[str, Array, Array, float, Judgement]] = []
        self.rtol, self.skip = rtol, skip
        self.rng = np.random.default_rng(seed)
        self.arrays = [np.array(array, np.float64, order="C") for array in subject.arrays]

        def counted(arrays: Sequence[Array]) -> Any:
            self.n_evaluations += 1
            return subject.run(arrays)

        self.subject = replace(subject, run=counted)

    def report(self) -> Report:
        given, backward = self.subject.run(copies(self.arrays))
        outputs = copies(given)
        cotangents = [[self.dense(y.shape, scale) for y in outputs] for scale in COTANGENT_SCALES]
        gradients = []
        for dys in cotangents:
            own = self.well_formed(backward, dys, self.arrays)
            if own is None:
                return self.concluded()
            gradients.append(own)
        try:
            self.compare(outputs, cotangents, gradients)
        except ComplexUnsafeError as error:
            self.findings.append(Finding("inconclusive", f"the forward is not complex-safe: {error}"))
        return self.concluded()

    def dense(self, shape: tuple[int, ...], scale: float) -> Array:
        """Random numbers of both signs, none of them small."""
        dense: Array = scale * self.rng.uniform(0.5, 1.5, shape) * self.rng.choice([-1.0, 1.0], shape)
        return dense

    def well_formed(self, backward: Callable[..., Any], dys: Sequence[Array], arrays: Sequence[Array]) -> list[Array] | None:
        """Copies of the gradients, if there is one of the right shape and dtype for every array."""
        try:
            gradients = backward(copies(dys))
        except GradientCountError as error:
            self.findings.append(Finding("fail", str(error)))
            return None
        wrong = []
        for name, array, gradient in zip(self.subject.names, arrays, gradients, strict=True):
            if not isinstance(gradient, np.ndarray | np.generic):
                wrong.append(f"the gradient of {name} is {type(gradient).__name__}, not an array")
            elif gradient.shape != array.shape:
                wrong.append(f"the gradient of {name} has the shape {gradient.shape}, {name} has {array.shape}")
            elif gradient.dtype != array.dtype:
                wrong.append(f"the gradient of {name} is {gradient.dtype}, {name} is {array.dtype}")
        self.findings += [Finding("fail", text) for text in wrong]
        return None if wrong else copies(gradients)

    def compare(self, outputs: list[Array], cotangents: list[list[Array]], gradients: list[list[Array]]) -> None:
        run, arrays = self.subject.run, self.arrays
        # Beside the point itself, which may lie on a kink.
        beside = [array + 2.0**-10 * direction for array, direction in zip(arrays, self.directions(), strict=True)]
        refuse_complex_unsafe(run, beside, self.directions(), cotangents[0])
        truths = gradients_by_complex_step(run, arrays, cotangents, self.skip)
        moved_truths, moved_outputs = [], []
        for _ in range(3):
            nearby = [array * (1 + UNIT * self.rng.choice([-1.0, 1.0], array.shape)) for array in arrays]
            moved_truths.append(gradients_by_complex_step(run, nearby, cotangents, self.skip))
            moved_outputs.append(copies(run(nearby)[0]))
        wander = [
            [max(largest(moved[k][i] - truths[k][i]) for moved in moved_truths) for i in range(len(arrays))]
            for k in range(len(cotangents))
        ]
        rounding = [[self.rounding(dys, outputs, array) for array in arrays] for dys in cotangents]
        bars = [
            [bar_of(truths[k][i], wander[k][i], rounding[k][i], self.rtol) for i in range(len(arrays))]
            for k in range(len(cotangents))
        ]
        for k in range(len(cotangents)):
            for name, actual, truth, bar in zip(self.subject.names, gradients[k], truths[k], bars[k], strict=True):
                self.blocks.append((name, actual, truth, bar, judge(actual, truth, bar)))
        self.summarise(gradients)
        output_bars = [
            self.rtol * largest(y[np.isfinite(y)])
            + MARGIN * max(largest(moved[i][np.isfinite(y)] - y[np.isfinite(y)]) for moved in moved_outputs)
            for i, y in enumerate(outputs)
        ]
        self.findings += side_effects(
            Ordinary(self.subject, arrays, cotangents[0], outputs, gradients[0], output_bars, bars[0])
        )
        self.compare_as_given(outputs, cotangents[0], truths[0], wander[0], rounding[0])

    def directions(self) -> list[Array]:
        """A random direction in each array, as long as the array's own entries; none where it is stopped or not finite."""
        directions = []
        for array, skip in zip(self.arrays, self.skip, strict=True):
            still = skip | ~np.isfinite(array)
            size = largest(array[~still]) or 1.0
            directions.append(np.where(still, 0.0, size * self.rng.standard_normal(array.shape)))
        return directions

    def rounding(self, dys: Sequence[Array], outputs: Sequence[Array], array: Array) -> float:
        """f: one unit of the output, seen from the input."""
        weighted = sum(float(np.abs(dy * y)[np.isfinite(y)].sum()) for dy, y in zip(dys, outputs, strict=True))
        return UNIT * weighted / (largest(array[np.isfinite(array)]) or 1.0)

    def summarise(self, gradients: list[list[Array]]) -> None:
        for i, (name, skip) in enumerate(zip(self.subject.names, self.skip, strict=True)):
            own = [block for block in self.blocks if block[0] == name]
            n_wrong = max(judgement.n_wrong for *_, judgement in own)
            if n_wrong:
                self.findings.append(Finding("fail", f"the gradient of {name}: {n_wrong} of {skip.size} entries are wrong"))
            elif any(judgement.verdict == "inconclusive" for *_, judgement in own):
                power = max(judgement.power for *_, judgement in own)
                text = f"the gradient of {name}: a relative error of {power:.1g} would not be seen"
                self.findings.append(Finding("inconclusive", text))
            elif any(truth.size and largest(truth) <= bar for _, _, truth, bar, _ in own):
                self.findings.append(Finding("pass", f"the gradient of {name} is zero to rounding"))
            if any(np.any(each[i][skip]) for each in gradients):
                self.findings.append(Finding("fail", f"the gradient of {name} is not exactly 0 where it is stopped"))

    def compare_as_given(
        self,
        outputs: Sequence[Array],
        dys: Sequence[Array],
        truths: Sequence[Array],
        wander: Sequence[float],
        rounding: Sequence[float],
    ) -> None:
        """Arrays of lower precision once as they are, against the truth of their float64 copies."""
        originals = self.subject.arrays
        dtype = min((array.dtype for array in originals), key=lambda dtype: dtype.itemsize)
        if dtype == np.float64:
            return
        units = float(np.finfo(dtype).eps) / UNIT
        low_outputs, backward = self.subject.run(copies(originals))
        low_dys = [dy.astype(y.dtype) for dy, y in zip(dys, low_outputs, strict=True)]
        gradients = self.well_formed(backward, low_dys, originals)
        for name, actual, truth, w, f in zip(
            self.subject.names, gradients or (), truths, wander, rounding, strict=bool(gradients)
        ):
            bar = bar_of(truth, units * w, units * f, LOW_PRECISION_RTOL[dtype])
            judgement = judge(actual.astype(np.float64), truth, bar)
            if judgement.n_wrong:
                text = f"the gradient of {name} in {dtype}: {judgement.n_wrong} of {truth.size} entries are off"
                self.findings.append(Finding("fail", f"{text}, at worst {judgement.ratio:.2g} × bar {bar:.2g}"))

    def concluded(self) -> Report:
        verdicts: set[Verdict] = {finding.verdict for finding in self.findings}
        verdict: Verdict = "fail" if "fail" in verdicts else "inconclusive" if "inconclusive" in verdicts else "pass"
        order = ("fail", "inconclusive", "pass")
        worst, power = None, 0.0
        compared = [block for block in self.blocks if block[1].size]
        if compared:
            name, actual, truth, bar, judgement = max(compared, key=lambda block: block[4].ratio)
            at = judgement.index
            worst = Worst(name, at, float(actual[at]), float(truth[at]), abs(float(actual[at]) - float(truth[at])), bar)
            power = max(block[4].power for block in compared)
        return Report(
            title=self.subject.title,
            verdict=verdict,
            worst=worst,
            power=power,
            findings=sorted(self.findings, key=lambda finding: order.index(finding.verdict)),
            n_entries=sum(array.size for array in self.arrays),
            n_evaluations=self.n_evaluations,
        )
