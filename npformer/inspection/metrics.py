"""What an attention head does, in numbers.

P is a head's weights (T, S), V(q) the number of keys that query q may see, and a mean is over the queries that see any.
"""

from typing import NamedTuple

import numpy as np

from npformer.inspection.attention_map import LEAK, AttentionMap
from npformer.operation import Array


class Metric(NamedTuple):
    title: str
    formula: str
    source: str


METRICS = {
    "entropy": Metric(
        "normalised entropy",
        "mean over q of −Σ P ln P / ln V(q), where V(q) > 1 and nothing is on hidden keys",
        "Clark et al. 2019",
    ),
    "confidence": Metric("confidence", "mean over q of max P", "Voita et al. 2019"),
    "query_dependence": Metric("query dependence", "mean over q of ½ Σ |P − 1/V(q) where visible|", ""),
    "previous": Metric("previous", "mean of P at q − 1, where V(q) > 1", "Clark et al. 2019, Voita et al. 2019"),
    "next": Metric("next", "mean of P at q + 1, where V(q) > 1", "Clark et al. 2019, Voita et al. 2019"),
    "self": Metric("self", "mean of P at q, where V(q) > 1", "Clark et al. 2019, Voita et al. 2019"),
    "sink": Metric("sink", "the largest mean over q of P at one key, where V(q) > 1", "Clark et al. 2019"),
    "induction": Metric(
        "induction",
        "mean over q of P at keys after earlier copies of q's token, if any",
        "Olsson et al. 2022",
    ),
    "distance": Metric("mean distance", "mean over q of Σ P·|q − k|", ""),
    "future_mass": Metric("future mass", "the most that a query puts on keys after it: exactly 0", ""),
    "padding_mass": Metric("padding mass", "the most that a query puts on padding, or outside its window: exactly 0", ""),
    "importance": Metric(
        "gradient importance", "mean over examples of |Σ P·∂L/∂P|, which is |Σ out·∂L/∂out|", "Michel et al. 2019"
    ),
    "ablation": Metric(
        "loss without it", "how much the loss changes with the head's output zeroed", "Michel et al. 2019, Voita et al. 2019"
    ),
    "redundancy": Metric(
        "distance to its nearest",
        "mean over q of √JS divergence, base 2; least of the layer",
        "Clark et al. 2019",
    ),
}


def measure(map: AttentionMap) -> dict[str, float | None]:
    """The metrics of one map by name, without what takes other maps; None where one does not apply."""
    P, V = map.weights, map.n_visible
    places, S = map.positions, P.shape[1]
    real, choosing = V > 0, V > 1
    by_place = map.kind != "cross" and map.after is None
    logs = np.log(P, out=np.zeros_like(P), where=P > 0)
    entropies = -(P * logs).sum(1)
    uniform = map.keep / np.maximum(V, 1)[:, None]
    hidden = hidden_pairs(map)
    future = hidden & map.future
    spread = choosing & ((P * hidden).sum(1) <= LEAK) & P.any(1)
    distances = (P * abs(places[:, None] - np.arange(S))).sum(1)

    def beside(step: int) -> float | None:
        keys = places + step
        rows = np.flatnonzero(choosing & (keys >= 0) & (keys < S))
        rows = rows[map.keep[rows, keys[rows]]]
        return mean(P[rows, keys[rows]]) if by_place else None

    return {
        "entropy": mean(entropies[spread] / np.log(V[spread])),
        "confidence": mean(P[real].max(1, initial=0)),
        "query_dependence": mean(0.5 * abs(P - uniform).sum(1)[real]),
        "previous": beside(-1),
        "next": beside(1),
        "self": beside(0),
        "sink": float(P[choosing].mean(0).max()) if choosing.any() else None,
        "induction": induction(map) if by_place else None,
        "distance": None if map.after is not None else mean(distances[real]),
        "future_mass": None if map.kind != "decoder" else float((P * future).sum(1).max(initial=0)),
        "padding_mass": float((P * (hidden & ~future)).sum(1).max(initial=0)),
        "importance": None if map.gradient is None else abs(float((P * map.gradient).sum())),
        "ablation": None,
        "redundancy": None,
    }


def hidden_pairs(map: AttentionMap) -> Array:
    """(T, S) boolean: keys that a query may not see, of the queries that see any."""
    return ~map.keep & map.keep.any(1, keepdims=True)


def mean(values: Array) -> float | None:
    return float(values.mean()) if values.size else None


def induction(map: AttentionMap) -> float | None:
    masses = []
    for q, place in enumerate(map.positions):
        token = map.key_tokens[place]
        after = [j + 1 for j in range(place) if map.key_tokens[j] == token and map.keep[q, j + 1]]
        if after:
            masses.append(map.weights[q, after].sum())
    return mean(np.array(masses))


def jensen_shannon(P: Array, Q: Array, rows: Array) -> float | None:
    """The distance of two heads, 0 … 1: the mean over `rows` (T,) of the root of the divergence in bits."""
    P, Q = P[rows], Q[rows]
    M = (P + Q) / 2

    def divergence(X: Array) -> Array:
        ratio = np.divide(X, M, out=np.ones_like(X), where=X > 0)
        return np.asarray((X * np.log2(ratio)).sum(1))

    return mean(np.sqrt(np.maximum((divergence(P) + divergence(Q)) / 2, 0)))


def rollout(layers: list[list[AttentionMap]]) -> Array:
    """(T, T), how much of each token's features comes from each token, if a layer mixes them by its heads' mean weights and
    the residual keeps as much again.

    Source: Abnar and Zuidema 2020, section 3.
    """
    T = layers[0][0].weights.shape[0]
    mixed = np.eye(T)
    for heads in layers:
        A = np.mean([map.weights for map in heads], axis=0) + np.eye(T)
        mixed = (A / A.sum(1, keepdims=True)) @ mixed  # (T,T)(T,T) → (T,T)
    return mixed
