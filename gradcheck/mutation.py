"""The mutation score: how many small wrong versions of a backward a check finds.

A check that passes says something only if it would have failed on a wrong backward. `score` makes every small wrong version
of an operation's backward (gradcheck/mutants) and lets the check try each:

    >>> import numpy as np
    >>> from gradcheck.mutation import score
    >>> def softmax(x):
    ...     e = np.exp(x - x.real.max(-1, keepdims=True))
    ...     y = e / e.sum(-1, keepdims=True)
    ...     return y, lambda dy: y * (dy - (dy * y).sum(-1, keepdims=True))
    >>> found = score(softmax, lambda rng: rng.normal(size=(3, 5)))
    >>> len(found.killed), len(found.mutants), found.ratio
    (20, 20, 1.0)

print(found) is a table of the kinds of mutants and, in full, of the survivors. A test of one's own is given as `check`:

    >>> def rows_add_up_to_nothing(op, x):
    ...     y, backward = op(x)
    ...     return np.allclose(backward(np.ones_like(y)), 0)
    >>> score(softmax, lambda rng: rng.normal(size=(3, 5)), rows_add_up_to_nothing).ratio
    0.65

A survivor is a fault that the check would let pass, or no fault: 0 + x for x. Which of the two is for a person to say.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from gradcheck import checker
from gradcheck.mutants import Mutant, Source
from gradcheck.report import Report, one_line
from gradcheck.subject import said, title_of

RAISES = "it raises "
DRAWS = 8  # of arrays; what is wrong for some shapes only needs several
Test: TypeAlias = Callable[[Any], str]  # of a mutant: what gives it away, "" if nothing does


@dataclass(frozen=True)
class Tried:
    """A mutant, and what killed it: "" if it survived."""

    mutant: Mutant
    killed_by: str

    def __str__(self) -> str:
        return f"{self.mutant}{f'  ({self.killed_by})' if self.killed_by else ''}"


@dataclass(frozen=True)
class Score:
    """What became of the mutants of one operation's backward, in the order of the source."""

    title: str
    mutants: list[Tried]

    @property
    def killed(self) -> list[Tried]:
        return [tried for tried in self.mutants if tried.killed_by]

    @property
    def survivors(self) -> list[Tried]:
        return [tried for tried in self.mutants if not tried.killed_by]

    @property
    def ratio(self) -> float:
        """The share of the mutants that were killed, from 0 to 1."""
        return len(self.killed) / len(self.mutants)

    @property
    def vacuous(self) -> bool:
        """Does the check let every wrong version pass, but those that raise by themselves?"""
        return all(tried.killed_by.startswith(RAISES) for tried in self.killed)

    def __str__(self) -> str:
        lines = [f"{self.title}: {len(self.killed)} of {len(self.mutants)} mutants killed"]
        if self.vacuous:
            lines[0] += f"\nthe check is vacuous: it passes {self.title} and every wrong version of its backward alike"
            lines[0] += " that does not raise by itself" if self.killed else ""
        made, killed = (Counter(each.mutant.kind for each in these) for these in (self.mutants, self.killed))
        lines += [f"  {killed[kind]:>4} of {made[kind]:<4} {kind}" for kind in made]
        lines += ["survivors:"] if self.survivors else []
        lines += [f"  {tried}" for tried in self.survivors]
        return "\n".join(lines)


def score(
    op: Callable[..., tuple[Any, Callable[..., Any]]],
    make_arrays: Callable[[np.random.Generator], Any],
    check: Callable[..., Report | bool | None] | None = None,
) -> Score:
    """Let `check` try every mutant of the backward of `op`, where op(*arrays, **options) returns (y, backward).

    op           a function, a lambda, or a function in decorators that set `__wrapped__`, whose source can be read. It is
                 made anew from its source, in a copy of its own globals, so it is left alone
    make_arrays  make_arrays(rng) → what one call is given: an array, a tuple of arrays, or (arrays, options). It is called
                 with eight Generators, always of the same seeds
    check        check(op, *arrays, **options) → a Report, or a bool, or None, which is a pass where no exception is raised;
                 gradcheck.check unless given. "inconclusive" is no kill, nor is a warning

    A mutant is killed by the first draw on which the check fails or anything raises. ValueError where the source cannot be
    read, where nothing of the backward can be got wrong or there is a `while` in it, or where the check does not pass `op`.
    """
    run = checker.check if check is None else check
    source = Source(op)
    draws = [partial(outcome_of, run, make_arrays, draw) for draw in range(DRAWS)]
    for what, function in (("", op), (", made anew from its source", source.load())):
        with quiet():
            outcomes = [each(function) for each in draws]
        faults = [text for verdict, text in outcomes if verdict == "fail"]
        if faults or all(verdict == "inconclusive" for verdict, _ in outcomes):
            raise ValueError(f"the check does not pass {title_of(op)}{what}: {faults[0] if faults else outcomes[0][1]}")

    def test(outcome: Callable[[Any], tuple[str, str]], mutant: Any) -> str:
        verdict, text = outcome(mutant)
        return text if verdict == "fail" else ""

    tried = tried_mutants(source, source.mutants(), [partial(test, each) for each in draws])
    if not tried:
        raise ValueError(f"the source of {title_of(op)} has no backward of its own that could be got wrong")
    return Score(title_of(op), tried)


def tried_mutants(source: Source, mutants: Iterable[Mutant], tests: Sequence[Test]) -> list[Tried]:
    """Each mutant, loaded afresh for each test, until one kills it. The test that killed the last one comes first."""
    order = list(tests)
    tried = []
    for mutant in mutants:
        killed_by = ""
        for place, test in enumerate(order):
            with quiet():
                killed_by = test(source.load(mutant.code))
            if killed_by:
                order.insert(0, order.pop(place))
                break
        tried.append(Tried(mutant, killed_by))
    return tried


@contextmanager
def quiet() -> Iterator[None]:
    """What is wrong may well overflow."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def outcome_of(
    check: Callable[..., Any], make_arrays: Callable[..., Any], draw: int, op: Callable[..., Any]
) -> tuple[str, str]:
    """The verdict of `check` on one draw of arrays, and why."""
    made = make_arrays(np.random.default_rng(draw))
    options: dict[str, Any] = {}
    if isinstance(made, tuple | list) and len(made) == 2 and isinstance(made[1], dict):
        made, options = made
    arrays: Sequence[Any] = made if isinstance(made, tuple | list) else (made,)
    try:
        outcome = check(op, *arrays, **options)
    except AssertionError as error:
        return "fail", one_line(said(error))
    except Exception as error:
        return "fail", one_line(f"{RAISES}{said(error)}")
    if isinstance(outcome, Report):
        return outcome.verdict, in_short(outcome)
    if outcome is not None and not isinstance(outcome, bool | np.bool_):
        raise TypeError(f"check must return a Report, a bool or None, got {type(outcome).__name__}")
    return ("fail", "the check returns False") if outcome is not None and not outcome else ("pass", "")


def in_short(report: Report) -> str:
    """The first thing that a report has against an operation."""
    found = [finding.text for finding in report.findings if finding.verdict == report.verdict]
    return one_line(found[0] if found else str(report.worst))
