"""npformer checked by what does not share its code: values by plain loops, gradients by gradcheck, float32 by float64.

This is what `python -m npformer check` runs, and the property tests with cases of their own.
"""

import copy
import multiprocessing
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from multiprocessing.pool import Pool
from typing import Any

import numpy as np

import gradcheck
from npformer.catalogue import LAYERS, OPERATIONS, Case, RandomChooser
from npformer.operation import Array
from npformer.oracle import reference

CATALOGUE = {**OPERATIONS, **LAYERS}
FEW_SEEDS = 250
SEEDS_A_TASK = 50
FLOAT64_UNIT = 2.0**-52
FLOAT32_UNIT = 2.0**-23
FLOAT32_UNITS = 64  # by how many a right float32 result may be off, besides what the last digits of the inputs move
FLOAT32_TINY = 2.0**-126  # below it float32 loses digits
DIGITS = 30  # of the plain loops, which compute in decimal numbers
N_NEIGHBOURS = 8
MARGIN = 30  # times what the last digits of the inputs move


@dataclass
class Outcome:
    """What the cases of one operation came to.

    shapes        the sets of shapes that were tried
    worst         the largest error over its bar
    inconclusive  how many cases were too ill-conditioned for gradcheck to prove anything
    """

    name: str
    shapes: set[tuple[tuple[int, ...], ...]] = field(default_factory=set)
    inconclusive: int = 0
    worst: float = 0.0
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def verdict(self) -> str:
        if self.faults:
            return f"FAIL ({len(self.faults)})"
        return f"pass ({self.inconclusive} inconclusive)" if self.inconclusive else "pass"

    def __add__(self, other: "Outcome") -> "Outcome":
        return Outcome(
            self.name,
            self.shapes | other.shapes,
            self.inconclusive + other.inconclusive,
            max(self.worst, other.worst),
            self.faults + other.faults,
            self.seconds + other.seconds,
        )


def check_all(names: Sequence[str], n_seeds: int) -> Iterator[Outcome]:
    """The operations `names` on the seeds 0 … n_seeds − 1, each as soon as it is done; many seeds on all cores."""
    if n_seeds <= FEW_SEEDS:
        yield from (check_operation(name, range(n_seeds)) for name in names)
        return
    starts = range(0, n_seeds, SEEDS_A_TASK)
    tasks = ((name, range(start, min(start + SEEDS_A_TASK, n_seeds))) for name in names for start in starts)
    with workers() as pool:
        outcomes = pool.imap(check_task, tasks)
        for name in names:
            yield sum((next(outcomes) for _ in starts), Outcome(name))


def workers() -> Pool:
    """One for each core. Leaving the block ends them at once; an interrupt is answered here, not in them."""
    return multiprocessing.Pool(initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN))


def check_task(task: tuple[str, Iterable[int]]) -> Outcome:
    return check_operation(*task)


def check_operation(name: str, seeds: Iterable[int]) -> Outcome:
    """One case of an operation for each seed."""
    start = time.perf_counter()
    outcome = Outcome(name)
    for seed in seeds:
        rng = np.random.default_rng(seed)
        checked = check_case(CATALOGUE[name].draw(RandomChooser(rng), rng))
        checked.faults = [f"seed {seed}: {fault}" for fault in checked.faults]
        outcome += checked
    outcome.seconds = time.perf_counter() - start
    return outcome


def check_case(case: Case) -> Outcome:
    """All that is wrong with one case, each fault in words; an exception is a fault."""
    outcome = Outcome(case.operation.name)
    try:
        outcome.shapes.add(tuple(array.shape for array in (*case.arrays.values(), *outputs_of(case))))
        if case.layer is None:  # a layer's values are those of the operations that it calls
            compare_values(case, outcome)
        if case.operation.differentiable:
            compare_gradients(case, outcome)
            compare_float32(case, outcome)
    except Exception as error:
        outcome.faults.append(f"{case}: {type(error).__name__}: {error}")
    return outcome


def compare_values(case: Case, outcome: Outcome) -> None:
    """The forward against the plain loops."""
    actual = outputs_of(case)
    with localcontext() as context:
        context.prec = DIGITS
        expected = getattr(reference, case.operation.name)(**reference_arguments(case))
    if not isinstance(expected, tuple):
        expected = (expected,)
    moved = [outputs_of(nearby) for nearby in neighbours(case, FLOAT64_UNIT)]
    for i, (y, truth) in enumerate(zip(actual, expected, strict=True)):
        if y.size:
            truth = np.array(truth, np.float64)
            if truth.size == 0:  # lists cannot say how wide the values of no keys are
                truth = np.zeros(y.shape)
            bar = case.operation.units(case) * FLOAT64_UNIT * largest(truth) + MARGIN * furthest(
                y, [each[i] for each in moved]
            )
            record(outcome, case, "the value", y, truth, bar)


def compare_gradients(case: Case, outcome: Outcome) -> None:
    """The backward against the derivative of the forward."""
    report = gradient_report(case)
    if report.verdict == "fail":
        outcome.faults.append(f"{case}: {report}")
    outcome.inconclusive += report.verdict == "inconclusive"
    if report.worst:
        outcome.worst = max(outcome.worst, report.worst.ratio)


def gradient_report(case: Case) -> gradcheck.Report:
    """gradcheck's report on a case of an operation, or of a layer with its parameters."""
    stopped = case.operation.stopped(case)
    arguments: dict[str, Any] = {**case.arrays, **case.options}
    if case.layer is None:
        return gradcheck.check(case.operation.function, stopped=stopped, **arguments)
    for name, parameter in case.layer.parameters().items():
        parameter.value = arguments.pop(name)
    return gradcheck.check_layer(case.layer, stopped=stopped, **arguments)


def compare_float32(case: Case, outcome: Outcome) -> None:
    """Outputs and gradients in float32 against float64, from the same numbers."""
    single = case.with_arrays({name: array.astype(np.float32) for name, array in case.arrays.items()})
    double = case.with_arrays({name: array.astype(np.float64) for name, array in single.arrays.items()})
    rng = np.random.default_rng(0)
    dys = [np.asarray(rng.normal(size=y.shape), np.float32) for y in floating(single.run()[0])]
    actual = results_of(single, dys)
    expected = results_of(double, dys)
    moved = [results_of(nearby, dys) for nearby in neighbours(double, FLOAT32_UNIT)]
    n_outputs = len(dys)
    loss = sum(float(np.abs(dy * y)[np.isfinite(y)].sum()) for dy, y in zip(dys, expected[:n_outputs], strict=True))
    weights = [0.0] * n_outputs + [loss / (largest(array) or 1) for array in single.arrays.values()]
    names = ["the output"] * n_outputs + [f"the gradient of {name}" for name in case.arrays]
    for i, (name, y, truth, weight) in enumerate(zip(names, actual, expected, weights, strict=True)):
        if y.dtype != np.float32:
            outcome.faults.append(f"{case}: {name} is {y.dtype} for float32")
        bar = (
            FLOAT32_TINY
            + FLOAT32_UNITS * FLOAT32_UNIT * max(largest(truth), weight)
            + MARGIN * furthest(truth, [each[i] for each in moved])
        )
        record(outcome, case, f"{name} in float32", y, truth, bar)


def record(outcome: Outcome, case: Case, name: str, actual: Array, truth: Array, bar: float) -> None:
    """Note how far `actual` is from `truth`, and a fault if it is further than `bar`."""
    if actual.shape != truth.shape:
        outcome.faults.append(f"{case}: {name} has the shape {actual.shape}, not {truth.shape}")
        return
    with np.errstate(invalid="ignore"):
        error = np.where(actual == truth, 0.0, np.abs(actual - truth))
    if not error.size:
        return
    place = np.unravel_index(int(np.nan_to_num(error, nan=np.inf).argmax()), error.shape)
    worst = float(error[place])
    if not worst <= bar:
        index = list(map(int, place))
        outcome.faults.append(f"{case}: {name} at {index} is {actual[place]}, not {truth[place]} (bar {bar:.2g})")
    if worst:
        outcome.worst = max(outcome.worst, worst / bar if bar else np.inf)


def reference_arguments(case: Case) -> dict[str, Any]:
    """The arguments of the scalar reference: lists for arrays, decimal numbers for floats, and the mask itself for the
    generator that draws it."""
    arguments = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in case.options.items()}
    arguments |= {name: decimals(array.tolist()) for name, array in case.arrays.items()}
    rng = copy.deepcopy(arguments.pop("rng", None))
    name = case.operation.name
    p = arguments.get("p" if name == "dropout" else "dropout", 0.0)
    if name == "attention_weights":
        arguments.pop("dropout", None)
    elif rng is not None:
        arguments["kept"] = (rng.random(mask_shape(case), np.float32) >= p).tolist() if p else None
    return arguments


def decimals(nested: Any) -> Any:
    return [decimals(each) for each in nested] if isinstance(nested, list) else Decimal(nested)


def mask_shape(case: Case) -> tuple[int, ...]:
    if "x" in case.arrays:
        shape: tuple[int, ...] = case.arrays["x"].shape
        return shape
    return *case.arrays["query"].shape[:3], case.arrays["key"].shape[2]


def neighbours(case: Case, unit: float) -> list[Case]:
    """The case at several points where every number differs by one unit in its last place."""
    rng = np.random.default_rng(0)
    return [
        case.with_arrays(
            {name: array * (1 + unit * rng.choice([-1.0, 1.0], array.shape)) for name, array in case.arrays.items()}
        )
        for _ in range(N_NEIGHBOURS)
    ]


def floating(outputs: Any) -> list[Array]:
    return [y for y in (outputs if isinstance(outputs, tuple) else (outputs,)) if isinstance(y, np.ndarray)]


def outputs_of(case: Case) -> list[Array]:
    """All outputs, the integer ones too."""
    outputs = case.run()[0] if case.operation.differentiable else case.run()
    return [np.asarray(y) for y in (outputs if isinstance(outputs, tuple) else (outputs,))]


def results_of(case: Case, dys: Sequence[Array]) -> list[Array]:
    """The floating outputs, and the gradients for `dys`."""
    given, backward = case.run()
    outputs = floating(given)
    gradients = backward(*(dy.astype(y.dtype) for dy, y in zip(dys, outputs, strict=True)))
    return [*outputs, *(gradients if isinstance(gradients, tuple) else (gradients,))]


def largest(array: Array) -> float:
    return float(np.abs(array[np.isfinite(array)]).max(initial=0.0))


def furthest(point: Array, moved: Sequence[Array]) -> float:
    with np.errstate(invalid="ignore"):
        return max(largest(each - point) for each in moved)
