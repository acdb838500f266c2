"""How surprised the model is by what came."""

from npformer.oracle.reference.elementary import Number
from npformer.oracle.reference.log_softmax import log_softmax
from npformer.oracle.reference.nested import Nested, kind_of


def cross_entropy(
    logits: Nested, targets: Nested, ignore_id: int | None = None, label_smoothing: Number = 0.0
) -> tuple[Number, int]:
    """The sum of −log p[target] over the rows that are not ignored, p = softmax(logits), and the number of these rows.

    logits (..., V), targets (...) → total, count; the loss is total / count. Label smoothing ε moves ε from the target
    to all classes alike, ε/V to each: (1 − ε)(−log p[target]) + ε/V Σ(−log p)        Szegedy et al. 2016, section 7
    """
    number = kind_of(logits)
    if isinstance(targets, list):
        rows = [
            cross_entropy(part, target, ignore_id, label_smoothing) for part, target in zip(logits, targets, strict=True)
        ]
        return sum((total for total, _ in rows), number(0)), sum(count for _, count in rows)

    if targets == ignore_id:
        return number(0), 0
    surprise = [-log_p for log_p in log_softmax(logits)]  # (V)
    if label_smoothing == 0:
        return surprise[targets], 1
    epsilon = number(label_smoothing)
    return (1 - epsilon) * surprise[targets] + epsilon * sum(surprise) / len(surprise), 1
