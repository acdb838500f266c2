"""The mutation score of every operation and layer: is each small wrong version of its backward found?

This is what `python -m npformer mutants` runs. A mutant that survives is either a fault that nothing here would find, or no
fault: then it stands in equivalent_mutants.py, with the reason.
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from gradcheck.mutants import Mutant, Source
from gradcheck.mutation import Tried, in_short, tried_mutants
from gradcheck.subject import said
from npformer.catalogue import Case, Operation, RandomChooser
from npformer.oracle.equivalent_mutants import EQUIVALENT
from npformer.oracle.hidden_pairs import (
    faults_far_out,
    faults_of_blank_rows,
    faults_of_hidden_pairs,
    faults_of_poisoned_query,
)
from npformer.oracle.self_check import CATALOGUE, gradient_report, workers

CASES = 60  # that a mutant has to survive
# What gradcheck cannot see, for it measures the forward at finite numbers.
POISONED: dict[str, Sequence[Callable[[Case], list[str]]]] = {
    "attention": (faults_of_hidden_pairs, faults_of_poisoned_query),
    "attention_weights": (faults_of_hidden_pairs, faults_of_poisoned_query),
    "softmax": (faults_of_blank_rows,),
    "gelu_tanh": (faults_far_out,),
}


@dataclass(frozen=True)
class Survey:
    """What became of the mutants of one operation.

    survivors  not listed as equivalent
    stale      listed, but killed or no longer made
    """

    name: str
    n_mutants: int
    n_killed: int
    n_equivalent: int
    survivors: list[str]
    stale: list[str]
    seconds: float


def survey_all(names: Sequence[str], n_cases: int) -> Iterator[Survey]:
    """Each of `names` as soon as it is done, on all cores."""
    with workers() as pool:
        yield from pool.imap(partial(survey, n_cases=n_cases), names)


def survey(name: str, n_cases: int = CASES) -> Survey:
    """All mutants of one operation or layer."""
    start = time.perf_counter()
    tried = try_mutants(name, mutants_of(name), n_cases)
    listed = {key for key in EQUIVALENT if key[0] == name}
    survivors = {key_of(name, each.mutant): each.mutant for each in tried if not each.killed_by}
    killed = {key_of(name, each.mutant): each for each in tried if each.killed_by}
    stale = [f"listed as equivalent, but killed: {killed[key]}" for key in sorted(listed & killed.keys())]
    stale += [
        f"listed as equivalent, but no longer made: {key}" for key in sorted(listed - killed.keys() - survivors.keys())
    ]
    return Survey(
        name=name,
        n_mutants=len(tried),
        n_killed=sum(bool(each.killed_by) for each in tried),
        n_equivalent=sum(not each.killed_by and key_of(name, each.mutant) in listed for each in tried),
        survivors=[str(each.mutant) for each in tried if not each.killed_by and key_of(name, each.mutant) not in listed],
        stale=stale,
        seconds=time.perf_counter() - start,
    )


def key_of(name: str, mutant: Mutant) -> tuple[str, str, str]:
    return name, mutant.before, mutant.after


def source_of(name: str) -> Source:
    """Of an operation its function, of a layer its `forward`."""
    function = CATALOGUE[name].function
    return Source(getattr(function, "forward", function))


def mutants_of(name: str) -> list[Mutant]:
    return source_of(name).mutants()


def try_mutants(name: str, mutants: Sequence[Mutant], n_cases: int) -> list[Tried]:
    """Mutants of `name`, each until one of the first `n_cases` random cases kills it; small cases come first."""
    operation = CATALOGUE[name]
    seeds = sorted(range(n_cases), key=lambda seed: cost_of(draw(operation, seed)))
    return tried_mutants(source_of(name), mutants, [partial(fault_of, operation, seed) for seed in seeds])


def cost_of(case: Case) -> int:
    """The number of entries; a case with an empty array, which tells least, comes last."""
    sizes = [array.size for array in case.arrays.values()]
    return sum(sizes) if all(sizes) else sys.maxsize


def draw(operation: Operation, seed: int) -> Case:
    rng = np.random.default_rng(seed)
    return operation.draw(RandomChooser(rng), rng)


def fault_of(operation: Operation, seed: int, function: Callable[..., Any]) -> str:
    """What is found wrong with `function` in the place of an operation or a layer's class, on one random case."""
    try:
        case = draw(replace(operation, function=function), seed)
        report = gradient_report(case)
        if report.verdict == "fail":
            return in_short(report)
        return next((fault for faults in POISONED.get(operation.name, ()) for fault in faults(case)), "")
    except Exception as error:
        return said(error)
