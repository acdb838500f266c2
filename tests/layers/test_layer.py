"""What all layers have: names for their parameters, gradients that add up, no state between calls, no warnings."""

import warnings

import numpy as np
import pytest

from npformer.functional import relu
from npformer.layers import (
    Dropout,
    Embedding,
    FeedForward,
    Layer,
    LayerNorm,
    Linear,
    MultiHeadAttention,
    Parameter,
    Residual,
    TiedOutput,
)

FLOAT64 = {"dtype": np.float64}


def rng():
    return np.random.default_rng(0)


def normal(*shape):
    return rng().normal(size=shape)


class Block(Layer):
    def __init__(self):
        self.name, self.sizes, self.nothing = "no part", [3, 5], (None,)
        self.layers = [Linear(3, 5, rng=rng(), **FLOAT64), FeedForward(5, 7, relu, bias=False, rng=rng(), **FLOAT64)]
        self.pair = (Parameter(np.ones(5)), 2.0)
        self.scale = self.pair[0]
        self.missing = None
        self.tied = self.layers[0]

    def forward(self, x):
        y, first = self.layers[0].forward(x)
        z, second = self.layers[1].forward(y)

        def backward(dz):
            self.scale.grad += (dz * z).reshape(-1, 5).sum(0)
            return first(second(dz * self.scale.value))

        return z * self.scale.value, backward


def test_parameters_have_dotted_names_in_order_and_a_shared_one_its_first():
    block = Block()
    assert list(block.parameters()) == [
        "layers.0.weight",
        "layers.0.bias",
        "layers.1.widen.weight",
        "layers.1.narrow.weight",
        "pair.0",
    ]
    assert block.parameters()["layers.0.weight"] is block.layers[0].weight
    assert block.parameters()["pair.0"] is block.scale


def test_sublayers_have_dotted_names_the_inner_ones_first():
    names = [name for name, _ in Block().sublayers()]
    assert names == ["layers.0", "layers.1.widen", "layers.1.dropout", "layers.1.narrow", "layers.1", "tied"]


def test_a_residual_leaves_its_layer_the_names():
    attention = MultiHeadAttention(4, 2, bias=False, rng=rng(), **FLOAT64)
    residual = Residual(attention, LayerNorm(4, **FLOAT64), "pre")
    assert list(residual.parameters()) == [
        "query.weight",
        "key.weight",
        "value.weight",
        "output.weight",
        "norm.gamma",
        "norm.beta",
    ]


def test_two_parameters_of_one_name_are_refused():
    inner = Residual(FeedForward(4, 5, relu, rng=rng(), **FLOAT64), LayerNorm(4, **FLOAT64), "pre")
    with pytest.raises(ValueError, match=r"Residual: two parameters are called norm\.gamma"):
        Residual(inner, LayerNorm(4, **FLOAT64), "post").parameters()


def test_a_residual_around_a_layer_without_chance():
    linear, norm = Linear(4, 4, rng=rng(), **FLOAT64), LayerNorm(4, **FLOAT64)
    x = normal(2, 3, 4)
    np.testing.assert_allclose(Residual(linear, norm, "pre")(x), x + linear(norm(x)))


def test_a_tied_table_is_one_parameter_with_the_sum_of_both_gradients():
    embedding = Embedding(7, 3, rng=rng(), **FLOAT64)
    output = TiedOutput(embedding)
    ids, dy = np.array([[1, 1, 2]]), normal(1, 3, 7)

    def gradients(*parts):
        embedding.table.grad[...] = 0
        x, embedding_backward = embedding.forward(ids)
        _, output_backward = output.forward(x)
        dx = output_backward(dy)
        from_output = embedding.table.grad.copy()
        embedding_backward(dx)
        return from_output, embedding.table.grad - from_output

    from_output, from_embedding = gradients()
    x = embedding(ids)
    np.testing.assert_allclose(from_output, np.einsum("btv,btd->vd", dy, x), rtol=1e-12, atol=1e-13)
    expected = np.zeros((7, 3))
    for place, i in zip(np.ndindex(1, 3), ids.ravel(), strict=True):
        expected[i] += dy[place] @ embedding.table.value
    np.testing.assert_allclose(from_embedding, expected, rtol=1e-13, atol=1e-15)


def test_a_layer_called_twice_before_either_backward_adds_up_both():
    layer, x1, x2, dy1, dy2 = Block(), normal(2, 3), -2 * normal(4, 3), normal(2, 5), 3 * normal(4, 5)

    def gradients(*pairs):
        for parameter in layer.parameters().values():
            parameter.grad = np.zeros_like(parameter.value)
        backwards = [layer.forward(x)[1] for x, _ in pairs]
        dxs = [backward(dy) for backward, (_, dy) in zip(backwards, pairs, strict=True)]
        return dxs, [parameter.grad for parameter in layer.parameters().values()]

    (dx1,), one = gradients((x1, dy1))
    (dx2,), other = gradients((x2, dy2))
    (both1, both2), both = gradients((x1, dy1), (x2, dy2))
    assert np.array_equal(both1, dx1)
    assert np.array_equal(both2, dx2)
    for a, b, total in zip(one, other, both, strict=True):
        np.testing.assert_allclose(total, a + b, rtol=1e-12, atol=1e-13)


def test_calling_a_layer_gives_y_alone_and_never_drops():
    layer, x = FeedForward(3, 5, relu, dropout=0.5, rng=rng(), **FLOAT64), normal(2, 4, 3)
    assert np.array_equal(layer(x), layer.forward(x)[0])
    assert not np.array_equal(layer(x), layer.forward(x, rng())[0])
    with pytest.raises(TypeError, match=r"FeedForward: .* takes no rng"):
        layer(x, rng=rng())


def test_dropout_in_three_places_draws_three_masks_and_remembers_each():
    layer, x = Dropout(0.5), np.ones((50, 50))
    generator = rng()
    calls = [layer.forward(x, generator) for _ in range(3)]
    for y, backward in calls:
        assert np.array_equal(backward(x), y)
    assert len({y.tobytes() for y, _ in calls}) == 3
    y, backward = layer.forward(x)
    assert y is x
    assert backward(x) is x


def test_infinities_and_nan_pass_without_a_warning():
    block = Block()
    block.layers[0].weight.value[...] = 1e308
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        y, backward = block.forward(np.full((2, 3), 1e10))
        backward(np.full_like(y, np.inf))
    assert not np.isfinite(y).any()


def test_a_value_may_be_set_and_is_read_when_the_layer_is_called():
    layer, x = Linear(3, 5, rng=rng(), **FLOAT64), normal(2, 3)
    y, backward = layer.forward(x)
    before = layer.weight.value
    layer.weight.value = np.zeros((3, 5))
    np.testing.assert_allclose(backward(np.ones((2, 5))), np.ones((2, 5)) @ before.T)
    assert np.array_equal(layer(x), np.zeros((2, 5)))
    layer.weight.value = before.astype(np.complex128) * 1j
    layer.bias.value = layer.bias.value.astype(np.complex128)
    np.testing.assert_allclose(layer(x.astype(np.complex128)), 1j * (x @ before), atol=1e-13)


@pytest.mark.parametrize("value", [[1.0], 1.0, np.ones(2, np.int64), np.ones(2, np.float16), np.ma.ones(2), None])
def test_a_parameter_is_an_array_of_float32_or_float64(value):
    with pytest.raises(TypeError, match=r"Parameter: value must be an array of float32 or float64, got"):
        Parameter(value)


def test_a_seed_gives_float32_and_float64_the_same_numbers():
    double = Parameter.normal((50, 30), 0.5, np.float64, rng()).value
    single = Parameter.normal((50, 30), 0.5, np.float32, rng()).value
    assert np.array_equal(single, double.astype(np.float32))
    assert abs(double.std() - 0.5) < 0.02
