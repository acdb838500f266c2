"""A set of attention maps, with everything that can be asked of them and every way to see them."""

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from npformer.arguments import check_name
from npformer.inspection.attention_map import KINDS, AttentionMap
from npformer.inspection.diagnosis import Finding, Thresholds, find
from npformer.inspection.metrics import jensen_shannon, measure, rollout
from npformer.inspection.shown import Shown
from npformer.inspection.tokens import merged, words_of
from npformer.inspection.who_attends import WhoAttends, Word, answer, find_key, find_row, note_of
from npformer.operation import Array


class Inspection(Shown):
    """Maps of one sequence, by kind, layer and head.

    loss_name  what L is in the maps' gradients ∂L/∂P; empty where there are none
    note       what was done to the maps, which every view says; empty where nothing was
    """

    def __init__(self, title: str, maps: Iterable[AttentionMap], *, loss_name: str = "", note: str = "") -> None:
        self.title, self.loss_name, self.note = title, loss_name, note
        self._maps = tuple(sorted(maps, key=lambda map: map.place))
        self._metrics: dict[AttentionMap, dict[str, float | None]] = {}

    @property
    def maps(self) -> tuple[AttentionMap, ...]:
        return self._maps

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.title!r}: {len(self.maps)} heads of {', '.join(self.kinds)} attention>"

    @property
    def kinds(self) -> tuple[str, ...]:
        there = {map.kind for map in self.maps}
        return tuple(kind for kind in KINDS if kind in there)

    def of_kind(self, kind: str) -> list[AttentionMap]:
        """ValueError where there is no such map."""
        check_name("Inspection", "kind", kind, self.kinds)
        return [map for map in self.maps if map.kind == kind]

    def find(self, kind: str, layer: int, head: int) -> AttentionMap:
        """ValueError, which names what there is, where there is no such head."""
        maps = self.of_kind(kind)
        for map in maps:
            if (map.layer, map.head) == (layer, head):
                return map
        layers = sorted({map.layer for map in maps})
        if layer not in layers:
            raise ValueError(f"Inspection: {kind} attention has the layers {layers[0]} … {layers[-1]}, not {layer}")
        heads = sorted(map.head for map in maps if map.layer == layer)
        raise ValueError(f"Inspection: {kind} layer {layer} has the heads {heads[0]} … {heads[-1]}, not {head}")

    def metrics(self, map: AttentionMap) -> dict[str, float | None]:
        """Its numbers, by the names of METRICS; None where one does not apply."""
        if map not in self._metrics:
            measured = measure(map)
            mates = [other for other in self.maps if other.place[:2] == map.place[:2] and other is not map]
            rows = map.n_visible > 0
            distances = [jensen_shannon(map.weights, mate.weights, rows) for mate in mates]
            measured["redundancy"] = min((d for d in distances if d is not None), default=None)
            self._metrics[map] = measured
        return self._metrics[map]

    def rollout(self, kind: str) -> Array:
        """(T, T): how much of each token's last features comes from each token, by the heads' weights alone."""
        maps = self.of_kind(kind)
        if kind == "cross" or maps[0].weights.shape[0] != maps[0].weights.shape[1]:
            raise ValueError(f"Inspection.rollout: {kind} attention does not lead from the tokens to themselves")
        layers: dict[int, list[AttentionMap]] = {}
        for map in maps:
            layers.setdefault(map.layer, []).append(map)
        return rollout([layers[i] for i in sorted(layers)])

    def as_it_is(self) -> "Inspection":
        """One that nothing changes from now on."""
        return self

    def diagnose(
        self,
        thresholds: Thresholds | None = None,
        *,
        reference: "Inspection | None" = None,
        also: Sequence["Inspection"] = (),
    ) -> list[Finding]:
        """What there is to say of heads and layers, faults first.

        reference  a good run on the same tokens: which heads have changed, as well
        also       runs of the same heads on other texts: entropies and patterns are then judged by their means over all of
                   them, and a leak by the worst. One short text may show any head at an extreme. ValueError for other heads
        """
        from npformer.inspection.comparison import compare

        thresholds = thresholds or Thresholds()
        findings = list(find([(map, mean_of(map, [self, *also])) for map in self.maps], thresholds))
        findings += self.ablation_findings(thresholds)
        if reference is not None:
            findings += compare(reference, self).diagnose(thresholds)
        return sorted(findings, key=lambda finding: not finding.is_fault)

    def ablation_findings(self, thresholds: Thresholds) -> list[Finding]:
        """Of heads that were zeroed, those without effect: none here, where there is no model."""
        return []

    def who_attends(self, query: str, key: str, *, against: str | None = None, kind: str | None = None) -> WhoAttends:
        """Every head's weight on the word `key`, and on `against`, in the rows of the word `query`; largest first.

        A word is looked for among the tokens, over as many as it takes, at every occurrence; 北京₂ is the second one alone.
        The kind is that in which both words are found, cross-attention before a decoder's before an encoder's. ValueError
        for a word that is not there.
        """
        for name, word in (("query", query), ("key", key), ("against", "" if against is None else against)):
            if not isinstance(word, str):
                raise TypeError(f"who_attends: {name} must be a word, a str, got {type(word).__name__}")
        kinds = [kind] if kind is not None else list(reversed(self.kinds))
        for tried in [kind for kind in ("cross", "decoder", "encoder") if kind in kinds] or kinds:
            maps = self.of_kind(tried)
            rows, keys = find_row(maps[0], query), find_key(maps[0], key)
            others = None if against is None else find_key(maps[0], against)
            if rows and keys and (others or against is None):
                return self.answered(maps, rows, keys, others)
        raise ValueError(f"who_attends: {self.missing(kinds, query, key, against)}")

    def missing(self, kinds: Sequence[str], query: str, key: str, against: str | None) -> str:
        maps = [self.of_kind(kind)[0] for kind in kinds]
        for word, whose, look in ((query, "rows", find_row), (key, "keys", find_key), (against, "keys", find_key)):
            if word is not None and not any(look(map, word) for map in maps):
                return f"{word!r} is not among the {whose} of {' or '.join(kinds)} attention"
        return f"no kind of attention has {query!r} among its rows and the keys asked for: give `kind`"

    def answered(self, maps: Sequence[AttentionMap], query: Word, key: Word, against: Word | None) -> WhoAttends:
        before, after = self.probabilities(maps, query)
        rows = [answer(map, query, key, against, after.get((map.layer, map.head))) for map in maps]
        rows.sort(key=lambda row: -row.weight)
        return WhoAttends(
            *(query.name, key.name, None if against is None else against.name, maps[0].kind, tuple(rows), before),
            note_of(maps[0], query, key, against, before is not None),
            maps[0].named_by,
        )

    def probabilities(
        self, maps: Sequence[AttentionMap], query: Word
    ) -> tuple[float | None, Mapping[tuple[int, int], float]]:
        """P of the word that the rows produce, and with each head zeroed: nothing here, where there is no model."""
        return None, {}

    def by_words(self, words: Collection[str]) -> "Inspection":
        """The same with the tokens of each of `words` merged, wherever they stand: weights are summed over a word's keys and
        averaged over its queries."""
        if isinstance(words, str):
            raise TypeError(f"by_words: words must be a list of strings, got the string {words!r}")
        maps = [merged(map, (words_of(map.query_tokens, words), words_of(map.key_tokens, words))) for map in self.maps]
        note = f"Tokens are merged to words ({', '.join(words)}): weights are summed over keys and averaged over queries."
        return Inspection(self.title, maps, note=note)


def mean_of(map: AttentionMap, inspections: Sequence[Inspection]) -> dict[str, float | None]:
    """The metrics of one head over several texts: their means where they apply, of hidden mass the most."""
    each = [inspection.metrics(inspection.find(*map.address)) for inspection in inspections]
    means: dict[str, float | None] = {}
    for name in each[0]:
        values = [value for metrics in each if (value := metrics[name]) is not None]
        combine = max if name in ("future_mass", "padding_mass") else np.mean
        means[name] = float(combine(values)) if values else None
    return means
