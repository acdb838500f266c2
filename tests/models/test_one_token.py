"""Decoding one token at a time: the same as the full pass, whatever the model is made of and the cache went through."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npformer import GPT, GPTConfig
from npformer.layers import Layer, MultiHeadAttention
from npformer.models.encoder_decoder import EncoderDecoder, TransformerConfig
from seeing import seen_by

V, L, S = 11, 17, 5
CHOICES = {
    "activation": ("gelu_tanh", "gelu", "relu", "silu", "swiglu"),
    "norm": ("layer_norm", "rms_norm"),
    "norm_placement": ("pre", "post"),
    "positions": ("learned", "sinusoidal", "rotary", "alibi", "none"),
    "tied": (True, False),
    "bias": (True, False),
    "n_kv_heads": (None, 1, 2),
    "d_head": (None, 6),
    "d_ff": (None, 7),
}
OF_GPT = {"window": (None, 1, 3, 40)}
OF_ENCODER_DECODER = {"final_norms": (None, True, False), "output_bias": (True, False), "scale_embeddings": (True, False)}


def randomised(model, seed):
    rng = np.random.default_rng(seed)
    for name, parameter in model.parameters().items():
        parameter.value[...] = rng.normal(size=parameter.value.shape) / np.sqrt(len(parameter.value))
        if name.endswith(("gamma", "beta", "bias")):
            parameter.value[...] = rng.normal(size=parameter.value.shape)
    return model


def gpt(seed=0, dtype=np.float64, **choices):
    config = GPTConfig(vocab_size=V, max_len=L, n_layers=2, n_heads=4, d_model=8, **choices)
    return randomised(GPT(config, dtype=dtype), seed)


def encoder_decoder(seed=0, dtype=np.float64, **choices):
    config = TransformerConfig(
        vocab_size=V, max_len=L, n_encoder_layers=1, n_decoder_layers=2, n_heads=4, d_model=8, **choices
    )
    return randomised(EncoderDecoder(config, dtype=dtype), seed)


def draw(choices, seed):
    rng = np.random.default_rng(seed)
    return {name: values[rng.integers(len(values))] for name, values in choices.items()}


def ids(*shape, seed=0):
    return np.random.default_rng(seed).integers(V, size=shape)


def agree(actual, expected, relative=1e-13):
    assert actual.dtype == expected.dtype
    np.testing.assert_allclose(actual, expected, rtol=0, atol=relative * np.abs(expected).max(initial=0))


def steps(model, tokens, cache):
    """The logits (B, T, V) of tokens (B, T), one after the other."""
    return np.stack([model.decode_step(tokens[:, t], cache) for t in range(tokens.shape[1])], 1)


@given(seed=st.integers(0, 2**32), n_rows=st.integers(1, 3), n_prompt=st.integers(0, 6), whole=st.booleans())
def test_a_gpts_steps_are_the_full_pass(seed, n_rows, n_prompt, whole):
    model = gpt(seed, **draw(CHOICES | OF_GPT, seed))
    tokens = ids(n_rows, L, seed=seed)
    full = model(tokens)
    cache = model.new_cache(whole=whole)
    agree(model.decode(tokens[:, :n_prompt], cache), full[:, :n_prompt])
    agree(steps(model, tokens[:, n_prompt:-2], cache), full[:, n_prompt:-2])
    agree(model.decode(tokens[:, -2:-1], cache), full[:, -2:-1])
    agree(steps(model, tokens[:, -1:], cache), full[:, -1:])


@given(seed=st.integers(0, 2**32), n_rows=st.integers(1, 3), n_prompt=st.integers(0, 6), hidden=st.booleans())
def test_an_encoder_decoders_steps_are_the_full_pass(seed, n_rows, n_prompt, hidden):
    model = encoder_decoder(seed, **draw(CHOICES | OF_ENCODER_DECODER, seed))
    source, target = ids(n_rows, S, seed=seed), ids(n_rows, L, seed=seed + 1)
    keep = None
    if hidden:
        keep = np.random.default_rng(seed).random((n_rows, S)) < 0.6
        keep[0] = False
    full = model(source, target, keep)
    cache = model.new_cache(source, keep)
    if n_prompt:
        agree(model.decode(target[:, :n_prompt], cache), full[:, :n_prompt])
    agree(steps(model, target[:, n_prompt:], cache), full[:, n_prompt:])


@given(seed=st.integers(0, 2**32))
def test_float32_stays_float32(seed):
    model = gpt(seed, np.float32, **draw(CHOICES | OF_GPT, seed))
    tokens = ids(2, 7)
    agree(steps(model, tokens, model.new_cache()), model(tokens), 2e-5)


@given(seed=st.integers(0, 2**32), whole=st.booleans())
def test_rows_of_unequal_length(seed, whole):
    model = gpt(seed, **draw(CHOICES | OF_GPT, seed))
    prompt, later = ids(3, 6, seed=seed), ids(3, 9, seed=seed + 1)
    keep = np.random.default_rng(seed).random(prompt.shape) < 0.5
    keep[0], keep[1] = True, False
    cache = model.new_cache(whole=whole)
    model.decode(np.where(keep, prompt, -7), cache, keep)
    logits = steps(model, later, cache)
    assert cache.lengths.tolist() == (keep.sum(1) + 9).tolist()
    for b in range(3):
        alone = np.concatenate([prompt[b, keep[b]], later[b]])[None]
        agree(logits[b], model(alone)[0, -9:])


@given(seed=st.integers(0, 2**32), whole=st.booleans())
def test_nan_outside_the_window_or_in_padding_changes_nothing(seed, whole):
    model = gpt(seed, **(draw(CHOICES, seed) | {"window": 2, "positions": "rotary", "tied": False}))
    model.parameters()["embedding.table"].value[0] = np.nan
    tokens = 1 + ids(2, 9, seed=seed) % (V - 1)
    tokens[:, 0] = 0
    keep = np.ones((2, 4), bool)
    keep[1, 2] = np.random.default_rng(seed).random() < 0.5
    cache = model.new_cache(whole=whole)
    model.decode(np.where(keep, tokens[:, :4], 0), cache, keep)
    logits = steps(model, tokens[:, 4:], cache)
    assert np.isfinite(logits).all()


def test_nan_in_a_hidden_part_of_the_memory_changes_nothing():
    model = encoder_decoder()
    source, keep = ids(2, S), np.arange(S) < np.array([[3], [5]])
    caches = [model.new_cache(source, keep) for _ in range(2)]
    caches[1].memory = np.where(keep[..., None], caches[1].memory, np.nan)
    clean, poisoned = (steps(model, ids(2, 4), cache) for cache in caches)
    assert np.array_equal(clean, poisoned)


def test_nan_in_a_weight_goes_through_without_a_warning():
    model = gpt()
    model.parameters()["layers.0.feed_forward.widen.bias"].value[3] = np.nan
    assert np.isnan(model.decode_step(ids(1), model.new_cache())).all()


@pytest.mark.parametrize("size", [1e3, 1e25])
def test_scores_and_rows_far_out_of_the_ordinary(size):
    model = gpt(dtype=np.float32)
    for name in ("embedding.table", "layers.0.attention.query.weight") if size < 1e9 else ("embedding.table",):
        model.parameters()[name].value[...] *= np.float32(size)
    tokens = ids(1, 5)
    agree(steps(model, tokens, model.new_cache()), model(tokens), 2e-5)


@given(seed=st.integers(0, 2**32))
def test_a_reordered_cache_goes_on_as_if_its_rows_had_always_stood_there(seed):
    model = encoder_decoder(seed, **draw(CHOICES, seed))
    source, target = ids(2, S, seed=seed), ids(2, 4, seed=seed + 1)
    keep = np.array([[True, True, False, True, True], [True, False, False, True, False]])
    cache, rows, later = model.new_cache(source, keep), np.array([1, 0, 1]), ids(3, 5, seed=seed + 2)
    steps(model, target, cache)
    cache.reorder(rows)
    full = model(source[rows], np.concatenate([target[rows], later], 1), keep[rows])
    agree(steps(model, later, cache), full[:, 4:])
    assert cache.nbytes == (
        cache.memory.nbytes
        + sum(each.nbytes for each in cache.layers)
        + 2 * 2 * 3 * S * 8 * (model.config.n_kv_heads or 4) * (model.config.d_head or 2)
    )


@pytest.mark.parametrize("make", [gpt, encoder_decoder])
def test_what_one_fork_takes_in_the_other_does_not(make):
    model = make()
    inputs = () if make is gpt else (ids(2, S),)
    first, second, third = ids(2, 3), ids(2, 5, seed=1), ids(2, 5, seed=2)
    cache = model.new_cache(*inputs)
    steps(model, first, cache)
    fork = cache.fork()
    logits = [[], []]
    for t in range(5):  # in turns
        logits[0].append(model.decode_step(second[:, t], cache))
        logits[1].append(model.decode_step(third[:, t], fork))
    fork.reorder(np.array([1]))
    for each, later in zip(logits, (second, third), strict=True):
        agree(np.stack(each, 1), model(*inputs, np.concatenate([first, later], 1))[:, 3:])
    agree(model.decode_step(second[:, 0], cache), model(*inputs, np.concatenate([first, second, second[:, :1]], 1))[:, -1])


@pytest.mark.parametrize("lengths", [2, [3, 1], [0, 4]])
def test_a_rewound_cache_is_as_before(lengths):
    model = gpt(window=3, positions="alibi", n_kv_heads=2)
    cache, tokens, later = model.new_cache(whole=True), ids(2, 6), ids(2, 4, seed=1)
    steps(model, tokens, cache)
    cache.rewind(np.array(lengths) if isinstance(lengths, list) else lengths)
    logits = steps(model, later, cache)
    for b, n in enumerate(np.broadcast_to(lengths, 2)):
        agree(logits[b], model(np.concatenate([tokens[b, :n], later[b]])[None])[0, n:])


@pytest.mark.parametrize("norm_placement", ["pre", "post"])
def test_the_weights_are_those_of_the_first_step(norm_placement):
    model = gpt(norm_placement=norm_placement)
    old, new = model.new_cache(), model.new_cache()
    tokens = ids(1, 3)
    before = steps(model, tokens, old.fork())
    steps(model, tokens[:, :1], old)
    for parameter in model.parameters().values():
        parameter.value *= 1.5
    agree(steps(model, tokens[:, 1:], old), before[:, 1:])
    agree(steps(model, tokens, new), model(tokens))


def test_logits_are_not_written_to_by_later_steps():
    model = gpt()
    cache = model.new_cache()
    first = model.decode_step(ids(2), cache)
    copy = first.copy()
    first_again = model.decode_step(ids(2, seed=1), cache)
    assert np.array_equal(first, copy)
    assert not np.shares_memory(first, first_again)
    first_again[...] = 0
    agree(model.decode_step(ids(2, seed=2), cache), model(np.stack([ids(2, seed=s) for s in range(3)], 1))[:, -1])


def test_no_rows():
    model = gpt()
    cache = model.new_cache()
    assert model.decode_step(ids(0), cache).shape == (0, V)
    assert cache.length == 1


@pytest.mark.parametrize(
    ("tokens", "error"),
    [
        (np.array([3, V]), rf"ids\[1\] is {V}, outside 0 … {V - 1}"),
        (np.array([-1, 3]), r"ids\[0\] is -1, outside"),
        (np.array([1, 2, 3]), r"ids must have the shape \(B,\) = \(2,\)"),
        (np.array([[1], [2]]), r"ids must have the shape \(B,\) = \(2,\)"),
        (np.array([1.0, 2.0]), "ids must be an array of integers, got float64"),
        ([1, 2], "ids must be an array of integers, got list"),
    ],
)
@pytest.mark.parametrize("make", [gpt, encoder_decoder])
def test_bad_ids_are_refused_and_change_nothing(make, tokens, error):
    model = make()
    inputs = () if make is gpt else (ids(2, S),)
    title = type(model).__name__
    cache = model.new_cache(*inputs)
    good = ids(2, 3)
    steps(model, good[:, :2], cache)
    with pytest.raises((TypeError, ValueError), match=f"^{title}: {error}"):
        model.decode_step(tokens, cache)
    assert cache.lengths.tolist() == [2, 2]
    agree(steps(model, good[:, 2:], cache), model(*inputs, good)[:, 2:])


def test_the_memory_says_how_many_rows_there_are():
    model = encoder_decoder()
    with pytest.raises(ValueError, match=r"^EncoderDecoder: ids must have the shape \(B,\) = \(2,\)"):
        model.decode_step(ids(3), model.new_cache(ids(2, S)))


@pytest.mark.parametrize("window", [None, 3])
def test_a_token_past_the_end_is_refused(window):
    model = gpt(window=window)
    cache = model.new_cache()
    steps(model, ids(1, L), cache)
    with pytest.raises(ValueError, match=f"^GPT: ids reach to token {L + 1} with those in the cache, past max_len = {L}"):
        model.decode_step(ids(1), cache)
    assert cache.length == L


# Where the quick way is not taken.


class Doubled(MultiHeadAttention):
    """One of the known kind by descent, and not by what it computes."""

    def forward(self, x, *inputs, **options):
        y, backward = super().forward(x, *inputs, **options)
        return 2 * y, lambda *dys: backward(2 * dys[0], *dys[1:])


def with_a_derived_part(model):
    model.decoder.layers[1].attention.layer.__class__ = Doubled


def with_a_replaced_forward(model):
    attention = model.decoder.layers[0].feed_forward
    right = attention.forward
    attention.forward = lambda x, **options: (3 * right(x, **options)[0], None)


def with_a_foreign_map(model):
    layer = model.decoder.layers[0].attention.layer
    inner = layer.query

    class Foreign(Layer):
        def forward(self, x):
            y, backward = inner.forward(x)
            return -y, lambda dy: backward(-dy)

    layer.query = Foreign()


def with_layers_that_differ(model):
    model.decoder.layers[1].window = 2


def that_is_derived(model):
    class Scaled(GPT):
        def forward(self, *inputs, **options):
            y, backward = super().forward(*inputs, **options)
            return 5 * y, backward

    model.__class__ = Scaled


CHANGES = [with_a_derived_part, with_a_replaced_forward, with_a_foreign_map, with_layers_that_differ, that_is_derived]


@pytest.mark.parametrize("change", CHANGES)
def test_parts_that_are_not_known_are_called(change):
    model, tokens = gpt(3), ids(2, 7)
    before = model(tokens)
    change(model)
    full = model(tokens)
    assert not np.allclose(full, before)
    agree(steps(model, tokens, model.new_cache()), full)


def test_whoever_looks_sees_the_weights_of_each_step():
    model, tokens = gpt(4, n_kv_heads=2), ids(2, 5)
    whole, seen = [], []
    with seen_by(whole.append):
        full = model(tokens)
    cache = model.new_cache()
    model.decode_step(tokens[:, 0], cache)  # the quick way is there already
    for t in range(1, 5):
        with seen_by(seen.append):
            agree(model.decode_step(tokens[:, t], cache), full[:, t])
    assert [P.shape for P in seen] == [(2, 4, 1, t + 1) for t in range(1, 5) for _ in range(2)]
    for t in range(1, 5):
        for layer in range(2):
            agree(seen[2 * (t - 1) + layer][:, :, 0], whole[layer][:, :, t, : t + 1], 1e-12)


def test_constant_embeddings_are_centred_as_layer_norm_does():
    model = gpt(5, np.float32, positions="none", norm="layer_norm", norm_placement="pre", tied=False)
    table = model.decoder.embedding.table.value
    table[...] = 100 * np.random.default_rng(0).random((V, 1))
    for name, parameter in model.parameters().items():
        if ("output.weight" in name and "attention" in name) or "narrow" in name:
            parameter.value[...] = 0
    tokens = ids(2, 5)
    agree(steps(model, tokens, model.new_cache()), model(tokens), 1e-4)
