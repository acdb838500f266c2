"""Record what a model attends to, while it reads or writes, and ask the model again with a head zeroed.

with record(model, tokenizer) as recording:
    generate(model, ids, 20)
recording.show()
"""

import copy
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from npformer.arguments import check_count
from npformer.inspection.ablation import Ablation, Question, log_probabilities, weight_gradients
from npformer.inspection.attention_map import MOST_TOKENS, Address, AttentionMap, check_map
from npformer.inspection.diagnosis import Finding, Thresholds
from npformer.inspection.inspection import Inspection
from npformer.inspection.recorder import Look, Piece, Recorder, Row, Run
from npformer.inspection.stitching import alone, causal, maps_of, stitched, text_of
from npformer.inspection.tokens import Token
from npformer.inspection.who_attends import Word, find_row
from npformer.layers import Layer
from npformer.models import GPT, Encoder, EncoderDecoder
from npformer.observing import observed_by
from npformer.operation import Array
from npformer.text import CharacterTokenizer

Vocabulary = CharacterTokenizer | Sequence[Token] | None
NOT_YET = "(next)"  # comes after the last token that was read, and nobody has said what it is


@contextmanager
def record(
    model: Layer,
    vocabulary: Vocabulary = None,
    source_vocabulary: Vocabulary = None,
    *,
    row: int = 0,
    title: str | None = None,
) -> Iterator["Recording"]:
    """Every attention layer of `model` that is run in the block: in one pass, or token by token over a cache; by a loop of
    yours, generate or beam_search.

    vocabulary         the tokens' names: a tokenizer, or a string or bytes for each id; the ids themselves unless given
    source_vocabulary  of an EncoderDecoder's source, where it is another
    row                which row of a batch the maps are of

    Shown is the run that was read last, a pass or a text that was read in pieces; of a beam search the best text that it
    found. Of a layer that is no model and no Stack it is its last pass, also over a cache. Threads that begin in the block
    with its context, as those of asyncio.to_thread, are recorded too, each for itself, and the last pass to end is shown.

    The model runs as if nobody watched, but that within the block decode_step takes the plain way, which is slower, and
    gives the same but for rounding. What cannot be shown says so when the maps are asked for: ValueError.
    """
    recording = Recording(model, vocabulary, source_vocabulary, row=row, title=title)
    with observed_by(recording.recorder):
        yield recording


class Recording(Inspection):
    """The maps of a model's run, which can be run again."""

    def __init__(
        self,
        model: Layer,
        vocabulary: Vocabulary = None,
        source_vocabulary: Vocabulary = None,
        *,
        row: int = 0,
        title: str | None = None,
    ) -> None:
        if not isinstance(model, Layer):
            raise TypeError(f"record: model must be a model or a layer, got {type(model).__name__}")
        if title is not None and not isinstance(title, str):
            raise TypeError(f"record: title must be a string, got {type(title).__name__}")
        self.model = model
        self.row = check_count("record", "row", row, low=0)
        config = getattr(model, "config", None)
        size = getattr(config, "vocab_size", None)
        self.names = names_of("vocabulary", vocabulary, size)
        if source_vocabulary is None:
            self.source_names = self.names if getattr(config, "source_vocab_size", None) in (None, size) else None
        else:
            self.source_names = names_of(
                "source_vocabulary", source_vocabulary, getattr(config, "source_vocab_size", None) or size
            )
        self.recorder = Recorder(model)
        self.seen: object = None  # the version of which the maps are
        self.gradients: dict[Address, Array] | None = None
        self.all_ablations: tuple[object, int, list[Ablation]] | None = None  # of which version, with which parameters
        super().__init__(type(model).__name__ if title is None else title, ())

    @property
    def maps(self) -> tuple[AttentionMap, ...]:
        version = self.recorder.version
        if self.seen is not version:
            maps = self.make_maps()
            for map in maps:
                check_map("record", map)
            self._maps, self._metrics = tuple(sorted(maps, key=lambda map: map.place)), {}
            self.seen = version
        return self._maps

    def chosen(self) -> tuple[Run, Row]:
        """The run, and its row that is shown. ValueError where there is none."""
        run = self.recorder.run
        if run is None:
            raise ValueError("record: the model was not run in the `with` block")
        if run.settled is not None and self.row < len(run.searches):
            run = run.searches[self.row]
            assert run.settled is not None
            read = run.settled[:-1].tolist()
            for row in [*run.rows, *run.finished]:
                if text_of(row).ids[: len(read)] == read:
                    return run, row._replace(written=int(run.settled[-1]), length=len(read))
        for row in [*run.rows, *run.finished]:
            if row.origin == self.row:
                return run, row
        n = 1 + max((row.origin for row in [*run.rows, *run.finished]), default=-1)
        n = n if run.settled is None else len(run.searches)
        raise ValueError(f"record: row {self.row} was asked for, but {n} were run")

    def make_maps(self) -> list[AttentionMap]:
        _, row = self.chosen()
        refuse_parts(row)
        maps: list[AttentionMap] = []
        source: tuple[Token, ...] = ()
        source_keep: Array | None = None
        if row.encoder is not None and row.encoder.ids is None:
            for (kind, layer), look in row.encoder.looks.items():
                too_long("record", *look.P.shape[2:])
                maps += alone(kind, layer, look, row.source)
        elif row.encoder is not None and row.encoder.looks:
            source, source_keep = self.source_of(row.encoder, row.source)
            for (kind, layer), look in row.encoder.looks.items():
                maps += self.whole_maps(kind, layer, look, row.source, source, source_keep)
        if row.parts:
            text = text_of(row)
            too_long("record", len(text.ids), len(source))
            reads = tuple(name_of(self.names, id) for id in text.ids)
            produces = tuple(
                (reads[i] if not text.keep[i] else NOT_YET) if id is None else name_of(self.names, id)
                for i, id in enumerate(text.produced)
            )
            for kind, layer in row.parts[-1][0].looks:
                if kind == "cross":
                    piece, b = row.parts[0]
                    S = row.parts[0][0].looks[kind, layer].P.shape[3]
                    keys = source or tuple(map(str, range(S)))
                    seen = source_keep
                    if seen is None:
                        seen = np.ones(S, bool) if piece.memory_keep is None else piece.memory_keep[b].reshape(-1)
                    keep = text.keep[:, None] & seen
                else:
                    keys, keep = reads, causal(row, text, layer)
                P, dP = stitched(row, kind, layer, len(reads), len(keys))
                maps += maps_of(kind, layer, P, dP, produces, keys, keep, text.keep, "produces")
        if self.gradients is not None:
            maps = [replace(map, gradient=self.gradients.get(map.address)) for map in maps]
        return maps

    def source_of(self, piece: Piece, b: int) -> tuple[tuple[Token, ...], Array]:
        S = next(iter(piece.looks.values())).P.shape[3]
        too_long("record", S, S)
        assert piece.ids is not None
        keep = np.ones(S, bool) if piece.keep is None else piece.keep[b]
        return tuple(name_of(self.source_names, id) for id in piece.ids[b].tolist()), keep

    def whole_maps(
        self, kind: str, layer: int, look: Look, b: int, source: tuple[Token, ...], source_keep: Array
    ) -> list[AttentionMap]:
        T, S = look.P.shape[2:]
        rows = source if T == len(source) else tuple(map(str, range(T)))
        keys = source if S == len(source) else tuple(map(str, range(S)))
        row_keep = source_keep if T == len(source) else np.ones(T, bool)
        keep = row_keep[:, None] & (source_keep if S == len(source) else np.ones(S, bool))
        if kind == "decoder":
            keep = keep & (np.arange(S) <= np.arange(T)[:, None] + S - T)
        dP = None if look.gradient is None else look.gradient[b]
        return maps_of(kind, layer, look.P[b], dP, rows, keys, keep, row_keep, "reads")

    def metrics(self, map: AttentionMap) -> dict[str, float | None]:
        """As Inspection's; the gradient's importance is the mean over all rows of the batch. What ablation has found is
        there once all heads were ablated, as `diagnose` does."""
        known = map in self._metrics
        measured = super().metrics(map)
        if not known and map.gradient is not None and self.gradients is None:
            measured["importance"] = self.importance(map)
        if self.all_ablations is not None and self.all_ablations[0] is self.recorder.version:
            changes = {each.address: each.change for each in self.all_ablations[2]}
            measured["ablation"] = changes[map.address]
        return measured

    def importance(self, map: AttentionMap) -> float | None:
        run, _ = self.chosen()
        sums = []
        for row in run.rows:
            looks = [(part.looks[map.kind, map.layer], b) for part, b in row.parts if (map.kind, map.layer) in part.looks]
            if not looks and row.encoder is not None:
                looks = [(row.encoder.looks[map.kind, map.layer], row.source)]
            each = [
                float((look.P[b, map.head] * look.gradient[b, map.head]).real.sum())
                for look, b in looks
                if look.gradient is not None
            ]
            if each:
                sums.append(abs(sum(each)))
        return float(np.mean(sums)) if sums else None

    # The model asked again.

    def question(self) -> Question:
        """The model's input for the row that is shown, and what it produced. ValueError where it produced nothing."""
        _, row = self.chosen()
        model: Any = self.model
        if isinstance(model, Encoder) and row.encoder is not None and row.encoder.ids is not None:
            piece, b = row.encoder, row.source
            return Question.of_encoder(model, row.encoder.ids[b], part(piece.keep, b), part(piece.token_types, b))
        if isinstance(model, GPT | EncoderDecoder) and row.parts:
            text = text_of(row)
            source = source_keep = None
            if isinstance(model, EncoderDecoder):
                if row.encoder is None or row.encoder.ids is None:
                    raise ValueError("record: the source was encoded outside of the `with` block, so it cannot be run again")
                source, source_keep = row.encoder.ids[row.source], part(row.encoder.keep, row.source)
            return Question.of_text(model, text.ids, text.keep, text.produced, source, source_keep)
        raise ValueError(f"record: a {type(model).__name__} cannot be run again: GPT, EncoderDecoder and Encoder can")

    def ablate(self, kind: str, layer: int, head: int) -> Ablation:
        """The same input with that head's output zeroed: the loss and each token's probability, before and after."""
        return self.ablations([self.find(kind, layer, head)])[0]

    def ablations(self, maps: Sequence[AttentionMap] | None = None) -> list[Ablation]:
        """`ablate` of each of these heads, or of all."""
        if maps is None:
            version, weights = self.recorder.version, checksum(self.model)
            known = self.all_ablations
            if known is None or known[0] is not version or known[1] != weights:
                known = self.all_ablations = version, weights, self.ablations(self.maps)
            return known[2]
        question = self.question()
        places = [map.address for map in maps]
        before, *after = log_probabilities(self.model, question, [None, *places])
        names = tuple(name_of(self.names, id) for id in question.expected)
        return [Ablation(*place, names, before, each) for place, each in zip(places, after, strict=True)]

    def probabilities(
        self, maps: Sequence[AttentionMap], query: Word
    ) -> tuple[float | None, Mapping[tuple[int, int], float]]:
        if maps[0].named_by != "produces" or not isinstance(self.model, GPT | EncoderDecoder):
            return None, {}
        question = self.question()
        counted = [question.rows.index(row) for row in query.places if row in question.rows]
        if len(counted) < len(query.places):
            return None, {}
        places = [map.address for map in maps]
        before, *after = np.exp([each[counted].sum() for each in log_probabilities(self.model, question, [None, *places])])
        return float(before), {place[1:]: float(P) for place, P in zip(places, after, strict=True)}

    def ablation_findings(self, thresholds: Thresholds) -> list[Finding]:
        try:
            ablations = self.ablations()
        except ValueError:  # nothing was produced, so nothing can be lost
            return []
        return [
            Finding(
                "no effect",
                each.kind,
                each.layer,
                each.head,
                each.change,
                f"without it the loss changes by {each.change:+.2e}".replace("-", "−"),
            )
            for each in ablations
            if abs(each.change) < thresholds.no_effect
        ]

    def as_it_is(self) -> "Recording":
        other = copy.copy(self)
        other.recorder = self.recorder.as_it_is()
        return other

    def with_gradients(self, query: str) -> "Recording":
        """The same maps with ∂L/∂P, where L = −ln P(query): the word that some rows produce, such as 北京."""
        question = self.question()
        maps = [map for map in self.maps if map.named_by == "produces"]
        word = find_row(maps[0], query) if maps else None
        if word is None or not isinstance(self.model, GPT | EncoderDecoder):
            raise ValueError(f"with_gradients: {query!r} is not among the tokens that the model produces")
        counted = [question.rows.index(row) for row in word.places if row in question.rows]
        if not counted:
            raise ValueError(f"with_gradients: nobody knows yet what is produced where {query!r} stands")
        other = self.as_it_is()
        other.gradients, other.seen = weight_gradients(self.model, question, counted), None
        other.loss_name = f"−ln P({word.name})"
        return other


def names_of(name: str, vocabulary: Vocabulary, size: int | None) -> Sequence[Token] | None:
    """ValueError where there are not as many names as ids."""
    if vocabulary is None:
        return None
    names = vocabulary.characters if isinstance(vocabulary, CharacterTokenizer) else vocabulary
    if not isinstance(names, Sequence) or isinstance(names, bytes) or not all(isinstance(n, str | bytes) for n in names):
        raise TypeError(f"record: {name} must be a tokenizer or a list of strings or bytes, got {type(vocabulary).__name__}")
    if size is not None and len(names) != size:
        raise ValueError(f"record: {name} names {len(names)} tokens, but the model has {size}: it is another model's")
    return names


def name_of(names: Sequence[Token] | None, id: int) -> Token:
    return str(id) if names is None or not 0 <= id < len(names) else names[id]


def checksum(model: Layer) -> int:
    """Of the parameters: another once they are trained."""
    found = 0
    for parameter in model.parameters().values():
        found = zlib.crc32(np.ascontiguousarray(parameter.value).data, found)
    return found


def refuse_parts(row: Row) -> None:
    """ValueError where an attention attended several times in one pass, so that what is known of it is a part."""
    for piece in [*([row.encoder] if row.encoder else []), *(piece for piece, _ in row.parts)]:
        for (kind, layer), look in piece.looks.items():
            if look.is_one_of_many:
                raise ValueError(
                    f"record: {kind} layer {layer} attended more than once in one pass, and a map can show one of these "
                    "alone: record a part of the model that attends once"
                )


def part(array: Array | None, b: int) -> Array | None:
    return None if array is None else array[b]


def too_long(title: str, T: int, S: int) -> None:
    if max(T, S) > MOST_TOKENS:
        raise ValueError(
            f"{title}: layer 0 head 0 has {T} queries and {S} keys, and {MOST_TOKENS} can be shown: run a part of the text"
        )
