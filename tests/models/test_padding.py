"""Padding: a hidden token is as if it were not there, wherever it stands and whatever id it has, in all three models."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npformer import GPT, GPTConfig
from npformer.functional import relu
from npformer.layers import DecoderLayer, FeedForward, LayerNorm, MultiHeadAttention, Residual
from npformer.models import Encoder, EncoderConfig, EncoderDecoder, TransformerConfig

RELATIVE = 1e-13  # of the largest entry: BLAS sums one row in another order than many
B, S, T, V, D = 3, 5, 7, 11, 8
SIZES = {"max_len": 8, "n_heads": 4, "n_kv_heads": 2, "d_model": D, "d_head": 4, "d_ff": 5}


def randomised(model, seed=1):
    rng = np.random.default_rng(seed)
    for name, parameter in model.parameters().items():
        value = parameter.value
        spread = 1 / np.sqrt(len(value)) if value.ndim == 2 else 0.3
        value[...] = name.endswith("gamma") + spread * rng.normal(size=value.shape)
    return model


def gpt(**changes):
    return randomised(GPT(GPTConfig(vocab_size=V, n_layers=2, **SIZES | changes), dtype=np.float64))


def encoder(**changes):
    return randomised(Encoder(EncoderConfig(vocab_size=V, n_layers=2, **SIZES | changes), dtype=np.float64))


def encoder_decoder(**changes):
    config = TransformerConfig(
        vocab_size=V,
        source_vocab_size=V + 2,
        n_encoder_layers=2,
        n_decoder_layers=2,
        **SIZES | {"output_bias": True} | changes,
    )
    return randomised(EncoderDecoder(config, dtype=np.float64))


POSITIONS = ["learned", "sinusoidal", "rotary", "alibi", "none"]
choices = {"positions": st.sampled_from(POSITIONS), "norm_placement": st.sampled_from(["pre", "post"])}
seeds = st.integers(0, 2**32 - 1)
windows = st.sampled_from([None, 1, 2, 3, 20])


class Batch:
    """Ids with a keep of every kind of row, and cotangents, which are 0 where hidden unless `everywhere`."""

    def __init__(self, seed, *shape, least=0):
        self.rng = np.random.default_rng(seed)
        self.ids = self.rng.integers(V, size=shape)
        self.keep = self.rng.random(shape) < 0.6
        self.keep[:, : shape[1] // 2][: self.rng.integers(2)] = False  # on the left
        self.keep[-1:, shape[1] // 2 :] &= bool(self.rng.integers(2))  # on the right
        if least:
            self.keep[np.arange(shape[0]), self.rng.integers(shape[1], size=shape[0])] = True

    def with_other_hidden_ids(self):
        anything = self.rng.choice([-1, 10**6, V, 0, 3, -(2**62)], size=self.ids.shape)
        return np.where(self.keep, self.ids, anything)

    def alone(self, b):
        return self.ids[b : b + 1, self.keep[b]]


def gradients(model):
    return {name: parameter.grad.copy() for name, parameter in model.parameters().items()}


def run(model, forward, dy, *inputs, **options):
    """y, and the gradients of all parameters."""
    for parameter in model.parameters().values():
        parameter.grad[...] = 0
    y, backward = forward(*inputs, **options)
    backward(dy)
    return y, gradients(model)


def added(many):
    return {name: sum(each[name] for each in many) for name in many[0]}


def close(actual, expected, largest=0.0):
    within = RELATIVE * max(abs(expected).max(initial=0), largest)
    assert actual.shape == expected.shape
    assert abs(actual - expected).max(initial=0) <= within


def all_close(actual, expected):
    """A gradient that is zero to rounding is measured by the largest of the model."""
    largest = max(abs(gradient).max(initial=0) for gradient in expected.values())
    for name, gradient in expected.items():
        close(actual[name], gradient, largest if abs(gradient).max(initial=0) < 1e-10 * largest else 0)


def identical(first, second):
    (y, one), (other_y, other) = first, second
    assert np.array_equal(y, other_y)
    assert all(np.isfinite(gradient).all() for gradient in one.values())
    assert [name for name in one if not np.array_equal(one[name], other[name])] == []


# Each row alone, with the hidden tokens deleted.


@settings(max_examples=25)
@given(st.fixed_dictionaries(choices | {"window": windows}), seeds)
def test_a_gpts_rows_are_each_row_alone(changes, seed):
    model, batch = gpt(**changes), Batch(seed, B, T)
    dlogits = batch.rng.normal(size=(B, T, V)) * batch.keep[..., None]
    logits, found = run(model, model.forward, dlogits, batch.ids, keep=batch.keep)
    alone = [run(model, model.forward, dlogits[b : b + 1, batch.keep[b]], batch.alone(b)) for b in range(B)]
    for b, (expected, _) in enumerate(alone):
        close(logits[b : b + 1, batch.keep[b]], expected)
    assert not logits[~batch.keep].any()
    all_close(found, added([each for _, each in alone]))


@settings(max_examples=25)
@given(
    st.fixed_dictionaries(choices | {"pooling": st.sampled_from([None, "mean", "first"]), "types": st.booleans()}),
    st.sampled_from([None, 3]),
    seeds,
)
def test_an_encoders_rows_are_each_row_alone(changes, n_outputs, seed):
    types = {"n_token_types": 3} if changes.pop("types") else {}
    model, batch = encoder(**changes, **types, n_outputs=n_outputs), Batch(seed, B, T, least=1)
    token_types = batch.rng.integers(3, size=(B, T)) if types else None
    y, _ = model.forward(batch.ids, keep=batch.keep, token_types=token_types)
    dy = batch.rng.normal(size=y.shape)
    if not changes["pooling"]:
        dy *= batch.keep[..., None]
    y, found = run(model, model.forward, dy, batch.ids, keep=batch.keep, token_types=token_types)
    alone = []
    for b in range(B):
        kept = (slice(b, b + 1),) if changes["pooling"] else (slice(b, b + 1), batch.keep[b])
        its_types = None if token_types is None else token_types[b : b + 1, batch.keep[b]]
        expected, its_gradients = run(model, model.forward, dy[kept], batch.alone(b), token_types=its_types)
        close(y[kept], expected)
        alone.append(its_gradients)
    all_close(found, added(alone))


@settings(max_examples=25)
@given(st.fixed_dictionaries(choices | {"tied": st.booleans()}), seeds)
def test_an_encoder_decoders_rows_are_each_row_alone(changes, seed):
    model, source, target = encoder_decoder(**changes), Batch(seed, B, S, least=1), Batch(seed + 1, B, T)
    dlogits = target.rng.normal(size=(B, T, V)) * target.keep[..., None]
    logits, found = run(model, model.forward, dlogits, source.ids, target.ids, source.keep, target.keep)
    alone = [
        run(model, model.forward, dlogits[b : b + 1, target.keep[b]], source.alone(b), target.alone(b)) for b in range(B)
    ]
    for b, (expected, _) in enumerate(alone):
        close(logits[b : b + 1, target.keep[b]], expected)
        close(model.encode(source.ids, source.keep)[b : b + 1, source.keep[b]], model.encode(source.alone(b)))
    assert not model.encode(source.ids, source.keep)[~source.keep].any()
    assert np.array_equal(logits[~target.keep], np.broadcast_to(model.output.bias.value, ((~target.keep).sum(), V)))
    all_close(found, added([each for _, each in alone]))


# Whatever ids are hidden, to the last bit.


@settings(max_examples=20)
@given(st.fixed_dictionaries(choices | {"window": windows}), seeds)
def test_a_gpt_does_not_read_hidden_ids(changes, seed):
    model, batch = gpt(**changes), Batch(seed, B, T)
    dlogits, targets = batch.rng.normal(size=(B, T, V)), batch.rng.integers(V, size=(B, T))
    hidden_otherwise = batch.with_other_hidden_ids()
    identical(*(run(model, model.forward, dlogits, ids, keep=batch.keep) for ids in (batch.ids, hidden_otherwise)))
    (first, one), (second, other) = (
        run(model, model.loss, 1.0, ids, t, keep=batch.keep)
        for ids, t in ((batch.ids, targets), (hidden_otherwise, np.where(batch.keep, targets, 10**6)))
    )
    assert first[1] == second[1] == batch.keep.sum()
    identical((first[0], one), (second[0], other))


@settings(max_examples=20)
@given(st.fixed_dictionaries(choices | {"pooling": st.sampled_from([None, "mean", "first"])}), seeds)
def test_an_encoder_does_not_read_hidden_ids(changes, seed):
    model, batch = encoder(**changes, n_outputs=3), Batch(seed, B, T)
    dy = batch.rng.normal(size=model(batch.ids).shape)
    given_ids = batch.ids, batch.with_other_hidden_ids()
    identical(*(run(model, model.forward, dy, ids, keep=batch.keep) for ids in given_ids))


@settings(max_examples=20)
@given(st.fixed_dictionaries(choices | {"tied": st.booleans()}), seeds)
def test_an_encoder_decoder_does_not_read_hidden_ids(changes, seed):
    model, source, target = encoder_decoder(**changes), Batch(seed, B, S), Batch(seed + 1, B, T)
    dlogits, keeps = target.rng.normal(size=(B, T, V)), (source.keep, target.keep)
    given_ids = (source.ids, target.ids), (source.with_other_hidden_ids(), target.with_other_hidden_ids())
    identical(*(run(model, model.forward, dlogits, *ids, *keeps) for ids in given_ids))
    (first, one), (second, other) = (run(model, model.loss, 1.0, *ids, *keeps) for ids in given_ids)
    assert first[1] == second[1]
    identical((first[0], one), (second[0], other))


def test_the_id_that_stands_in_for_hidden_ones_gets_no_gradient():
    keep = np.arange(T) < np.array([[7], [3], [2]])
    for model, forward, dy in (
        (gpt(tied=False), lambda m: m.forward, (B, T, V)),
        (encoder(), lambda m: m.forward, (B, T, D)),
    ):
        ids = np.random.default_rng(0).integers(1, V, size=(B, T))
        _, found = run(model, forward(model), np.random.default_rng(1).normal(size=dy), ids, keep=keep)
        assert not found["embedding.table"][0].any()
        assert found["embedding.table"][ids[0]].all()


# A cache, in any split.


def decoded(model, cache, batch, cuts):
    pieces = zip(np.split(batch.with_other_hidden_ids(), cuts, axis=1), np.split(batch.keep, cuts, axis=1), strict=True)
    return np.concatenate([model.decode(ids, cache, keep) for ids, keep in pieces], axis=1)


splits = st.lists(st.integers(0, T), max_size=5).map(sorted)


@settings(max_examples=25)
@given(st.fixed_dictionaries(choices | {"window": windows}), splits, seeds, st.booleans())
def test_a_gpt_decodes_padded_pieces_as_one(changes, cuts, seed, whole):
    model, batch = gpt(**changes), Batch(seed, B, T)
    cache = model.new_cache(whole=whole)
    close(decoded(model, cache, batch, cuts), model(batch.ids, keep=batch.keep))
    assert cache.lengths.tolist() == batch.keep.sum(1).tolist()
    ids = batch.rng.integers(V, size=(B, 1))
    last = model.decode(ids, cache)
    for b in range(B):
        close(last[b : b + 1], model(np.concatenate([batch.alone(b), ids[b : b + 1]], 1))[:, -1:])


@settings(max_examples=25)
@given(st.fixed_dictionaries(choices), splits, seeds, st.booleans())
def test_an_encoder_decoder_decodes_padded_pieces_as_one(changes, cuts, seed, padded):
    model, source, target = encoder_decoder(**changes), Batch(seed, B, S), Batch(seed + 1, B, T)
    if padded:
        cache = model.new_cache(source.with_other_hidden_ids(), source.keep)
        close(decoded(model, cache, target, cuts), model(source.ids, target.ids, source.keep, target.keep))
    else:
        cache = model.new_cache(source.ids)
        pieces = [model.decode(ids, cache) for ids in np.split(target.ids, cuts, axis=1)]
        close(np.concatenate(pieces, 1), model(source.ids, target.ids))


def test_more_hidden_tokens_than_max_len_fit_in_the_cache_but_no_more_tokens_do():
    model = gpt(positions="learned")
    cache, keep = model.new_cache(), np.zeros((B, 10), bool)
    keep[:, 4] = True
    ids = np.random.default_rng(0).integers(V, size=(B, 10))
    logits = model.decode(ids, cache, keep)
    close(logits[:, 4:5], model(ids[:, 4:5]))
    with pytest.raises(ValueError, match="ids reach to token 9 with those in the cache, past max_len = 8"):
        model.decode(ids[:, :8], cache)


# The loss counts what is there.


@settings(max_examples=25)
@given(st.sampled_from(POSITIONS), st.sampled_from([0.0, 0.1]), seeds)
def test_an_encoder_decoders_loss_is_that_of_each_row_alone(positions, label_smoothing, seed):
    model = encoder_decoder(positions=positions, label_smoothing=label_smoothing)
    source, target = Batch(seed, B, S, least=1), Batch(seed + 1, B, T)
    (total, count), found = run(model, model.loss, 0.7, source.ids, target.ids, source.keep, target.keep)
    alone = [run(model, model.loss, 0.7, source.alone(b), target.alone(b)) for b in range(B)]
    assert count == sum(each for (_, each), _ in alone) == np.maximum(target.keep.sum(1) - 1, 0).sum()
    close(total, np.array(sum(each for (each, _), _ in alone)))
    all_close(found, added([each for _, each in alone]))


def test_an_encoder_decoders_loss_predicts_each_kept_id_from_those_before_it():
    model, source, target = encoder_decoder(), Batch(0, B, S), Batch(1, B, T)
    target.keep = np.array([[1, 1, 0, 1, 1, 0, 0], [0, 0, 1, 0, 0, 1, 1], [0, 0, 0, 0, 0, 0, 1]], bool)
    logits = model(source.ids, target.ids, None, target.keep)
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    expected = 0.0
    for b, at, following in ((0, 0, 1), (0, 1, 3), (0, 3, 4), (1, 2, 5), (1, 5, 6)):
        expected -= log_p[b, at, target.ids[b, following]]
    (total, count), _ = model.loss(source.ids, target.with_other_hidden_ids(), None, target.keep)
    assert count == 5
    close(total, np.array(expected))


@settings(max_examples=15)
@given(st.sampled_from(POSITIONS), seeds)
def test_a_gpts_loss_is_that_of_each_row_alone(positions, seed):
    model, batch = gpt(positions=positions), Batch(seed, B, T)
    targets = batch.rng.integers(-1, V, size=(B, T))
    (total, count), found = run(model, model.loss, 0.7, batch.ids, targets, keep=batch.keep)
    alone = [run(model, model.loss, 0.7, batch.alone(b), targets[b : b + 1, batch.keep[b]]) for b in range(B)]
    assert count == ((targets != -1) & batch.keep).sum()
    close(total, np.array(sum(each for (each, _), _ in alone)))
    all_close(found, added([each for _, each in alone]))


@pytest.mark.parametrize("shape", [(T,), (1, T), (B, 1), (B, T, 1), (B, T - 1)])
def test_targets_of_another_shape_are_refused_with_padding_too(shape):
    batch = Batch(0, B, T)
    targets, keep = np.zeros(shape, np.int64), np.ones((B, T), bool)
    for model in (gpt(), encoder(n_outputs=3)):
        for padded in (None, keep):
            with pytest.raises(ValueError, match="targets"):
                model.loss(batch.ids, targets, keep=padded)


# All of it hidden.


def test_a_hidden_row_gives_nothing_and_takes_nothing():
    ids = np.random.default_rng(0).integers(V, size=(2, T))
    keep = np.array([[True] * T, [False] * T])
    for model in (gpt(), encoder(), encoder(pooling="mean"), encoder(pooling="first")):
        y, _ = model.forward(ids, keep=keep)
        dy = np.random.default_rng(1).normal(size=y.shape)
        y, found = run(model, model.forward, dy, ids, keep=keep)
        assert not y[1].any()
        expected, alone = run(model, model.forward, dy[:1], ids[:1])
        close(y[:1], expected)
        all_close(found, alone)


@pytest.mark.parametrize("placement", ["pre", "post"])
def test_of_a_hidden_source_cross_attention_adds_its_bias_alone(placement):
    model, source, target = encoder_decoder(norm_placement=placement), Batch(0, B, S), Batch(1, B, T)
    source.keep[:] = [[True], [False], [True]]
    dlogits = target.rng.normal(size=(B, T, V))
    logits, found = run(model, model.forward, dlogits, source.ids, target.ids, source.keep)
    assert np.isfinite(logits).all()
    assert all(np.isfinite(gradient).all() for gradient in found.values())
    cache = model.new_cache(source.ids, source.keep)
    close(model.decode(target.ids, cache), logits)
    for layer in model.decoder.layers:
        layer.cross_attention.layer.value.weight.value[...] = 0
        layer.cross_attention.layer.value.bias.value[...] = 0
    without = model(source.ids, target.ids)
    close(logits[1], without[1])
    assert not np.allclose(logits[0], without[0])


@pytest.mark.parametrize("rows", [0, 2])
@pytest.mark.parametrize("positions", POSITIONS)
def test_padding_of_empty_batches_and_sequences(rows, positions):
    ids, keep = np.zeros((rows, 3), np.int64), np.zeros((rows, 3), bool)
    for model, inputs, keeps in (
        (gpt(positions=positions), (ids,), {"keep": keep}),
        (encoder(positions=positions), (ids,), {"keep": keep}),
        (encoder_decoder(positions=positions), (ids, ids[:, :2]), {"source_keep": keep, "target_keep": keep[:, :2]}),
    ):
        y, backward = model.forward(*inputs, **keeps)
        backward(np.ones_like(y))
        assert y.shape[:2] == inputs[-1].shape
        assert np.isfinite(y).all()
    empty = np.zeros((rows, 0), np.int64)
    for model, inputs, keeps in (
        (gpt(positions=positions), (empty,), {"keep": empty.astype(bool)}),
        (encoder_decoder(positions=positions), (ids, empty), {"target_keep": empty.astype(bool)}),
    ):
        y, backward = model.forward(*inputs, **keeps)
        backward(np.ones_like(y))
        assert y.shape == (rows, 0, V)


# NaN at hidden places.


@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_a_memory_that_is_hidden_may_be_nan(poison):
    chance = {"dtype": np.float64, "rng": np.random.default_rng(0)}
    self_attention, cross_attention = (MultiHeadAttention(D, 4, n_kv_heads=2, **chance) for _ in range(2))
    made = [Residual(each, LayerNorm(D, dtype=np.float64), "pre") for each in (self_attention, cross_attention)]
    feed_forward = Residual(FeedForward(D, 5, relu, **chance), LayerNorm(D, dtype=np.float64), "pre")
    layer, keep = (
        randomised(DecoderLayer(made[0], feed_forward, made[1])),
        np.array([[1, 0, 1, 0, 0], [0, 1, 1, 1, 0]], bool),
    )
    rng = np.random.default_rng(2)
    x, memory, dy = rng.normal(size=(2, T, D)), rng.normal(size=(2, S, D)), rng.normal(size=(2, T, D))
    results = []
    for given_memory in (memory, np.where(keep[..., None], memory, poison)):
        for parameter in layer.parameters().values():
            parameter.grad[...] = 0
        y, backward = layer.forward(x, given_memory, memory_keep=keep[:, None, None])
        dx, dmemory = backward(dy)
        assert not dmemory[~keep].any()
        results.append((y, {"x": dx, "memory": dmemory} | gradients(layer)))
    for _, found in results:  # Of memoryᵀ·dk, where 0·NaN is NaN; what a model's encoder hides is 0.
        del found["cross_attention.key.weight"], found["cross_attention.value.weight"]
    identical(*results)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint64, np.int8])
def test_targets_of_any_integer_dtype_are_hidden_alike(dtype):
    batch = Batch(0, B, T)
    keep = np.arange(T) < np.array([T, 1, T - 1])[:B, None]
    for model in (gpt(), encoder(n_outputs=V)):
        assert model.loss(batch.ids, batch.ids.astype(dtype), keep=keep)[0] == model.loss(batch.ids, batch.ids, keep=keep)[0]
    model = EncoderDecoder(
        TransformerConfig(vocab_size=256, max_len=T, n_encoder_layers=1, n_decoder_layers=1, n_heads=1, d_model=4)
    )
    assert model.loss(batch.ids, batch.ids.astype(dtype), None, keep)[0] == model.loss(batch.ids, batch.ids, None, keep)[0]


def test_hidden_tokens_read_no_row_of_the_table():
    model = gpt(tied=False)
    model.decoder.embedding.table.value[0] = np.nan
    given, keep = np.random.default_rng(0).integers(1, V, size=(2, T)), np.ones((2, T), bool)
    keep[0, :2] = False
    logits, backward = model.forward(given, keep=keep)
    backward(np.ones_like(logits))
    for name, parameter in model.parameters().items():
        assert np.isfinite(parameter.grad).all(), name
