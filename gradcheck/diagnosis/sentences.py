"""Which of the hypotheses hold, in a few sentences."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from gradcheck.comparison import Block
from gradcheck.diagnosis import calls, corrections, other_arguments, ratios, zeros_and_copies
from gradcheck.diagnosis.evidence import Evidence, Gradient, RefusedError
from gradcheck.runs import Runs

MOST_SENTENCES = 4
MOST_NAMES = 4  # of arrays in one sentence

Hypothesis: TypeAlias = Callable[[Evidence, Gradient], str | None]  # what follows "the gradient of x", or None

# Where bars are wide, what agrees within them says nothing, and only these are asked.
OF_BLUNT: list[Hypothesis] = [zeros_and_copies.not_a_number, zeros_and_copies.truth_is_zero]
HYPOTHESES: list[Hypothesis] = [
    *OF_BLUNT,
    zeros_and_copies.zero,
    zeros_and_copies.argument,
    calls.calls,
    calls.not_linear,
    zeros_and_copies.another_gradient,
    ratios.constant_ratio,
    corrections.order,
    ratios.ratio_in_places,
    corrections.subtraction,
    corrections.term,
    corrections.factor,
    corrections.sums,
    other_arguments.another_cotangent,
    other_arguments.another_point,
    corrections.rows,
    ratios.digits,
    ratios.only_somewhere,
]


def diagnosis_of(runs: Runs, blocks: Sequence[Block], excused: set[int]) -> list[str]:
    """A few sentences about the gradients that a check found wrong; none where nothing is plain."""
    if not blocks:
        return []
    evidence = Evidence(runs, blocks, excused)
    said: dict[str, list[str]] = {}
    with np.errstate(all="ignore"):
        swapped = list(zeros_and_copies.pairs_swapped(evidence))
        explained = {gradient.name for pair in swapped for gradient in pair}
        wrong = [own for own in evidence.gradients if own.is_wrong]
        for own in wrong or evidence.gradients:
            hypotheses = (HYPOTHESES if own.is_sharp and own.is_far else OF_BLUNT) if wrong else [calls.stale]
            what = next(filter(None, (said_by(hypothesis, evidence, own) for hypothesis in hypotheses)), None)
            if what and own.name not in explained:
                said.setdefault(what, []).append(own.name)
    sentences = [f"the gradients of {first.name} and {second.name} are swapped" for first, second in swapped]
    sentences += [f"the gradient of {listed(names)} {what}" for what, names in said.items()]
    return sentences[:MOST_SENTENCES]


def said_by(hypothesis: Hypothesis, evidence: Evidence, own: Gradient) -> str | None:
    try:
        return hypothesis(evidence, own)
    except RefusedError:
        return None


def listed(names: Sequence[str]) -> str:
    if len(names) > MOST_NAMES:
        return f"{', of '.join(names[: MOST_NAMES - 1])} and of {len(names) - MOST_NAMES + 1} more"
    return " and of ".join(filter(None, [", of ".join(names[:-1]), names[-1]]))
