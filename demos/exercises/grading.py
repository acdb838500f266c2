"""What is to be said of a student's file: not written yet, an error and its line, where it is wrong, or that it is right.

Never what the right lines would be: they are the exercise.
"""

import linecache
import re
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from textwrap import fill
from types import ModuleType
from typing import Any

import numpy as np

import gradcheck
from demos.exercises.cases import Trial, trials
from demos.exercises.writing import source_of
from gradcheck.report import one_line, place
from npformer.catalogue import Case
from npformer.oracle.self_check import floating, gradient_report

WIDTH = 100  # of a paragraph
HINT = re.compile(r"lacks (?:a|the) (term|factor).*")  # what stands behind would be the answer
UNITS_OF_ROUNDING = 1e4  # by which a forward may differ that says the same in other words


class NotYetError(Exception):
    """The exercise is not solved; the text says why, in lines."""


def grade(name: str, path: str, source: bytes) -> str:
    """Praise for the file of an exercise, `source` being what it holds. NotYetError where it is not solved."""
    linecache.checkcache(path)
    function = loaded(name, path, source)
    tried = trials(name)
    for i, trial in enumerate(tried):
        try:
            judge(trial, function, path)
        except NotYetError as error:
            if i == 0 and isinstance(error.__cause__, NotImplementedError):
                raise
            passed = f"right in {i} of {len(tried)} cases, " if i else ""
            raise NotYetError(f"not yet: {passed}wrong {trial}:\n  {error}") from None
    kinds = "; ".join(dict.fromkeys(trial.words.partition("=")[0] for trial in tried))
    return (
        f"solved. Well done: every gradient is right in all {len(tried)} cases.\n"
        f"{fill(f'They were tried {kinds}.', WIDTH, initial_indent='  ', subsequent_indent='  ')}\n"
        f"  Compare yours with npformer's: {shown(str(source_of(name)))}"
    )


def loaded(name: str, path: str, source: bytes) -> Callable[..., Any]:
    module = ModuleType(name)
    module.__file__ = path
    try:
        exec(compile(source, path, "exec", dont_inherit=True), vars(module))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a file may raise what it likes
        raise NotYetError(located(error, path)) from error
    function = getattr(module, name, None)
    if not callable(function):
        raise NotYetError(f"{shown(path)} has no function {name} any more")
    return function  # type: ignore[no-any-return]


def judge(trial: Trial, function: Callable[..., Any], path: str) -> None:
    """NotYetError unless the gradients of one case are right."""
    case = trial.case
    own = replace(case, operation=replace(case.operation, function=function))
    try:
        compare_forwards(own.with_arrays({name: array.copy() for name, array in case.arrays.items()}), case)
        report = gradient_report(own)
    except (NotYetError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise NotYetError(located(error, path)) from error
    if report.verdict == "fail" or (report.verdict == "inconclusive" and gradient_report(case).verdict == "pass"):
        raise NotYetError("\n  ".join(faults(report)))


def compare_forwards(own: Case, case: Case) -> None:
    """Run both once. NotYetError where the forward is another, or the backward returns nothing."""
    expected, _ = case.run()
    returned = own.run()
    if not (isinstance(returned, tuple) and len(returned) == 2 and callable(returned[1])):
        raise NotYetError(f"{case.operation.name} must return y and backward, and returns {type(returned).__name__}")
    outputs, backward = returned
    own_outputs, own_expected = (each if isinstance(each, tuple) else (each,) for each in (outputs, expected))
    if len(own_outputs) != len(own_expected) or not all(map(agree, own_outputs, own_expected)):
        raise NotYetError(
            "the forward does not compute what npformer's does. Leave it as it was; "
            "where your file is moved away, the exercise is written anew"
        )
    dys = [np.asarray(np.random.default_rng(0).normal(size=y.shape), y.dtype) for y in floating(outputs)]
    if backward(*dys) is None:
        raise NotYetError("backward returns nothing")


def agree(own: Any, expected: Any) -> bool:
    own, expected = np.asarray(own), np.asarray(expected)
    if own.shape != expected.shape or own.dtype != expected.dtype:
        return False
    if expected.dtype.kind != "f":
        return np.array_equal(own, expected)
    size = float(np.abs(expected[np.isfinite(expected)]).max(initial=0.0))
    tolerance = UNITS_OF_ROUNDING * float(np.finfo(expected.dtype).eps)
    return np.allclose(own, expected, rtol=tolerance, atol=tolerance * size, equal_nan=True)


def faults(report: gradcheck.Report) -> list[str]:
    lines = []
    worst = report.worst
    if report.verdict == "fail" and worst and worst.ratio > 1:
        actual, truth = distinct(worst.actual, worst.truth)
        lines.append(f"for some dy, d{worst.argument}{place(worst.index)} is {actual} and should be {truth}")
    lines += [one_line(finding.text) for finding in report.findings if finding.verdict == report.verdict]
    return [*lines, *(one_line(HINT.sub(r"lacks a \1", sentence)) for sentence in report.diagnosis)]


def distinct(a: float, b: float) -> tuple[str, str]:
    """Both with as many digits as tell them apart."""
    pairs = ((f"{a:.{digits}g}", f"{b:.{digits}g}") for digits in (4, 8, 12, 17))
    return next((pair for pair in pairs if pair[0] != pair[1]), (str(a), str(b)))


def located(error: BaseException, path: str) -> str:
    """What an exception says, and which line of the student's file it comes from."""
    if isinstance(error, SyntaxError) and error.filename == path:
        number, what = error.lineno, f"SyntaxError: {error.msg}"
    else:
        frames = traceback.extract_tb(error.__traceback__)
        number = next((frame.lineno for frame in reversed(frames) if frame.filename == path), None)
        what = one_line(f"{type(error).__name__}: {error}".removesuffix(": "))
    line = linecache.getline(path, number).strip() if number else ""
    at = f"{shown(path)}, line {number}" if number else shown(path)
    if isinstance(error, NotImplementedError):
        return f"not written yet: {at}"
    return f"{at}: {what}" + (f"\n    {line}" if line else "")


def shown(path: str) -> str:
    """As one types it from here."""
    here = Path.cwd()
    whole = Path(path).resolve()
    return str(whole.relative_to(here)) if whole.is_relative_to(here) else path
