"""A head that is zeroed: as if the rows of the output map that read it were 0."""

from contextlib import contextmanager

import numpy as np
import pytest

from attention_by_hand import SIZES, SOURCE_V, V, encoder, encoder_decoder, gpt
from npformer.inspection import record
from npformer.inspection.ablation import ROWS_AT_ONCE
from npformer.observing import observed_by

RNG = np.random.default_rng(0)
B, S, T = 3, 5, 7
IDS, SOURCE = RNG.integers(V, size=(B, T)), RNG.integers(SOURCE_V, size=(B, S))
KEEP, SOURCE_KEEP = np.ones((B, T), bool), np.ones((B, S), bool)
KEEP[1, 2:4] = SOURCE_KEEP[1, :2] = False
K = SIZES["d_head"]


@contextmanager
def zeroed(attention, head):
    weight = attention.output.weight.value
    kept = weight.copy()
    weight[head * K : (head + 1) * K] = 0
    yield
    weight[...] = kept


def log_softmax(logits):
    logits = logits - logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def attention_of(model, kind, layer):
    stack = model.encoder if kind == "encoder" else model.decoder
    return (stack.layers[layer].cross_attention if kind == "cross" else stack.layers[layer].attention).layer


def recorded(model, *inputs, row, **options):
    with record(model, row=row) as recording:
        model(*inputs, **options)
    return recording


def assert_as_by_hand(recording, model, logits, rows, expected):
    """logits() → (N, V) of the row that is shown; `expected` ids are produced at `rows`."""
    before = log_softmax(logits())[rows, expected]
    for map, ablation in zip(recording.maps, recording.ablations(), strict=True):
        with zeroed(attention_of(model, map.kind, map.layer), map.head):
            after = log_softmax(logits())[rows, expected]
        assert (ablation.kind, ablation.layer, ablation.head) == (map.kind, map.layer, map.head)
        assert ablation.tokens == tuple(map_names(expected))
        np.testing.assert_allclose(ablation.log_before, before, rtol=0, atol=1e-12)
        np.testing.assert_allclose(ablation.log_after, after, rtol=0, atol=1e-12)
        assert abs(after - before).max() > 1e-6
        np.testing.assert_allclose(ablation.probabilities, np.exp([before, after]), rtol=1e-11)
        assert ablation.loss == pytest.approx((-before.mean(), -after.mean()), rel=1e-12)
        assert ablation.change == pytest.approx(before.mean() - after.mean(), abs=1e-12)
        alone = recording.ablate(map.kind, map.layer, map.head)
        np.testing.assert_allclose(alone.log_after, ablation.log_after, rtol=0, atol=1e-12)


def map_names(ids):
    return [str(id) for id in ids]


@pytest.mark.parametrize("changes", [{}, {"positions": "rotary", "window": 2, "n_kv_heads": 1}, {"norm_placement": "post"}])
def test_gpt(changes):
    model = gpt(**changes)
    recording = recorded(model, IDS, row=2)
    assert_as_by_hand(recording, model, lambda: model(IDS)[2], range(T - 1), IDS[2, 1:])


def test_gpt_with_padding():
    model = gpt()
    recording = recorded(model, IDS, keep=KEEP, row=1)
    places = np.flatnonzero(KEEP[1])
    assert_as_by_hand(recording, model, lambda: model(IDS, keep=KEEP)[1], places[:-1], IDS[1, places[1:]])


@pytest.mark.parametrize("keeps", [(None, None), (SOURCE_KEEP, KEEP)])
def test_every_kind_of_an_encoder_decoder(keeps):
    model = encoder_decoder()
    recording = recorded(model, SOURCE, IDS, *keeps, row=1)
    places = np.arange(T) if keeps[1] is None else np.flatnonzero(KEEP[1])
    assert recording.kinds == ("encoder", "decoder", "cross")
    assert_as_by_hand(recording, model, lambda: model(SOURCE, IDS, *keeps)[1], places[:-1], IDS[1, places[1:]])


@pytest.mark.parametrize("keep", [None, KEEP])
@pytest.mark.parametrize("pooling", [None, "mean"])
def test_an_encoder_is_asked_for_its_best_answers(keep, pooling):
    model = encoder(n_outputs=5, n_token_types=2, pooling=pooling)
    types = RNG.integers(2, size=(B, T))
    recording = recorded(model, IDS, keep=keep, token_types=types, row=1)

    def logits():
        return np.atleast_2d(model(IDS, keep=keep, token_types=types)[1])

    rows = [0] if pooling else np.arange(T) if keep is None else np.flatnonzero(KEEP[1])
    assert_as_by_hand(recording, model, logits, rows, logits().argmax(-1)[rows])


def test_more_heads_than_are_run_at_once():
    model = gpt(n_layers=9)
    recording = recorded(model, IDS[:, :3], row=0)
    assert len(recording.maps) == 36 > ROWS_AT_ONCE
    assert_as_by_hand(recording, model, lambda: model(IDS[:, :3])[0], range(2), IDS[0, 1:3])


def test_it_says_so_in_a_sentence():
    model = gpt()
    ablation = recorded(model, IDS, row=0).ablate("decoder", 1, 2)
    before, after = ablation.probabilities
    i = int(abs(after - before).argmax())
    sentence = str(ablation)
    assert sentence.startswith("decoder layer 1 head 2 zeroed: loss ")
    assert "{:.4f} → {:.4f}".format(*ablation.loss) in sentence
    assert f"{before[i]:.4f} → {after[i]:.4f}" in sentence
    assert "\n" not in sentence


def test_what_is_produced_is_known_only_where_it_was_read_or_written():
    model = gpt()
    with pytest.raises(ValueError, match="no token was produced whose probability could change"):
        recorded(model, IDS[:, :1], row=0).ablate("decoder", 0, 0)
    with pytest.raises(ValueError, match="an Encoder without outputs says nothing"):
        recorded(encoder(), IDS, row=0).ablate("encoder", 0, 0)
    with pytest.raises(ValueError, match="a Stack cannot be run again: GPT, EncoderDecoder and Encoder can"):
        recorded(model.decoder, IDS, row=0).ablate("decoder", 0, 0)
    model = encoder_decoder()
    cache = model.new_cache(SOURCE)
    with record(model) as recording:
        model.decode(IDS, cache)
    assert recording.kinds == ("decoder", "cross")
    with pytest.raises(ValueError, match="the source was encoded outside of the `with` block"):
        recording.ablate("cross", 0, 0)
    assert not [finding for finding in recording.diagnose() if finding.label == "no effect"]


def test_a_head_that_is_not_there():
    recording = recorded(gpt(), IDS, row=0)
    with pytest.raises(ValueError, match="decoder layer 1 has the heads 0 … 3, not 4"):
        recording.ablate("decoder", 1, 4)


def test_what_ablation_has_found_is_a_metric_once_all_heads_were_ablated():
    model = gpt()
    with record(model) as recording:
        model(IDS)
    assert {recording.metrics(map)["ablation"] for map in recording.maps} == {None}
    recording.diagnose()
    for map in recording.maps:
        change = recording.ablate(map.kind, map.layer, map.head).change
        assert recording.metrics(map)["ablation"] == pytest.approx(change, rel=1e-9, abs=1e-12)
    with observed_by(recording.recorder):
        model(IDS[:, :4])
    assert {recording.metrics(map)["ablation"] for map in recording.maps} == {None}


def test_ablations_are_found_anew_once_the_weights_have_changed_or_something_else_was_read():
    model = gpt()
    recording = recorded(model, IDS, row=1)
    found = recording.ablations()
    assert recording.ablations() is found
    for parameter in model.parameters().values():
        parameter.value *= 1.5
    changed = recording.ablations()
    assert changed[0].loss != pytest.approx(found[0].loss, rel=1e-3)
    for ablation in changed:
        alone = recording.ablate(ablation.kind, ablation.layer, ablation.head)
        assert ablation.loss == pytest.approx(alone.loss, rel=1e-12)
    with observed_by(recording.recorder):
        model(IDS[:, :4])
    assert recording.ablations()[0].tokens == tuple(map_names(IDS[1, 1:4]))


def test_single_precision_loses_nothing_once_there_are_logits():
    model = gpt(np.float32)
    recording = recorded(model, IDS[:1], row=0)
    ablation = recording.ablate("decoder", 0, 1)
    assert ablation.log_before.dtype == ablation.log_after.dtype == np.float64
    logits = np.asarray(model(np.repeat(IDS[:1], 2, 0))[0], np.float64)  # as many rows as are run at once
    expected = log_softmax(logits)[range(T - 1), IDS[0, 1:]]
    np.testing.assert_allclose(ablation.log_before, expected, rtol=0, atol=1e-13)


def test_a_row_that_is_hidden_altogether_says_nothing():
    keep = np.ones((B, T), bool)
    keep[1] = False
    recording = recorded(encoder(n_outputs=5), IDS, keep=keep, row=1)
    with pytest.raises(ValueError, match="all tokens of the row are hidden, so the model says nothing of them"):
        recording.ablate("encoder", 0, 0)
    assert not [finding for finding in recording.diagnose() if finding.label == "no effect"]
    one = recorded(encoder(n_outputs=5), IDS[:, :1], keep=keep[:, :1], row=1)
    with pytest.raises(ValueError, match="all tokens of the row are hidden"):
        one.ablate("encoder", 0, 0)
