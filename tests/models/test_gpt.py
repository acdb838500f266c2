"""GPT: what it computes, what its loss is, and that every configuration's gradients are right."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

import gradcheck
from configurations import refused
from npformer import GPT, GPTConfig, load
from npformer.text import CharacterTokenizer

SMALL = {"vocab_size": 7, "max_len": 6, "n_layers": 2, "n_heads": 2, "d_model": 8}
RELATIVE = 1e-12


def small(dtype=np.float64, seed=0, **changes):
    return GPT(GPTConfig(**SMALL | changes), dtype=dtype, seed=seed)


def randomised(model, seed=1):
    rng = np.random.default_rng(seed)
    for parameter in model.parameters().values():
        parameter.value[...] = rng.normal(size=parameter.value.shape) / np.sqrt(len(parameter.value))
    return model


def ids(*shape, seed=0):
    return np.random.default_rng(seed).integers(SMALL["vocab_size"], size=shape)


def gradients(model):
    return {name: parameter.grad.copy() for name, parameter in model.parameters().items()}


def read_vectors():
    cases: dict[str, dict[str, np.ndarray]] = {}
    with np.load(Path(__file__).parents[1] / "vectors" / "pytorch_gpt.npz") as archive:
        for key in archive.files:
            name, _, rest = key.partition("/")
            cases.setdefault(name, {})[rest] = archive[key]
    return cases


VECTORS = read_vectors()


@pytest.mark.parametrize("name", VECTORS)
def test_logits_loss_and_gradients_are_pytorchs(name):
    case = VECTORS[name]
    model = GPT(GPTConfig(**json.loads(case["config"].tobytes())), dtype=np.float64)
    weights = {key.removeprefix("weights/"): value for key, value in case.items() if key.startswith("weights/")}
    assert list(weights) == list(model.parameters())
    for key, value in weights.items():
        model.parameters()[key].value[...] = value

    def close(actual, expected):
        np.testing.assert_allclose(actual, expected, rtol=0, atol=RELATIVE * np.abs(expected).max() + 1e-13)

    logits, logits_backward = model.forward(case["ids"])
    (total, count), loss_backward = model.loss(case["ids"], case["targets"])
    close(logits, case["logits"])
    close(total, case["total"])
    assert count == (case["targets"] != -1).sum()
    assert logits_backward(case["dlogits"]) is None
    assert loss_backward(1.0) is None
    for key, gradient in gradients(model).items():
        close(gradient, case[f"gradients/{key}"])


def test_the_default_is_gpt2_and_its_parameters_have_these_names():
    assert list(small(n_layers=1).parameters()) == [
        "embedding.table",
        "positions.table",
        "layers.0.attention.query.weight",
        "layers.0.attention.query.bias",
        "layers.0.attention.key.weight",
        "layers.0.attention.key.bias",
        "layers.0.attention.value.weight",
        "layers.0.attention.value.bias",
        "layers.0.attention.output.weight",
        "layers.0.attention.output.bias",
        "layers.0.attention.norm.gamma",
        "layers.0.attention.norm.beta",
        "layers.0.feed_forward.widen.weight",
        "layers.0.feed_forward.widen.bias",
        "layers.0.feed_forward.narrow.weight",
        "layers.0.feed_forward.narrow.bias",
        "layers.0.feed_forward.norm.gamma",
        "layers.0.feed_forward.norm.beta",
        "final_norm.gamma",
        "final_norm.beta",
    ]
    model = small()
    wide = model.decoder.layers[0].feed_forward.layer.widen
    assert wide.weight.value.shape == (8, 32)


def test_it_starts_as_gpt2_does():
    model = GPT(GPTConfig(vocab_size=300, max_len=200, n_layers=8, n_heads=4, d_model=64), seed=3)
    for name, parameter in model.parameters().items():
        value = parameter.value
        if value.ndim == 2:
            ends = name.endswith(("attention.output.weight", "narrow.weight"))
            assert value.std() == pytest.approx(0.02 / 4 if ends else 0.02, rel=0.06), name
        else:
            assert np.array_equal(value, np.full(value.shape, name.endswith("gamma"))), name
    logits = model(np.zeros((1, 5), np.int64))
    assert abs(logits).max() < 2


def test_a_seed_makes_one_model_in_either_dtype():
    double, single, other = small(seed=1), small(np.float32, seed=1), small(seed=2)
    for name, parameter in double.parameters().items():
        assert np.array_equal(single.parameters()[name].value, parameter.value.astype(np.float32))
    assert not np.array_equal(other.decoder.embedding.table.value, double.decoder.embedding.table.value)
    assert single(ids(1, 3)).dtype == np.float32
    assert double(ids(1, 3)).dtype == np.float64


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "rotary", "alibi", "none"])
def test_no_token_depends_on_a_later_one_or_on_its_batch_mates(positions):
    model = randomised(small(positions=positions))
    given = ids(3, 6)
    changed = given.copy()
    changed[:, 4:] = (changed[:, 4:] + 1) % 7
    assert np.array_equal(model(given)[:, :4], model(changed)[:, :4])
    assert not np.array_equal(model(given)[:, 4:], model(changed)[:, 4:])
    logits = model(given)
    within = 1e-13 * abs(logits).max()  # one row is summed in another order than many
    np.testing.assert_allclose(model(given[1:2]), logits[1:2], rtol=0, atol=within)
    np.testing.assert_allclose(model(given[:, :3]), logits[:, :3], rtol=0, atol=within)


def test_a_gradient_reaches_no_later_token():
    model = randomised(small(tied=False))
    logits, backward = model.forward(np.array([[0, 1, 2, 3]]))
    dlogits = np.zeros_like(logits)
    dlogits[:, 1] = 1
    backward(dlogits)
    assert (model.decoder.embedding.table.grad != 0).any(axis=1).tolist() == [True, True, False, False, False, False, False]
    assert (model.decoder.positions.table.grad != 0).any(axis=1).tolist() == [True, True, False, False, False, False]


def test_a_tied_gradient_is_the_sum_of_the_untied_ones():
    tied, untied = randomised(small(tied=True)), small(tied=False)
    for name, parameter in tied.parameters().items():
        untied.parameters()[name].value[...] = parameter.value
    untied.output.weight.value[...] = tied.decoder.embedding.table.value.T
    for model in (tied, untied):
        (total, count), backward = model.loss(ids(2, 5), ids(2, 5, seed=1))
        backward(1.0)
    expected = untied.decoder.embedding.table.grad + untied.output.weight.grad.T
    np.testing.assert_allclose(tied.decoder.embedding.table.grad, expected, rtol=0, atol=1e-13 * abs(expected).max())


def test_the_loss_is_a_sum_and_leaves_out_targets_of_minus_one():
    model = randomised(small())
    given, targets = ids(2, 5), ids(2, 5, seed=1)
    logits = model(given)
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    each = -np.take_along_axis(log_p, targets[..., None], -1)[..., 0]
    (total, count), _ = model.loss(given, targets)
    assert count == 10
    np.testing.assert_allclose(total, each.sum(), rtol=1e-13)
    targets[0, 2:] = -1
    (total, count), _ = model.loss(given, targets)
    assert count == 7
    np.testing.assert_allclose(total, each.sum() - each[0, 2:].sum(), rtol=1e-13)


def test_where_nothing_counts_the_loss_says_so():
    model = randomised(small())
    (total, count), backward = model.loss(ids(2, 5), np.full((2, 5), -1))
    backward(1.0)
    assert (float(total), count) == (0, 0)
    assert not any(gradient.any() for gradient in gradients(model).values())


def test_dropout_acts_only_with_a_generator_and_can_be_replayed():
    model = randomised(small(dropout=0.4))
    given = ids(2, 5)

    def run(seed):
        return model.forward(given, rng=np.random.default_rng(seed))[0]

    assert np.array_equal(model(given), model.forward(given)[0])
    assert np.array_equal(run(3), run(3))
    assert not np.array_equal(run(3), run(4))
    assert not np.array_equal(run(3), model(given))


@pytest.mark.parametrize("shape", [(0, 4), (2, 0), (1, 1)])
def test_empty_and_single(shape):
    model = randomised(small())
    (total, count), backward = model.loss(ids(*shape), ids(*shape))
    backward(1.0)
    assert count == shape[0] * shape[1]
    assert np.isfinite(total)


@pytest.mark.parametrize("given", [ids(5), ids(2, 7), ids(1, 2, 3)])
def test_ids_of_a_wrong_shape_are_refused(given):
    with pytest.raises(
        ValueError, match=re.escape(f"GPT: ids must have the shape (B, T), T at most max_len = 6, got {given.shape}")
    ):
        small()(given)


def test_ids_outside_the_vocabulary_are_refused():
    with pytest.raises(ValueError, match=r"ids\[0, 1\] is 7, outside 0 … 6"):
        small()(np.array([[0, 7]]))
    with pytest.raises(ValueError, match=r"targets\[0, 0\] is -2"):
        small().loss(np.array([[0, 1]]), np.array([[-2, 1]]))
    with pytest.raises(TypeError, match="integers"):
        small()(np.zeros((1, 2)))


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        *refused(SMALL, ("d_head", "n_kv_heads", "d_ff", "window")),
        ("tied", 1, TypeError),
    ],
)
def test_a_configuration_that_cannot_be_built_is_refused_by_name(name, value, error):
    with pytest.raises(error, match=rf"GPTConfig: .*{name}"):
        GPTConfig(**SMALL | {name: value})


def test_rotary_heads_must_be_even():
    with pytest.raises(ValueError, match="d_head must be even, got 3"):
        GPTConfig(**SMALL | {"positions": "rotary", "d_head": 3})


@pytest.mark.parametrize("dtype", [np.float16, np.int64, "float", "no dtype", None])
def test_a_dtype_is_float32_or_float64(dtype):
    if dtype in ("float", None):  # NumPy's own names of float64
        assert small(dtype).dtype == np.float64
    else:
        with pytest.raises(TypeError, match="GPT: dtype must be float32 or float64"):
            small(dtype)


def test_numpy_integers_are_integers():
    config = GPTConfig(**{name: np.int64(value) for name, value in SMALL.items()})
    assert config == GPTConfig(**SMALL)
    assert type(config.d_model) is int


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_saved_model_comes_back(tmp_path, dtype):
    path = tmp_path / "model.npz"
    model = randomised(small(dtype, dropout=0.25, positions="rotary", n_kv_heads=1))
    tokenizer = CharacterTokenizer("abcdefg")
    model.save(path, tokenizer)
    again, its_tokenizer = load(path)
    assert again.config == model.config
    assert again.dtype == dtype
    assert its_tokenizer == tokenizer
    assert np.array_equal(again(ids(2, 5)), model(ids(2, 5)))
    model.save(path)
    assert load(path)[1] is None


def test_a_tokenizer_of_another_vocabulary_is_not_saved(tmp_path):
    with pytest.raises(ValueError, match=r"GPT: tokenizer has 3 characters, but the model a vocab_size of 7"):
        small().save(tmp_path / "model.npz", CharacterTokenizer("abc"))
    assert not list(tmp_path.iterdir())


def every_choice():
    """Random configurations, with every choice of each kind among them."""
    rng = np.random.default_rng(0)
    for _ in range(60):
        yield GPTConfig(
            vocab_size=int(rng.integers(1, 9)),
            max_len=int(rng.integers(1, 9)),
            n_layers=int(rng.integers(1, 4)),
            n_heads=4,
            d_model=int(rng.choice([4, 8])),
            d_head=[None, 2, 6][rng.integers(3)] or 2,
            n_kv_heads=[None, 1, 2, 4][rng.integers(4)],
            d_ff=[None, 3, 7][rng.integers(3)],
            activation=str(rng.choice(["gelu_tanh", "swiglu"])),
            norm=str(rng.choice(["layer_norm", "rms_norm"])),
            norm_placement=str(rng.choice(["pre", "post"])),
            positions=str(rng.choice(["learned", "sinusoidal", "rotary", "alibi", "none"])),
            tied=bool(rng.integers(2)),
            bias=bool(rng.integers(2)),
        )


@pytest.mark.parametrize("config", list(every_choice()), ids=range(60))
def test_a_configuration_knows_how_many_parameters_it_makes(config):
    made = GPT(config).parameters().values()
    assert config.n_parameters == sum(parameter.value.size for parameter in made)


# The loss as it is trained on, whole, in a model of some thousand entries; the configurations are in test_catalogue.


class Loss:
    def __init__(self, model):
        self.forward, self.parameters = model.loss, model.parameters


def test_the_gradients_of_the_loss_are_right():
    model = randomised(small(vocab_size=13, d_model=16))
    report = gradcheck.check_layer(Loss(model), ids(2, 5), ids(2, 5, seed=1))
    assert report.ok, report


def test_the_gradients_of_a_long_batch_are_right():
    """As long, and of as many tokens, as those that are trained on: what is wrong only there must show as well."""
    model = randomised(GPT(GPTConfig(vocab_size=13, max_len=64, n_layers=1, n_heads=2, d_model=8), dtype=np.float64))
    given = np.random.default_rng(0).integers(13, size=(3, 64))
    report = gradcheck.check_layer(Loss(model), given, given[::-1].copy())
    assert report.ok, report


def test_gradients_right_at_the_start_too():
    report = gradcheck.check_layer(Loss(small(d_model=16)), ids(2, 5), ids(2, 5, seed=1))
    assert report.ok, report


def test_a_wrong_gradient_of_the_loss_is_found():
    model = randomised(small(d_model=16))
    right = model.decoder.layers[1].attention.forward

    def wrong(x, **options):
        y, backward = right(x, **options)
        return y, lambda dy: backward(dy) * 1.0001

    model.decoder.layers[1].attention.forward = wrong
    assert gradcheck.check_layer(Loss(model), ids(2, 5), ids(2, 5, seed=1)).verdict == "fail"


def test_the_gradients_with_dropout_are_right():
    """Each with the mask of its own place: of the embeddings with their positions, and of what each layer adds."""
    model = randomised(small(dropout=0.4))
    report = gradcheck.check_layer(Loss(model), ids(2, 5), ids(2, 5, seed=1), np.random.default_rng(0))
    assert report.ok, report
