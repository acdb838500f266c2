"""What is recorded of one pass is what attention gives by hand, and the model does not notice that it is watched."""

import contextvars
import copy
import gc
import pickle
import threading

import numpy as np
import pytest

import npformer.models.one_token
import npformer.observing
from attention_by_hand import SOURCE_V, V, assert_by_hand, by_hand, encoder, encoder_decoder, gpt, randomised
from demos.cities.damages import LooksAhead
from npformer.functional import attention_weights, split_heads
from npformer.inspection import record
from npformer.layers import KVCache, Layer, MultiHeadAttention
from npformer.models import Encoder
from npformer.models.stack import Stack
from npformer.observing import Observer, observed_by
from npformer.text import CharacterTokenizer
from seeing import seen_by

POSITIONS = ["learned", "sinusoidal", "rotary", "alibi", "none"]
B, S, T = 3, 5, 7
RNG = np.random.default_rng(0)
IDS, SOURCE = RNG.integers(V, size=(B, T)), RNG.integers(SOURCE_V, size=(B, S))
TARGET_KEEP, SOURCE_KEEP = np.ones((B, T), bool), np.ones((B, S), bool)
TARGET_KEEP[0, :2] = TARGET_KEEP[1, 3:5] = TARGET_KEEP[2, 5:] = False  # left, in the middle, right
SOURCE_KEEP[0, 3:] = SOURCE_KEEP[1, :1] = SOURCE_KEEP[2, 2] = False
LETTERS = "我喜欢北京的春天和上海"


def recorded(model, *inputs, vocabulary=None, row=0, **options):
    with record(model, vocabulary, row=row) as recording:
        model(*inputs, **options)
    return recording


def values_and_gradients(model):
    return [(name, parameter.value.copy(), parameter.grad.copy()) for name, parameter in sorted(model.parameters().items())]


def assert_equal(a, b):
    for (name, *mine), (other_name, *others) in zip(a, b, strict=True):
        assert name == other_name
        for x, y in zip(mine, others, strict=True):
            np.testing.assert_array_equal(x, y, name)


# The truth, in one pass.


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize(
    "changes", [{}, {"norm_placement": "post", "n_kv_heads": 1}, {"window": 3}, {"window": 1, "n_kv_heads": 4}]
)
@pytest.mark.parametrize("keep", [None, TARGET_KEEP], ids=["whole", "padded"])
def test_gpt(dtype, positions, changes, keep):
    model = gpt(dtype, positions=positions, **changes)
    expected = by_hand(model, IDS, keep)
    for row in range(B):
        assert_by_hand(recorded(model, IDS, keep=keep, row=row), row, expected)


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("source_keep", [None, SOURCE_KEEP], ids=["source", "padded source"])
@pytest.mark.parametrize("target_keep", [None, TARGET_KEEP], ids=["target", "padded target"])
def test_encoder_decoder(positions, source_keep, target_keep):
    model = encoder_decoder(positions=positions)
    expected = by_hand(model, IDS, target_keep, SOURCE, source_keep)
    for row in range(B):
        recording = recorded(model, SOURCE, IDS, source_keep, target_keep, row=row)
        assert_by_hand(recording, row, expected)
        assert recording.kinds == ("encoder", "decoder", "cross")


@pytest.mark.parametrize("keep", [None, TARGET_KEEP], ids=["whole", "padded"])
@pytest.mark.parametrize("changes", [{}, {"pooling": "mean", "n_outputs": 3, "norm_placement": "pre"}])
def test_encoder(keep, changes):
    model, types = encoder(n_token_types=2, **changes), RNG.integers(2, size=(B, T))
    expected = by_hand(model, IDS, keep, token_types=types)
    for row in range(B):
        recording = recorded(model, IDS, keep=keep, token_types=types, row=row)
        assert_by_hand(recording, row, expected)
        assert {map.named_by for map in recording.maps} == {"reads"}
        assert all(map.query_tokens == map.key_tokens == tuple(map_names(IDS[row])) for map in recording.maps)


def map_names(ids):
    return [str(id) for id in ids]


def test_a_source_hidden_altogether():
    model, hidden = encoder_decoder(), np.zeros((B, S), bool)
    recording = recorded(model, SOURCE, IDS, hidden)
    assert_by_hand(recording, 0, by_hand(model, IDS, None, SOURCE, hidden))
    assert not recording.find("cross", 0, 0).weights.any()
    recording.diagnose()


def test_one_token():
    model = gpt()
    recording = recorded(model, IDS[:1, :1])
    assert_by_hand(recording, 0, by_hand(model, IDS[:1, :1]))
    recording.diagnose()


# Rows and columns have names.


def test_a_decoder_row_is_named_by_what_it_produces():
    model = encoder_decoder(vocab_size=len(LETTERS), source_vocab_size=None)
    ids = np.array([[0, 3, 4, 6, 7]])
    with record(model, CharacterTokenizer(LETTERS)) as recording:
        model(ids[:, :3], ids)
    for kind, queries, keys, named_by in (
        ("encoder", "我北京", "我北京", "reads"),
        ("decoder", [*"北京春天", "(next)"], "我北京春天", "produces"),
        ("cross", [*"北京春天", "(next)"], "我北京", "produces"),
    ):
        map = recording.find(kind, 1, 3)
        assert (map.query_tokens, map.key_tokens, map.named_by) == (tuple(queries), tuple(keys), named_by)


def test_across_padding_the_next_token_that_is_there_is_produced():
    keep = np.array([[True, False, True, True, False]])
    recording = recorded(gpt(vocab_size=5), np.array([[0, 1, 2, 3, 4]]), keep=keep, vocabulary=list("abcde"))
    map = recording.find("decoder", 0, 0)
    assert map.query_tokens == ("c", "b", "d", "(next)", "e")
    assert map.key_tokens == tuple("abcde")
    np.testing.assert_array_equal(map.n_visible, [1, 0, 2, 3, 0])


def test_tokens_of_bytes_and_of_two_vocabularies():
    model = encoder_decoder(vocab_size=2, source_vocab_size=3)
    with record(model, [b"\xe6", b"\x98"], ["x", "y", "z"]) as recording:
        model(np.array([[2, 1]]), np.array([[0, 1, 1]]))
    map = recording.find("cross", 0, 0)
    assert map.query_tokens == (b"\x98", b"\x98", "(next)")
    assert map.key_tokens == ("z", "y")


def test_without_names_of_the_source_its_ids_stand():
    model = encoder_decoder(vocab_size=3, source_vocab_size=4)
    with record(model, "abc") as recording:
        model(np.array([[3, 1]]), np.array([[0, 1]]))
    assert recording.find("cross", 0, 0).key_tokens == ("3", "1")


@pytest.mark.parametrize(
    ("vocabulary", "error", "text"),
    [
        ("abc", ValueError, "names 3 tokens, but the model has 11"),
        (CharacterTokenizer(LETTERS + "x"), ValueError, "names 12 tokens, but the model has 11"),
        ([*range(V)], TypeError, "vocabulary must be a tokenizer or a list of strings or bytes, got list"),
        ({str(id): id for id in range(V)}, TypeError, "got dict"),
        (b"abcdefghijk", TypeError, "got bytes"),
        (7, TypeError, "got int"),
    ],
)
def test_a_vocabulary_that_is_none(vocabulary, error, text):
    with pytest.raises(error, match=text), record(gpt(), vocabulary):
        pass


def test_a_row_that_is_not_there():
    with pytest.raises(ValueError, match="row 3 was asked for, but 3 were run"):
        recorded(gpt(), IDS, row=3).maps  # noqa: B018
    with pytest.raises(ValueError, match="row must be at least 0"):
        recorded(gpt(), IDS, row=-1)


def test_a_title_that_is_none():
    with pytest.raises(TypeError, match="record: title must be a string, got int"), record(gpt(), title=5):
        pass


def test_nothing_was_run():
    with record(gpt()) as recording:
        pass
    with pytest.raises(ValueError, match="not run in the `with` block"):
        recording.maps  # noqa: B018


def test_a_model_that_gives_nan():
    model = gpt()
    model.parameters()["layers.1.attention.query.weight"].value[0, 0] = np.nan
    recording = recorded(model, IDS)
    with pytest.raises(ValueError, match=r"decoder layer 1 head 0: the weight of query 0 on key 0 is NaN"):
        recording.maps  # noqa: B018


# What may be seen is read off the tokens, not off the model's mask.


@pytest.mark.parametrize("changes", [{}, {"window": 2}])
def test_a_mask_the_wrong_way_round(changes):
    model = gpt(positions="learned", **changes)
    expected = by_hand(model, IDS)
    for layer in model.decoder.layers:
        inner = layer.attention.layer
        layer.attention.layer = LooksAhead(WithoutWindow(inner))
    recording = recorded(model, IDS)
    for map in recording.maps:
        np.testing.assert_array_equal(map.keep, expected[1]["decoder"][0])
        assert recording.metrics(map)["future_mass"] == pytest.approx(1, abs=1e-12)
        np.testing.assert_allclose(map.weights.sum(1), [1] * (T - 1) + [0], atol=1e-12)
        assert not np.tril(map.weights).any()
    assert {finding.label for finding in recording.diagnose() if finding.is_fault} >= {"mask leak"}


class WithoutWindow(Layer):
    def __init__(self, layer):
        self.layer = layer

    def forward(self, x, *, window=None, **options):
        return self.layer.forward(x, **options)


def test_padding_that_is_not_hidden_is_a_leak():
    model = encoder()
    for layer in model.encoder.layers:
        layer.attention.layer = IgnoresPositions(layer.attention.layer)
    recording = recorded(model, IDS, keep=TARGET_KEEP, row=1)
    for map in recording.maps:
        np.testing.assert_array_equal(map.keep, TARGET_KEEP[1][:, None] & TARGET_KEEP[1])
        assert recording.metrics(map)["padding_mass"] > 0.01
        assert not map.weights[~TARGET_KEEP[1]].any()


class IgnoresPositions(Layer):
    def __init__(self, layer):
        self.layer = layer

    def forward(self, x, *, positions=None, **options):
        return self.layer.forward(x, **options)


# Layers that stand in no model.


def test_one_attention_alone():
    layer = one_attention()
    x, memory = RNG.standard_normal((B, T, 8)), RNG.standard_normal((B, S, 8))
    q, k = split_heads(layer.query(x), 4)[0], split_heads(layer.key(memory), 2)[0]
    with record(layer, row=2) as recording:
        layer(x, memory)
    assert recording.kinds == ("cross",)
    for map in recording.maps:
        assert map.weights == pytest.approx(attention_weights(q, k)[0][2, map.head], abs=1e-13)
        assert map.key_tokens == ("0", "1", "2", "3", "4")
    with record(layer, row=1) as recording:
        layer(x, causal=True)
    assert recording.kinds == ("decoder",)
    k, _ = split_heads(layer.key(x), 2)
    for map in recording.maps:
        assert map.weights == pytest.approx(attention_weights(q, k, causal=True)[0][1, map.head], abs=1e-13)
        np.testing.assert_array_equal(map.keep, np.tri(T, dtype=bool))


def one_attention():
    return randomised(MultiHeadAttention(8, 4, n_kv_heads=2, dtype=np.float64, rng=np.random.default_rng(0)))


EACH_HEADS_OWN = RNG.random((B, 4, T, T)) < 0.6


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"keep": RNG.random((T, T)) < 0.6}, "encoder"),
        ({"keep": EACH_HEADS_OWN}, "encoder"),
        ({"keep": EACH_HEADS_OWN[:, :1], "causal": True}, "decoder"),
        ({"causal": 0, "window": 3}, "decoder"),
        ({"causal": np.True_}, "decoder"),
        ({"causal": np.False_}, "encoder"),
        ({"causal": -1}, "decoder"),
        ({"causal": 2}, "encoder"),
        ({"window": (1, 2)}, "encoder"),
        ({"positions": np.array([0, 1, 2, 2, 3, 4, 6])[::-1].copy(), "window": (1, 1)}, "encoder"),
    ],
    ids=str,
)
def test_one_attention_alone_shows_what_it_was_told_to_see(options, kind):
    """Its weights are 0 where it may not look, and nowhere else."""
    layer, x = one_attention(), RNG.standard_normal((B, T, 8))
    recording = {row: recorded(layer, x, row=row, **options) for row in range(B)}
    for row, each in recording.items():
        assert each.kinds == (kind,)
        for map in each.maps:
            np.testing.assert_array_equal(map.keep, map.weights > 0)
            if "keep" in options:
                keep = np.broadcast_to(options["keep"], (B, 4, T, T))[row, map.head]
                np.testing.assert_array_equal(map.keep, keep & np.tri(T, dtype=bool) if "causal" in options else keep)
            assert not each.metrics(map)["padding_mass"]
            assert not each.metrics(map)["future_mass"]


def test_what_it_was_told_to_see_may_be_overwritten():
    layer, x, keep = one_attention(), RNG.standard_normal((B, T, 8)), RNG.random((T, T)) < 0.6
    with record(layer) as recording:
        layer(x, keep=keep)
    expected = keep.copy()
    keep[...] = True
    np.testing.assert_array_equal(recording.maps[0].keep, expected)


@pytest.mark.parametrize("positions", ["rotary", "learned"])
@pytest.mark.parametrize("keep", [None, TARGET_KEEP], ids=["whole", "padded"])
@pytest.mark.parametrize("row", range(B))
def test_one_layer_of_a_decoder(positions, keep, row):
    model = gpt(window=3, positions=positions)
    P, seen = by_hand(model, IDS, keep)
    for part in (model.decoder.layers[1], model.decoder.layers[1].attention.layer):
        with record(part, row=row) as recording:
            model(IDS, keep=keep)
        assert {map.place[:2] for map in recording.maps} == {(1, 1)}
        for map in recording.maps:
            np.testing.assert_array_equal(map.keep, seen["decoder"][row])
            shown = np.where(map.keep.any(1)[:, None], P["decoder", 1][row, map.head], 0)
            np.testing.assert_allclose(map.weights, shown, rtol=0, atol=1e-13)


@pytest.mark.parametrize("whole", [False, True])
def test_one_layer_of_a_decoder_over_a_cache(whole):
    """The keys stand in the order of their positions, also those of a ring, which has turned here."""
    model = gpt(window=3, positions="rotary")
    P, _ = by_hand(model, IDS)
    for part in (model.decoder.layers[1], model.decoder.layers[1].attention.layer):
        with record(part, row=2) as recording:
            cache = model.new_cache(whole=whole)
            for t in range(T - 1):
                model.decode_step(IDS[:, t], cache)
        for map in recording.maps:
            assert map.query_tokens == (str(T - 2),)
            assert map.key_tokens == tuple(map_names(range(0 if whole else T - 5, T - 1)))
            np.testing.assert_allclose(map.weights[0, -3:], P["decoder", 1][2, map.head, -2, -4:-1], rtol=0, atol=1e-12)
            np.testing.assert_array_equal(map.keep[0], [*[False] * (len(map.key_tokens) - 3), True, True, True])


@pytest.mark.parametrize("row", range(B))
def test_one_layer_of_a_decoder_over_a_cache_with_padding(row):
    model = gpt(positions="rotary")
    P, _ = by_hand(model, IDS[row : row + 1, TARGET_KEEP[row]])
    n_before = int(TARGET_KEEP[row, :3].sum())
    with record(model.decoder.layers[1], row=row) as recording:
        cache = model.new_cache()
        model.decode(IDS[:, :3], cache, TARGET_KEEP[:, :3])
        model.decode(IDS[:, 3:], cache, TARGET_KEEP[:, 3:])
    for map in recording.maps:
        assert map.query_tokens == tuple(map_names(range(n_before, TARGET_KEEP[row].sum())))
        np.testing.assert_allclose(map.weights, P["decoder", 1][0, map.head, n_before:], rtol=0, atol=1e-12)
        np.testing.assert_array_equal(map.keep, map.weights > 0)


@pytest.mark.parametrize("lengths", [None, np.array([2, 4, 3])], ids=["alike", "rewound"])
def test_one_attention_with_a_cache_of_its_own(lengths):
    layer, x, cache = one_attention(), RNG.standard_normal((B, 6, 8)), KVCache(9)
    with record(layer, row=2) as recording:
        layer(x[:, :4], causal=True, cache=cache)
        if lengths is not None:
            cache.rewind(lengths)
        layer(x[:, 4:], causal=True, cache=cache)
    n = 4 if lengths is None else lengths[2]
    for map in recording.maps:
        assert (map.query_tokens, map.key_tokens) == ((str(n), str(n + 1)), tuple(map_names(range(n + 2))))
        np.testing.assert_array_equal(map.keep, np.tri(2, n + 2, n, dtype=bool))
        np.testing.assert_array_equal(map.keep, map.weights > 0)


def test_one_layer_that_reads_a_memory():
    model = encoder_decoder()
    P, seen = by_hand(model, IDS, TARGET_KEEP, SOURCE, SOURCE_KEEP)
    with record(model.decoder.layers[1], row=1) as recording:
        model(SOURCE, IDS, SOURCE_KEEP, TARGET_KEEP)
    assert recording.kinds == ("decoder", "cross")
    for map in recording.of_kind("cross"):
        np.testing.assert_array_equal(map.keep, np.broadcast_to(SOURCE_KEEP[1], (T, S)))
        there = TARGET_KEEP[1]
        np.testing.assert_allclose(map.weights[there], P["cross", 1][1, map.head][there], rtol=0, atol=1e-13)


def test_one_layer_of_an_encoder_does_not_show_what_padding_asks():
    model = encoder()
    expected = by_hand(model, IDS, TARGET_KEEP)
    with record(model.encoder.layers[0], row=1) as recording:
        model(IDS, keep=TARGET_KEEP)
    for map in recording.maps:
        np.testing.assert_array_equal(map.keep, expected[1]["encoder"][1])
        np.testing.assert_allclose(map.weights, expected[0]["encoder", 0][1, map.head], rtol=0, atol=1e-13)


class Several(Layer):
    def __init__(self, *layers):
        self.layers, self.calls = list(layers), list(layers)

    def forward(self, x):
        y = [layer(x) for layer in self.calls]
        return np.stack(y), None


def test_what_attends_more_than_once_in_a_pass_is_not_shown_by_a_part():
    layer, x = one_attention(), RNG.standard_normal((B, T, 8))
    thrice = Several(layer)
    thrice.calls *= 3
    for model, inputs in ((thrice, x), (Several(gpt(seed=1), gpt(seed=2)), IDS), (TwoStacks(), IDS)):
        recording = recorded(model, inputs)
        with pytest.raises(
            ValueError, match=r"(en|de)coder layer 0 attended more than once in one pass, and a map can show"
        ):
            recording.maps  # noqa: B018
    two = recorded(Several(layer, one_attention()), x)
    assert {map.place[:2] for map in two.maps} == {(0, 0), (0, 1)}


class TwoStacks(Layer):
    def __init__(self):
        self.first, self.second = gpt(seed=1).decoder, gpt(seed=2).decoder

    def forward(self, ids):
        return self.first(ids) + self.second(ids), None


def test_a_layer_that_stands_in_a_stack_twice():
    model = gpt(positions="rotary")
    model.decoder.layers[1] = model.decoder.layers[0]
    expected = by_hand(model, IDS)
    assert abs(expected[0]["decoder", 0] - expected[0]["decoder", 1]).max() > 0.1
    recording = recorded(model, IDS)
    assert_by_hand(recording, 0, expected)
    recording.ablate("decoder", 1, 0)


def test_a_stack_of_a_model():
    model = encoder_decoder()
    with record(model.encoder, row=1) as recording:
        model.encoder(SOURCE, keep=SOURCE_KEEP)
    assert_by_hand(recording, 1, by_hand_of_source(model))


def by_hand_of_source(model):
    P, seen = by_hand(model, IDS, None, SOURCE, SOURCE_KEEP)
    return {place: P[place] for place in P if place[0] == "encoder"}, seen


def test_a_source_that_is_encoded_and_not_yet_decoded():
    model = encoder_decoder()
    with record(model, row=2) as recording:
        model.encode(SOURCE, SOURCE_KEEP)
    assert_by_hand(recording, 2, by_hand_of_source(model))


# The model does not notice.


def models_and_inputs(dtype):
    yield gpt(dtype), (IDS,), {"keep": TARGET_KEEP}
    yield encoder(dtype), (IDS,), {}
    yield encoder_decoder(dtype), (SOURCE, IDS, SOURCE_KEEP, TARGET_KEEP), {}


def test_dropout_drops_the_same_and_is_not_recorded():
    model = gpt(dropout=0.3)
    y, _ = model.forward(IDS, np.random.default_rng(5))
    with record(model) as recording:
        watched, _ = model.forward(IDS, np.random.default_rng(5))
    np.testing.assert_array_equal(watched, y)
    assert abs(y - model(IDS)).max() > 0.1
    for map in recording.maps:
        np.testing.assert_allclose(map.weights.sum(1), 1, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_output_is_the_same_to_the_bit_and_gradients_too(dtype):
    for model, inputs, options in models_and_inputs(dtype):
        y, backward = model.forward(*inputs, **options)
        dy = RNG.standard_normal(y.shape).astype(dtype)
        backward(dy)
        alone = values_and_gradients(model)
        for parameter in model.parameters().values():
            parameter.grad[...] = 0
        with record(model) as recording:
            watched, backward = model.forward(*inputs, **options)
            backward(dy)
        np.testing.assert_array_equal(watched, y)
        assert_equal(values_and_gradients(model), alone)
        assert all(map.gradient is not None for map in recording.maps)


def test_asking_again_changes_nothing():
    for model, inputs, options in models_and_inputs(np.float64):
        y, backward = model.forward(*inputs, **options)
        backward(RNG.standard_normal(y.shape))
        before = values_and_gradients(model)
        recording = recorded(model, *inputs, row=1, **options)
        maps = recording.maps
        if not isinstance(model, Encoder):
            recording.ablate(maps[-1].kind, 1, 2)
            recording.diagnose()
            word = maps[-1].query_tokens[2]
            recording.who_attends(word, maps[-1].key_tokens[1])
            recording.with_gradients(word)
        assert_equal(values_and_gradients(model), before)
        assert recording.maps is maps


def test_asking_inside_the_block_is_not_recorded():
    model = encoder_decoder()
    with record(model) as outer, record(model) as recording:
        model(SOURCE, IDS)
        maps = outer.maps
        recording.ablate("cross", 0, 1)
        recording.with_gradients(recording.maps[-1].query_tokens[2])
        recording.diagnose()
        assert outer.maps is maps
    assert_by_hand(recording, 0, by_hand(model, IDS, None, SOURCE))
    model = encoder(n_outputs=3)
    with record(model, row=2) as recording:
        model(IDS)
        recording.ablate("encoder", 0, 1)
    assert_by_hand(recording, 2, by_hand(model, IDS))


def test_ids_that_the_caller_overwrites():
    model, ids, keep, source_keep = encoder_decoder(), IDS.copy(), TARGET_KEEP.copy(), SOURCE_KEEP.copy()
    source = SOURCE.copy()
    with record(model) as recording:
        model(source, ids, source_keep, keep)
        for array in (source, ids):
            array[...] = 0
        keep[...] = source_keep[...] = True
    assert_by_hand(recording, 0, by_hand(model, IDS, TARGET_KEEP, SOURCE, SOURCE_KEEP))
    assert recording.find("cross", 0, 0).key_tokens == tuple(map(str, SOURCE[0]))


def test_two_models_do_not_mix():
    a, b = gpt(seed=1), gpt(seed=2, positions="rotary")
    other = np.random.default_rng(1).integers(V, size=(B, T))
    with record(a) as of_a, record(b) as of_b:
        b(other)
        a(IDS)
    assert_by_hand(of_a, 0, by_hand(a, IDS))
    assert_by_hand(of_b, 0, by_hand(b, other))


def test_a_recording_inside_another():
    model = gpt()
    with record(model) as outer:
        model(IDS)
        with record(model) as inner:
            model(IDS[:, :3])
        model(IDS[:, :5])
    assert_by_hand(inner, 0, by_hand(model, IDS[:, :3]))
    assert_by_hand(outer, 0, by_hand(model, IDS[:, :5]))


def test_another_thread_is_not_recorded():
    model = gpt()
    with record(model) as recording:
        model(IDS)
        thread = threading.Thread(target=model, args=(IDS[:, :2],))
        thread.start()
        thread.join()
    assert_by_hand(recording, 0, by_hand(model, IDS))


def test_after_the_block_nothing_is_recorded():
    model = gpt()
    with record(model) as recording:
        model(IDS)
    model(IDS[:, :2])
    assert_by_hand(recording, 0, by_hand(model, IDS))


class Breaks(Layer):
    def __init__(self, layer):
        self.layer, self.breaks = layer, True

    def forward(self, x, *inputs, **options):
        y = self.layer.forward(x, *inputs, **options)
        if self.breaks:
            raise ArithmeticError("on purpose")
        return y


@pytest.mark.parametrize("place", ["encoder", "decoder"])
def test_after_an_exception_in_the_model(place):
    model = encoder_decoder()
    residual = getattr(model, place).layers[1].attention
    residual.layer = Breaks(residual.layer)
    with record(model) as recording:
        with pytest.raises(ArithmeticError):
            model(SOURCE, IDS)
        residual.layer.breaks = False
        model(SOURCE, IDS)
    residual.layer = residual.layer.layer
    assert_by_hand(recording, 0, by_hand(model, IDS, None, SOURCE))
    with pytest.raises(ArithmeticError), record(model) as recording:
        model(SOURCE, IDS)
        raise ArithmeticError
    assert not npformer.observing.OBSERVERS.get()
    assert_by_hand(recording, 0, by_hand(model, IDS, None, SOURCE))


NOT_RECORDED = (
    "the cache held tokens that were not recorded: from before the `with` block, or of a pass that was interrupted"
)


@pytest.mark.parametrize("make", [gpt, encoder_decoder])
def test_a_cache_from_before_goes_on_and_cannot_be_shown(make):
    model = make()

    def begun():
        cache = model.new_cache(*([SOURCE] if make is encoder_decoder else []))
        model.decode(IDS[:, :3], cache)
        return cache

    expected = model.decode(IDS[:, 3:], begun())
    cache = begun()
    with record(model) as outer, record(model, row=1) as recording:
        y = model.decode(IDS[:, 3:5], cache), model.decode(IDS[:, 5:], cache)
    np.testing.assert_allclose(np.concatenate(y, 1), expected, rtol=0, atol=1e-12)
    for each in (outer, recording):
        with pytest.raises(ValueError, match=NOT_RECORDED):
            each.maps  # noqa: B018
        with pytest.raises(ValueError, match=NOT_RECORDED):
            each.ablate("decoder", 0, 0)


def test_a_pass_over_a_cache_that_was_interrupted():
    model = gpt()
    residual = model.decoder.layers[1].attention
    residual.layer = Breaks(residual.layer)
    with record(model, row=1) as recording:
        cache = model.new_cache()
        residual.layer.breaks = False
        model.decode(IDS[:, :2], cache)
        residual.layer.breaks = True
        with pytest.raises(ArithmeticError):
            model.decode(IDS[:, 2:4], cache)
        residual.layer.breaks = False
        fork = cache.fork()
        model.decode(IDS[:, 4:], cache)
        with pytest.raises(ValueError, match=NOT_RECORDED):
            recording.maps  # noqa: B018
        fork.rewind(2)
        model.decode(IDS[:, 2:], fork)
    residual.layer = residual.layer.layer
    assert_by_hand(recording, 1, by_hand(model, IDS))


def test_passes_that_are_over_are_not_held():
    for model, inputs in ((gpt(), (IDS,)), (encoder(), (IDS,)), (encoder_decoder(), (SOURCE, IDS))):
        with record(model) as recording:
            for _ in range(3):
                model(*inputs)
                gc.collect()
                assert len(recording.recorder.encoded) <= 1
            assert not recording.recorder.runs


def test_an_encoded_source_is_held_as_long_as_its_memory():
    model = encoder_decoder()
    first, second = (by_hand(model, IDS, None, source) for source in (SOURCE, SOURCE[:, ::-1]))
    with record(model, row=2) as recording:
        memories = [model.encode(source) for source in (SOURCE, SOURCE[:, ::-1], SOURCE)]
        model.decoder(IDS, memories[0])
        assert_by_hand(recording, 2, first)
        model.decoder(IDS, memories[1])
        assert_by_hand(recording, 2, second)
        assert len(recording.recorder.encoded) == 3
        del memories
        gc.collect()
        model.encode(SOURCE)
        assert len(recording.recorder.encoded) == 1


# Threads, and blocks that end in any order.


class Meets(Layer):
    """A layer in which two threads wait for each other, so that each pass is in the middle of the other."""

    def __init__(self, layer, barrier):
        self.layer, self.barrier = layer, barrier

    def forward(self, x, *inputs, **options):
        self.barrier.wait(20)
        y = self.layer.forward(x, *inputs, **options)
        self.barrier.wait(20)
        return y


@pytest.mark.parametrize("make", [gpt, encoder_decoder])
def test_threads_that_share_a_recording(make):
    model, barrier, failed = make(), threading.Barrier(2), []
    rest = (SOURCE,) if make is encoder_decoder else ()
    expected = {n: by_hand(model, IDS[:, :n], None, *rest) for n in (4, 7)}
    residuals = [layer.attention for part in vars(model).values() if isinstance(part, Stack) for layer in part.layers]
    for residual in residuals:
        residual.layer = Meets(residual.layer, barrier)

    def read(n):
        try:
            model(*rest, IDS[:, :n])
        except BaseException as error:
            failed.append(error)
            barrier.abort()

    with record(model, row=1) as recording:
        threads = [threading.Thread(target=contextvars.copy_context().run, args=(read, n)) for n in (4, 7)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failed
    assert_by_hand(recording, 1, expected[len(recording.find("decoder", 0, 0).key_tokens)])


def test_blocks_that_end_in_the_order_in_which_they_began():
    model = gpt()
    first, second = record(model), record(model)
    of_first, of_second = first.__enter__(), second.__enter__()
    model(IDS)
    first.__exit__(None, None, None)
    model(IDS[:, :4])
    second.__exit__(None, None, None)
    assert not npformer.observing.OBSERVERS.get()
    model(IDS[:, :2])
    assert_by_hand(of_first, 0, by_hand(model, IDS))
    assert_by_hand(of_second, 0, by_hand(model, IDS[:, :4]))


def test_the_same_observer_twice():
    model = gpt()
    with record(model) as recording:
        with observed_by(recording.recorder):
            pass
        model(IDS)
    assert_by_hand(recording, 0, by_hand(model, IDS))
    assert not npformer.observing.OBSERVERS.get()


# Copies.


@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy, lambda r: pickle.loads(pickle.dumps(r))])
def test_a_copy_shows_the_same_and_can_be_asked(copied):
    model = encoder_decoder()
    with record(model, row=1) as recording:
        cache = model.new_cache(SOURCE)
        model.decode(IDS[:, :4], cache)
        recording.diagnose()
        other = copied(recording)
        if copied is not copy.copy:
            model.decode(IDS[:, 4:], cache)
            assert other.recorder is not recording.recorder
    expected = by_hand(model, IDS[:, :4], None, SOURCE)
    assert_by_hand(other, 1, expected)
    again = copied(other)
    assert_by_hand(again, 1, expected)
    assert str(again.ablate("cross", 1, 2)) == str(other.ablate("cross", 1, 2))
    with observed_by(again.recorder):
        again.model(SOURCE, IDS)
    assert_by_hand(again, 1, by_hand(model, IDS, None, SOURCE))


# Where nobody watches.


def test_decode_step_takes_the_fast_way_unless_it_is_watched(monkeypatch):
    model, steps = gpt(), []
    step = npformer.models.one_token.OneToken.step
    monkeypatch.setattr(npformer.models.one_token.OneToken, "step", lambda *given: steps.append(1) or step(*given))

    def decoded():
        cache = model.new_cache()
        model.decode(IDS[:, :2], cache)
        return model.decode_step(IDS[:, 2], cache)

    fast = decoded()
    assert len(steps) == 1
    with record(model):
        slow = decoded()
    assert len(steps) == 1
    decoded()
    assert len(steps) == 2
    np.testing.assert_allclose(slow, fast, rtol=0, atol=1e-12 * abs(fast).max())


def test_a_layer_that_nobody_watches_asks_once_whether_anybody_does(monkeypatch):
    class Counting:
        n = 0

        def get(self):
            self.n += 1
            return ()

    def refuse(*given):
        raise AssertionError("nobody watches")

    model, counting = gpt(), Counting()
    layers = {id(layer) for _, layer in model.sublayers()}
    entered = []

    class Entering(Observer):
        def enters(self, layer, inputs, options):
            entered.append(layer)

    with observed_by(Entering()):
        model(IDS)
    monkeypatch.setattr(npformer.observing, "OBSERVERS", counting)
    monkeypatch.setattr(npformer.observing, "seen", refuse)
    model(IDS)
    assert {id(layer) for layer in entered} > layers
    assert counting.n == len(entered) + len(model.decoder.layers)  # each attention offers its weights
    assert npformer.observing.entered(model, (), {}) is npformer.observing.entered(None, (), {})


def test_seen_weights_are_those_that_are_recorded():
    model, seen = gpt(), []
    with seen_by(seen.append), record(model, row=1) as recording:
        model(IDS)
    for map in recording.maps:
        np.testing.assert_array_equal(map.weights, seen[map.layer][1, map.head])
