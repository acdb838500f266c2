"""One vector of values and one of gradients, and the parameters look into them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npformer.layers import Parameter
from npformer.models import GPT, GPTConfig
from npformer.training import FlatParameters, Trainer, TrainingConfig

SIZES = {"vocab_size": 7, "max_len": 5, "n_layers": 2, "n_heads": 2, "d_model": 6}


def gpt(**options):
    return GPT(GPTConfig(**SIZES | options))


@given(
    shapes=st.lists(st.lists(st.integers(1, 5), max_size=3).map(tuple), min_size=1, max_size=6),
    dtype=st.sampled_from([np.float32, np.float64]),
    layout=st.sampled_from(["C", "F", "reversed"]),
    seed=st.integers(0, 2**32),
)
def test_the_vectors_hold_what_the_parameters_held(shapes, dtype, layout, seed):
    rng = np.random.default_rng(seed)
    values = {f"p{i}": rng.standard_normal(shape).astype(dtype) for i, shape in enumerate(shapes)}
    if layout == "F":
        values = {name: np.asfortranarray(value) for name, value in values.items()}
    elif layout == "reversed":
        values = {name: value[(..., *(slice(None, None, -1) for _ in value.shape))] for name, value in values.items()}
    parameters = {name: Parameter(value) for name, value in values.items()}
    flat = FlatParameters(parameters)
    assert flat.values.dtype == flat.gradients.dtype == dtype
    assert flat.values.shape == flat.gradients.shape == (sum(value.size for value in values.values()),)
    assert not flat.gradients.any()
    for name, value in values.items():
        assert parameters[name].value.shape == parameters[name].grad.shape == value.shape
        np.testing.assert_array_equal(parameters[name].value, value)


@pytest.mark.parametrize("tied", [True, False])
def test_every_value_and_gradient_is_a_view(tied):
    model = gpt(tied=tied)
    flat = FlatParameters(model.parameters())
    rng = np.random.default_rng(0)
    flat.values[...] = rng.standard_normal(flat.values.shape)
    flat.gradients[...] = rng.standard_normal(flat.gradients.shape)
    for vector, of in ((flat.values, "value"), (flat.gradients, "grad")):
        arrays = [getattr(flat.parameters[name], of) for name in flat.parameters]
        np.testing.assert_array_equal(np.concatenate([array.ravel() for array in arrays]), vector)
        for array in arrays:
            array[...] = 3
        assert (vector == 3).all()
    flat.check_views()


def test_a_vector_is_split_by_name_into_views():
    model = gpt()
    flat = FlatParameters(model.parameters())
    vector = np.arange(flat.values.size)
    views = flat.split(vector)
    assert {name: view.shape for name, view in views.items()} == {
        name: parameter.value.shape for name, parameter in model.parameters().items()
    }
    views["final_norm.beta"][2] = -1
    assert (vector == -1).sum() == 1
    assert sum(view.size for view in views.values()) == vector.size


@pytest.mark.parametrize("options", [{}, {"tied": False, "norm": "rms_norm"}, {"activation": "swiglu", "bias": False}])
def test_matrices_come_first(options):
    flat = FlatParameters(gpt(**options).parameters())
    of_rank = [parameter.value.ndim for parameter in flat.parameters.values() for _ in range(parameter.value.size)]
    assert of_rank == sorted(of_rank, reverse=True)
    assert flat.n_matrix == of_rank.count(2) > 0
    assert of_rank.count(1) > 0


def test_names_are_kept():
    model = gpt()
    names = model.parameters().keys()
    assert FlatParameters(model.parameters()).parameters.keys() == names == model.parameters().keys()


def test_a_tied_table_is_there_once():
    tied, untied = (FlatParameters(gpt(tied=tied).parameters()) for tied in (True, False))
    assert untied.values.size - tied.values.size == 7 * 6


def test_a_step_of_the_vector_is_a_step_of_the_model():
    model = gpt()
    ids = np.arange(10).reshape(2, 5) % 7
    before = model(ids)
    flat = FlatParameters(model.parameters())
    np.testing.assert_array_equal(model(ids), before)
    flat.values *= 0.5
    assert not np.allclose(model(ids), before)
    (total, count), backward = model.loss(ids, ids)
    backward(np.ones((), total.dtype))
    assert np.count_nonzero(flat.gradients) > flat.gradients.size / 2


@pytest.mark.parametrize("attribute", ["value", "grad"])
@pytest.mark.parametrize("name", ["embedding.table", "layers.1.feed_forward.narrow.bias"])
def test_a_replaced_array_is_refused_by_name(attribute, name, tmp_path):
    model = gpt()
    trainer = Trainer(model, np.arange(50) % 7, TrainingConfig(n_steps=3, batch_size=2))
    trainer.step()
    parameter = model.parameters()[name]
    setattr(parameter, attribute, getattr(parameter, attribute).copy())
    before = trainer.flat.values.copy()
    with pytest.raises(ValueError, match=f"FlatParameters: {name} was replaced; while training, change it in place"):
        trainer.step()
    with pytest.raises(ValueError, match=f"FlatParameters: {name} was replaced"):
        trainer.save(tmp_path / "model.npz")
    assert not list(tmp_path.iterdir())
    np.testing.assert_array_equal(trainer.flat.values, before)


def test_of_two_trainers_of_one_model_the_first_is_refused():
    model, tokens, config = gpt(), np.arange(50) % 7, TrainingConfig(n_steps=3, batch_size=2)
    first, second = Trainer(model, tokens, config), Trainer(model, tokens, config)
    second.step()
    with pytest.raises(ValueError, match="was replaced"):
        first.step()


def test_parameters_share_one_dtype():
    parameters = {"a": Parameter(np.zeros(2, np.float32)), "b": Parameter(np.zeros(2))}
    with pytest.raises(ValueError, match=r"FlatParameters: parameters must share one dtype, got \['float32', 'float64'\]"):
        FlatParameters(parameters)
    with pytest.raises(ValueError, match="FlatParameters: parameters must share one dtype, got none"):
        FlatParameters({})
