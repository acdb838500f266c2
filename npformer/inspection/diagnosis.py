"""What the numbers of a head or a layer say, in a sentence each: facts, with what they may come from.

High entropy alone is no fault: trained models have such heads. What a fault is, is written beside each label.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np

from npformer.arguments import check_number
from npformer.inspection.attention_map import LEAK, AttentionMap
from npformer.inspection.metrics import hidden_pairs

FAULTS = ("untrained", "collapsed", "mask leak")
Measured = Sequence[tuple[AttentionMap, Mapping[str, float | None]]]


@dataclass(frozen=True)
class Thresholds:
    """From where on a label is given.

    uniform        normalised entropy at least; with every head of a layer so, the layer is untrained
    collapsed      normalised entropy at most, of collapsed_heads of a layer's heads at least (a share)
    leak           the mass on hidden keys, above
    sink           the weight on one key at least, by sink_queries of the queries at least (a share)
    pattern        the mean weight at least on the previous, the next or the own token
    no_effect      by how much the loss changes without the head, below
    changed        the mean over the queries of ½ Σ |B − A|, at least
    """

    uniform: float = 0.97
    collapsed: float = 0.10
    collapsed_heads: float = 0.9
    leak: float = LEAK
    sink: float = 0.6
    sink_queries: float = 0.8
    pattern: float = 0.6
    no_effect: float = 1e-3
    changed: float = 0.1

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if check_number("Thresholds", field.name, value) < 0:
                raise ValueError(f"Thresholds: {field.name} must be at least 0, got {value}")


@dataclass(frozen=True)
class Finding:
    """A label on a head, or on a layer where `head` is None: the number that earned it, what was seen, and for a fault what
    it may come from. `sentence` is all of it in words."""

    label: str
    kind: str
    layer: int
    head: int | None
    number: float
    evidence: str
    cause: str = ""

    def is_about(self, map: AttentionMap) -> bool:
        """Whether it is on this head, or on its whole layer."""
        return (self.kind, self.layer) == (map.kind, map.layer) and self.head in (None, map.head)

    @property
    def is_fault(self) -> bool:
        return self.label in FAULTS

    @property
    def sentence(self) -> str:
        where = f"{self.kind} layer {self.layer}" + ("" if self.head is None else f" head {self.head}")
        return f"{where}, {self.label}: {self.evidence}" + (f"; likely {self.cause}" if self.cause else "")

    def __str__(self) -> str:
        return self.sentence


def find(measured: Measured, thresholds: Thresholds) -> Iterator[Finding]:
    """What one run shows by itself."""
    layers: dict[tuple[str, int], list[tuple[AttentionMap, Mapping[str, float | None]]]] = {}
    for map, metrics in measured:
        layers.setdefault((map.kind, map.layer), []).append((map, metrics))
    for (kind, layer), heads in layers.items():
        entropies = np.array([metrics["entropy"] for _, metrics in heads if metrics["entropy"] is not None])
        whole = list(of_layer(kind, layer, entropies, thresholds))
        yield from whole
        for map, metrics in heads:
            yield from of_head(map, metrics, thresholds, [finding.label for finding in whole])


def of_layer(kind: str, layer: int, entropies: np.ndarray, thresholds: Thresholds) -> Iterator[Finding]:
    if not entropies.size:
        return
    if (entropies >= thresholds.uniform).all():
        least = float(entropies.min())
        evidence = f"every head spreads over all it sees, normalised entropy {least:.4f} or more"
        yield Finding(
            *("untrained", kind, layer, None, least, evidence),
            "weights as they were initialised, keys that are all alike, or a scale of the scores near 0",
        )
    narrow = float((entropies <= thresholds.collapsed).mean())
    if narrow >= thresholds.collapsed_heads:
        evidence = (
            f"{int((entropies <= thresholds.collapsed).sum())} of {len(entropies)} heads put nearly all on one key, "
            f"normalised entropy {np.median(entropies):.4f} (median)"
        )
        cause = "scores that are too large: 1/√d_head left out, or a learning rate too high"
        yield Finding("collapsed", kind, layer, None, float(np.median(entropies)), evidence, cause)


def of_head(
    map: AttentionMap, metrics: Mapping[str, float | None], thresholds: Thresholds, of_whole: Sequence[str]
) -> Iterator[Finding]:
    place = map.address
    entropy = metrics["entropy"]
    if entropy is not None and entropy >= thresholds.uniform and "untrained" not in of_whole:
        evidence = f"it spreads over all it sees, normalised entropy {entropy:.4f}"
        yield Finding("uniform", *place, entropy, evidence)
    for name, where in (("future_mass", "keys after it"), ("padding_mass", "padding, or keys outside its window")):
        mass = metrics[name]
        if mass is not None and mass > thresholds.leak:
            hidden = hidden_pairs(map) & (map.future if name == "future_mass" else ~map.future)
            masses = (map.weights * hidden).sum(1)
            q = int(masses.argmax())
            who = f"{map.query_names[q]} (row {q})" if masses[q] > thresholds.leak else "a query of another text"
            evidence = f"{who} puts {mass:.4f} on {where}"
            cause = "a mask that is missing, turned round or shifted, or that a bias overrides"
            yield Finding("mask leak", *place, mass, evidence, cause)
    rows = map.n_visible > 1
    if rows.any():
        share = (map.weights[rows] >= thresholds.sink).mean(0)
        key = int(share.argmax())
        if share[key] >= thresholds.sink_queries:
            token = map.key_names[key]
            evidence = f"{share[key]:.0%} of the queries put {thresholds.sink:g} or more on {token} (key {key})"
            yield Finding("sink", *place, float(share[key]), evidence)
    for name in ("previous", "next", "self"):
        weight = metrics[name]
        if weight is not None and weight >= thresholds.pattern:
            token = {"previous": "token before", "next": "token after", "self": "own token"}[name]
            yield Finding(name, *place, weight, f"it gives {weight:.4f} to the {token}, in the mean")


def labels_of(map: AttentionMap, findings: Sequence[Finding]) -> list[str]:
    """Of findings on the head and on its whole layer, without repeats."""
    return list(dict.fromkeys(finding.label for finding in findings if finding.is_about(map)))


def summary(findings: Sequence[Finding]) -> list[tuple[Finding, str]]:
    """The findings in few sentences, faults first: of heads of one layer with one label the most striking, which names the
    others."""
    groups: dict[tuple[str, str, int], list[Finding]] = {}
    for finding in sorted(findings, key=lambda finding: not finding.is_fault):
        groups.setdefault((finding.label, finding.kind, finding.layer), []).append(finding)
    said = []
    for group in groups.values():
        most = max(group, key=lambda finding: abs(finding.number))
        others = [str(finding.head) for finding in group if finding is not most]
        also = f"; so also head{'s' if len(others) > 1 else ''} {', '.join(others)}" if others else ""
        said.append((most, most.sentence + also))
    return said
