"""Cross-entropy: how surprised the logits are by the targets, in nats, summed over the rows that count.

    loss of a row = −Σ_v q_v·log softmax(z)_v        q = (1 − ε)·[v = target] + ε/V        total = Σ over rows

ε is the label smoothing; with ε = 0 a row's loss is −log softmax(z)[target].

Backward. Since log softmax(z)_v = z_v − log Σ exp(z) and Σ q = 1, a row's loss is log Σ exp(z) − Σ q_v·z_v. The first
term's slope is softmax(z), the second's is q, so a row that counts has

    dz = dtotal·(softmax(z) − q)

and an ignored row has exactly 0. The entries of a row's dz add up to dtotal·(1 − 1) = 0: adding a number to all logits
changes nothing. The mean loss is total / count; both are returned, since batches of unequal counts must be added before
they are divided.

Source: Goodfellow, Bengio and Courville 2016, section 6.2.2.3; label smoothing: Szegedy et al. 2016, section 7.
"""

import numpy as np

from npformer.arguments import check_filled, check_ids, check_probability, check_whole
from npformer.functional.log_softmax import log_probabilities
from npformer.operation import Array, Backward, operation


@operation(logits="... V")
def cross_entropy(
    logits: Array, targets: Array, ignore_id: int | None = None, label_smoothing: float = 0.0
) -> tuple[tuple[Array, int], Backward]:
    """The summed loss of the rows of `logits`, and how many rows it sums.

    logits (..., V), targets (...) integers in 0 … V − 1, or equal to `ignore_id`, which may lie outside
    → (total (), count), and backward(dtotal) → dlogits (..., V); backward(1 / count) is the gradient of the mean.

    Rows whose target is `ignore_id` are not read. If all are ignored, total and count are 0. 0 ≤ label_smoothing < 1.
    PyTorch's is the same with reduction="sum". ValueError for a target outside, with its place.
    """
    check_filled("cross_entropy", "logits", logits)
    if ignore_id is not None:
        check_whole("cross_entropy", "ignore_id", ignore_id)
    check_ids("cross_entropy", "targets", targets, limit=logits.shape[-1], ignored=ignore_id)
    if targets.shape != logits.shape[:-1]:
        raise ValueError(f"cross_entropy: targets {targets.shape} must have the shape of logits' rows {logits.shape[:-1]}")
    label_smoothing = check_probability("cross_entropy", "label_smoothing", label_smoothing)
    counted = np.ones(targets.shape, bool) if ignore_id is None else targets != ignore_id
    z = logits[counted]  # (..., V) → (N,V)
    row, target = np.arange(len(z)), targets[counted]  # (N,)
    log_softmax = log_probabilities(z, axis=-1)  # (N,V)
    total = (1 - label_smoothing) * (0 - log_softmax[row, target].sum())
    if label_smoothing:
        total = total - label_smoothing * log_softmax.mean(-1).sum()

    def backward(dtotal: Array) -> Array:
        dz = np.exp(log_softmax)
        dz[row, target] = np.expm1(log_softmax[row, target])  # softmax − 1, right also where softmax is nearly 1
        if label_smoothing:
            dz -= label_smoothing / z.shape[-1]
            dz[row, target] += label_smoothing
        dlogits = np.zeros(logits.shape, logits.dtype)
        dlogits[counted] = dtotal * dz
        return dlogits

    return (total, len(z)), backward
