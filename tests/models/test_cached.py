"""A sequence read in pieces, over a cache, gives what one full pass gives: every value and every gradient, at every split.

BLAS sums one row in another order than many, so "gives" means within 1e-13 of the largest entry, in float64.
"""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gradcheck
from npformer import GPT, GPTConfig
from npformer.functional import relu
from npformer.layers import (
    ALiBi,
    DecoderLayer,
    FeedForward,
    GatedFeedForward,
    KVCache,
    LayerNorm,
    MultiHeadAttention,
    Residual,
    RMSNorm,
    RotaryPositions,
    SlidingCache,
)
from npformer.models import EncoderDecoder, TransformerConfig

RELATIVE = 1e-13
B, T, S, V, D, H, G = 3, 7, 5, 11, 12, 4, 2


def randomised(layer, seed=1):
    """Gains around 1, for with others a post-norm model makes tokens nearly alike."""
    rng = np.random.default_rng(seed)
    for name, parameter in layer.parameters().items():
        value = parameter.value
        spread = 1 / np.sqrt(len(value)) if value.ndim == 2 else 0.3
        value[...] = name.endswith("gamma") + spread * rng.normal(size=value.shape)
    return layer


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def forget(layer):
    for parameter in layer.parameters().values():
        parameter.grad[...] = 0


def gradients(layer):
    return {name: parameter.grad.copy() for name, parameter in layer.parameters().items()}


def in_pieces(read, x, cuts):
    """y of the pieces of x side by side, and backward(dy) → the gradients of what each piece had for input.

    read(piece) → (y, backward), where backward(dy, *later) → (*inputs, *earlier), `later` being the piece after's `earlier`.
    """
    passes = [read(piece) for piece in np.split(x, cuts, axis=1)]

    def backward(dy):
        found, later = [], ()
        for d, (_, piece_backward) in zip(reversed(np.split(dy, cuts, axis=1)), reversed(passes), strict=True):
            inputs, later = piece_backward(d, later)
            found.insert(0, inputs)
        return found

    return np.concatenate([y for y, _ in passes], axis=1), backward


class InPieces:
    """The layer of which each piece of an input is read in turn, over a cache of its own; the other inputs are read by all.

    As a layer itself: forward(x) → (y, backward), backward(dy) → dx, and the other inputs' gradients, summed.
    """

    def __init__(self, layer, new_cache, cuts, n_owed=2, **options):
        self.layer, self.new_cache, self.cuts, self.n_owed, self.options = layer, new_cache, cuts, n_owed, options
        self.parameters = layer.parameters

    def forward(self, x, *others):
        cache = self.new_cache()
        has_dx = x.dtype.kind != "i"

        def read(piece):
            y, backward = self.layer.forward(piece, *others, **self.options, **cache)

            def piece_backward(dy, later):
                given = backward(dy, *later)
                given = given if isinstance(given, tuple) else (given,)
                return given[: len(given) - self.n_owed], given[len(given) - self.n_owed :]

            return y, piece_backward

        y, backward = in_pieces(read, x, self.cuts)

        def whole_backward(dy):
            found = backward(dy)
            dx = [np.concatenate([inputs[0] for inputs in found], axis=1)] if has_dx else []
            dothers = [sum(each) for each in zip(*(inputs[has_dx:] for inputs in found), strict=True)]
            results = (*dx, *dothers)
            return results if len(results) > 1 else results[0] if results else None

        return y, whole_backward


def gpt_in_pieces(model, cuts):
    return InPieces(model, lambda: {"cache": model.new_cache(whole=True)}, cuts, n_owed=1)


def stack_in_pieces(stack, cuts, **options):
    return InPieces(stack, lambda: {"caches": [KVCache(T) for _ in stack.layers]}, cuts, n_owed=1, **options)


def layer_in_pieces(layer, cuts, **options):
    return InPieces(layer, lambda: {"cache": KVCache(T)}, cuts, **options)


def all_of(layer, dys, *inputs, **options):
    """The value, and after a backward for each dy the gradients of inputs (of all dys, summed) and parameters, by name."""
    forget(layer)
    y, backward = layer.forward(*inputs, **options)
    found = [backward(dy) for dy in dys]
    found = [() if each is None else each if isinstance(each, tuple) else (each,) for each in found]
    dinputs = {f"input {i}": sum(each) for i, each in enumerate(zip(*found, strict=True))}
    return y, dinputs | gradients(layer)


def differences(actual, expected):
    """What is not within rounding of the largest entry of its array, or where that is zero to rounding, of all arrays."""
    (y, found), (expected_y, wanted) = actual, expected
    assert found.keys() == wanted.keys()
    largest = max(abs(g).max(initial=0) for g in wanted.values())
    wrong = [] if abs(y - expected_y).max(initial=0) <= RELATIVE * abs(expected_y).max(initial=0) else ["y"]
    for name, gradient in wanted.items():
        size = abs(gradient).max(initial=0)
        within = RELATIVE * (size if size > 1e-10 * largest else largest)
        if found[name].shape != gradient.shape or not abs(found[name] - gradient).max(initial=0) <= within:
            wrong.append(name)
    return wrong


def every_split(length):
    for at in itertools.product((False, True), repeat=length - 1):
        yield [i + 1 for i, cut in enumerate(at) if cut]


splits = st.lists(st.integers(0, T), max_size=5).map(sorted)  # with pieces of no token among them


# GPT.


def gpt(seed=1, **changes):
    sizes = {
        "vocab_size": V,
        "max_len": T,
        "n_layers": 2,
        "n_heads": H,
        "n_kv_heads": G,
        "d_model": D,
        "d_head": 2,
        "d_ff": 5,
    }
    return randomised(GPT(GPTConfig(**sizes | changes), dtype=np.float64), seed)


def ids(*shape, seed=0):
    return np.random.default_rng(seed).integers(V, size=shape)


def gpt_differences(model, cuts, length=T, seed=0):
    given, dlogits = ids(B, length, seed=seed), normal(B, length, V, seed=seed + 1)
    return differences(all_of(gpt_in_pieces(model, cuts), [dlogits], given), all_of(model, [dlogits], given))


@settings(max_examples=25)
@given(
    st.fixed_dictionaries(
        {
            "positions": st.sampled_from(["learned", "sinusoidal", "rotary", "alibi", "none"]),
            "window": st.sampled_from([None, 1, 2, 3, T, T + 4]),
            "norm_placement": st.sampled_from(["pre", "post"]),
            "norm": st.sampled_from(["layer_norm", "rms_norm"]),
            "activation": st.sampled_from(["gelu_tanh", "swiglu"]),
            "n_kv_heads": st.sampled_from([1, 2, 4]),
            "d_head": st.sampled_from([2, 4]),
            "tied": st.booleans(),
            "bias": st.booleans(),
        }
    ),
    splits,
    st.integers(0, 2**32 - 1),
)
def test_a_gpt_in_pieces_is_a_gpt_in_one(changes, cuts, seed):
    assert gpt_differences(gpt(seed, **changes), cuts, seed=seed) == []


FIXED = {
    "gpt2": {},
    "llama": {"positions": "rotary", "norm": "rms_norm", "activation": "swiglu", "n_kv_heads": 1, "bias": False},
    "alibi": {"positions": "alibi", "norm_placement": "post", "n_kv_heads": 4},
    "window": {"positions": "rotary", "window": 3},
    "sinusoidal": {"positions": "sinusoidal", "tied": False, "window": 2},
}


@pytest.mark.parametrize("name", FIXED)
def test_every_split_of_a_gpts_sequence_is_the_same(name):
    model = gpt(**FIXED[name])
    assert {str(cuts): gpt_differences(model, cuts, length=5) for cuts in every_split(5)} == {
        str(cuts): [] for cuts in every_split(5)
    }


# The decoder of an encoder–decoder, which reads a memory as well.


def decoder(**changes):
    config = TransformerConfig(
        vocab_size=V,
        max_len=T,
        n_encoder_layers=1,
        n_decoder_layers=2,
        n_heads=H,
        n_kv_heads=G,
        d_model=D,
        d_head=2,
        d_ff=5,
        **changes,
    )
    return randomised(EncoderDecoder(config, dtype=np.float64).decoder)


@settings(max_examples=20)
@given(
    st.fixed_dictionaries(
        {
            "positions": st.sampled_from(["learned", "sinusoidal", "rotary", "alibi", "none"]),
            "norm_placement": st.sampled_from(["pre", "post"]),
            "final_norms": st.sampled_from([None, False, True]),
        }
    ),
    splits,
    st.booleans(),
)
def test_a_decoder_over_a_memory_in_pieces_is_one_in_one(changes, cuts, padded):
    stack, given_ids, memory, dy = decoder(**changes), ids(B, T), normal(B, S, D, seed=2), normal(B, T, D, seed=3)
    memory_keep = np.arange(S) < np.array([[5], [2], [3]]) if padded else None
    full = all_of(stack, [dy], given_ids, memory, memory_keep=memory_keep)
    pieces = all_of(stack_in_pieces(stack, cuts, memory_keep=memory_keep), [dy], given_ids, memory)
    assert differences(pieces, full) == []


# Attention and a decoder layer alone, with the gradient of their inputs.


def attention(positions=None, **changes):
    made = {None: None, "rotary": RotaryPositions(), "alibi": ALiBi(H)}[positions]
    sizes = {"d_head": 4, "n_kv_heads": G, "positions": made} | changes
    return randomised(MultiHeadAttention(D, H, **sizes, dtype=np.float64, rng=np.random.default_rng(0)))


def decoder_layer(placement="pre", positions=None, cross=True, **changes):
    chance = {"dtype": np.float64, "rng": np.random.default_rng(0)}
    self_attention = Residual(attention(positions), LayerNorm(D, dtype=np.float64), placement)
    cross_attention = Residual(attention(), RMSNorm(D, dtype=np.float64), placement) if cross else None
    network = GatedFeedForward(D, 5, **chance) if placement == "pre" else FeedForward(D, 5, relu, **chance)
    feed_forward = Residual(network, LayerNorm(D, dtype=np.float64), placement)
    return randomised(DecoderLayer(self_attention, feed_forward, cross_attention, **changes))


@pytest.mark.parametrize("positions", [None, "rotary", "alibi"])
@pytest.mark.parametrize("window", [None, 1, 3])
def test_attention_in_pieces_and_the_gradient_of_each(positions, window):
    layer, x, dy = attention(positions), normal(B, 5, D), normal(B, 5, D, seed=1)
    full = all_of(layer, [dy], x, causal=True, window=window)
    for cuts in every_split(5):
        pieces = all_of(layer_in_pieces(layer, cuts, causal=True, window=window), [dy], x)
        assert differences(pieces, full) == [], cuts


@pytest.mark.parametrize("placement", ["pre", "post"])
@pytest.mark.parametrize(("positions", "window", "cross"), [(None, None, True), ("rotary", 2, True), ("alibi", None, False)])
def test_a_decoder_layer_in_pieces_and_the_gradients_of_each_and_of_the_memory(placement, positions, window, cross):
    layer = decoder_layer(placement, positions, cross, window=window)
    inputs, dy = [normal(B, 5, D), *([normal(B, S, D, seed=2)] if cross else [])], normal(B, 5, D, seed=1)
    full = all_of(layer, [dy], *inputs)
    for cuts in every_split(5):
        assert differences(all_of(layer_in_pieces(layer, cuts), [dy], *inputs), full) == [], cuts


def test_pieces_that_see_everything_see_all_keys_so_far():
    """Without `causal` a query sees the keys before it, those of its own piece, and none that come later."""
    layer, x = attention("rotary"), normal(B, 5, D)
    cache = {"cache": KVCache(5)}
    y = np.concatenate([layer(piece, **cache) for piece in np.split(x, [2], axis=1)], axis=1)
    keep = np.ones((5, 5), bool)
    keep[:2, 2:] = False
    expected = layer(x, keep=keep)
    np.testing.assert_allclose(y, expected, rtol=0, atol=RELATIVE * abs(expected).max())


def test_dropout_on_the_attention_of_pieces_has_its_backward():
    layer, x, dy = attention(dropout=0.4), normal(B, T, D), normal(B, T, D, seed=1)
    cache = KVCache(T)
    rng = np.random.default_rng(5)
    read = {"causal": True, "cache": cache, "rng": rng}
    _, backward1 = layer.forward(x[:, :3], **read)
    y2, backward2 = layer.forward(x[:, 3:], **read)
    assert not np.allclose(y2, layer(x, causal=True)[:, 3:])
    dx2, *earlier = backward2(dy[:, 3:])
    dx1, *before = backward1(dy[:, :3], *earlier)
    assert [each.shape for each in before] == [(B, G, 0, 4)] * 2

    def total(x):
        cache, rng = KVCache(T), np.random.default_rng(5)
        read = {"causal": True, "cache": cache, "rng": rng}
        return sum((layer.forward(x[:, part], **read)[0] * dy[:, part]).sum() for part in (slice(0, 3), slice(3, None)))

    direction = normal(B, T, D, seed=2)
    slope = gradcheck.derivative(total, x, direction)
    assert abs((np.concatenate([dx1, dx2], 1) * direction).sum() - slope.value) < 1e-12 * abs(slope.value)


# Twice.


@pytest.mark.parametrize("cuts", [[3], [1, 2, 6], [0, 4, 4]])
def test_a_second_backward_of_the_pieces_adds_its_gradients(cuts):
    first, second = normal(B, T, V, seed=1), normal(B, T, V, seed=2)
    model, given_ids = gpt(positions="rotary"), ids(B, T)
    both = all_of(gpt_in_pieces(model, cuts), [first, second], given_ids)
    assert differences(both, all_of(model, [first + second], given_ids)) == []
    layer, x = decoder_layer(positions="rotary"), normal(B, T, D)
    inputs, dys = (x, normal(B, S, D, seed=3)), (normal(B, T, D, seed=4), normal(B, T, D, seed=5))
    assert differences(all_of(layer_in_pieces(layer, cuts), dys, *inputs), all_of(layer, [sum(dys)], *inputs)) == []


def test_a_backward_leaves_what_it_was_given_as_it_was():
    model = gpt()
    cache = model.new_cache(whole=True)
    backwards = [model.forward(piece, cache=cache)[1] for piece in np.split(ids(B, T), [3], axis=1)]
    dlogits = normal(B, T, V)
    dlogits.flags.writeable = False
    later = backwards[1](dlogits[:, 3:])
    assert [[d.shape for d in pair] for pair in later] == [[(B, G, 3, 2)] * 2] * 2
    for pair in later:
        for each in pair:
            each.flags.writeable = False
    backwards[0](dlogits[:, :3], later)  # writing would raise


# By gradcheck, which knows nothing of a full pass.


class Three(InPieces):
    """The pieces as inputs of their own."""

    def forward(self, x1, x2, x3):
        y, backward = super().forward(np.concatenate([x1, x2, x3], axis=1))
        return y, lambda dy: tuple(np.split(backward(dy), self.cuts, axis=1))


def three_pieces(positions="rotary"):
    turned = {"rotary": RotaryPositions(), "alibi": ALiBi(2)}[positions]
    sizes = {"d_head": 2, "n_kv_heads": 1, "positions": turned, "dtype": np.float64, "rng": np.random.default_rng(0)}
    layer = randomised(MultiHeadAttention(3, 2, **sizes))
    return Three(layer, lambda: {"cache": KVCache(T)}, [2, 3], causal=True), [normal(1, n, 3, seed=n) for n in (2, 1, 2)]


@pytest.mark.parametrize("positions", ["rotary", "alibi"])
def test_gradcheck_passes_attention_in_three_pieces(positions):
    layer, pieces = three_pieces(positions)
    report = gradcheck.check_layer(layer, *pieces)
    assert report.verdict == "pass", report


def test_gradcheck_passes_a_decoder_layer_in_pieces():
    layer = layer_in_pieces(decoder_layer("post", "rotary"), [1, 3])
    report = gradcheck.check_layer(layer, normal(1, 4, D), normal(1, 3, D, seed=1))
    assert report.verdict == "pass", report


@pytest.mark.parametrize(
    ("changes", "cuts"),
    [
        ({"n_layers": 1, "positions": "rotary", "window": 2}, [3]),
        pytest.param({}, [2, 3], marks=pytest.mark.long),
        pytest.param({"positions": "alibi", "window": 2, "norm_placement": "post"}, [1, 4], marks=pytest.mark.long),
    ],
)
def test_gradcheck_passes_a_gpt_in_pieces(changes, cuts):
    model = gpt(**{"d_model": 4, "n_heads": 2, "n_kv_heads": 1, "max_len": 5, "d_ff": 3, "vocab_size": 5} | changes)
    report = gradcheck.check_layer(gpt_in_pieces(model, cuts), ids(1, 5) % 5)
    assert report.verdict == "pass", report


# Wrong on purpose.


def forgets_what_later_tokens_owe(patch):
    right = MultiHeadAttention.forward

    def forward(self, *inputs, **options):
        y, backward = right(self, *inputs, **options)
        return y, lambda dy, *later: backward(dy)

    patch.setattr(MultiHeadAttention, "forward", forward)


def adds_it_twice(patch):
    right = MultiHeadAttention.forward

    def forward(self, *inputs, **options):
        y, backward = right(self, *inputs, **options)
        return y, lambda dy, *later: backward(dy, *(2 * d for d in later))

    patch.setattr(MultiHeadAttention, "forward", forward)


def backward_of(wrong):
    def put_in(patch):
        patch.setattr(KVCache, "backward_of", lambda self, before, length: lambda dk, dv: wrong(dk, dv, before, length))

    put_in.__name__ = wrong.__name__
    return put_in


def parts(d, before):
    return d[:, :, :before], d[:, :, before:]


@backward_of
def swaps_keys_and_values(dk, dv, before, length):
    (dk0, dk1), (dv0, dv1) = parts(dk, before), parts(dv, before)
    return dv0, dk0, dv1, dk1


@backward_of
def swaps_them_for_earlier_tokens(dk, dv, before, length):
    (dk0, dk1), (dv0, dv1) = parts(dk, before), parts(dv, before)
    return dv0, dk0, dk1, dv1


@backward_of
def is_off_by_one(dk, dv, before, length):
    (dk0, dk1), (dv0, dv1) = (parts(np.roll(d, 1, axis=2), before) for d in (dk, dv))
    return dk0, dv0, dk1, dv1


@backward_of
def owes_the_earlier_values_nothing(dk, dv, before, length):
    (dk0, dk1), (dv0, dv1) = parts(dk, before), parts(dv, before)
    return dk0, 0 * dv0, dk1, dv1


@backward_of
def owes_the_earlier_keys_nothing(dk, dv, before, length):
    (dk0, dk1), (dv0, dv1) = parts(dk, before), parts(dv, before)
    return 0 * dk0, dv0, dk1, dv1


@backward_of
def hands_all_of_it_to_the_first(dk, dv, before, length):
    (dk0, dk1), (dv0, dv1) = parts(dk, before), parts(dv, before)
    first = np.arange(before)[:, None] == 0
    return first * dk0.sum(2, keepdims=True), first * dv0.sum(2, keepdims=True), dk1, dv1


@backward_of
def turns_earlier_tokens_round(dk, dv, before, length):
    (dk0, dk1), (dv0, dv1) = parts(dk, before), parts(dv, before)
    return dk0[:, :, ::-1], dv0[:, :, ::-1], dk1, dv1


def counts_one_too_far(patch):
    right = KVCache.next_positions
    patch.setattr(KVCache, "next_positions", lambda self, T, keep=None: right(self, T, keep) + (self.length > 0))


def starts_every_piece_at_0(patch):
    patch.setattr(KVCache, "next_positions", lambda self, T, keep=None: np.arange(T))


BACKWARDS = [
    forgets_what_later_tokens_owe,
    adds_it_twice,
    swaps_keys_and_values,
    swaps_them_for_earlier_tokens,
    is_off_by_one,
    owes_the_earlier_values_nothing,
    owes_the_earlier_keys_nothing,
    hands_all_of_it_to_the_first,
    turns_earlier_tokens_round,
]


@pytest.mark.parametrize("wrong", BACKWARDS)
def test_a_wrong_backward_differs_from_the_full_pass(wrong, monkeypatch):
    model = gpt(positions="none")
    assert gpt_differences(model, [2, 5]) == []
    wrong(monkeypatch)
    found = gpt_differences(model, [2, 5])
    assert found
    assert "y" not in found


@pytest.mark.parametrize("wrong", [counts_one_too_far, starts_every_piece_at_0])
@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "rotary", "alibi", "none"])
def test_a_wrong_place_differs_from_the_full_pass(wrong, positions, monkeypatch):
    model = gpt(positions=positions, max_len=T + 1)
    wrong(monkeypatch)
    assert "y" in gpt_differences(model, [2, 5])


@pytest.mark.parametrize("wrong", BACKWARDS[::4] + [pytest.param(each, marks=pytest.mark.long) for each in BACKWARDS])
def test_a_wrong_backward_is_found_by_gradcheck(wrong, monkeypatch):
    layer, pieces = three_pieces()
    wrong(monkeypatch)
    assert gradcheck.check_layer(layer, *pieces).verdict == "fail"


# Without a backward.


def refused(layer, backward, dy, reason):
    forget(layer)
    with pytest.raises(ValueError, match=f"KVCache: no backward: the cache {reason}, which is for generation"):
        backward(dy)
    return not any(gradient.any() for gradient in gradients(layer).values())


WITHOUT_BACKWARD = {
    "may have rows of unequal length": None,
    "was reordered": lambda cache: cache.reorder(np.array([2, 0, 1])),
    "was rewound": lambda cache: cache.rewind(1),
    "is a fork": lambda cache: cache.fork(),
}


@pytest.mark.parametrize("reason", WITHOUT_BACKWARD)
def test_without_a_backward_attention_and_layers_say_why_and_touch_no_gradient(reason):
    move = WITHOUT_BACKWARD[reason]
    positions = np.where(np.arange(3) < np.array([[3], [1], [2]]), np.arange(3) + 2, -1) if move is None else None
    for layer, options in (
        (attention(), {"causal": True}),
        (decoder_layer("pre", cross=False), {}),
        (decoder_layer("post", cross=False), {}),
    ):
        cache = KVCache(T)
        layer.forward(normal(B, 2, D), **options, cache=cache)
        cache = cache if move is None else move(cache) or cache
        y, backward = layer.forward(normal(B, 3, D), **options, cache=cache, positions=positions)
        assert y.shape == (B, 3, D)
        assert refused(layer, backward, y, reason)


@pytest.mark.parametrize("reason", WITHOUT_BACKWARD)
@pytest.mark.parametrize("placement", ["pre", "post"])
def test_without_a_backward_a_gpt_says_why_and_touches_no_gradient(reason, placement):
    model, move = gpt(norm_placement=placement), WITHOUT_BACKWARD[reason]
    cache = model.new_cache()
    model.decode(ids(B, 2), cache)
    cache = cache if move is None else move(cache) or cache
    keep = np.arange(3) < np.array([[3], [1], [2]]) if move is None else None
    logits, backward = model.forward(ids(B, 3), cache=cache, keep=keep)
    assert refused(model, backward, logits, reason)
    forget(model)
    with pytest.raises(ValueError, match="no backward"):
        backward(logits, [(None, None)] * 2)
    assert not any(gradient.any() for gradient in gradients(model).values())


def test_a_ring_has_no_backward_and_touches_no_gradient():
    model = gpt(window=2)
    cache = model.new_cache()
    assert all(isinstance(each, SlidingCache) for each in cache.layers)
    logits, backward = model.forward(ids(B, 3), cache=cache)
    assert refused(model, backward, logits, "keeps only the last tokens")


def test_a_backward_from_before_the_cache_was_moved_is_still_right():
    model, given_ids, dlogits = gpt(), ids(B, T), normal(B, T, V)
    expected = all_of(model, [dlogits], given_ids)
    cache = model.new_cache(whole=True)
    passes = [model.forward(piece, cache=cache) for piece in np.split(given_ids, [3], axis=1)]
    cache.rewind(2)
    model.decode(ids(B, 4, seed=9), cache)
    cache.reorder(np.array([1, 1, 0]))
    cache.fork().rewind(0)
    model.decode(ids(B, 1, seed=9), cache)
    forget(model)
    passes[0][1](dlogits[:, :3], passes[1][1](dlogits[:, 3:]))
    assert differences((np.concatenate([y for y, _ in passes], 1), gradients(model)), expected) == []


def test_what_is_owed_from_another_piece_is_refused():
    """Skipping a piece on the way back is an error and no broadcast."""
    model = gpt()
    cache = model.new_cache(whole=True)
    backwards = [model.forward(piece, cache=cache)[1] for piece in np.split(ids(B, 4), [1, 2], axis=1)]
    last = backwards[2](normal(B, 2, V))  # owed to two tokens
    second = backwards[1](normal(B, 1, V), last)  # owed to one
    with pytest.raises(ValueError):
        backwards[0](normal(B, 1, V), last)
    with pytest.raises(ValueError):
        backwards[2](normal(B, 2, V), second)


# Bad input.


def test_memory_and_cache_together_are_refused():
    with pytest.raises(ValueError, match="MultiHeadAttention: a cache is for self-attention, and memory was given too"):
        attention().forward(normal(B, 2, D), normal(B, S, D), cache=KVCache(T))


@pytest.mark.parametrize("uneven", [False, True])
@pytest.mark.parametrize("positions", ["learned", "rotary", "alibi"])
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_a_cache_of_another_batch_is_refused_and_stays_as_it_was(uneven, positions, rows):
    model = gpt(positions=positions)
    cache = model.new_cache()
    model.decode(ids(B, 2), cache, np.array([[True, True], [True, False], [False, True]]) if uneven else None)
    lengths = cache.lengths.copy()
    with pytest.raises(ValueError, match="rows"):
        model.decode(ids(rows, 1), cache)
    assert np.array_equal(cache.lengths, lengths)
    assert np.isfinite(model.decode(ids(B, 1), cache)).all()


def test_a_cache_of_another_model_is_refused():
    model, other = gpt(), gpt()
    with pytest.raises(ValueError, match="GPT: the cache was made by another model's new_cache"):
        model.decode(ids(B, 2), other.new_cache())
    with pytest.raises(ValueError, match="GPT: the cache was made by another model's new_cache"):
        model.forward(ids(B, 2), cache=other.new_cache())


@pytest.mark.parametrize("changes", [{}, {"window": 2}, {"positions": "alibi"}])
def test_tokens_past_max_len_are_refused_and_the_cache_stays_as_it_was(changes):
    model = gpt(**changes)
    cache, given_ids = model.new_cache(), ids(B, T)
    model.decode(given_ids[:, :5], cache)
    with pytest.raises(ValueError, match=r"GPT: ids reach to token 8 with those in the cache, past max_len = 7"):
        model.decode(ids(B, 3), cache)
    assert cache.lengths.tolist() == [5] * B
    logits, expected = model.decode(given_ids[:, 5:], cache), model(given_ids)[:, 5:]
    np.testing.assert_allclose(logits, expected, rtol=0, atol=RELATIVE * abs(expected).max())
    with pytest.raises(ValueError, match="past max_len = 7"):
        model.decode(ids(B, 1), cache)


def test_float32_stays_float32_in_the_cache_and_in_what_is_owed():
    model = GPT(GPTConfig(vocab_size=V, max_len=T, n_layers=2, n_heads=2, d_model=4))
    cache = model.new_cache()
    first, backward1 = model.forward(ids(B, 3), cache=cache)
    second, backward2 = model.forward(ids(B, 2), cache=cache)
    owed = backward2(second)
    assert {logits.dtype for logits in (first, second)} == {np.dtype(np.float32)}
    assert {each.dtype for pair in owed for each in pair} == {np.dtype(np.float32)}
    assert {each.dtype for layer in cache.layers for each in (layer.key_slots, layer.value_slots)} == {np.dtype(np.float32)}
    backward1(first, owed)
    assert {gradient.dtype for gradient in gradients(model).values()} == {np.dtype(np.float32)}
    alone = model(np.concatenate([ids(B, 3), ids(B, 2)], 1))
    assert abs(np.concatenate([first, second], 1) - alone).max() < 1e-5 * abs(alone).max()


@pytest.mark.parametrize("rows", [0, 2])
def test_empty_batches_and_pieces_go_through(rows):
    model = gpt()
    cache = model.new_cache(whole=True)
    backwards = [model.forward(ids(rows, n), cache=cache)[1] for n in (0, 2, 0)]
    assert cache.lengths.tolist() == [2] * rows
    later = None
    for n, backward in zip((0, 2, 0), reversed(backwards), strict=True):
        later = backward(np.ones((rows, n, V)), later)
    assert [[each.shape for each in pair] for pair in later] == [[(rows, G, 0, 2)] * 2] * 2


def test_a_layers_memory_is_given_exactly_where_it_has_cross_attention():
    with pytest.raises(ValueError, match="DecoderLayer: the layer needs a memory"):
        decoder_layer().forward(normal(B, 2, D))
    with pytest.raises(ValueError, match="DecoderLayer: the layer has no cross-attention for a memory"):
        decoder_layer(cross=False).forward(normal(B, 2, D), normal(B, S, D))
