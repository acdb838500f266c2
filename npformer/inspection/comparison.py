"""Two runs on the same tokens: what each head does in one and in the other."""

from typing import NamedTuple

from npformer.inspection.attention_map import Address, AttentionMap
from npformer.inspection.diagnosis import Finding, Thresholds
from npformer.inspection.inspection import Inspection
from npformer.inspection.shown import Shown


class HeadChange(NamedTuple):
    """`distance` is the mean over the queries of ½ Σ |B − A|, 0 … 1; `metrics` has each in A and in B."""

    kind: str
    layer: int
    head: int
    distance: float
    metrics: dict[str, tuple[float | None, float | None]]

    @property
    def address(self) -> Address:
        return self.kind, self.layer, self.head


class Comparison(Shown):
    """A is the good run, B the bad one; `changes` of all heads, the largest first."""

    def __init__(self, good: Inspection, bad: Inspection) -> None:
        self.good, self.bad = good, bad = good.as_it_is(), bad.as_it_is()
        self.title = f"{good.title} (A) and {bad.title} (B)"
        changes = [self.change(map, bad.find(*map.address)) for map in good.maps]
        self.changes = tuple(sorted(changes, key=lambda change: -change.distance))

    def __repr__(self) -> str:
        return f"<Comparison of {self.good!r} and {self.bad!r}>"

    def change(self, a: AttentionMap, b: AttentionMap) -> HeadChange:
        rows = (a.n_visible > 0) | (b.n_visible > 0)
        distance = 0.5 * abs(b.weights - a.weights).sum(1)[rows].mean() if rows.any() else 0.0
        of_a, of_b = self.good.metrics(a), self.bad.metrics(b)
        return HeadChange(a.kind, a.layer, a.head, float(distance), {name: (of_a[name], of_b[name]) for name in of_a})

    def diagnose(self, thresholds: Thresholds | None = None) -> list[Finding]:
        """The heads that have changed, and how."""
        least = (thresholds or Thresholds()).changed
        return [
            Finding("changed", c.kind, c.layer, c.head, c.distance, f"{c.distance:.4f} of its weight went elsewhere{how(c)}")
            for c in self.changes
            if c.distance >= least
        ]


def how(change: HeadChange) -> str:
    parts = []
    for name, title in (("entropy", "entropy"), ("distance", "mean distance")):
        a, b = change.metrics[name]
        if a is not None and b is not None:
            parts.append(f"{title} {a:.2f} → {b:.2f}")
    return f" ({', '.join(parts)})" if parts else ""


def compare(good: Inspection, bad: Inspection) -> Comparison:
    """ValueError, which names what differs, unless both have the same heads and the same tokens."""
    if good.kinds != bad.kinds:
        kinds = f"A has {' and '.join(good.kinds)} attention, and B {' and '.join(bad.kinds)}"
        raise ValueError(f"compare: {kinds}: inspect_arrays takes a `kind`, where it is the same")
    for name, run in (("good", good), ("bad", bad)):
        if not isinstance(run, Inspection):
            raise TypeError(f"compare: {name} must be an inspection or a recording, got {type(run).__name__}")
    mine, others = ({map.place: map for map in each.maps} for each in (good, bad))
    if mine.keys() != others.keys():
        place = min(mine.keys() ^ others.keys())
        map = mine.get(place) or others[place]
        raise ValueError(f"compare: {map.kind} {map.name} is in {'A' if place in mine else 'B'} alone")
    for place, a in mine.items():
        b = others[place]
        for what, tokens, given in (("query", a.query_tokens, b.query_tokens), ("key", a.key_tokens, b.key_tokens)):
            if tokens != given:
                raise ValueError(f"compare: {a.kind} {a.name} has other {what} tokens: {difference(tokens, given)}")
        if a.named_by != b.named_by:
            raise ValueError(f"compare: the rows of {a.kind} {a.name} are what it {a.named_by} in A, {b.named_by} in B")
    return Comparison(good, bad)


def difference(a: tuple[str | bytes, ...], b: tuple[str | bytes, ...]) -> str:
    if len(a) != len(b):
        return f"{len(a)} and {len(b)} of them"
    i = next(i for i in range(len(a)) if a[i] != b[i])
    return f"number {i} is {a[i]!r} in A and {b[i]!r} in B"
