"""∂L/∂P is proved by gradcheck: the loss as a function of one attention's weights, and the gradient that was recorded."""

import re

import numpy as np
import pytest

import gradcheck
from attention_by_hand import SIZES, SOURCE_V, V, encoder_decoder, gpt
from npformer.functional import log_softmax
from npformer.inspection import record
from npformer.observing import Observer, observed_by

RNG = np.random.default_rng(0)
IDS, SOURCE = RNG.integers(V, size=(3, 5)), RNG.integers(SOURCE_V, size=(3, 4))
K = SIZES["d_head"]


class Replacing(Observer):
    """The nth attention goes on with P instead of its own weights."""

    def __init__(self, n, P):
        self.n, self.P, self.met = n, P, 0

    def weighs(self, P):
        mine, told = (self.P if self.met == self.n else P), super().weighs(P)[1]
        self.met += 1
        return mine, told


def made_complex(model):
    for parameter in model.parameters().values():
        parameter.value = parameter.value.astype(np.complex128)
        parameter.grad = np.zeros_like(parameter.value)
    return model


def loss_of_weights(model, inputs, n, place, row, id):
    """P (H,T,S) → −ln P(id) at `row`, with the gradient that a recording has."""

    def op(P):
        with record(model) as recording, observed_by(Replacing(n, P[None].astype(np.complex128))):
            logits, backward = model.forward(*inputs)
        log_P, log_backward = log_softmax(logits)
        value = -log_P[0, row, id]

        def op_backward(dy):
            dlog_P = np.zeros_like(logits)
            dlog_P[0, row, id] = -dy
            backward(log_backward(dlog_P))
            return np.stack([recording.find(*place, h).gradient for h in range(len(P))])

        return np.asarray(value if P.dtype == np.complex128 else value.real), op_backward

    return op


@pytest.mark.parametrize(
    ("make", "n", "place"),  # the nth that attends
    [
        (gpt, 0, ("decoder", 0)),
        (encoder_decoder, 1, ("encoder", 1)),
        (encoder_decoder, 2, ("decoder", 0)),
        (encoder_decoder, 5, ("cross", 1)),
    ],
)
def test_gradcheck_passes(make, n, place):
    layers = {} if make is gpt else {"n_encoder_layers": 2}
    model, ids, row = make(n_heads=2, n_kv_heads=1, **layers), np.array([[3, 5, 1]]), 1
    inputs = (ids,) if make is gpt else (SOURCE[:1, 1:], ids)
    with record(model) as recording:
        model(*inputs)
    P = np.stack([recording.find(*place, h).weights for h in range(2)])
    asked = recording.with_gradients("1")
    assert asked.loss_name == "−ln P(1)"
    value = -recording.ablations()[0].log_before[row]
    op = loss_of_weights(made_complex(model), inputs, n, place, row, 1)
    gradcheck.check(op, P).assert_ok()
    loss, backward = op(P)
    expected = backward(np.ones(()))
    assert loss == pytest.approx(value, rel=1e-12)
    assert abs(expected).max() > 1e-3
    for h in range(len(P)):
        np.testing.assert_allclose(asked.find(*place, h).gradient, expected[h], rtol=0, atol=1e-13 * abs(expected).max())
        assert recording.find(*place, h).gradient is None


def test_a_wrong_gradient_is_caught():
    model = made_complex(gpt(n_heads=2, n_kv_heads=1))
    op = loss_of_weights(model, (IDS[:1, :3],), 1, ("decoder", 0), 1, 3)  # of another layer
    P = np.tri(3)[None].repeat(2, 0) / np.arange(1, 4)[:, None]
    with pytest.raises(gradcheck.GradientError):
        gradcheck.check(op, P).assert_ok()


def test_a_word_of_several_tokens_and_of_several_places():
    model = gpt(vocab_size=3)
    ids = np.array([[0, 1, 2, 0, 1, 2, 2]])
    with record(model, list("abc")) as recording:
        model(ids)
    word, parts = recording.with_gradients("bc"), [recording.with_gradients(name) for name in ("b", "c", "c₃")]
    assert word.loss_name == "−ln P(bc)"
    for map in word.maps:  # b, c and c₂ are b and c wherever c follows b
        b, c, c3 = (part.find(*place_of(map)).gradient for part in parts)
        np.testing.assert_allclose(map.gradient, b + c - c3, rtol=0, atol=1e-13)
        assert map.weights == pytest.approx(recording.find(*place_of(map)).weights)


def place_of(map):
    return map.kind, map.layer, map.head


@pytest.mark.parametrize("way", ["in one pass", "in pieces", "padded"])
def test_however_it_was_read(way):
    model, ids = gpt(), IDS[:1]
    with record(model) as expected:
        model(ids)
    with record(model) as recording:
        if way == "in pieces":
            cache = model.new_cache()
            for piece in np.split(ids, [2, 3], axis=1):
                model.decode(piece, cache)
        elif way == "padded":
            model(np.array([[0, *ids[0], 0]]), keep=np.array([[False, *[True] * 5, False]]))
        else:
            model(ids)
    word = expected.maps[0].query_tokens[2]
    columns = slice(1, -1) if way == "padded" else slice(None)
    for map, other in zip(expected.with_gradients(word).maps, recording.with_gradients(word).maps, strict=True):
        np.testing.assert_allclose(
            np.where(map.keep, other.gradient[columns, columns], 0), np.where(map.keep, map.gradient, 0), rtol=0, atol=1e-12
        )


# Importance.


def slope(model, attention, head, loss):
    """By complex step, what a factor on the output of one head does to `loss`: Σ out·∂L/∂out."""
    weight = attention.output.weight
    kept = weight.value.copy()
    weight.value[head * K : (head + 1) * K] *= 1 + 1e-30j
    found = loss(model).imag / 1e-30
    weight.value = kept
    return found


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
def test_importance_is_the_mean_over_examples_of_what_does_not_cancel(kind):
    model = encoder_decoder()
    with record(model, row=1) as recording:
        (total, count), backward = model.loss(SOURCE, IDS)
        backward(np.asarray(1 / count))
    made_complex(model)
    stack = model.encoder if kind == "encoder" else model.decoder

    def losses(model):
        log_P, _ = log_softmax(model(SOURCE, IDS[:, :-1]))
        return -np.take_along_axis(log_P, IDS[:, 1:, None], -1)[..., 0].sum(1) / count  # (B,)

    cancelling = 0
    for map in recording.of_kind(kind):
        residual = stack.layers[map.layer].cross_attention if kind == "cross" else stack.layers[map.layer].attention
        each = slope(model, residual.layer, map.head, losses)
        assert recording.metrics(map)["importance"] == pytest.approx(abs(each).mean(), rel=1e-9)
        cancelling += abs(each.mean()) < abs(each).mean() / 2
        assert abs((map.weights * map.gradient).sum()) == pytest.approx(abs(each[1]), rel=1e-9)
    assert cancelling


def test_importance_for_a_word():
    model = gpt()
    with record(model) as recording:
        model(IDS[:1])
    asked = recording.with_gradients(str(IDS[0, 3]))
    rows = [i for i in range(4) if IDS[0, i + 1] == IDS[0, 3]]
    made_complex(model)

    def loss(model):
        log_P, _ = log_softmax(model(IDS[:1]))
        return -log_P[0, rows, IDS[0, 3]].sum()

    for map in asked.maps:
        each = slope(model, model.decoder.layers[map.layer].attention.layer, map.head, loss)
        assert asked.metrics(map)["importance"] == pytest.approx(abs(each), rel=1e-9)
        assert recording.metrics(recording.find(*place_of(map)))["importance"] is None


# Nothing is changed.


def test_parameters_have_their_gradients_back_also_when_the_backward_raises():
    model = encoder_decoder()
    with record(model) as recording:
        model(SOURCE, IDS)
    for parameter in model.parameters().values():
        parameter.grad[...] = RNG.standard_normal(parameter.grad.shape)
    grads = {name: (parameter.grad, parameter.grad.copy()) for name, parameter in model.parameters().items()}
    word = recording.maps[-1].query_tokens[2]
    recording.with_gradients(word)
    forward = model.encoder.layers[0].forward

    def broken(*given, **options):
        y, backward = forward(*given, **options)

        def raises(dy):
            raise ArithmeticError("on purpose")

        return y, raises

    model.encoder.layers[0].forward = broken
    with pytest.raises(ArithmeticError):
        recording.with_gradients(word)
    del model.encoder.layers[0].forward
    for name, parameter in model.parameters().items():
        array, before = grads[name]
        assert parameter.grad is array
        np.testing.assert_array_equal(parameter.grad, before)
    assert recording.maps[0].gradient is None


def test_what_is_read_later_does_not_change_it():
    model = gpt()
    with record(model) as recording:
        cache = model.new_cache()
        model.decode(IDS[:1, :4], cache)
        word = recording.maps[0].query_tokens[1]
        asked, late = recording.with_gradients(word), recording.with_gradients(word)
        before = [(map.weights, map.gradient) for map in asked.maps]
        model.decode(IDS[:1, 4:], cache)
        model(IDS[1:])
    for map, (weights, gradient) in zip(asked.maps, before, strict=True):
        np.testing.assert_array_equal(map.weights, weights)
        np.testing.assert_array_equal(map.gradient, gradient)
        assert map.weights.shape == (4, 4)
    for map, other in zip(asked.maps, late.maps, strict=True):  # which nobody had looked at
        np.testing.assert_array_equal(map.weights, other.weights)
    asked.ablate("decoder", 0, 0)


def test_a_backward_of_ones_own():
    """Its gradient is shown in every map, of the row that is shown, and the last one of several."""
    model = gpt()
    with record(model, row=2) as recording:
        logits, backward = model.forward(IDS)
        dlogits = RNG.standard_normal(logits.shape)
        backward(-dlogits)
        once = [map.gradient for map in recording.maps]
        backward(dlogits)
    for map, gradient in zip(recording.maps, once, strict=True):
        assert abs(gradient).max() > 0
        np.testing.assert_array_equal(map.gradient, -gradient)
    assert recording.loss_name == ""


def test_a_backward_through_pieces():
    model, dlogits = gpt(), RNG.standard_normal((3, 5, V))
    with record(model, row=1) as whole:
        model.forward(IDS)[1](dlogits)
    with record(model, row=1) as recording:
        cache = model.new_cache()
        (_, first), (_, last) = (model.forward(ids, cache=cache) for ids in (IDS[:, :2], IDS[:, 2:]))
        assert recording.maps[0].gradient is None
        earlier = last(dlogits[:, 2:])
        assert recording.maps[0].gradient is None  # of some rows only
        first(dlogits[:, :2], earlier)
    for map, other in zip(whole.maps, recording.maps, strict=True):
        np.testing.assert_allclose(np.where(map.keep, other.gradient - map.gradient, 0), 0, atol=1e-12)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("(next)", "nobody knows yet what is produced where '(next)' stands"),
        ("x", "'x' is not among the tokens"),
        ("", "is not among"),
    ],
)
def test_a_word_that_is_not_produced(word, said):
    with record(gpt()) as recording:
        recording.model(IDS)
    with pytest.raises(ValueError, match="with_gradients: .*" + re.escape(said)):
        recording.with_gradients(word)
