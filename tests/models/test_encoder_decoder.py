"""Encoder and decoder: what may depend on what, what each choice does, and that every gradient is right.

That its values are the paper's is in test_pytorch_transformer, padding in test_padding, reading in pieces in test_cached.
"""

import re

import numpy as np
import pytest

import gradcheck
from configurations import refused
from npformer.layers import Dropout, LayerNorm, RMSNorm
from npformer.models import EncoderDecoder, TransformerConfig

SMALL = {"vocab_size": 7, "max_len": 6, "n_encoder_layers": 1, "n_decoder_layers": 2, "n_heads": 2, "d_model": 8}
RELATIVE = 1e-13
B, S, T, V = 3, 5, 4, 7


def small(dtype=np.float64, seed=0, **changes):
    return EncoderDecoder(TransformerConfig(**SMALL | changes), dtype=dtype, seed=seed)


def randomised(model, seed=1):
    """Gains around 1, for with others a post-norm model makes tokens nearly alike."""
    rng = np.random.default_rng(seed)
    for name, parameter in model.parameters().items():
        value = parameter.value
        spread = 1 / np.sqrt(len(value)) if value.ndim == 2 else 0.3
        value[...] = name.endswith("gamma") + spread * rng.normal(size=value.shape)
    return model


def ids(*shape, seed=0):
    return np.random.default_rng(seed).integers(V, size=shape)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=RELATIVE * abs(expected).max())


def gradients(model, dlogits, source, target, **options):
    for parameter in model.parameters().values():
        parameter.grad[...] = 0
    model.forward(source, target, **options)[1](dlogits)
    return {name: parameter.grad.copy() for name, parameter in model.parameters().items()}


def with_values_of(model, other, rename=lambda name: name):
    for name, parameter in model.parameters().items():
        parameter.value[...] = other.parameters()[rename(name)].value
    return model


# What it is made of.

RESIDUALS = {
    "attention": ("query", "key", "value", "output"),
    "cross_attention": ("query", "key", "value", "output"),
    "feed_forward": ("widen", "narrow"),
}


def test_its_parameters_have_these_names():
    def layer(prefix, *parts):
        maps = [
            f"{prefix}.{part}.{each}.{kind}" for part in parts for each in RESIDUALS[part] for kind in ("weight", "bias")
        ]
        return {*maps, *(f"{prefix}.{part}.norm.{kind}" for part in parts for kind in ("gamma", "beta"))}

    model = small(positions="learned", final_norms=True, tied=False, output_bias=True)
    assert set(model.parameters()) == {
        "encoder.embedding.table",
        "encoder.positions.table",
        *layer("encoder.layers.0", "attention", "feed_forward"),
        "encoder.final_norm.gamma",
        "encoder.final_norm.beta",
        "decoder.embedding.table",
        "decoder.positions.table",
        *layer("decoder.layers.0", "attention", "cross_attention", "feed_forward"),
        *layer("decoder.layers.1", "attention", "cross_attention", "feed_forward"),
        "decoder.final_norm.gamma",
        "decoder.final_norm.beta",
        "output.weight",
        "output.bias",
    }
    paper = set(small().parameters())
    assert {name for name in paper if not name.startswith(("encoder.layers", "decoder.layers"))} == {
        "encoder.embedding.table",
        "decoder.embedding.table",
    }


def every_choice():
    rng = np.random.default_rng(0)
    for _ in range(40):
        shared = bool(rng.integers(2))
        yield TransformerConfig(
            vocab_size=int(rng.integers(1, 9)),
            max_len=int(rng.integers(1, 9)),
            n_encoder_layers=int(rng.integers(1, 4)),
            n_decoder_layers=int(rng.integers(1, 4)),
            n_heads=4,
            d_model=int(rng.choice([4, 8])),
            source_vocab_size=None if shared else [None, 3, 11][rng.integers(3)],
            d_head=int(rng.choice([2, 6])),
            n_kv_heads=[None, 1, 2][rng.integers(3)],
            d_ff=[None, 3, 7][rng.integers(3)],
            activation=str(rng.choice(["relu", "swiglu"])),
            norm=str(rng.choice(["layer_norm", "rms_norm"])),
            norm_placement=str(rng.choice(["pre", "post"])),
            final_norms=[None, False, True][rng.integers(3)],
            positions=str(rng.choice(["learned", "sinusoidal", "rotary", "alibi", "none"])),
            shared_embeddings=shared,
            tied=bool(rng.integers(2)),
            output_bias=bool(rng.integers(2)),
            bias=bool(rng.integers(2)),
        )


@pytest.mark.parametrize("config", list(every_choice()), ids=range(40))
def test_a_configuration_knows_how_many_parameters_it_makes(config):
    made = EncoderDecoder(config).parameters().values()
    assert config.n_parameters == sum(parameter.value.size for parameter in made)


@pytest.mark.parametrize(
    ("placement", "given", "expected"), [("pre", None, 2), ("post", None, 0), ("pre", False, 0), ("post", True, 2)]
)
def test_final_norms_stand_where_they_are_asked_for_or_pre_norm_is(placement, given, expected):
    model = small(norm_placement=placement, final_norms=given)
    assert sum(name.endswith("final_norm.gamma") for name in model.parameters()) == expected
    if expected:
        memory = model.encode(ids(B, S))
        np.testing.assert_allclose(memory.mean(-1), 0, atol=1e-12)  # normed, with gamma = 1 and beta = 0
        np.testing.assert_allclose(memory.var(-1), 1, rtol=0.02)


def test_a_seed_makes_one_model_in_either_dtype():
    double, again, single, other = small(seed=1), small(seed=1), small(np.float32, seed=1), small(seed=2)
    for name, parameter in double.parameters().items():
        assert np.array_equal(again.parameters()[name].value, parameter.value)
        np.testing.assert_allclose(single.parameters()[name].value, parameter.value, rtol=1e-6, atol=1e-12)
    assert not np.array_equal(other.decoder.embedding.table.value, double.decoder.embedding.table.value)


def test_it_starts_with_rows_of_length_1_in_its_tables():
    model = small(vocab_size=300, d_model=64, source_vocab_size=200, positions="learned", max_len=100)
    for stack in (model.encoder, model.decoder):
        table = stack.embedding.table.value
        assert abs(np.sqrt((table**2).sum(1)).mean() - 1) < 0.05
        assert abs(stack.embedding(np.arange(200)).std() - 1) < 0.05
        assert abs(stack.positions.table.value.std() - 1) < 0.05  # of the embeddings' size
    assert (
        abs(
            small(positions="learned", scale_embeddings=False, d_model=64, max_len=100).encoder.positions.table.value.std()
            * 8
            - 1
        )
        < 0.05
    )


def test_float32_stays_float32():
    model = randomised(small(np.float32, positions="learned", output_bias=True))
    logits, backward = model.forward(ids(B, S), ids(B, T))
    backward(logits)
    cache = model.new_cache(ids(B, S))
    decoded = model.decode(ids(B, T), cache)
    assert {logits.dtype, decoded.dtype, cache.memory.dtype} == {np.dtype(np.float32)}
    assert {each.dtype for layer in cache.layers for each in (layer.key_slots, layer.value_slots)} == {np.dtype(np.float32)}
    assert {parameter.grad.dtype for parameter in model.parameters().values()} == {np.dtype(np.float32)}
    assert abs(decoded - logits).max() < 1e-5 * abs(logits).max()
    (total, _), _ = model.loss(ids(B, S), ids(B, T))
    assert total.dtype == np.float32


# What depends on what.

POSITIONS = ["learned", "sinusoidal", "rotary", "alibi", "none"]


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("placement", ["pre", "post"])
def test_logits_know_no_later_token_of_the_target_and_all_of_the_source(positions, placement):
    model, source, target = randomised(small(positions=positions, norm_placement=placement)), ids(B, S), ids(B, T)
    logits = model(source, target)
    for t in range(1, T):
        changed = target.copy()
        changed[:, t:] = (changed[:, t:] + 1) % V
        other = model(source, changed)
        assert np.array_equal(other[:, :t], logits[:, :t])
        assert (other[:, t:] != logits[:, t:]).any(-1).all()
    for s in range(S):
        changed = source.copy()
        changed[:, s] = (changed[:, s] + 1) % V
        assert (abs(model(changed, target) - logits).max(-1) > 1e-6).all()
    for b in range(B):  # batch mates
        close(model(source[b : b + 1], target[b : b + 1]), logits[b : b + 1])


@pytest.mark.parametrize("positions", POSITIONS)
def test_the_memory_looks_both_ways(positions):
    model = randomised(small(positions=positions))
    memory = model.encode(np.array([[0, 1, 2, 3]]))
    assert memory.shape == (1, 4, 8)
    assert (abs(model.encode(np.array([[0, 1, 2, 4]])) - memory).max(-1) > 1e-6).all()
    assert (abs(model.encode(np.array([[4, 1, 2, 3]])) - memory).max(-1) > 1e-6).all()


def test_a_gradient_reaches_no_later_token_of_the_target_and_all_of_the_source():
    model = randomised(small(tied=False, positions="learned"))
    dlogits = np.zeros((1, T, V))
    dlogits[:, 1] = normal(V)
    found = gradients(model, dlogits, np.array([[0, 1, 2, 3, 4]]), np.array([[3, 4, 5, 6]]))
    assert found["decoder.embedding.table"].any(axis=1).tolist() == [False] * 3 + [True] * 2 + [False] * 2
    assert found["decoder.positions.table"].any(axis=1).tolist() == [True] * 2 + [False] * 4
    assert found["encoder.embedding.table"].any(axis=1).tolist() == [True] * 5 + [False] * 2
    assert found["encoder.positions.table"].any(axis=1).tolist() == [True] * 5 + [False]


def test_source_and_target_have_their_own_lengths_and_vocabularies():
    model = randomised(small(source_vocab_size=11))
    source = np.array([[10, 9, 8, 7, 10, 9]])
    assert model(source, np.array([[6]])).shape == (1, 1, V)
    assert model(source[:, :1], ids(1, 6)).shape == (1, 6, V)
    with pytest.raises(ValueError, match=r"EncoderDecoder: target\[0, 0\] is 7, outside 0 … 6"):
        model(source, np.array([[7]]))


# What each choice does.


def test_scaled_embeddings_are_times_the_root_of_d_model():
    scaled, plain = randomised(small(tied=False)), small(tied=False, scale_embeddings=False)
    with_values_of(plain, scaled)
    for stack in (plain.encoder, plain.decoder):
        stack.embedding.table.value *= np.sqrt(8)
    source, target, dlogits = ids(B, S), ids(B, T), normal(B, T, V)
    close(plain(source, target), scaled(source, target))
    found, expected = gradients(plain, dlogits, source, target), gradients(scaled, dlogits, source, target)
    for name in ("encoder.embedding.table", "decoder.embedding.table"):
        close(np.sqrt(8) * found[name], expected[name])


def test_a_shared_table_is_one_parameter_and_its_gradient_the_sum():
    shared, separate = randomised(small(shared_embeddings=True)), small()
    assert shared.encoder.embedding.table is shared.decoder.embedding.table
    assert set(separate.parameters()) - set(shared.parameters()) == {"decoder.embedding.table"}
    with_values_of(separate, shared, lambda name: name.replace("decoder.embedding", "encoder.embedding"))
    source, target, dlogits = ids(B, S), ids(B, T), normal(B, T, V)
    assert np.array_equal(shared(source, target), separate(source, target))
    found, expected = gradients(shared, dlogits, source, target), gradients(separate, dlogits, source, target)
    close(found["encoder.embedding.table"], expected["encoder.embedding.table"] + expected["decoder.embedding.table"])


@pytest.mark.parametrize("bias", [False, True])
def test_a_tied_table_is_the_outputs_and_its_gradient_the_sum(bias):
    tied, untied = randomised(small(output_bias=bias)), small(tied=False, output_bias=bias)
    assert ("output.bias" in tied.parameters()) == bias
    untied.output.weight.value[...] = tied.decoder.embedding.table.value.T
    for name, parameter in tied.parameters().items():
        untied.parameters()[name].value[...] = parameter.value
    source, target, dlogits = ids(B, S), ids(B, T), normal(B, T, V)
    close(untied(source, target), tied(source, target))
    found, expected = gradients(tied, dlogits, source, target), gradients(untied, dlogits, source, target)
    close(found["decoder.embedding.table"], expected["decoder.embedding.table"] + expected["output.weight"].T)
    if bias:
        close(found["output.bias"], dlogits.sum((0, 1)))


@pytest.mark.parametrize("label_smoothing", [0.0, 0.3])
def test_the_loss_is_a_sum_with_the_labels_smoothed(label_smoothing):
    model, source, target = randomised(small(label_smoothing=label_smoothing)), ids(B, S), ids(B, T)
    logits = model(source, target[:, :-1])
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    picked = np.take_along_axis(log_p, target[:, 1:, None], -1).sum()
    (total, count), _ = model.loss(source, target)
    assert count == B * (T - 1)
    np.testing.assert_allclose(total, -(1 - label_smoothing) * picked - label_smoothing * log_p.mean(-1).sum(), rtol=1e-13)


@pytest.mark.parametrize("length", [0, 1])
def test_a_target_of_one_token_has_no_loss(length):
    model = randomised(small())
    (total, count), backward = model.loss(ids(B, S), ids(B, length))
    backward(1.0)
    assert (float(total), count) == (0, 0)
    assert not any(parameter.grad.any() for parameter in model.parameters().values())


@pytest.mark.parametrize("norm", [LayerNorm, RMSNorm])
def test_eps_is_that_of_all_norms(norm):
    name = {LayerNorm: "layer_norm", RMSNorm: "rms_norm"}[norm]
    for eps, expected in ((None, {LayerNorm: 1e-5, RMSNorm: 1e-6}[norm]), (0.25, 0.25)):
        model = small(norm=name, eps=eps, final_norms=True)
        norms = [layer for _, layer in model.sublayers() if isinstance(layer, norm)]
        assert [each.eps for each in norms] == [expected] * (2 + 2 * 3 + 2)


def test_positions_are_told_apart_only_where_there_are_any():
    source, target = ids(1, S), ids(1, T)
    order = [2, 0, 4, 1, 3]
    for positions in POSITIONS:
        model = randomised(small(positions=positions))
        same = np.allclose(model(source[:, order], target), model(source, target), rtol=1e-12)
        assert same == (positions == "none"), positions


def test_cross_attention_knows_no_positions():
    """It sees what stands in the memory, whose order tells it nothing; rotary and ALiBi are for self-attention only."""
    for positions in ("rotary", "alibi"):
        model = randomised(small(positions=positions))
        stack, memory = model.decoder, normal(B, S, 8)
        close(stack(ids(B, T), memory[:, [2, 0, 4, 1, 3]]), stack(ids(B, T), memory))
        assert all(layer.attention.layer.positions for layer in (*stack.layers, *model.encoder.layers))


# Dropout.


def test_what_is_dropped_are_the_embeddings_and_what_each_layer_adds(monkeypatch):
    model, shapes = randomised(small(dropout=0.4, n_encoder_layers=2)), []
    right = Dropout.forward

    def recorded(self, x, rng=None):
        if rng is not None and self.p:
            shapes.append(x.shape)
        return right(self, x, rng)

    monkeypatch.setattr(Dropout, "forward", recorded)
    model.forward(ids(B, S), ids(B, T), rng=np.random.default_rng(0))
    assert shapes == [(B, S, 8)] * (1 + 2 * 2) + [(B, T, 8)] * (1 + 2 * 3)
    residuals = [layer.attention for layer in (*model.encoder.layers, *model.decoder.layers)]
    residuals += [layer.cross_attention for layer in model.decoder.layers]
    assert [each.layer.dropout for each in residuals] == [0] * 6
    shapes.clear()
    model.forward(ids(B, S), ids(B, T))
    assert shapes == []


def test_dropout_acts_only_with_a_generator_and_can_be_replayed():
    model, source, target = randomised(small(dropout=0.4)), ids(B, S), ids(B, T)

    def run(seed):
        return model.forward(source, target, rng=np.random.default_rng(seed))[0]

    assert np.array_equal(model(source, target), with_values_of(small(), model)(source, target))
    assert np.array_equal(run(3), run(3))
    assert not np.array_equal(run(3), run(4))
    assert not np.array_equal(run(3), model(source, target))
    first, second = (model.loss(source, target, rng=np.random.default_rng(seed))[0][0] for seed in (3, 3))
    assert first == second != model.loss(source, target)[0][0]


# By gradcheck.


class Loss:
    def __init__(self, model):
        self.forward, self.parameters = model.loss, model.parameters


KEEPS = np.array([[1, 1, 1], [0, 1, 1]], bool), np.array([[1, 1, 1, 0], [1, 0, 1, 1]], bool)
TINY = {"vocab_size": 5, "max_len": 4, "n_decoder_layers": 1, "d_model": 3, "d_ff": 2, "d_head": 2}
CHECKED = [
    {"positions": "learned", "norm_placement": "pre", "output_bias": True, "source_vocab_size": 6, "n_kv_heads": 1},
    {"shared_embeddings": True, "label_smoothing": 0.1, "activation": "gelu"},
    {"positions": "rotary", "tied": False, "norm": "rms_norm", "activation": "swiglu", "final_norms": True, "bias": False},
    {"positions": "alibi", "norm_placement": "pre", "final_norms": False, "label_smoothing": 0.2, "scale_embeddings": False},
    {"positions": "none", "n_decoder_layers": 2, "output_bias": True, "activation": "silu"},
]


def checked(whole, changes, seed=0):
    model = randomised(small(**TINY | changes), seed)
    return gradcheck.check_layer(whole(model), ids(2, 3, seed=seed) % 5, ids(2, 4, seed=seed + 1) % 5, *KEEPS)


def as_it_is(model):
    return model


@pytest.mark.parametrize(
    ("whole", "changes"),
    [
        (as_it_is, CHECKED[0] | {"n_heads": 1}),
        *(pytest.param(as_it_is, changes, marks=pytest.mark.long) for changes in CHECKED),
        *(pytest.param(Loss, changes, marks=pytest.mark.long) for changes in CHECKED),
    ],
)
def test_every_gradient_is_right(whole, changes):
    report = checked(whole, changes)
    assert report.verdict == "pass", report


@pytest.mark.long
@pytest.mark.parametrize("seed", range(12))
def test_every_gradient_of_any_configuration_is_right(seed):
    rng = np.random.default_rng(seed)
    changes = {
        "positions": str(rng.choice(POSITIONS)),
        "norm_placement": str(rng.choice(["pre", "post"])),
        "norm": str(rng.choice(["layer_norm", "rms_norm"])),
        "activation": str(rng.choice(["gelu", "silu", "swiglu"])),
        "final_norms": [None, False, True][rng.integers(3)],
        "n_kv_heads": int(rng.choice([1, 2])),
        "label_smoothing": float(rng.choice([0, 0.1])),
        **{name: bool(rng.integers(2)) for name in ("tied", "shared_embeddings", "output_bias", "bias", "scale_embeddings")},
    }
    report = checked(Loss if seed % 2 else as_it_is, changes, seed)
    assert report.verdict == "pass", report


@pytest.mark.long
def test_gradients_with_dropout_are_right():
    model = randomised(small(**TINY, dropout=0.3))
    report = gradcheck.check_layer(model, ids(2, 3) % 5, ids(2, 4) % 5, rng=np.random.default_rng(7))
    assert report.verdict == "pass", report


def relative_error_along_one_direction(model, seed=0):
    """Of the loss's gradients, against the derivative by complex step: fast enough for every configuration."""
    rng = np.random.default_rng(seed)
    inputs = rng.integers(5, size=(2, 3)), rng.integers(5, size=(2, 4)), *KEEPS
    values = {name: (parameter, parameter.value) for name, parameter in model.parameters().items()}
    direction = {name: rng.normal(size=value.shape) for name, (_, value) in values.items()}

    def total(step):
        for name, (parameter, value) in values.items():
            parameter.value = value + step[0] * direction[name]
        return model.loss(*inputs)[0][0]

    truth = gradcheck.derivative(total, np.zeros(1), np.ones(1), truth="complex").value
    for parameter, value in values.values():
        parameter.value, parameter.grad[...] = value, 0
    model.loss(*inputs)[1](1.0)
    return abs(sum((parameter.grad * direction[name]).sum() for name, (parameter, _) in values.items()) / truth - 1)


@pytest.mark.parametrize("placement", ["pre", "post"])
@pytest.mark.parametrize("changes", CHECKED)
def test_the_losss_slope_along_a_direction_of_all_parameters_is_right(changes, placement):
    assert relative_error_along_one_direction(randomised(small(**changes | {"norm_placement": placement}))) < 1e-11


def forgets_the_memory(patch, model):
    """Only the last decoder layer's gradient of the memory reaches the encoder."""
    first = model.decoder.layers[0]
    right = first.forward

    def forward(x, memory, **options):
        y, backward = right(x, memory, **options)

        def wrong(dy):
            dx, dmemory = backward(dy)
            return dx, 0 * dmemory

        return y, wrong

    patch.setattr(first, "forward", forward)


def looks_at_keys_only(patch, model):
    """The values' part of the memory's gradient is lost."""
    value = model.decoder.layers[0].cross_attention.layer.value
    right = value.forward

    def forward(x):
        y, backward = right(x)
        return y, lambda dy: 0 * backward(dy)

    patch.setattr(value, "forward", forward)


@pytest.mark.parametrize("wrong", [forgets_the_memory, looks_at_keys_only])
def test_a_wrong_gradient_is_found(wrong, monkeypatch):
    model = randomised(small())
    assert relative_error_along_one_direction(model) < 1e-11
    wrong(monkeypatch, model)
    assert relative_error_along_one_direction(model) > 1e-4


# What is refused.


@pytest.mark.parametrize(
    ("source", "target", "text"),
    [
        (ids(B, 7), ids(B, T), "EncoderDecoder: source must have the shape (B, T), T at most max_len = 6, got (3, 7)"),
        (ids(S), ids(B, T), "EncoderDecoder: source must have the shape (B, T), T at most max_len = 6, got (5,)"),
        (ids(B, S), ids(B, 7), "EncoderDecoder: target must have the shape (B, T), T at most max_len = 6, got (3, 7)"),
        (ids(B, S), ids(B, T, 1), "EncoderDecoder: target must have the shape (B, T), T at most max_len = 6, got (3, 4, 1)"),
        (ids(B, 0), ids(B, T), "EncoderDecoder: source must hold at least one token, got the shape (3, 0)"),
        (ids(B, S), ids(2, T), "EncoderDecoder: target has 2 rows, but source 3"),
        (ids(1, S), ids(B, T), "EncoderDecoder: target has 3 rows, but source 1"),
        (np.array([[0, 7]]), np.array([[0]]), "EncoderDecoder: source[0, 1] is 7, outside 0 … 6"),
        (np.array([[0, -1]]), np.array([[0]]), "EncoderDecoder: source[0, 1] is -1, outside 0 … 6"),
        (np.array([[0, 1]]), np.array([[0, 10**6]]), "EncoderDecoder: target[0, 1] is 1000000, outside 0 … 6"),
    ],
)
def test_wrong_ids_are_refused_by_name(source, target, text):
    model = small()
    for call in (model.forward, model.loss):
        with pytest.raises(ValueError, match=re.escape(text)):
            call(source, target)


@pytest.mark.parametrize("wrong", [[[0, 1]], np.zeros((1, 2)), np.zeros((1, 2), bool), None, 3])
def test_what_is_no_array_of_integers_is_refused_by_name(wrong):
    model = small()
    for call in (model.forward, model.loss):
        with pytest.raises(TypeError, match="EncoderDecoder: source must be an array of integers"):
            call(wrong, ids(1, 2))
        with pytest.raises(TypeError, match="EncoderDecoder: target must be an array of integers"):
            call(ids(1, 2), wrong)


@pytest.mark.parametrize(
    ("keep", "error", "text"),
    [
        (np.ones((B, S), int), TypeError, "source's keep must be a boolean array, True for a token, got int64"),
        ([[True]], TypeError, "source's keep must be a boolean array, True for a token, got list"),
        (np.ones((B, T), bool), ValueError, "source's keep must have the shape (3, 5) of source, got (3, 4)"),
        (np.ones((B, 1, 1, S), bool), ValueError, "source's keep must have the shape (3, 5) of source, got (3, 1, 1, 5)"),
    ],
)
def test_a_wrong_keep_is_refused_by_name(keep, error, text):
    model = small()
    with pytest.raises(error, match=re.escape(f"EncoderDecoder: {text}")):
        model(ids(B, S), ids(B, T), keep)
    with pytest.raises(error, match=re.escape(f"EncoderDecoder: {text}")):
        model.new_cache(ids(B, S), keep)
    text = text.replace("source", "target").replace("3, 5", "3, 6")
    for call in (model.forward, model.loss):
        with pytest.raises(error, match=re.escape(f"EncoderDecoder: {text}")):
            call(ids(B, S), ids(B, 6), None, keep)


def test_a_cache_is_for_its_own_source_and_model():
    model, other = small(), small()
    cache = model.new_cache(ids(B, S))
    for rows in (1, 2, 4):
        with pytest.raises(ValueError, match=rf"EncoderDecoder: target has {rows} rows, but source 3"):
            model.decode(ids(rows, 1), cache)
    with pytest.raises(ValueError, match="EncoderDecoder: the cache was made by another model's new_cache"):
        other.decode(ids(B, 1), cache)
    with pytest.raises(ValueError, match=r"EncoderDecoder: source must hold at least one token"):
        model.new_cache(ids(B, 0))
    with pytest.raises(ValueError, match=r"EncoderDecoder: target\[1, 0\] is 7, outside 0 … 6"):
        model.decode(np.array([[0], [7], [1]]), cache)
    with pytest.raises(
        ValueError, match=r"EncoderDecoder: target reach to token 7 with those in the cache, past max_len = 6"
    ):
        model.decode(ids(B, 7), cache)
    assert cache.lengths is None
    model.decode(ids(B, 6), cache)


def test_a_cache_moves_its_memory_with_its_rows():
    model, source, target, keep = randomised(small()), ids(B, S), ids(B, T), np.arange(S) < np.array([[5], [2], [4]])
    cache = model.new_cache(source, keep)
    model.decode(target[:, :2], cache)
    fork, rows = cache.fork(), np.array([2, 2, 0, 1])
    cache.reorder(rows)
    close(model.decode(target[rows, 2:], cache), model(source, target, keep)[rows, 2:])
    close(model.decode(target[:, 2:3], fork), model(source, target, keep)[:, 2:3])
    fork.rewind(1)
    close(model.decode(target[:, 1:], fork), model(source, target, keep)[:, 1:])
    assert cache.lengths.tolist() == [T] * 4
    assert cache.nbytes == 2 * 2 * (4 * 2 * 6 * 4) * 8 + 4 * S * 8 * 8


@pytest.mark.parametrize("rows", [0, 1])
def test_empty_batches(rows):
    model = randomised(small())
    (total, count), backward = model.loss(ids(rows, S), ids(rows, T))
    backward(1.0)
    assert count == rows * (T - 1)
    assert np.isfinite(total)


FLAGS = ("scale_embeddings", "shared_embeddings", "tied", "output_bias")


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        *refused(SMALL, ("source_vocab_size", "d_head", "n_kv_heads", "d_ff")),
        *(("label_smoothing", value, ValueError) for value in (1.0, -0.1, np.nan)),
        ("label_smoothing", None, TypeError),
        *(("eps", value, ValueError) for value in (0, -1e-5, np.inf)),
        ("eps", "1", TypeError),
        *((name, 1, TypeError) for name in FLAGS),
        *((name, None, TypeError) for name in FLAGS),
        ("final_norms", 1, TypeError),
    ],
)
def test_a_configuration_that_cannot_be_built_is_refused_by_name(name, value, error):
    with pytest.raises(error, match=rf"TransformerConfig: .*{name}"):
        TransformerConfig(**SMALL | {name: value})


def test_a_shared_table_needs_one_vocabulary():
    with pytest.raises(
        ValueError, match="shared_embeddings need one vocabulary, but source_vocab_size = 8 and vocab_size = 7"
    ):
        TransformerConfig(**SMALL, shared_embeddings=True, source_vocab_size=8)
    TransformerConfig(**SMALL, shared_embeddings=True, source_vocab_size=7)


def test_rotary_heads_must_be_even():
    with pytest.raises(ValueError, match="d_head must be even, got 3"):
        TransformerConfig(**SMALL | {"positions": "rotary", "d_head": 3})


@pytest.mark.parametrize("dtype", [np.float16, np.int64, "no dtype"])
def test_a_dtype_is_float32_or_float64(dtype):
    with pytest.raises(TypeError, match="EncoderDecoder: dtype must be float32 or float64"):
        small(dtype)


@pytest.mark.parametrize(("seed", "error"), [(-1, ValueError), (1.5, TypeError), (None, TypeError)])
def test_a_seed_is_a_count(seed, error):
    with pytest.raises(error, match="EncoderDecoder: seed"):
        small(seed=seed)


def test_numpy_numbers_are_numbers():
    config = TransformerConfig(**{name: np.int64(value) for name, value in SMALL.items()}, dropout=np.float32(0.5))
    assert config == TransformerConfig(**SMALL, dropout=0.5)
    assert type(config.d_model) is int
    assert type(config.dropout) is float


def test_a_negative_cotangent_turns_every_gradient_round():
    model = EncoderDecoder(TransformerConfig(**SMALL), dtype=np.float64)
    source = np.random.default_rng(0).integers(5, size=(2, 3))
    found = []
    for dtotal in (1.0, -1.0):
        for parameter in model.parameters().values():
            parameter.grad[...] = 0
        model.loss(source, source)[1](dtotal)
        found.append([parameter.grad.copy() for parameter in model.parameters().values()])
    assert all(np.array_equal(one, -other) for one, other in zip(*found, strict=True))
