"""What each layer computes, against the operations put together by hand, and the laws of attention."""

import numpy as np
import pytest

from npformer import functional
from npformer.layers import (
    ALiBi,
    DecoderLayer,
    Embedding,
    EncoderLayer,
    FeedForward,
    GatedFeedForward,
    LayerNorm,
    LearnedPositions,
    Linear,
    MultiHeadAttention,
    Residual,
    RMSNorm,
    RotaryPositions,
    SinusoidalPositions,
    TiedOutput,
)

B, T, S, D, H, G, K, F = 2, 5, 7, 6, 4, 2, 3, 11
FLOAT64 = {"dtype": np.float64}


def randomised(layer, seed=1):
    rng = np.random.default_rng(seed)
    for parameter in layer.parameters().values():
        parameter.value[...] = rng.normal(size=parameter.value.shape)
    return layer


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def rng():
    return np.random.default_rng(0)


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-12 * abs(expected).max())


def softmax(s):
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def by_hand(layer, x, memory, keep=None, positions=None):
    """Head by head, row by row."""
    q, k, v = layer.query(x), layer.key(memory), layer.value(memory)
    heads = []
    for h in range(H):
        g = h // (H // G)
        width = q.shape[-1] // H
        qh, kh, vh = q[..., h * width :][..., :width], k[..., g * width :][..., :width], v[..., g * width :][..., :width]
        if positions == "rotary":
            qh = functional.rotary(qh, np.arange(x.shape[1]))[0]
            kh = functional.rotary(kh, np.arange(memory.shape[1]))[0]
        s = np.einsum("btk,bsk->bts", qh, kh) / np.sqrt(width)
        if positions == "alibi":
            s = s - functional.alibi_slopes(H)[h] * abs(np.arange(x.shape[1])[:, None] - np.arange(memory.shape[1]))
        if keep is not None:
            s = np.where(keep, s, -np.inf)
        heads.append(softmax(s) @ vh)
    return layer.output(np.concatenate(heads, axis=-1))


@pytest.mark.parametrize("positions", [None, "rotary", "alibi"])
@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_multi_head_attention_is_attention_head_by_head(positions, cross, bias):
    made = {None: None, "rotary": RotaryPositions(), "alibi": ALiBi(H)}[positions]
    width = 4 if positions == "rotary" else K
    layer = randomised(MultiHeadAttention(D, H, d_head=width, n_kv_heads=G, bias=bias, positions=made, rng=rng(), **FLOAT64))
    x, memory = normal(B, T, D), normal(B, S, D, seed=2)
    if cross:
        close(layer(x, memory), by_hand(layer, x, memory, positions=positions))
    else:
        keep = np.tril(np.ones((T, T), bool))
        close(layer(x, causal=True), by_hand(layer, x, x, keep, positions))


def test_a_causal_layer_never_looks_ahead():
    layer = randomised(MultiHeadAttention(D, 2, rng=rng(), **FLOAT64))
    x = normal(B, T, D)
    later = x.copy()
    later[:, 3:] = 100
    assert np.array_equal(layer(x, causal=True)[:, :3], layer(later, causal=True)[:, :3])
    assert not np.array_equal(layer(x)[:, :3], layer(later)[:, :3])


def test_padding_changes_nothing_for_the_others():
    layer = randomised(MultiHeadAttention(D, 2, rng=rng(), **FLOAT64))
    x = normal(1, T, D)
    keep = np.ones((1, 1, 1, T + 2), bool)
    keep[..., T:] = False
    padded = np.concatenate([x, np.full((1, 2, D), 1e30)], axis=1)
    close(layer(padded, keep=keep)[:, :T], layer(x))


def test_grouped_heads_equal_repeated_ones():
    grouped = randomised(MultiHeadAttention(D, H, d_head=K, n_kv_heads=G, rng=rng(), **FLOAT64))
    full = MultiHeadAttention(D, H, d_head=K, rng=rng(), **FLOAT64)
    for name, parameter in grouped.parameters().items():
        value = parameter.value
        if name.startswith(("key", "value")):
            value = value.reshape(*value.shape[:-1], G, K).repeat(H // G, axis=-2).reshape(*value.shape[:-1], H * K)
        full.parameters()[name].value[...] = value
    x = normal(B, T, D)
    close(grouped(x), full(x))


def test_attention_without_positions_does_not_know_the_order_and_with_them_it_does():
    x, order = normal(1, T, 8), [3, 0, 4, 1, 2]
    for positions, blind in ((None, True), (RotaryPositions(), False), (ALiBi(2), False)):
        layer = randomised(MultiHeadAttention(8, 2, positions=positions, rng=rng(), **FLOAT64))
        same = np.allclose(layer(x)[:, order], layer(x[:, order]), rtol=1e-12)
        assert same == blind


def test_residuals():
    x = normal(B, T, D)
    inner, norm = randomised(Linear(D, D, rng=rng(), **FLOAT64)), randomised(LayerNorm(D, **FLOAT64))
    close(Residual(AnyLayer(inner), norm, "pre")(x), x + inner(norm(x)))
    close(Residual(AnyLayer(inner), norm, "post")(x), norm(x + inner(x)))


class AnyLayer(Linear):
    """A linear layer that takes, as those inside a residual do, an rng."""

    def __init__(self, inner):
        self.inner = inner

    def forward(self, x, rng=None):
        return self.inner.forward(x)


def test_feed_forwards():
    x = normal(B, T, D)
    layer = randomised(FeedForward(D, F, functional.gelu_tanh, rng=rng(), **FLOAT64))
    close(layer(x), layer.narrow(functional.gelu_tanh(layer.widen(x))[0]))
    gated = randomised(GatedFeedForward(D, F, rng=rng(), **FLOAT64))
    opened = gated.gate(x)
    close(gated(x), gated.narrow(opened / (1 + np.exp(-opened)) * gated.widen(x)))


def test_a_decoder_layer_attends_and_then_thinks():
    attention = Residual(MultiHeadAttention(D, 2, rng=rng(), **FLOAT64), LayerNorm(D, **FLOAT64), "pre")
    feed_forward = Residual(FeedForward(D, F, functional.relu, rng=rng(), **FLOAT64), RMSNorm(D, **FLOAT64), "post")
    layer, x = randomised(DecoderLayer(attention, feed_forward)), normal(B, T, D)
    assert np.array_equal(layer(x), feed_forward(attention(x, causal=True)))


def residual(layer, placement="pre"):
    return Residual(layer, LayerNorm(D, **FLOAT64), placement)


def attention_of(n_heads=2, positions=None, **sizes):
    return MultiHeadAttention(D, n_heads, positions=positions, rng=rng(), **sizes, **FLOAT64)


def test_an_encoder_layer_attends_to_all_and_then_thinks():
    attention = residual(attention_of())
    feed_forward = residual(FeedForward(D, F, functional.relu, rng=rng(), **FLOAT64), "post")
    layer, x = randomised(EncoderLayer(attention, feed_forward)), normal(B, T, D)
    seen = attention.layer(attention.norm(x))
    by_hand = x + seen
    thought = feed_forward.layer.narrow(np.maximum(feed_forward.layer.widen(by_hand), 0))
    close(layer(x), feed_forward.norm(by_hand + thought))
    keep = np.arange(T) < 3
    close(layer(x, keep=keep[None, None, None])[:, :3], layer(x[:, :3]))


def test_a_decoder_layer_looks_at_the_memory_in_between():
    attention, cross_attention = residual(attention_of()), residual(attention_of(3), "post")
    feed_forward = residual(FeedForward(D, F, functional.relu, rng=rng(), **FLOAT64))
    layer = randomised(DecoderLayer(attention, feed_forward, cross_attention))
    x, memory = normal(B, T, D), normal(B, S, D, seed=2)
    seen = x + attention.layer(attention.norm(x), causal=True)
    found = cross_attention.norm(seen + cross_attention.layer(seen, memory))
    thought = feed_forward.layer.narrow(np.maximum(feed_forward.layer.widen(feed_forward.norm(found)), 0))
    close(layer(x, memory), found + thought)
    keep = np.arange(S) < 4
    close(layer(x, memory, memory_keep=keep[None, None, None]), layer(x, memory[:, :4]))


def test_a_decoder_layer_in_a_window_sees_no_further_back():
    attention, feed_forward = residual(attention_of()), residual(FeedForward(D, F, functional.relu, rng=rng(), **FLOAT64))
    x, layer = normal(B, T, D), randomised(DecoderLayer(attention, feed_forward, window=2))
    seen = x[:, 2:4] + attention.layer(attention.norm(x[:, 2:4]), causal=True)
    close(layer(x)[:, 3], feed_forward(seen)[:, 1])


def test_an_embedding_times_its_scale_and_logits_with_a_bias():
    embedding = Embedding(7, D, scale=2.5, rng=rng(), **FLOAT64)
    ids = np.array([[6, 0, 6]])
    assert np.array_equal(embedding(ids), 2.5 * embedding.table.value[ids])
    output = TiedOutput(embedding, bias=True)
    assert not output.bias.value.any()
    output.bias.value[...] = normal(7)
    close(output(normal(B, T, D)), np.einsum("btd,vd->btv", normal(B, T, D), embedding.table.value) + normal(7))
    assert TiedOutput(embedding).bias is None


# Positions that are given


PLACES = np.array([[3, -1, 0, 5, 3], [0, 1, 2, -1, -1]])  # (B,T)


def test_a_row_is_added_where_the_token_stands_and_none_to_no_token():
    x, learned = normal(B, T, D), LearnedPositions(7, D, rng=rng(), **FLOAT64)
    for layer, table in ((learned, learned.table.value), (SinusoidalPositions(), functional.sinusoidal_positions(6, D))):
        for b in range(B):
            expected = [x[b, t] + table[p] if p >= 0 else x[b, t] for t, p in enumerate(PLACES[b])]
            assert np.array_equal(layer(x, PLACES)[b], expected)
            assert np.array_equal(layer(x, PLACES[b])[b], expected)
        assert np.array_equal(layer(x, np.arange(T)), layer(x))


def test_rotary_positions_turn_each_row_by_its_own():
    x, layer = normal(B, H, T, 4), RotaryPositions(base=100.0)
    for b in range(B):
        turned = functional.rotary(x[b : b + 1], PLACES[b], 100.0)[0]
        assert np.array_equal(layer(x, PLACES)[b : b + 1], turned)
        assert np.array_equal(layer(x, PLACES[b])[b : b + 1], turned)


def test_the_bias_of_alibi_goes_by_the_distance_between_positions():
    alibi, slopes = ALiBi(3), functional.alibi_slopes(3)
    places = np.array([4, 0]), np.array([1, 4, 9])
    assert alibi.bias(*places, np.float32).dtype == np.float32
    close(alibi.bias(*places, np.float64), -slopes[None, :, None, None] * np.array([[3, 0, 5], [1, 4, 9]]))
    close(alibi.bias(np.arange(T), np.arange(S), np.float64), functional.alibi_bias(3, T, S))
    rows = alibi.bias(PLACES, np.arange(S), np.float64)
    assert rows.shape == (B, 3, T, S)
    for b in range(B):
        assert np.array_equal(rows[b : b + 1], alibi.bias(PLACES[b], np.arange(S), np.float64))


@pytest.mark.parametrize("positions", [None, RotaryPositions(), ALiBi(2)], ids=lambda each: type(each).__name__)
def test_attention_at_given_positions_is_attention_of_the_tokens_in_order(positions):
    """Three tokens in disorder, between two that are none, are the same three one after the other."""
    layer, x = randomised(attention_of(positions=positions, d_head=4)), normal(1, T, D)
    places, order = np.array([2, -1, 0, -1, 1]), [2, 4, 0]
    for options in ({}, {"causal": True}, {"causal": True, "window": 2}):
        found = layer(x, positions=places, **options)
        close(found[:, order], layer(x[:, order], **options))
        assert np.array_equal(found, layer(x, positions=places[None], **options))


def test_positions():
    x = normal(B, T, D)
    learned = LearnedPositions(T + 2, D, rng=rng(), **FLOAT64)
    assert np.array_equal(learned(x), x + learned.table.value[:T])
    assert np.array_equal(SinusoidalPositions()(x), x + functional.sinusoidal_positions(T, D))
    with pytest.raises(ValueError, match=r"LearnedPositions: x reaches to position 4, the table to 3"):
        LearnedPositions(4, D, rng=rng(), **FLOAT64)(x)
    with pytest.raises(TypeError, match="float32"):
        learned(x.astype(np.float32))
    for layer in (learned, SinusoidalPositions()):
        with pytest.raises(TypeError, match="x must be a NumPy array, got list"):
            layer(x.tolist())
        with pytest.raises(ValueError, match=r"x must have the axes \(B, T, D\)"):
            layer(x[0])
    with pytest.raises(TypeError, match="x must be float16, float32 or float64"):
        SinusoidalPositions()(x.astype(np.int64))


def test_layers_start_as_they_say():
    linear = Linear(400, 300, rng=rng(), dtype=np.float32)
    assert abs(linear.weight.value.std() * 20 - 1) < 0.02
    assert not linear.bias.value.any()
    assert Linear(4, 3, bias=False, rng=rng(), dtype=np.float32).bias is None
    assert abs(Embedding(400, 300, rng=rng(), dtype=np.float32).table.value.std() - 1) < 0.02
    assert np.array_equal(LayerNorm(3, dtype=np.float32).gamma.value, np.ones(3, np.float32))
    assert LayerNorm(3, bias=False, dtype=np.float32).beta is None
    x = normal(4, 5, 30) * 1e3
    assert np.allclose(LayerNorm(30, bias=False, **FLOAT64)(x), functional.layer_norm(x, np.ones(30), np.zeros(30))[0])
