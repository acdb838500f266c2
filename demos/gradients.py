"""Are the gradients of a model right? Of the very one that is to be trained, its weights in float64, before it is trained.

Every entry of every parameter is compared with complex step on a few tokens, where that is cheap, and one derivative along
a random direction through all parameters on whole windows, where a gradient could be wrong that is right for a few tokens.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import gradcheck
from demos.progress import clock
from demos.weights import with_weights_of
from npformer import GPT

FEW_TOKENS = 4
N_WINDOWS = 2
CHECKED_QUICKLY = 3 * 10**6  # parameters
FORWARDS = 700 * 4  # about as many as the check needs, in complex numbers


class Loss:
    """The model's loss as gradcheck wants a layer."""

    def __init__(self, model: GPT) -> None:
        self.forward, self.parameters = model.loss, model.parameters


def loss_along_a_direction(model: GPT, ids: np.ndarray, targets: np.ndarray) -> Callable[..., tuple[Any, Any]]:
    """The loss as an operation of one number: how far all parameters have gone along a random direction."""
    parameters = list(model.parameters().values())
    rng = np.random.default_rng(0)
    starts = [parameter.value for parameter in parameters]
    directions = [np.abs(start).max() * rng.standard_normal(start.shape) for start in starts]

    def loss(far: np.ndarray) -> tuple[Any, Any]:
        for parameter, start, direction in zip(parameters, starts, directions, strict=True):
            parameter.value = start + far[0] * direction
        (total, _), loss_backward = model.loss(ids, targets)

        def backward(dtotal: np.ndarray) -> np.ndarray:
            for parameter, start in zip(parameters, starts, strict=True):
                parameter.grad = np.zeros_like(start)
            loss_backward(dtotal)
            terms = [(parameter.grad * direction).sum() for parameter, direction in zip(parameters, directions, strict=True)]
            return np.array([sum(terms)])

        return total, backward

    return loss


def gradients_are_right(model: GPT, ids: np.ndarray) -> bool:
    """Check, and print the verdict in a line; the reports too where one fails. False only then."""
    started = time.monotonic()
    exact = with_weights_of(model, GPT(model.config, dtype=np.float64))
    T = model.config.max_len
    few = min(FEW_TOKENS, T)
    if model.config.n_parameters > CHECKED_QUICKLY:
        before = time.monotonic()
        exact.loss(ids[None, :few], ids[None, 1 : few + 1])
        needed = FORWARDS * (time.monotonic() - before)
        print(f"note        to check the gradients of so many parameters takes about {clock(needed)}")
    print("gradients   ", end="", flush=True)
    reports = [gradcheck.check_layer(Loss(exact), ids[None, :few], ids[None, 1 : few + 1])]
    n_windows = min(N_WINDOWS, (len(ids) - 1) // T)
    windows, targets = (each[: n_windows * T].reshape(n_windows, T) for each in (ids, ids[1:]))
    reports.append(gradcheck.check(loss_along_a_direction(exact, windows, targets), np.zeros(1)))
    verdict = next(each for each in ("fail", "inconclusive", "pass") if each in [report.verdict for report in reports])
    print(
        f"{verdict}: {len(exact.parameters())} parameter arrays with {reports[0].n_entries:,} entries, "
        f"{sum(report.n_evaluations for report in reports)} forward evaluations, {time.monotonic() - started:.1f} s",
        flush=True,
    )
    for report in reports:
        if report.verdict == "fail":
            print(report)
        elif report.verdict == "inconclusive":
            print(f"note        {report.findings[0]}")
    return verdict != "fail"
