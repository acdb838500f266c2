"""One check, from the first call to the report."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from gradcheck.arrays import FACTORS, UNIT, furthest, natural_size
from gradcheck.comparison import Block, Entry, compared, stopped_entries_moved, verdicts, without_truth, worst_of
from gradcheck.complex_safety import refuse_complex_unsafe
from gradcheck.complex_step import ComplexUnsafeError
from gradcheck.decision import Verdict, bar_of, distance, largest
from gradcheck.diagnosis import diagnosis_of
from gradcheck.directions import Directions
from gradcheck.low_precision import faults_in_low_precision
from gradcheck.ordinary import Ordinary, names_of_outputs
from gradcheck.report import Finding, Report, Worst, place
from gradcheck.runs import FirstRun, InconclusiveError, Runs, first_run, ordinary_runs
from gradcheck.second_point import second_point
from gradcheck.side_effects import side_effects
from gradcheck.subject import Array, Subject, WrongGradientsError
from gradcheck.truth import COMPLEX_STEP, DIFFERENCES, Truth

NOTHING = 1e-10  # of the arrays: an output so small may be what is left of larger terms


class Examination:
    def __init__(self, subject: Subject, skip: list[Array], truth: str, rtol: float, repeat_rtol: float, seed: int) -> None:
        self.skip, self.truth, self.rtol, self.repeat_rtol = skip, truth, rtol, repeat_rtol
        self.against = DIFFERENCES.name if truth == "difference" else COMPLEX_STEP.name
        self.rng = np.random.default_rng(seed)
        self.findings: list[Finding] = []
        self.blocks: list[Block] = []
        self.excused: set[int] = set()
        self.named: dict[int, Entry] = {}
        self.directions: list[Directions] = []
        self.diagnosis: list[str] = []
        self.n_evaluations = 0

        def counted(arrays: Sequence[Array]) -> Any:
            self.n_evaluations += 1
            return subject.run(arrays)

        self.subject = replace(subject, run=counted)

    def report(self) -> Report:
        with self.constants_put_back(), np.errstate(all="ignore"):
            try:
                for finding in self.look():
                    self.findings.append(finding)  # one by one: those before an exception stay
            except WrongGradientsError as error:
                self.findings += [Finding("fail", fault) for fault in error.faults]
            except InconclusiveError as error:
                self.findings.append(Finding("inconclusive", str(error)))
        return self.concluded()

    def look(self) -> Iterator[Finding]:
        first = first_run(self.subject, self.rng)
        yield from self.outputs_without_slope(first)
        for what in self.subject.unseen:
            yield Finding("pass", f"{what}, and no gradient of it is checked: only arrays are")
        if self.truth == "difference":
            runs, findings = self.compared_with(DIFFERENCES, first)
        else:
            try:
                refuse_complex_unsafe(self.subject.run, first.arrays, self.skip, first.cotangents[0], self.rng)
                runs, findings = self.compared_with(COMPLEX_STEP, first)
                why = next((finding.text for finding in findings if self.excused and finding.verdict == "inconclusive"), "")
            except ComplexUnsafeError as error:
                why = f"the forward is not complex-safe: {error}"
                if self.truth == "complex":
                    runs = ordinary_runs(self.subject, first, COMPLEX_STEP, self.skip, self.rng)
                    findings = [Finding("inconclusive", why), *stopped_entries_moved(runs), *without_truth(runs)]
            if why and self.truth == "auto":
                yield Finding("pass", f"compared with differences, since {why}")
                runs, findings = self.compared_with(DIFFERENCES, first)
        yield from findings
        yield from side_effects(self.ordinary(runs))
        if any(array.dtype != np.float64 for array in self.subject.arrays):
            yield from faults_in_low_precision(self.subject, self.skip, self.rtol, self.rng)
        if any(finding.verdict == "fail" for finding in self.findings):
            self.diagnosis = diagnosis_of(runs, self.blocks, self.excused)

    def outputs_without_slope(self, first: FirstRun) -> Iterator[Finding]:
        """NaN is a failure, unless it may come from a NaN among the arrays that is stopped."""
        nans = [np.isnan(array) for array in first.arrays]
        declared = any(each.any() for each in nans) and not any(
            (each & ~s).any() for each, s in zip(nans, self.skip, strict=True)
        )
        for name, y in zip(names_of_outputs(first.outputs), first.outputs, strict=True):
            if np.isnan(y).any():
                index = tuple(map(int, np.argwhere(np.isnan(y))[0]))
                text = f"{name}{place(index)} is NaN, where there is no derivative ({np.isnan(y).sum()} of {y.size} are)"
                yield Finding("pass" if declared else "fail", text)

    def compared_with(self, truth: Truth, first: FirstRun) -> tuple[Runs, list[Finding]]:
        runs = ordinary_runs(self.subject, first, truth, self.skip, self.rng)
        self.against, self.directions, self.excused, self.named = truth.name, runs.directions, set(), {}
        findings = list(stopped_entries_moved(runs))
        n_infinite = sum(int(np.isinf(y).sum()) for y in runs.outputs)
        if truth is DIFFERENCES and n_infinite:
            findings.append(
                Finding("inconclusive", f"{n_infinite} outputs are infinite, and differences do not see them move")
            )
        findings += [Finding("pass", f"not defined everywhere nearby: {refusal}") for refusal in runs.refusals]
        if not runs.nearby:
            text = "accepts no arrays that differ in the last place, so its rounding is not known"
            findings.append(Finding("inconclusive", text))
        self.blocks = compared(runs, self.rtol, self.rng)
        findings += verdicts(runs, self.blocks, self.excused, self.named)
        if not any(block.judgement.n_wrong for block in self.blocks):
            findings += second_point(runs, self.rtol, self.rng)
        return runs, findings

    def ordinary(self, runs: Runs) -> Ordinary:
        """What side effects are looked for with. Without a truth the bars are those of the backward's own rounding."""
        rounding = [UNIT * natural_size(runs.cotangents[0], runs.outputs, array) for array in runs.arrays]

        def bar(known: Array, moved: list[Array], rounding: float) -> float:
            return bar_of(known, furthest(known, moved, FACTORS), rounding, self.rtol)

        inputs = max(largest(array) for array in runs.arrays)

        def cancelled(y: Array) -> float:
            """The rounding of an output that is nearly nothing beside the arrays: of terms of their size, it may be."""
            return UNIT * inputs if largest(y) < NOTHING * inputs else 0.0

        return Ordinary(
            subject=runs.subject,
            arrays=runs.arrays,
            dys=runs.cotangents[0],
            outputs=runs.outputs,
            gradients=runs.gradients[0],
            rounding=rounding,
            given=self.subject.arrays,
            rtol=self.rtol,
            repeat_rtol=self.repeat_rtol,
            output_bars=[
                bar(y, [near.outputs[i] for near in runs.nearby], cancelled(y)) for i, y in enumerate(runs.outputs)
            ],
            gradient_bars=[block.layout_bar for block in self.blocks if block.k == 0]
            or [
                bar(along, [near.along[0][i] for near in runs.nearby], rounding[i]) for i, along in enumerate(runs.along[0])
            ],
            elsewhere=runs.elsewhere,
        )

    @contextmanager
    def constants_put_back(self) -> Iterator[None]:
        """Whatever happens inside, the integer and boolean arrays have their own contents afterwards."""
        kept = [(name, array, array.copy()) for name, array in self.subject.constants]
        try:
            yield
        finally:
            for name, array, before in kept:
                if array.tobytes() != before.tobytes():
                    array[...] = before
                    self.findings.append(Finding("fail", f"{name} is overwritten"))

    def concluded(self) -> Report:
        if any(finding.verdict == "fail" for finding in self.findings):
            for name, array in zip(self.subject.names, self.subject.arrays, strict=True):
                if np.isnan(array).any():
                    index = tuple(map(int, np.argwhere(np.isnan(array))[0]))
                    self.findings.append(Finding("pass", f"{name} itself is NaN, as at {place(index) or 'its one entry'}"))
        order: tuple[Verdict, ...] = ("fail", "inconclusive", "pass")
        findings = sorted(self.findings, key=lambda finding: order.index(finding.verdict))
        worst = worst_of(self.blocks, self.excused)
        n_entries = sum(array.size for array in self.subject.arrays)
        nothing = float("inf") if n_entries else 0.0
        return Report(
            title=self.subject.title,
            verdict=findings[0].verdict if findings else "pass",
            worst=self.worst_entry(worst) if worst else None,
            power=max((block.judgement.power for block in self.blocks), default=nothing),
            findings=findings,
            diagnosis=self.diagnosis,
            n_entries=n_entries,
            n_evaluations=self.n_evaluations,
            n_directions=0 if all(own.single for own in self.directions) else sum(map(len, self.directions)),
            against=self.against,
        )

    def worst_entry(self, block: Block) -> Worst:
        name, directions, k = self.subject.names[block.i], self.directions[block.i], block.judgement.index[0]
        entries, weights = directions.of(k)
        if len(entries) > 1 and block.i in self.named:
            entry = self.named[block.i]
            error = float(distance(np.array(entry.actual), np.array(entry.truth)))
            return Worst(name, entry.index, entry.actual, entry.truth, error, entry.bar)
        actual, truth = float(block.actual[k]), float(block.truth[k])
        error = float(distance(block.actual, block.truth)[k])
        if len(entries) > 1:
            direction = f" along direction {k} of {len(directions)}"
            return Worst(name, (), actual, truth, error, float(block.bars[k]), direction)
        weight = float(weights[0])
        index = tuple(map(int, np.unravel_index(entries[0], self.skip[block.i].shape)))
        return Worst(name, index, actual / weight, truth / weight, error, float(block.bars[k]))
