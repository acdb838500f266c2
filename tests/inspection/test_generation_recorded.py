"""However a text was read or written, in pieces, by generate, by beam search, its maps are those of one pass over it."""

import gc
from itertools import pairwise

import numpy as np
import pytest

from attention_by_hand import SOURCE_V, V, assert_by_hand, by_hand, encoder_decoder, gpt
from demos.cities.damages import LooksAhead
from npformer import generate
from npformer.generation import beam_search, stream
from npformer.generation.growing_text import GrowingText
from npformer.generation.prompt import Prompt
from npformer.inspection import record
from npformer.observing import observed_by

POSITIONS = ["learned", "sinusoidal", "rotary", "alibi", "none"]
B, S, T = 3, 5, 7
RNG = np.random.default_rng(0)
IDS, SOURCE = RNG.integers(V, size=(B, T)), RNG.integers(SOURCE_V, size=(B, S))
SOURCE_KEEP, KEEP = np.ones((B, S), bool), np.ones((B, T), bool)
SOURCE_KEEP[0, 3:] = SOURCE_KEEP[1, :1] = SOURCE_KEEP[2, 2] = False
KEEP[0, :2] = KEEP[1, 3:5] = KEEP[2, 5:] = False


def of_text(model, ids, source=None, source_keep=None):
    """One pass by hand over a single row, which has no padding."""
    rows = [None if array is None else np.asarray(array)[None] for array in (source, source_keep)]
    return by_hand(model, np.asarray(ids)[None], None, *rows)


def assert_read(recording, model, ids, written="(next)", source=None, source_keep=None):
    """What is shown is one pass over `ids`, after which `written` comes."""
    assert_by_hand(recording, 0, of_text(model, ids, source, source_keep))
    names = tuple(map(str, ids))
    for map_ in recording.maps:
        if map_.kind == "encoder":
            assert map_.query_tokens == tuple(map(str, source))
        else:
            assert map_.query_tokens == (*names[1:], str(written))
            assert map_.key_tokens == (names if map_.kind == "decoder" else tuple(map(str, source)))


# In pieces, by hand.

SPLITS = [*([t] for t in range(1, T)), [2, 3], [1, 2, 3, 4, 5, 6], [3, 3, 6]]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("cuts", SPLITS, ids=str)
@pytest.mark.parametrize("changes", [{"positions": name} for name in POSITIONS] + [{"window": 3}, {"window": 20}], ids=str)
def test_gpt_in_pieces(dtype, cuts, changes):
    model = gpt(dtype, **changes)
    with record(model, row=1) as recording:
        cache = model.new_cache()
        for piece in np.split(IDS, cuts, axis=1):
            model.decode(piece, cache)
    assert_read(recording, model, IDS[1])


@pytest.mark.parametrize("whole", [False, True])
def test_a_window_over_a_cache_that_slides_or_keeps_all(whole):
    model = gpt(window=2, positions="rotary")
    with record(model, row=2) as recording:
        cache = model.new_cache(whole=whole)
        for t in range(T):
            model.decode_step(IDS[:, t], cache)
    assert_read(recording, model, IDS[2])


@pytest.mark.parametrize("cuts", SPLITS, ids=str)
def test_a_target_in_pieces(cuts):
    model = encoder_decoder(positions="alibi")
    for row in range(B):
        with record(model, row=row) as recording:
            cache = model.new_cache(SOURCE, SOURCE_KEEP)
            for piece in np.split(IDS, cuts, axis=1):
                model.decode(piece, cache)
        assert_read(recording, model, IDS[row], "(next)", SOURCE[row], SOURCE_KEEP[row])


@pytest.mark.parametrize("window", [None, 2])
@pytest.mark.parametrize("cuts", [[], [2], [1, 4], [3, 4, 5, 6]], ids=str)
def test_rows_of_unequal_length(window, cuts):
    model = gpt(positions="rotary", window=window)
    for row in range(B):
        with record(model, row=row) as recording:
            cache = model.new_cache()
            for ids, keep in zip(np.split(IDS, cuts, 1), np.split(KEEP, cuts, 1), strict=True):
                model.decode(ids, cache, keep)
            model.decode_step(IDS[:, 0], cache)
        assert_read(recording, model, [*IDS[row][KEEP[row]], IDS[row, 0]])


def test_one_array_of_ids_used_again_for_each_step():
    model, ids = gpt(), np.zeros(B, int)
    with record(model) as recording:
        cache = model.new_cache()
        for t in range(T):
            ids[...] = IDS[:, t]
            model.decode_step(ids, cache)
    assert_read(recording, model, IDS[0])


# Caches reordered, forked and rewound.


def test_a_row_that_has_read_nothing_is_not_a_cache_that_begins():
    model, ids = gpt(), np.array([[3], [0]])
    shown = []
    for row in range(2):
        with record(model, row=row) as recording:
            cache = model.new_cache()
            model.decode(ids, cache, np.array([[True], [False]]))
            cache.reorder(np.array([1]))
            model.decode(np.array([[2]]), cache)
        shown.append(recording.maps[0].key_tokens)
    assert shown == [("3",), ("2",)]


def test_rewound_to_nothing_a_row_keeps_its_number():
    model = gpt()
    for row in range(2):
        with record(model, row=row) as recording:
            cache = model.new_cache()
            model.decode(IDS[:2], cache)
            cache.reorder(np.array([1]))
            cache.rewind(0)
            model.decode(IDS[2:, :3], cache)
        assert_read(recording, model, IDS[2, :3] if row else IDS[0])


def test_a_fork_of_a_cache_without_tokens_knows_its_source():
    model = encoder_decoder()
    for last in ("fork", "original"):
        with record(model, row=1) as recording:
            cache = model.new_cache(SOURCE, SOURCE_KEEP)
            cache.reorder(np.array([2, 0]))
            other = cache.fork()
            other.reorder(np.array([0, 0]))
            model.decode(IDS[:2], other)
            if last == "original":
                model.decode(IDS[:2, :2], cache)
        source = 2 if last == "fork" else 0
        n = T if last == "fork" else 2
        assert_read(recording, model, IDS[1, :n], "(next)", SOURCE[source], SOURCE_KEEP[source])


def test_what_is_shown_of_all_rows_follows_a_reordering():
    """Importance is the mean over the rows that are there."""
    model = gpt()
    with record(model) as recording:
        cache = model.new_cache()
        logits, backward = model.forward(IDS, cache=cache)
        backward(RNG.standard_normal(logits.shape))
        of_all = [recording.metrics(map)["importance"] for map in recording.maps]
        cache.reorder(np.array([0]))
        for map, mean in zip(recording.maps, of_all, strict=True):
            own = abs((map.weights * map.gradient).sum())
            assert recording.metrics(map)["importance"] == pytest.approx(own, rel=1e-9)
            assert mean != pytest.approx(own, rel=1e-3)


@pytest.mark.parametrize("window", [None, 2])
def test_reordered(window):
    model = gpt(window=window)
    with record(model, row=2) as recording:
        cache = model.new_cache()
        model.decode(IDS[:, :3], cache)
        cache.reorder(np.array([2, 0, 2]))
        model.decode(IDS[:, 3:5], cache)
        cache.reorder(np.array([1, 0]))  # row 2 of the first batch is now row 1, and its copy is gone
        model.decode(IDS[:2, 5:], cache)
    assert_read(recording, model, [*IDS[2, :3], *IDS[0, 3:5], *IDS[1, 5:]])


def test_a_row_that_was_dropped_stays_as_it_was():
    model = encoder_decoder()
    with record(model, row=1) as recording:
        cache = model.new_cache(SOURCE, SOURCE_KEEP)
        model.decode(IDS[:, :3], cache)
        cache.reorder(np.array([2, 0]))
        model.decode(IDS[:2, 3:], cache)
    assert_read(recording, model, IDS[1, :3], "(next)", SOURCE[1], SOURCE_KEEP[1])


def test_reordered_before_the_first_token():
    model = encoder_decoder()
    with record(model) as recording:
        cache = model.new_cache(SOURCE, SOURCE_KEEP)
        cache.reorder(np.array([2, 2, 1]))
        model.decode(IDS, cache)
    assert_read(recording, model, IDS[0], "(next)", SOURCE[2], SOURCE_KEEP[2])


def test_a_row_that_was_dropped_before_the_first_token_was_never_one():
    model = encoder_decoder()
    with record(model, row=1) as recording:
        cache = model.new_cache(SOURCE)
        cache.reorder(np.array([0]))
        model.decode(IDS[:1], cache)
    with pytest.raises(ValueError, match="row 1 was asked for, but 1 were run"):
        recording.maps  # noqa: B018


@pytest.mark.parametrize("last", ["fork", "original"])
def test_forked(last):
    model = encoder_decoder(positions="rotary")
    with record(model, row=1) as recording:
        cache = model.new_cache(SOURCE, SOURCE_KEEP)
        model.decode(IDS[:, :2], cache)
        other = cache.fork()
        steps = [lambda: model.decode(IDS[:, 2:5], other), lambda: model.decode(IDS[:, 5:], cache)]
        for step in steps if last == "original" else reversed(steps):
            step()
    after = IDS[1, 5:] if last == "original" else IDS[1, 2:5]
    assert_read(recording, model, [*IDS[1, :2], *after], "(next)", SOURCE[1], SOURCE_KEEP[1])


@pytest.mark.parametrize("row", range(B))
@pytest.mark.parametrize("lengths", [3, 1, 0, np.array([4, 1, 3]), np.array([2, 5, 5])], ids=str)
def test_rewound(lengths, row):
    model = encoder_decoder(positions="alibi")
    with record(model, row=row) as recording:
        cache = model.new_cache(SOURCE, SOURCE_KEEP)
        model.decode(IDS[:, :5], cache)
        cache.rewind(lengths)
        model.decode(IDS[:, 5:], cache)
        model.decode_step(IDS[:, 0], cache)
    n = lengths if isinstance(lengths, int) else lengths[row]
    text = [*IDS[row, :n], *IDS[row, 5:], IDS[row, 0]]
    assert_read(recording, model, text, "(next)", SOURCE[row], SOURCE_KEEP[row])


@pytest.mark.parametrize("row", range(B))
def test_rewound_and_nothing_read_since(row):
    model, lengths = gpt(), np.array([2, 4, 1])
    with record(model, row=row) as recording:
        cache = model.new_cache()
        model.decode(IDS[:, :5], cache)
        cache.rewind(lengths)
        assert_read(recording, model, IDS[row, : lengths[row]])
        other = cache.fork()
        only = np.array([[False], [True], [False]])
        model.decode(IDS[:, 5:6], other, only)  # the others read nothing
        assert_read(recording, model, [*IDS[row, : lengths[row]], *[IDS[row, 5]] * (row == 1)])
        model.decode_step(IDS[:, 6], other)
    assert_read(recording, model, [*IDS[row, : lengths[row]], *[IDS[row, 5]] * (row == 1), IDS[row, 6]])


def test_forked_then_reordered_then_rewound():
    model = gpt()
    with record(model, row=0) as recording:
        cache = model.new_cache()
        model.decode(IDS[:, :4], cache)
        other = cache.fork()
        other.reorder(np.array([1, 0]))
        other.rewind(np.array([2, 3]))
        model.decode(IDS[:2, 4:], other)
        cache.reorder(np.array([2, 2]))
    assert_read(recording, model, [*IDS[0, :3], *IDS[1, 4:]])


def test_what_was_dropped_of_a_fork_is_not_dropped_of_the_original():
    model = gpt()
    with record(model, row=2) as recording:
        cache = model.new_cache()
        model.decode(IDS[:, :4], cache)
        other = cache.fork()
        other.reorder(np.array([1, 0]))
        model.decode(IDS[:, 4:], cache)
        cache.reorder(np.array([1, 0]))
        model.decode_step(IDS[:2, 0], cache)
    assert_read(recording, model, IDS[2])


def test_what_was_forgotten_leaves_no_trace():
    """Seen by a model that looks ahead: read one by one again, no token has any after it."""
    model = gpt(positions="learned")
    for layer in model.decoder.layers:
        layer.attention.layer = LooksAhead(layer.attention.layer)
    with record(model) as recording:
        cache = model.new_cache()
        model.decode(IDS[:, :6], cache)
        assert recording.maps[0].weights[3, 5] > 0
        cache.rewind(2)
        for t in range(2, 6):
            model.decode_step(IDS[:, t], cache)
    for map in recording.maps:
        assert map.weights[:2].any()
        assert not map.weights[2:].any()


# generate.


def row_of(new, row, end_id):
    """The ids of a row up to its end id."""
    ids = new[row].tolist()
    return ids[: ids.index(end_id) + 1] if end_id in ids else ids


def generated(make, cached, row, seed, n=4, **options):
    """The recording, what the row was to read and what it wrote, of a batch whose rows end at different times."""
    model = make(seed=seed)
    rest = {"source": SOURCE, "source_keep": SOURCE_KEEP} if make is encoder_decoder else {}
    with record(model, row=row) as recording:
        new = generate(model, IDS, n, end_id=3, seed=seed, cached=cached, **rest | options)
    return model, recording, row_of(new, row, 3)


def assert_read_but_for_padding(recording, P):
    """The rows and columns that are no padding have the weights P of one row, and the others none."""
    assert {(map.kind, map.layer) for map in recording.maps} == P.keys()
    for map in recording.maps:
        rows, columns = map.keep.any(1), map.keep.any(0)
        shown = map.weights[rows][:, columns]
        np.testing.assert_allclose(shown, P[map.kind, map.layer][0, map.head], rtol=0, atol=1e-12)
        assert map.weights.sum() == pytest.approx(shown.sum(), abs=1e-12)


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("make", [gpt, encoder_decoder])
@pytest.mark.parametrize("row", range(B))
def test_a_batch_that_ends_row_by_row(make, cached, row):
    lengths = set()
    for seed in range(12):
        model, recording, new = generated(make, cached, row, seed)
        source = (SOURCE[row][SOURCE_KEEP[row]],) if make is encoder_decoder else ()
        read = [*IDS[row], *new[:-1]]
        assert_read_but_for_padding(recording, of_text(model, read, *source)[0])
        assert recording.maps[-1].query_tokens == (*(str(id) for id in read[1:]), str(new[-1]))
        lengths.add(len(new))
    assert lengths >= {1, 4}


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("row", range(B))
def test_a_padded_prompt(cached, row):
    model = gpt(positions="rotary")
    with record(model, row=row) as recording:
        new = generate(model, IDS, 3, keep=KEEP, cached=cached)
    assert_read_but_for_padding(recording, of_text(model, [*IDS[row][KEEP[row]], *new[row, :-1]])[0])
    assert recording.maps[0].query_tokens[-1] == str(new[row, -1])


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("row", range(2))
def test_a_text_that_outgrows_the_context(cached, row):
    model = gpt(max_len=9)
    for n in (4, 8):
        with record(model, row=row) as recording:
            new = generate(model, IDS[:2], n, cached=cached)
        assert_read(recording, model, [*IDS[row], *new[row, :-1]][-9:], new[row, -1])


@pytest.mark.parametrize("cached", [True, False])
def test_a_row_that_ended_before_the_text_outgrew_the_context(cached):
    found = set()
    for seed in range(14):
        model = gpt(max_len=9, seed=seed)
        for row in range(B):
            with record(model, row=row) as recording:
                new = generate(model, IDS, 6, end_id=3, seed=seed, cached=cached)
            mine = row_of(new, row, 3)
            assert_read(recording, model, [*IDS[row], *mine[:-1]][-9:], mine[-1])
            found.add((row, len(mine) < new.shape[1]))
    assert found == {(row, ended) for row in range(B) for ended in (True, False)}


def test_a_single_text_without_a_batch():
    model = encoder_decoder()
    with record(model) as recording:
        new = generate(model, IDS[0], 4, source=SOURCE[0], temperature=0)
    assert_read(recording, model, [*IDS[0], *new[:-1]], new[-1], SOURCE[0])


def test_a_stream_in_the_middle():
    model = gpt()
    with record(model) as recording:
        steps = stream(model, IDS[0], 4)
        new = [int(next(steps)) for _ in range(2)]
        assert_read(recording, model, [*IDS[0], new[0]], new[1])
        new.append(int(next(steps)))
        assert_read(recording, model, [*IDS[0], *new[:2]], new[2])


def test_the_text_that_was_read_last():
    model = gpt()
    with record(model) as recording:
        generate(model, IDS, 4)
        new = generate(model, IDS[1:], 2, seed=1)
    assert_read(recording, model, [*IDS[1], new[0, 0]], new[0, 1])
    with record(model) as recording:
        new = generate(model, IDS, 2, cached=False)
        model(IDS[:, :3])
    assert_read(recording, model, IDS[0, :3])


def test_a_pass_after_a_text_whose_rows_ended_is_another_text():
    left = set()
    for seed in range(12):
        model = gpt(seed=seed)
        with record(model) as recording:
            new = generate(model, IDS, 3, end_id=3, seed=seed, cached=False)
            rows = [row for row in range(B) if 3 not in new[row, :-1]]
            model(IDS[: len(rows) or 1, :3])
        assert_read(recording, model, IDS[0, :3])
        left.add(tuple(rows))
    assert left & {(1,), (2,), (1, 2)}  # where the first row had ended


def ending_early(begin, end_id, **options):
    """The first seed with which some row of an uncached batch ends before the others, and its text."""
    model = gpt(vocab_size=4)
    for seed in range(50):
        new = generate(model, begin, 4, end_id=end_id, seed=seed, cached=False, **options)
        ended = (new[:, :-1] == end_id).any(1)
        if ended[0] and not ended.all():
            return model, seed, new
    raise AssertionError


@pytest.mark.parametrize("way", ["generate", "plain"])
def test_what_begins_with_the_end_id_is_another_text(way):
    """Though it may be what a row that had ended would have gone on with."""
    begin = np.zeros((2, 1), int)
    model, seed, _ = ending_early(begin, 0)
    with record(model) as recording:
        generate(model, begin, 4, end_id=0, seed=seed, cached=False)
        if way == "plain":
            model(begin[:1])
            text = [0]
        else:
            text = [0, *generate(model, begin[:1], 3, temperature=0, cached=False)[0].tolist()]
    read, *written = [text[:-1], text[-1]] if way == "generate" else [text]
    assert_read(recording, model, read, *written)


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("max_len", [12, 3])
@pytest.mark.parametrize("row", range(2))
def test_streams_that_take_turns_with_each_other_and_with_a_pass(cached, max_len, row):
    model, ended = gpt(vocab_size=4, max_len=max_len, tied=False, seed=3), set()
    for seed in range(6):
        with record(model, row=row) as recording:
            prompts = np.array([[1], [2]]), np.array([[2], [3]])
            streams = [stream(model, ids, 6, end_id=0, seed=2 * seed + k, cached=cached) for k, ids in enumerate(prompts)]
            texts = [ids[row].tolist() for ids in prompts]
            while streams.count(None) < 2:
                for k, steps in enumerate(streams):
                    new = None if steps is None else next(steps, None)
                    if new is None:
                        streams[k] = None
                        continue
                    if 0 not in texts[k]:
                        texts[k].append(int(new[row]))
                    n = len(texts[k]) - 1
                    assert_read(recording, model, texts[k][max(0, n - max_len) : n], texts[k][-1])
                    ended.add(bool(new[row] == 0 != new[1 - row]))
                    model(np.array([[3]]))
                    if row == 0:
                        assert_read(recording, model, [3])
    assert ended == {True, False}


def test_what_was_written_is_not_said_of_what_comes_after():
    model = gpt()
    with record(model, row=1) as recording:
        text = GrowingText("test", model, Prompt(IDS[:, :2], None, None, None), cached=True)
        text.next_logits()
        text.append(IDS[:, 2])
        assert_read(recording, model, IDS[1, :2], IDS[1, 2])
        text.next_logits()
        assert_read(recording, model, IDS[1, :3])
        text.append(IDS[:, 3])
        text.cache.rewind(2)
        assert_read(recording, model, IDS[1, :2])


def test_a_text_that_began_before_the_block():
    model = gpt()
    for cached in (True, False):
        steps = stream(model, IDS, 4, cached=cached)
        first = next(steps)
        with record(model, row=2) as recording:
            second = next(steps)
        if cached:
            with pytest.raises(ValueError, match="held tokens that were not recorded: from before the `with` block"):
                recording.maps  # noqa: B018
        else:
            assert_read(recording, model, [*IDS[2], first[2]], second[2])


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("step", ["reads", "writes", "chooses", "rewinds"])
def test_rows_that_were_chosen_where_nobody_watched(cached, step):
    """The model runs on; where the text is known from here on, it is shown as one that begins here."""
    model = gpt()
    with record(model) as recording:
        text = GrowingText("test", model, Prompt(IDS[:, :3], None, None, None), cached=cached)
        text.next_logits()
    text.append(IDS[:, 3])
    text.choose(np.array([2] * 5))
    with observed_by(recording.recorder):
        if step == "writes":
            text.append(IDS[[0] * 5, 4])
        elif step == "chooses":
            text.choose(np.array([4]))
        elif step == "rewinds" and cached:
            text.cache.rewind(3)
        text.next_logits()
    if not cached:
        assert_read(recording, model, [*IDS[2, :4], *[IDS[0, 4]] * (step == "writes")])
    else:
        with pytest.raises(ValueError, match="held tokens that were not recorded"):
            recording.maps  # noqa: B018


def test_another_model_that_generates_says_nothing_of_this_one():
    model, other = gpt(seed=1), gpt(seed=2)
    with record(model, row=1) as recording, record(other, row=2) as of_other:
        model(IDS)
        new = generate(other, IDS, 3, end_id=3, cached=False)
        beam_search(other, IDS[0], 3, n_beams=2)
        new = generate(other, IDS, 3)
    assert_read(recording, model, IDS[1])
    assert_read(of_other, other, [*IDS[2], *new[2, :-1]], new[2, -1])


# beam_search.


@pytest.mark.parametrize("make", [gpt, encoder_decoder])
def test_the_best_of_a_beam_search_is_shown(make):
    ended, left = set(), 0
    for seed in (0, 1, 2, 9, 15, 18, 24, 33, 46):  # of 60 those in which the most happens
        model = make(seed=seed, tied=False)  # or it would say the same id again and again
        changes = {"end_id": seed % V, "min_length": seed % 4, "length_penalty": seed % 3}
        rest = {"source": SOURCE[0]} if make is encoder_decoder else {}
        with record(model) as recording:
            best = beam_search(model, IDS[0], 5, n_beams=2, **changes, **rest)[0]
        source = (SOURCE[0],) if make is encoder_decoder else ()
        assert_read(recording, model, [*IDS[0], *best.ids[:-1]], best.ids[-1], *source)
        ended.add((best.ended, len(best.ids)))
        run, row = recording.chosen()
        left += any(each.parts == row.parts for each in run.finished)
    assert len(ended) > 3
    assert {e for e, _ in ended} == {True, False}
    assert left  # that is no more among the prefixes


@pytest.mark.parametrize("row", range(B))
def test_each_row_of_a_batch_has_its_search(row):
    model = encoder_decoder(seed=3)
    with record(model, row=row) as recording:
        found = beam_search(model, IDS, 4, n_beams=3, end_id=3, keep=KEEP, source=SOURCE)
    best = found[row][0].ids
    assert_read(recording, model, [*IDS[row][KEEP[row]], *best[:-1]], best[-1], SOURCE[row])


def test_a_search_that_finds_nothing_shows_what_it_began_with():
    model = gpt(vocab_size=1)
    with record(model, row=1) as recording:
        assert beam_search(model, np.zeros((2, 3), int), 1, n_beams=2, end_id=0, min_length=1) == [[], []]
    assert recording.maps[0].key_tokens == ("0", "0")
    assert recording.maps[0].query_tokens == ("0", "0")


def test_caches_that_are_gone_are_not_held():
    model = gpt()
    with record(model) as recording:
        for _ in range(3):
            generate(model, IDS, 2)
            generate(model, IDS, 2, cached=False)
        gc.collect()
        assert not recording.recorder.runs
        assert not recording.recorder.texts
    model = encoder_decoder()
    with record(model) as recording:
        for cached in (True, False, True, False):
            generate(model, IDS, 2, source=SOURCE, cached=cached)
            gc.collect()
            assert len(recording.recorder.encoded) == 1  # the last, until there is another


def test_a_search_for_nothing_is_no_search():
    model = gpt()
    with record(model, row=1) as recording:
        model(IDS)
        beam_search(model, IDS[:, :2], 0, n_beams=2)
    assert_read(recording, model, IDS[1])


def test_a_search_after_another():
    model = gpt()
    with record(model) as recording:
        beam_search(model, IDS, 3, n_beams=2)
        (best,) = beam_search(model, IDS[2], 3, n_beams=2)
        assert_read(recording, model, [*IDS[2], *best.ids[:-1]], best.ids[-1])
        new = generate(model, IDS[1], 2)
    assert_read(recording, model, [*IDS[1], new[0]], new[1])
    with record(model, row=3) as recording:
        beam_search(model, IDS, 3, n_beams=2)
    with pytest.raises(ValueError, match="row 3 was asked for, but 3 were run"):
        recording.maps  # noqa: B018


def test_what_was_written_is_the_next_row_that_reads():
    model = gpt()
    with record(model, list("abcdefghijk")) as recording:
        new = generate(model, IDS[0], 5)
    map = recording.maps[0]
    assert all(query == key for query, key in zip(map.query_tokens[:-1], map.key_tokens[1:], strict=True))
    assert map.query_tokens[-5:] == tuple("abcdefghijk"[id] for id in new)
    assert not any(a is b for a, b in pairwise(recording.maps))


# What is asked of a text that was generated is asked of one pass over it.


@pytest.mark.parametrize("make", [gpt, encoder_decoder])
@pytest.mark.parametrize("way", ["generated", "plain", "searched", "in one pass"])
def test_asked_again(make, way):
    model = make()
    rest = {"source": SOURCE} if make is encoder_decoder else {}
    with record(model, row=1) as recording:
        if way == "searched":
            new = beam_search(model, IDS, 3, n_beams=2, **rest)[1][0].ids
        else:
            new = generate(model, IDS, 3, cached=way != "plain", **rest)[1]
    text = np.array([*IDS[1], *new])
    if way == "in one pass":
        with record(model) as recording:
            model(*(SOURCE[1:2] for _ in rest), text[None])
        new = new[:-1]
    logits = model(*(SOURCE[1:2] for _ in rest), text[None, :-1])[0]
    log_P = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    expected = log_P[range(len(text) - 1), text[1:]]
    ablation = recording.ablate("decoder", 1, 2)
    assert ablation.tokens == tuple(map(str, text[1:]))
    np.testing.assert_allclose(ablation.log_before, expected, rtol=0, atol=1e-12)
    assert abs(ablation.log_after - expected).max() > 1e-3
    gradients = recording.with_gradients(recording.maps[-1].query_tokens[len(text) - 3])
    assert all(map.gradient is not None and map.gradient.shape == map.weights.shape for map in gradients.maps)
