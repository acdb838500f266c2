"""The encoder: what it pools, what token types and outputs add, and that every gradient is right.

That its features are PyTorch's is in test_pytorch_transformer, padding in test_padding.
"""

import re

import numpy as np
import pytest

import gradcheck
from configurations import refused
from npformer.layers import Dropout, LayerNorm
from npformer.models import Encoder, EncoderConfig

SMALL = {"vocab_size": 7, "max_len": 6, "n_layers": 2, "n_heads": 2, "d_model": 8}
RELATIVE = 1e-13
B, T, V, D = 3, 5, 7, 8
KEEP = np.array([[0, 1, 1, 0, 1], [1, 1, 1, 1, 1], [1, 0, 0, 0, 0]], bool)
POSITIONS = ["learned", "sinusoidal", "rotary", "alibi", "none"]


def small(dtype=np.float64, seed=0, **changes):
    return Encoder(EncoderConfig(**SMALL | changes), dtype=dtype, seed=seed)


def randomised(model, seed=1):
    """Gains around 1, for with others a post-norm model makes tokens nearly alike."""
    rng = np.random.default_rng(seed)
    for name, parameter in model.parameters().items():
        value = parameter.value
        spread = 1 / np.sqrt(len(value)) if value.ndim == 2 else 0.3
        value[...] = name.endswith("gamma") + spread * rng.normal(size=value.shape)
    return model


def with_values_of(model, other):
    for name, parameter in model.parameters().items():
        parameter.value[...] = other.parameters()[name].value
    return model


def ids(*shape, seed=0):
    return np.random.default_rng(seed).integers(V, size=shape)


def types(*shape, n=3, seed=5):
    return np.random.default_rng(seed).integers(n, size=shape)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=RELATIVE * abs(expected).max())


# What it is made of.


def test_its_parameters_have_these_names():
    names = set(small(n_layers=1, n_token_types=2, n_outputs=3, final_norm=True).parameters())
    maps = [f"attention.{part}" for part in ("query", "key", "value", "output")] + [
        "feed_forward.widen",
        "feed_forward.narrow",
    ]
    assert names == {
        "embedding.table",
        "token_types.table",
        "positions.table",
        *(f"layers.0.{each}.{kind}" for each in maps for kind in ("weight", "bias")),
        *(f"layers.0.{each}.norm.{kind}" for each in ("attention", "feed_forward") for kind in ("gamma", "beta")),
        "final_norm.gamma",
        "final_norm.beta",
        "output.weight",
        "output.bias",
    }


def every_choice():
    rng = np.random.default_rng(0)
    for _ in range(40):
        yield EncoderConfig(
            vocab_size=int(rng.integers(1, 9)),
            max_len=int(rng.integers(1, 9)),
            n_layers=int(rng.integers(1, 4)),
            n_heads=4,
            d_model=int(rng.choice([4, 8])),
            n_token_types=[None, 1, 3][rng.integers(3)],
            d_head=int(rng.choice([2, 6])),
            n_kv_heads=[None, 1, 2][rng.integers(3)],
            d_ff=[None, 3, 7][rng.integers(3)],
            activation=str(rng.choice(["gelu", "swiglu"])),
            norm=str(rng.choice(["layer_norm", "rms_norm"])),
            norm_placement=str(rng.choice(["pre", "post"])),
            final_norm=[None, False, True][rng.integers(3)],
            positions=str(rng.choice(POSITIONS)),
            bias=bool(rng.integers(2)),
            pooling=[None, "mean", "first"][rng.integers(3)],
            n_outputs=[None, 1, 5][rng.integers(3)],
        )


@pytest.mark.parametrize("config", list(every_choice()), ids=range(40))
def test_a_configuration_knows_how_many_parameters_it_makes(config):
    made = Encoder(config).parameters().values()
    assert config.n_parameters == sum(parameter.value.size for parameter in made)


def test_it_starts_as_bert_does():
    model = Encoder(EncoderConfig(vocab_size=300, max_len=200, n_layers=2, n_heads=4, d_model=64, n_outputs=50), seed=3)
    for name, parameter in model.parameters().items():
        value = parameter.value
        if value.ndim == 2:
            assert value.std() == pytest.approx(0.02, rel=0.06), name
        else:
            assert np.array_equal(value, np.full(value.shape, name.endswith("gamma"))), name


def test_a_seed_makes_one_model_in_either_dtype():
    double, again, single, other = small(seed=1), small(seed=1), small(np.float32, seed=1), small(seed=2)
    for name, parameter in double.parameters().items():
        assert np.array_equal(again.parameters()[name].value, parameter.value)
        assert np.array_equal(single.parameters()[name].value, parameter.value.astype(np.float32))
    assert not np.array_equal(other.encoder.embedding.table.value, double.encoder.embedding.table.value)


@pytest.mark.parametrize("pooling", [None, "mean", "first"])
def test_float32_stays_float32(pooling):
    model = randomised(small(np.float32, pooling=pooling, n_token_types=2, n_outputs=3))
    y, backward = model.forward(ids(B, T), keep=KEEP)
    backward(y)
    assert y.dtype == np.float32
    assert {parameter.grad.dtype for parameter in model.parameters().values()} == {np.dtype(np.float32)}


def test_eps_is_that_of_all_norms():
    for eps, expected in ((None, 1e-5), (0.25, 0.25)):
        norms = [layer for _, layer in small(eps=eps, final_norm=True).sublayers() if isinstance(layer, LayerNorm)]
        assert [each.eps for each in norms] == [expected] * 5


@pytest.mark.parametrize(("placement", "given", "expected"), [("pre", None, 1), ("post", None, 0), ("pre", False, 0)])
def test_a_final_norm_stands_where_it_is_asked_for_or_pre_norm_is(placement, given, expected):
    names = small(norm_placement=placement, final_norm=given).parameters()
    assert sum(name.startswith("final_norm.gamma") for name in names) == expected


# What it computes.


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("placement", ["pre", "post"])
def test_every_token_matters_to_every_other_and_batch_mates_to_none(positions, placement):
    model, given = randomised(small(positions=positions, norm_placement=placement)), ids(B, T)
    features = model(given)
    for t in range(T):
        changed = given.copy()
        changed[:, t] = (changed[:, t] + 1) % V
        assert (abs(model(changed) - features).max(-1) > 1e-6).all()
    for b in range(B):
        close(model(given[b : b + 1]), features[b : b + 1])


def test_positions_are_told_apart_only_where_there_are_any():
    order = [2, 0, 4, 1, 3]
    for positions in POSITIONS:
        model = randomised(small(positions=positions))
        same = np.allclose(model(ids(1, T)[:, order]), model(ids(1, T))[:, order], rtol=1e-12)
        assert same == (positions == "none"), positions


@pytest.mark.parametrize("n_outputs", [None, 3])
def test_pooling_takes_the_mean_of_the_kept_tokens_or_the_first_of_them(n_outputs):
    plain = randomised(small(n_token_types=2))
    features = plain(ids(B, T), keep=KEEP)
    for pooling, expected in (
        ("mean", np.stack([features[b, KEEP[b]].mean(0) for b in range(B)])),
        ("first", np.stack([features[0, 1], features[1, 0], features[2, 0]])),
    ):
        model = small(n_token_types=2, pooling=pooling, n_outputs=n_outputs)
        for name, parameter in plain.parameters().items():
            model.parameters()[name].value[...] = parameter.value
        if n_outputs:
            model.output.weight.value[...], model.output.bias.value[...] = normal(D, 3), normal(3, seed=1)
            expected = expected @ normal(D, 3) + normal(3, seed=1)
        close(model(ids(B, T), keep=KEEP), expected)
        assert model(ids(B, T)).shape == expected.shape


def test_outputs_are_a_map_of_the_features():
    model, plain = randomised(small(n_outputs=3)), small()
    with_values_of(plain, model)
    close(model(ids(B, T)), plain(ids(B, T)) @ model.output.weight.value + model.output.bias.value)
    assert small(n_outputs=3, bias=False).output.bias is None


def test_a_token_type_adds_its_row_and_is_0_unless_given():
    typed, plain = randomised(small(n_token_types=3)), small()
    given, its_types = ids(B, T), types(B, T)
    assert np.array_equal(typed(given), typed(given, token_types=np.zeros((B, T), np.int64)))
    assert (abs(typed(given, token_types=its_types) - typed(given)).max(-1) > 1e-6).any()
    with_values_of(plain, typed)
    plain.encoder.embedding.table.value += typed.encoder.token_types.table.value[2]
    close(typed(given, token_types=np.full((B, T), 2)), plain(given))


def test_gradients_of_token_types_go_to_those_that_were_there():
    model = randomised(small(n_token_types=3))
    y, backward = model.forward(ids(B, T), token_types=types(B, T, n=2) * 2)
    backward(normal(*y.shape))
    assert model.encoder.token_types.table.grad.any(axis=1).tolist() == [True, False, True]


# The loss.


@pytest.mark.parametrize("pooling", [None, "mean", "first"])
def test_the_loss_is_a_sum_over_what_counts(pooling):
    model = randomised(small(pooling=pooling, n_outputs=4))
    targets = np.random.default_rng(3).integers(-1, 4, size=B if pooling else (B, T))
    targets.flat[0], targets.flat[1] = -1, 2
    logits = model(ids(B, T), keep=KEEP)
    counts = targets != -1 if pooling else (targets != -1) & KEEP
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    each = -np.take_along_axis(log_p, np.maximum(targets, 0)[..., None], -1)[..., 0]
    (total, count), _ = model.loss(ids(B, T), targets, keep=KEEP)
    assert count == counts.sum()
    np.testing.assert_allclose(total, each[counts].sum(), rtol=1e-13)


def test_where_nothing_counts_the_loss_says_so():
    model = randomised(small(n_outputs=3))
    for targets, keep in ((np.full((B, T), -1), None), (np.zeros((B, T), np.int64), np.zeros((B, T), bool))):
        (total, count), backward = model.loss(ids(B, T), targets, keep=keep)
        backward(1.0)
        assert (float(total), count) == (0, 0)
        assert not any(parameter.grad.any() for parameter in model.parameters().values())


def test_a_loss_needs_outputs():
    with pytest.raises(ValueError, match="Encoder: a loss needs a model with n_outputs"):
        small().loss(ids(B, T), ids(B, T))


# Dropout.


def test_what_is_dropped_are_the_embeddings_the_attention_weights_and_what_each_layer_adds(monkeypatch):
    model, shapes = randomised(small(dropout=0.4, n_token_types=2, n_outputs=3)), []
    right = Dropout.forward

    def recorded(self, x, rng=None):
        if rng is not None and self.p:
            shapes.append(x.shape)
        return right(self, x, rng)

    monkeypatch.setattr(Dropout, "forward", recorded)
    model.forward(ids(B, T), rng=np.random.default_rng(0))
    assert shapes == [(B, T, D)] * (1 + 2 * 2)
    assert [layer.attention.layer.dropout for layer in model.encoder.layers] == [0.4] * 2


def test_dropout_acts_only_with_a_generator_and_can_be_replayed():
    model, given = randomised(small(dropout=0.4, n_outputs=3)), ids(B, T)

    def run(seed):
        return model.forward(given, rng=np.random.default_rng(seed))[0]

    assert np.array_equal(model(given), with_values_of(small(n_outputs=3), model)(given))
    assert np.array_equal(run(3), run(3))
    assert not np.array_equal(run(3), run(4))
    assert not np.array_equal(run(3), model(given))


# By gradcheck.


class Loss:
    def __init__(self, model):
        self.forward, self.parameters = model.loss, model.parameters


TINY = {"vocab_size": 5, "n_layers": 1, "d_model": 3, "d_ff": 3, "d_head": 2}
CHECKED = [
    {"pooling": "mean", "n_outputs": 3, "n_token_types": 2},
    {"pooling": "first", "norm_placement": "pre", "n_kv_heads": 1, "positions": "rotary", "n_token_types": 2},
    {"n_outputs": 4, "norm": "rms_norm", "activation": "swiglu", "bias": False, "positions": "alibi", "final_norm": True},
    {"pooling": "mean", "n_layers": 2, "positions": "sinusoidal"},
]


@pytest.mark.parametrize(
    "changes", [*CHECKED[:2], *(pytest.param(changes, marks=pytest.mark.long) for changes in CHECKED[2:])]
)
def test_every_gradient_is_right(changes):
    options = {"keep": KEEP[:2, :4]} | ({"token_types": types(2, 4, n=2)} if "n_token_types" in changes else {})
    report = gradcheck.check_layer(randomised(small(**TINY | changes)), ids(2, 4) % 5, **options)
    assert report.verdict == "pass", report


@pytest.mark.parametrize("pooling", [None, pytest.param("mean", marks=pytest.mark.long)])
def test_the_gradients_of_the_loss_are_right(pooling):
    model = randomised(small(**TINY, n_outputs=3, pooling=pooling, positions="none"))
    targets = np.array([0, -1]) if pooling else np.array([[0, 2, 1, -1], [1, 1, 0, 2]])
    report = gradcheck.check_layer(Loss(model), ids(2, 4) % 5, targets, keep=KEEP[:2, :4])
    assert report.verdict == "pass", report


def test_a_mean_that_gives_each_token_all_of_its_gradient_is_found(monkeypatch):
    model = randomised(small(**TINY, pooling="mean", positions="none"))
    right = model.forward

    def forward(given, **options):
        y, backward = right(given, **options)
        return y, lambda dy: backward(3 * dy)  # 3 tokens are kept in each row

    monkeypatch.setattr(model, "forward", forward)
    assert gradcheck.check_layer(model, ids(1, 4) % 5, keep=np.array([[True, False, True, True]])).verdict == "fail"


# What is refused.


@pytest.mark.parametrize(
    ("given", "options", "error", "text"),
    [
        (ids(B, 7), {}, ValueError, "ids must have the shape (B, T), T at most max_len = 6, got (3, 7)"),
        (ids(T), {}, ValueError, "ids must have the shape (B, T), T at most max_len = 6, got (5,)"),
        (ids(B, 0), {}, ValueError, "ids must hold at least one token, got the shape (3, 0)"),
        (np.array([[0, 7]]), {}, ValueError, "ids[0, 1] is 7, outside 0 … 6"),
        (np.array([[-1, 3]]), {}, ValueError, "ids[0, 0] is -1, outside 0 … 6"),
        ([[0, 1]], {}, TypeError, "ids must be an array of integers, got list"),
        (np.zeros((1, 2)), {}, TypeError, "ids must be an array of integers, got float64"),
        (
            ids(B, T),
            {"keep": KEEP.astype(int)},
            TypeError,
            "ids's keep must be a boolean array, True for a token, got int64",
        ),
        (ids(B, T), {"keep": KEEP[:1]}, ValueError, "ids's keep must have the shape (3, 5) of ids, got (1, 5)"),
        (ids(B, T), {"token_types": types(B, T)}, ValueError, "token_types[0, 0] is 2, outside 0 … 1"),
        (ids(B, T), {"token_types": types(1, T)}, ValueError, "token_types must have the shape (3, 5) of ids, got (1, 5)"),
        (ids(B, T), {"token_types": [0]}, TypeError, "token_types must be an array of integers, got list"),
        (ids(B, T), {"token_types": normal(B, T)}, TypeError, "token_types must be an array of integers, got float64"),
    ],
)
def test_wrong_input_is_refused_by_name(given, options, error, text):
    if "token_types[0" in text:
        options["token_types"][0, 0] = 2
    with pytest.raises(error, match=re.escape(f"Encoder: {text}")):
        small(n_token_types=2)(given, **options)


def test_token_types_are_for_a_model_that_has_some():
    with pytest.raises(ValueError, match="Encoder: token_types were given to a model without n_token_types"):
        small()(ids(B, T), token_types=types(B, T))


@pytest.mark.parametrize("pooling", [None, "mean", "first"])
def test_a_batch_of_no_rows_goes_through(pooling):
    model = randomised(small(pooling=pooling, n_outputs=3))
    y, backward = model.forward(ids(0, T), keep=np.ones((0, T), bool))
    backward(y)
    assert y.shape == ((0, 3) if pooling else (0, T, 3))


OPTIONAL = ("n_token_types", "d_head", "n_kv_heads", "d_ff", "n_outputs")


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        *refused(SMALL, OPTIONAL),
        ("pooling", "max", ValueError),
        *(("eps", value, ValueError) for value in (0, -1e-5, np.inf)),
        ("eps", "1", TypeError),
        ("final_norm", 1, TypeError),
    ],
)
def test_a_configuration_that_cannot_be_built_is_refused_by_name(name, value, error):
    with pytest.raises(error, match=rf"EncoderConfig: .*{name}"):
        EncoderConfig(**SMALL | {name: value})


def test_rotary_heads_must_be_even():
    with pytest.raises(ValueError, match="d_head must be even, got 3"):
        EncoderConfig(**SMALL | {"positions": "rotary", "d_head": 3})


@pytest.mark.parametrize("dtype", [np.float16, np.int64, "no dtype"])
def test_a_dtype_is_float32_or_float64(dtype):
    with pytest.raises(TypeError, match="Encoder: dtype must be float32 or float64"):
        small(dtype)


def test_numpy_integers_are_integers():
    config = EncoderConfig(**{name: np.int64(value) for name, value in SMALL.items()}, n_outputs=np.int32(3))
    assert config == EncoderConfig(**SMALL, n_outputs=3)
    assert type(config.d_model) is type(config.n_outputs) is int
