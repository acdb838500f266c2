"""A layer that cannot be built is refused in one sentence with its name, the argument, the rule and what came."""

import numpy as np
import pytest

from npformer import layers
from npformer.functional import relu

RIGHT = {
    layers.Linear: {"d_in": 3, "d_out": 5},
    layers.Embedding: {"vocab_size": 7, "d_model": 3, "padding_id": 1, "scale": 2.0},
    layers.LayerNorm: {"d_model": 3, "eps": 1e-5},
    layers.RMSNorm: {"d_model": 3, "eps": 1e-5},
    layers.FeedForward: {"d_model": 3, "d_ff": 5, "activation": relu, "dropout": 0.1},
    layers.GatedFeedForward: {"d_model": 3, "d_ff": 5, "dropout": 0.1},
    layers.MultiHeadAttention: {"d_model": 6, "n_heads": 4, "d_head": 2, "n_kv_heads": 2, "dropout": 0.1},
    layers.LearnedPositions: {"max_len": 5, "d_model": 3},
    layers.Dropout: {"p": 0.1},
    layers.SinusoidalPositions: {"base": 100.0},
    layers.RotaryPositions: {"base": 100.0, "layout": "half"},
    layers.ALiBi: {"n_heads": 3},
}
NEED_CHANCE = (
    layers.Linear,
    layers.Embedding,
    layers.FeedForward,
    layers.GatedFeedForward,
    layers.MultiHeadAttention,
    layers.LearnedPositions,
)
NEED_DTYPE = (*NEED_CHANCE, layers.LayerNorm, layers.RMSNorm)


def make(layer, **changes):
    arguments = RIGHT[layer] | changes
    if layer in NEED_CHANCE:
        arguments = {"rng": np.random.default_rng(0)} | arguments
    if layer in NEED_DTYPE:
        arguments = {"dtype": np.float32} | arguments
    return layer(**arguments)


COUNTS = ("d_in", "d_out", "vocab_size", "d_model", "d_ff", "n_heads", "d_head", "n_kv_heads", "max_len")
PROBABILITIES = ("dropout", "p")
CASES = [
    (layer, name, value, error)
    for layer, arguments in RIGHT.items()
    for name in arguments
    for value, error in (
        [(0, ValueError), (-1, ValueError), (2.0, TypeError), ("3", TypeError), (True, TypeError)]
        if name in COUNTS
        else [(1.0, ValueError), (-0.1, ValueError), (np.nan, ValueError), ("0.1", TypeError)]
        if name in PROBABILITIES
        else [(0.0, ValueError), (np.nan, ValueError), ("1", TypeError)]
        if name in ("eps", "base")
        else []
    )
] + [
    (layers.Embedding, "padding_id", 7, ValueError),
    (layers.Embedding, "padding_id", -1, ValueError),
    (layers.Embedding, "scale", np.inf, ValueError),
    (layers.RotaryPositions, "layout", "halves", ValueError),
    (layers.MultiHeadAttention, "n_kv_heads", 3, ValueError),
]


@pytest.mark.parametrize("layer", RIGHT)
def test_the_right_arguments_are_accepted(layer):
    make(layer)


@pytest.mark.parametrize(("layer", "name", "value", "error"), CASES)
def test_a_wrong_argument_is_named(layer, name, value, error):
    with pytest.raises(error) as caught:
        make(layer, **{name: value})
    text = str(caught.value)
    inner = "Linear: " if layer in (layers.FeedForward, layers.GatedFeedForward) else f"{layer.__name__}: "
    assert text.startswith((inner, "Dropout: p"))
    assert "\n" not in text


@pytest.mark.parametrize("layer", NEED_DTYPE)
@pytest.mark.parametrize("dtype", [np.int64, np.float16, np.complex128])
def test_a_dtype_that_is_not_float32_or_float64_is_refused(layer, dtype):
    with pytest.raises(TypeError, match="float32 or float64"):
        make(layer, dtype=dtype)


def test_heads_that_do_not_fit():
    with pytest.raises(ValueError, match=r"MultiHeadAttention: n_heads = 4 does not divide d_model = 6: give d_head"):
        make(layers.MultiHeadAttention, d_head=None)
    with pytest.raises(ValueError, match=r"rotary positions turn pairs, so d_head must be even, got 3"):
        make(layers.MultiHeadAttention, d_head=3, positions=layers.RotaryPositions())
    with pytest.raises(ValueError, match=r"positions are of 3 heads, but n_heads = 4"):
        make(layers.MultiHeadAttention, positions=layers.ALiBi(3))


POSITIONS = [layers.LearnedPositions(5, 4, dtype=np.float64, rng=np.random.default_rng(0)), layers.SinusoidalPositions()]


@pytest.mark.parametrize("layer", [*POSITIONS, layers.RotaryPositions()], ids=lambda layer: type(layer).__name__)
@pytest.mark.parametrize(
    ("positions", "error", "text"),
    [
        (np.arange(4), ValueError, r"positions must have the shape \(T,\) = \(3,\) or \(B, T\) = \(2, 3\)"),
        (np.zeros((3, 2), int), ValueError, r"got \(3, 2\)"),
        (np.zeros((1, 3), int), ValueError, r"got \(1, 3\)"),
        (np.array([0, -2, 1]), ValueError, "none below -1"),
        (np.arange(3.0), TypeError, "positions must be"),
        (np.ones(3, bool), TypeError, "positions must be"),
        ([0, 1, 2], TypeError, "positions must be"),
    ],
)
def test_positions_of_another_shape_or_kind(layer, positions, error, text):
    x = np.zeros((2, 1, 3, 4) if isinstance(layer, layers.RotaryPositions) else (2, 3, 4))
    with pytest.raises(error, match=f"{type(layer).__name__}: .*{text}"):
        layer(x, positions)


def test_positions_past_the_table():
    with pytest.raises(ValueError, match="LearnedPositions: x reaches to position 5, the table to 4"):
        POSITIONS[0](np.zeros((2, 3, 4)), np.array([0, 5, 1]))


def attention():
    return make(layers.MultiHeadAttention)


def test_what_attention_by_position_and_with_a_cache_refuses():
    x, memory = np.zeros((2, 3, 6), np.float32), np.zeros((2, 5, 6), np.float32)
    with pytest.raises(ValueError, match="MultiHeadAttention: a cache is for self-attention, and memory was given too"):
        attention()(x, memory, cache=layers.KVCache(3))
    for options in ({"positions": np.arange(3)}, {"cache": layers.KVCache(3)}):
        with pytest.raises(TypeError, match=r"MultiHeadAttention: causal must be True or False .*, got 1"):
            attention()(x, causal=1, **options)


def test_a_memory_and_cross_attention_come_together():
    def residual(layer):
        return layers.Residual(layer, layers.LayerNorm(6, dtype=np.float32), "pre")

    x, memory = np.zeros((2, 3, 6), np.float32), np.zeros((2, 5, 6), np.float32)
    thinks = residual(make(layers.FeedForward, d_model=6))
    with pytest.raises(ValueError, match="DecoderLayer: the layer has no cross-attention for a memory"):
        layers.DecoderLayer(residual(attention()), thinks)(x, memory)
    with pytest.raises(ValueError, match="DecoderLayer: the layer needs a memory"):
        layers.DecoderLayer(residual(attention()), thinks, residual(attention()))(x)


def test_placement():
    norm = make(layers.LayerNorm)
    with pytest.raises(ValueError, match=r"Residual: placement must be one of pre, post, got 'both'"):
        layers.Residual(norm, norm, "both")


@pytest.mark.parametrize(
    ("options", "error", "sentence"),
    [
        ({"positions": np.array([0, 1, -2])}, ValueError, "positions must have the shape"),
        ({"positions": np.arange(4)}, ValueError, "positions must have the shape"),
        ({"positions": np.arange(3.0)}, TypeError, "positions must be an array of integers"),
        ({"positions": np.arange(3), "keep": np.ones((2, 3), bool)}, ValueError, "keep must have the shape"),
        ({"positions": np.arange(3), "keep": np.ones((1, 3), bool)}, ValueError, "keep must have the shape"),
    ],
)
def test_positions_and_keep_of_attention(options, error, sentence):
    layer = make(layers.MultiHeadAttention)
    with pytest.raises(error, match=f"MultiHeadAttention: {sentence}"):
        layer(np.zeros((2, 3, 6), np.float32), **options)
