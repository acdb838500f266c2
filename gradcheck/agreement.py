"""Do arrays agree with the arrays that they should be? Wherever they come from: a kernel, another library, a file."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, TypeAlias

import numpy as np

from gradcheck.decision import Verdict, largest, over
from gradcheck.low_precision import LOW_PRECISION_RTOL
from gradcheck.places import whereabouts
from gradcheck.report import Finding, Report, Worst, place
from gradcheck.subject import Array, said

Path: TypeAlias = tuple[Any, ...]  # the positions and keys that lead to an array; () where it stands alone

# How many standard deviations of its rounding a right entry may be off. Of 131,000 entries of five right kernels none was
# off by more than 4, and the least wrong of the wrong kernels by 16; chance alone exceeds 6 once in 500 million entries.
DEVIATIONS = 6.0
# Of float16 less than in a check, where the whole of an operation may be computed in it: a good kernel rounds only its
# result. Twenty units in the last place then, and of bfloat16 as well.
DEFAULT_RTOL = {
    "float64": 1e-10,
    "float32": LOW_PRECISION_RTOL[np.dtype(np.float32)],
    "float16": 1e-2,
    "bfloat16": 1e-1,
}


@dataclass(frozen=True)
class Difference(Worst):
    """The entry that differs most, in units of its bar. `sigma` is its budget; None where there is none."""

    sigma: float | None = None

    def __str__(self) -> str:
        actual, truth = (str(n) if isinstance(n, int) else f"{n:.12g}" for n in (self.actual, self.truth))
        text = f"{self.argument}{place(self.index)} is {actual}, expected {truth}"
        if not np.isfinite(self.error):
            return text
        text += f", off by {self.error:.2g}"
        if self.sigma is not None:
            return f"{text} = {over(self.error, self.sigma):.2g}σ of the {DEVIATIONS:g}σ allowed"
        return f"{text} = {self.ratio:.2g} × bar {self.bar:.2g}" if self.bar else text


@dataclass(frozen=True)
class Part:
    """What was found of one pair of arrays. `power` is infinite where they could not be compared."""

    findings: list[Finding]
    worst: Difference | None = None
    power: float = float("inf")
    n_entries: int = 0


def compare(
    actual: Any, expected: Any, *, budget: Any = None, rtol: float | None = None, atol: float | None = None
) -> Report:
    """Whether `actual` agrees with `expected`, entry by entry, as a report.

    actual, expected  an array, or several: a tuple or a mapping of them, nested or not, matched by position and by name. An
                      array is whatever numpy.asarray or DLPack takes: NumPy's own, a tensor of another framework in main
                      memory, a list of numbers, a number; real or complex, and bfloat16 where it converts to float32
    budget            σ, the standard deviation of the rounding error of a right result: a number, or an array that
                      broadcasts to `expected`; one for all parts, or one for each, put together as `expected` is.
                      An entry agrees when |actual − expected| ≤ 6·σ
    rtol, atol        without a budget, an entry agrees when |actual − expected| ≤ atol + rtol·max|expected|. By default rtol
                      is that of the coarser of the two dtypes, 1e-10 for float64, 1e-4 for float32, 1e-2 for float16, 1e-1
                      for bfloat16, and atol is 0

    rtol is relative to the largest entry of the array and not to the entry itself: rounding errors have the size of the
    terms of a sum, so that a right entry whose terms cancel may have no right digit.

    Two integer or boolean arrays must be equal, whatever the tolerance. Complex numbers differ by the modulus of their
    difference. Equal infinities agree; any other infinity fails, and so does a NaN, on one side or on both. Another shape
    fails, and a part that is missing or too many. Other dtypes are compared in float64, and noted. Empty arrays agree, and
    are noted. Where atol is so large that zeros would have agreed, the verdict is "inconclusive". With a budget that is
    only noted: σ predicts the rounding, and what lies within it is zero to rounding.

    report.worst is in the units of the arrays, and its text says how many σ that is. report.power is the largest bar over
    the largest entry.

    Raises ValueError where there is no array at all, where a budget is negative, not finite or of another shape or stands
    beside rtol or atol, and for a dtype without a default rtol; TypeError for what is not an array of numbers in main
    memory, and for masked arrays.

    >>> import numpy as np
    >>> from gradcheck import compare
    >>> x = np.random.default_rng(0).standard_normal((3, 5))
    >>> y = np.tanh(x)
    >>> y[:, 3] *= -1
    >>> print(compare({"y": y.astype(np.float32), "dx": 1 - y**2}, {"y": np.tanh(x), "dx": 1 - y**2}))
    FAIL compare: 30 entries against expected, errors above 0.0001 of an array's largest entry would show
      worst  y[1, 3] is 0.606733322144, expected -0.606733328033, off by 1.2 = 1.2e+04 × bar 9.8e-05
      fail: 3 of 15 entries of y are off, in column 3
      note: y is float32, expected float64: compared in float64
    """
    if budget is not None and (rtol is not None or atol is not None):
        raise ValueError("compare: budget says how far an entry may be off, so neither rtol nor atol can stand beside it")
    if rtol is not None and not (isinstance(rtol, Real) and 0 <= rtol < 1):
        raise ValueError(f"compare: rtol must be at least 0 and below 1, got {rtol!r}")
    if atol is not None and not (isinstance(atol, Real) and 0 <= atol < np.inf):
        raise ValueError(f"compare: atol must be finite and at least 0, got {atol!r}")
    given, wanted = arrays_of(actual, "actual"), arrays_of(expected, "expected")
    if not given and not wanted:
        raise ValueError("compare: actual and expected hold no arrays")
    budgets = {} if budget is None else budgets_of(budget, wanted)
    compared = [
        part_compared(name_of(path), given[path], array, budgets.get(path), rtol, atol or 0.0)
        for path, array in wanted.items()
        if path in given
    ]
    findings = [*unmatched(given, wanted), *(finding for part in compared for finding in part.findings)]
    order: tuple[Verdict, ...] = ("fail", "inconclusive", "pass")
    findings.sort(key=lambda finding: order.index(finding.verdict))
    worsts = [part.worst for part in compared if part.worst]
    power = max((part.power for part in compared if part.worst or not part.power), default=float("inf"))
    return Report(
        title="compare",
        verdict=findings[0].verdict if findings else "pass",
        worst=max(worsts, key=lambda worst: (worst.ratio, worst.error), default=None),
        power=power,
        findings=findings,
        n_entries=sum(part.n_entries for part in compared),
        against="expected",
        sensitivity=sensitivity(worsts, power),
    )


def sensitivity(worsts: Sequence[Difference], power: float) -> str:
    """What would have shown, in words; the report's own where nothing could be compared."""
    if not worsts:
        return "" if power else "there is nothing to compare"
    if any(worst.sigma is not None for worst in worsts):
        return f"errors above {DEVIATIONS:g}σ would show"
    if power == 0:
        return "any difference would show"
    if power == float("inf"):
        return f"errors above {max(worst.bar for worst in worsts):.1g} would show"
    return f"errors above {power:.1g} of an array's largest entry would show"


def part_compared(name: str, actual: Array, expected: Array, budget: Array | None, rtol: float | None, atol: float) -> Part:
    if actual.shape != expected.shape:
        why = f"{name} has the shape {actual.shape}, expected {expected.shape}"
        return Part([Finding("fail", why + likeness(actual.shape, expected.shape))])
    exact = actual.dtype.kind in "biu" and expected.dtype.kind in "biu"
    findings = []
    if actual.dtype != expected.dtype:
        how = "exactly" if exact else "in float64"
        findings.append(Finding("pass", f"{name} is {actual.dtype}, expected {expected.dtype}: compared {how}"))
    if actual.size == 0:
        return Part([*findings, Finding("pass", f"{name} is empty, of the shape {actual.shape}")], power=0.0)
    returned, truth = widened(actual), widened(expected)
    error = distance(returned, truth)
    if exact:
        error[(actual != expected) & (error == 0)] = 1.0  # float64 does not tell large integers apart
        bars = np.zeros(error.shape)
    elif budget is not None:
        with np.errstate(over="ignore"):
            bars = DEVIATIONS * budget
    else:
        relative = max(default_rtol(actual.dtype), default_rtol(expected.dtype)) if rtol is None else rtol
        bars = np.full(error.shape, atol + relative * largest(truth))
    wrong = (error > bars) | np.isinf(error)
    if wrong.any():
        text = f"{np.count_nonzero(wrong)} of {wrong.size} entries of {name} are off, {whereabouts(wrong)}"
        findings.append(Finding("fail", text))
    if np.isnan(returned).any():
        findings.append(Finding("fail", f"{name} has {np.isnan(returned).sum()} NaN"))
    if np.isnan(truth).any():
        text = f"{name} is expected to have {np.isnan(truth).sum()} NaN, with which nothing agrees"
        findings.append(Finding("fail", text))
    if not wrong.any() and truth.any() and (np.abs(truth) <= bars).all():
        text = f"{name} is expected to be so small that zeros would agree as well"
        findings.append(Finding("inconclusive" if budget is None else "pass", text))
    index = worst_index(error, bars)
    worst = Difference(
        argument=name,
        index=index,
        actual=(actual if exact else returned)[index].item(),
        truth=(expected if exact else truth)[index].item(),
        error=float(error[index]),
        bar=float(bars[index]),
        sigma=None if budget is None or exact else float(budget[index]),
    )
    return Part(findings, worst, over(float(bars.max()), largest(truth)), error.size)


def distance(actual: Array, expected: Array) -> Array:
    """|actual − expected|, 0 between equal infinities and infinite where one of them is a NaN."""
    with np.errstate(over="ignore", invalid="ignore"):
        error = np.abs(actual - expected)
    return np.where(actual == expected, 0.0, np.where(np.isnan(error), np.inf, error))


def worst_index(error: Array, bars: Array) -> tuple[int, ...]:
    """Of the entry with the largest error over its bar; of several that are infinitely far beyond it, the largest error."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = np.where(error == 0, 0.0, error / bars)
    at = np.where(ratio == ratio.max(), error, -1.0).argmax()
    return tuple(map(int, np.unravel_index(at, error.shape)))


def likeness(actual: tuple[int, ...], expected: tuple[int, ...]) -> str:
    if actual == expected[::-1]:
        return ", which is transposed"
    if [size for size in actual if size != 1] == [size for size in expected if size != 1]:
        return ", which differs in axes of size 1"
    if sorted(actual) == sorted(expected):
        return ", which has the same axes in another order"
    return ""


def unmatched(given: Mapping[Path, Array], wanted: Mapping[Path, Array]) -> Iterator[Finding]:
    if (() in given) != (() in wanted):
        sides = ["an array" if () in side else "a tuple or a mapping of arrays" for side in (given, wanted)]
        yield Finding("fail", f"actual is {sides[0]}, expected {sides[1]}")
        return
    for path in wanted:
        if path not in given:
            yield Finding("fail", f"{name_of(path)} is missing")
    for path in given:
        if path not in wanted:
            yield Finding("fail", f"{name_of(path)} is not expected")


def parts(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, Mapping):
        items = list(value.items())
    elif isinstance(value, tuple):
        items = list(enumerate(value))
    else:
        yield path, value
        return
    for key, item in items:
        yield from parts(item, (*path, key))


def name_of(path: Path, side: str = "") -> str:
    """dq for ("dq",), actual[0] for (0,) and actual for (). With a side its name comes first in each."""
    keys = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
    return keys[1:] if keys.startswith(".") and not side else f"{side or 'actual'}{keys}"


def arrays_of(value: Any, side: str) -> dict[Path, Array]:
    return {path: as_array(part, name_of(path, side)) for path, part in parts(value)}


def as_array(value: Any, name: str) -> Array:
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"compare: {name} is a masked array; fill it, or give the entries that count")
    try:
        only_dlpack = hasattr(value, "__dlpack__") and not hasattr(value, "__array__")
        array = np.from_dlpack(value) if only_dlpack else np.asarray(value)
    except Exception as error:
        if getattr(value, "requires_grad", False) is True:
            raise TypeError(f"compare: {name} requires a gradient; give {name}.detach()") from error
        raise TypeError(f"compare: {name} cannot be made a NumPy array: {said(error)}") from error
    if array.dtype.kind not in "biufc" and not np.can_cast(array.dtype, np.float32):
        raise TypeError(f"compare: {name} must be an array of numbers, got {type(value).__name__} of dtype {array.dtype}")
    return array


def widened(array: Array) -> Array:
    own = array.astype(np.float32) if array.dtype.isbuiltin == 2 else array  # 2: a dtype that NumPy did not define
    with np.errstate(invalid="ignore"):
        wide: Array = own.astype(np.result_type(own.dtype, np.float64))
    return wide


def default_rtol(dtype: np.dtype[Any]) -> float:
    if dtype.kind in "biu":
        return 0.0
    name = f"float{4 * dtype.itemsize}" if dtype.kind == "c" else dtype.name
    if name not in DEFAULT_RTOL and np.can_cast(np.float64, dtype):
        name = "float64"
    if name not in DEFAULT_RTOL:
        raise ValueError(f"compare: give a budget or an rtol, since {dtype} has no default rtol")
    return DEFAULT_RTOL[name]


def budgets_of(budget: Any, wanted: Mapping[Path, Array]) -> dict[Path, Array]:
    given = {path: as_array(part, name_of(path, "budget")) for path, part in parts(budget)}
    if () in given:
        given = dict.fromkeys(wanted, given[()])
    for path in (*given, *wanted):
        if path not in given or path not in wanted:
            has = "has no" if path not in given else "is not put together as expected is: it has a"
            raise ValueError(f"compare: budget {has} part {name_of(path)}")
    budgets = {}
    for path, sigma in given.items():
        name, shape = name_of(path, "budget"), wanted[path].shape
        wide = widened(sigma)
        if wide.dtype.kind != "f" or not (np.isfinite(wide) & (wide >= 0)).all():
            raise ValueError(f"compare: {name} must hold finite numbers of at least 0")
        try:
            budgets[path] = np.broadcast_to(wide, shape)
        except ValueError:
            raise ValueError(f"compare: {name} has the shape {sigma.shape}, which does not fit expected's {shape}") from None
    return budgets
