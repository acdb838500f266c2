"""Beam search: of all texts that may follow, a good one, by keeping the best few beginnings at every length.

    score = log P / ((5 + length) / 6)^α        length counts the new ids, the end id too

At each length every prefix that is kept may end, and its ended form then competes by its score. The `n_beams` best by log P
of all prefixes that are longer by one id other than the end are kept. Those that have n ids compete as they are. So a beam
wide enough to keep every prefix tries every text.

The search stops early where no prefix kept can come among the n_best, and that changes nothing. Let L ≤ 0 be the log P of
the best prefix kept. Each further id has a log P ≤ 0, so all that grows of any of them has log P ≤ L; its length is at most
n, so its divisor is at most d = ((5 + n) / 6)^α, for α ≥ 0. Hence its score, a number ≤ 0 over a divisor, is at most L / d;
and where the n_best-th score found is no less, it is not displaced, since of equal scores the one found first stands first.
Rounding keeps all these orders: floating sums and quotients are monotone, and the divisors are made so.

Source: Wu et al. 2016, section 7, equation 14 (without the coverage penalty).
"""

from bisect import insort
from typing import NamedTuple

import numpy as np

from npformer.arguments import check_count, check_number
from npformer.functional import log_softmax
from npformer.generation.constraints import Constraints, check_constraints
from npformer.generation.growing_text import GrowingText
from npformer.generation.prompt import Model, Prompt, check_prompt, check_room
from npformer.generation.sampling import refuse, usable
from npformer.observing import OBSERVERS
from npformer.operation import Array


class Hypothesis(NamedTuple):
    """A text that was found: its new ids (m,) int64, with the end id where it has `ended`; log P of each of them (m,) and
    of all together, and the score."""

    ids: Array
    score: float
    log_probability: float
    ended: bool
    log_probabilities: Array


def beam_search(
    model: Model,
    ids: Array,
    n: int,
    *,
    n_beams: int,
    end_id: int | None = None,
    n_best: int = 1,
    length_penalty: float = 0.0,
    min_length: int = 0,
    repetition_penalty: float = 1.0,
    keep: Array | None = None,
    source: Array | None = None,
    source_keep: Array | None = None,
) -> list[Hypothesis] | list[list[Hypothesis]]:
    """The n_best continuations of `ids` (T,) by at most n ids, best first; of ids (B,T) a list of such lists.

    The score is log P / ((5 + length) / 6)^α, where length counts the new ids, the end id too.

    n ≥ 0, 1 ≤ n_best ≤ n_beams; length_penalty is α ≥ 0: 0 compares log P itself, and more favours longer texts. n_beams may
    be more than the vocabulary has ids: the beam then holds what prefixes there are. Fewer than n_best come back where no
    more texts are possible: what has P = 0 is never found, and the list may be empty where min_length forbids the only end.

    log P is of the softmax of the logits once min_length and repetition_penalty have acted, as in `constraints`;
    `log_probabilities` with the same ones confirms it. Of prefixes of equal log P, that which continues the better prefix
    comes first, then that with the lower id; of texts of equal score, the one found first, which is the shorter.

    `keep`, `source` and `source_keep` as in `generate`. ValueError where the context does not hold the T + n − 1 ids that
    the model reads, and with the step where logits are not finite.
    """
    title, config = "beam_search", model.config
    prompt = check_prompt(title, model, ids, keep, source, source_keep)
    n = check_count(title, "n", n, low=0)
    n_beams = check_count(title, "n_beams", n_beams)
    n_best = check_count(title, "n_best", n_best, high=n_beams)
    constraints = check_constraints(title, config.vocab_size, end_id, min_length, repetition_penalty, longest=n)
    check_room(title, prompt, "n", n, config.max_len)
    divisors = length_divisors(title, n, length_penalty)

    def found(title: str, r: int) -> list[Hypothesis]:
        row = prompt.row(r)
        hypotheses = search(title, model, row, n_beams, n_best, divisors, constraints)
        best = hypotheses[0].ids if hypotheses else row.ids[0, :0]
        for observer in OBSERVERS.get() if n else ():  # or nothing was read
            observer.settles(model, r, np.concatenate([row.ids[0], best]))
        return hypotheses

    if ids.ndim == 1:
        return found(title, 0)
    return [found(f"{title}, row {r}", r) for r in range(len(ids))]


def length_divisors(title: str, n: int, length_penalty: float) -> Array:
    """((5 + length) / 6)^α for every length from 0 to n."""
    alpha = check_number(title, "length_penalty", length_penalty)
    if alpha < 0:
        raise ValueError(f"{title}: length_penalty must be at least 0, got {alpha}")
    with np.errstate(all="ignore"):
        divisors = ((5 + np.arange(n + 1)) / 6) ** alpha
    if not (0 < divisors.min() and divisors.max() < np.inf):
        raise ValueError(f"{title}: length_penalty = {alpha} leaves no finite score for up to {n} ids")
    return np.asarray(np.maximum.accumulate(divisors))  # no library promises the order of powers


def search(
    title: str,
    model: Model,
    prompt: Prompt,
    n_beams: int,
    n_best: int,
    divisors: Array,
    constraints: Constraints,
    stop_early: bool = True,
) -> list[Hypothesis]:
    """Beam search over one row. The prefixes kept are the rows of the text, best first."""
    T, n, V, end_id = prompt.ids.shape[1], len(divisors) - 1, model.config.vocab_size, constraints.end_id
    text = GrowingText(title, model, prompt, cached=True)
    sums = np.zeros(1)  # log P of each prefix
    parts = np.zeros((1, 0))  # log P of each of its ids
    found: list[Hypothesis] = []

    def finish(new: Array, log_P: float, parts: Array, ended: bool) -> None:
        hypothesis = Hypothesis(new, log_P / float(divisors[len(new)]), log_P, ended, parts)
        insort(found, hypothesis, key=lambda other: -other.score)  # after its equals
        del found[n_best:]

    for step in range(n):
        logits = text.next_logits()
        if not usable(logits):
            refuse(f"{title}, step {step}", logits)
        log_P = log_softmax(constraints.adjust(logits, text.ids, step))[0]  # (prefixes, V)
        totals = sums[:, None] + log_P
        if end_id is not None:
            for row in map(int, np.flatnonzero(totals[:, end_id] > -np.inf)):
                new = np.append(text.ids[row, T:], end_id)
                finish(new, float(totals[row, end_id]), np.append(parts[row], log_P[row, end_id]), True)
            totals[:, end_id] = -np.inf
        rows, new = np.divmod(largest(totals.ravel(), n_beams), V)
        if not len(rows):
            return found
        sums = totals[rows, new]
        parts = np.concatenate([parts[rows], log_P[rows, new][:, None]], axis=1)
        if stop_early and len(found) == n_best and found[-1].score >= sums[0] / divisors[n]:
            return found
        text.choose(rows)
        text.append(new)
    for row, total in enumerate(sums):
        finish(text.ids[row, T:], float(total), parts[row], False)
    return found


def largest(x: Array, k: int) -> Array:
    """The places of the k largest entries of x (N,), the largest first, of equals the first; −inf is none."""
    places = np.flatnonzero(x >= np.partition(x, -k)[-k] if k < len(x) else x > -np.inf)
    places = places[np.argsort(-x[places], kind="stable")][:k]
    return places[x[places] > -np.inf]
