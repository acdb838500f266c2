"""What a backward does on other calls: when it is called again, elsewhere, or for multiples and sums of dy."""

import numpy as np

from gradcheck.arrays import contents
from gradcheck.decision import distance
from gradcheck.diagnosis.evidence import Evidence, Gradient, is_close, is_same

FAR_AWAY = 1e-6  # of the truth: how near a gradient must be to it at a point where there is no bar
NOT_LINEAR = 1e-3  # of the largest entry; float32 inside makes 1e-7


def calls(evidence: Evidence, own: Gradient) -> str | None:
    """What hangs on earlier calls and on what they overwrote."""
    responses, anew = [evidence.first_calls[k] for k in own.ks], evidence.first_calls[-1].gradients[own.i]
    first, again = responses[0].gradients[own.i], responses[0].again[own.i]
    by_backward, by_forward = (" and ".join(names) for names in (responses[0].by_backward, responses[0].by_forward))
    left = [response.dys for response in responses]
    is_overwritten = any(contents(dys) != contents(each) for dys, each in zip(evidence.dys(own), left, strict=True))
    if is_overwritten and evidence.is_true_for(own, left, evidence.arrays):
        return "is the true gradient for what is left of dy, which the backward overwrites"
    if own.agrees(np.array([response.gradients[own.i] for response in responses])) and is_close(anew, first):
        is_right_at_first = (distance(own.along[0], own.truths[0]) <= own.bars[0]).all()
        return later_calls(own, by_backward) if is_right_at_first else None
    if not is_close(anew, first) or not (is_close(again, first) or by_backward):
        return "changes from one call to the next, with the same arrays and the same dy"
    restored = [evidence.respond(dys, restored=True).gradients[own.i] for dys in evidence.dys(own)] if by_forward else []
    if restored and own.agrees(np.array(restored)):
        return f"is right if {by_forward}, which the forward overwrites, is restored before the backward"
    return None


def later_calls(own: Gradient, overwritten: str) -> str:
    """Of a backward that is right when it is first called."""
    if own.ks == [*range(len(own.ks))] and (np.abs(own.along - own.truths.cumsum(0)) <= own.bars.cumsum(0)).all():
        return "adds up: a backward that is called again returns the sum of all its calls so far"
    if is_same(own.actual, own.actual[:1]):
        return "is that of the first dy again when the backward is called with another"
    why = f", since the first overwrites {overwritten}" if overwritten else ""
    return f"is right on the first call of a backward and wrong on the next{why}"


def stale(evidence: Evidence, own: Gradient) -> str | None:
    """Of a gradient that is right at the given point."""
    point = evidence.runs.elsewhere
    if not point or not is_close(own.actual[0], evidence.respond(evidence.cotangents[0], point).gradients[own.i]):
        return None
    truth = evidence.derivatives(own, range(len(own.directions)), evidence.cotangents[:1], point)[0]
    return None if is_close(own.along[0], truth, FAR_AWAY) else "at a second point is that of the first point again"


def not_linear(evidence: Evidence, own: Gradient) -> str | None:
    """A backward that does other things with dy than to multiply and to add."""
    once, twice, turned, other, both, positive = (response.gradients[own.i] for response in evidence.combined)
    if all(is_same(each, once) for each in (twice, turned, other, *own.actual)):
        return "is the same whatever dy is"
    pairs = ((twice, 2 * once), (turned, -once), (both, once + other))
    if all(is_close(actual, linear, NOT_LINEAR) for actual, linear in pairs):
        return None
    even, doubled, fixed = is_close(turned, once), is_close(twice, 2 * once), 2 * once - twice
    causes = {
        "−dy gives the same and 2·dy four times as much, as if dy were squared": even and is_close(twice, 4 * once),
        "−dy gives the same, as if |dy| stood for dy": even and doubled,
        "what is negative in dy does not count": is_close(positive, once) and doubled,
        "2·dy gives the same, as if dy were normalised": is_close(twice, once),
        "a part of it does not depend on dy": is_close(turned, 2 * fixed - once) and is_close(both, once + other - fixed),
    }
    return "is not linear in dy" + next((f": {cause}" for cause, holds in causes.items() if holds), "")
