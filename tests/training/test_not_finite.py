"""The first number that is not finite is named, and the step that met it has changed nothing."""

import os
import re

import numpy as np
import pytest

from npformer.archive import read_archive
from npformer.layers import linear as linear_module
from npformer.layers import multi_head_attention as attention_module
from npformer.layers import tied_output
from npformer.training import NotFiniteError, Trainer

HUGE = 3e38  # of float32


def parameter(trainer, name):
    return trainer.model.parameters()[name].value


def assert_stops(trainer, state, *texts):
    """The step is refused with these words, and neither the trainer nor its layers show that it was tried."""
    before = state(trainer)
    own = [dict(vars(layer)) for _, layer in trainer.model.sublayers()]
    with pytest.raises(NotFiniteError) as error:
        trainer.step()
    message = str(error.value)
    assert message.startswith(f"step {trainer.n_done + 1}: not finite is ")
    assert all(text in message for text in texts), message
    assert state(trainer) == before
    assert [dict(vars(layer)) for _, layer in trainer.model.sublayers()] == own
    assert not any("forward" in vars(layer) for _, layer in trainer.model.sublayers())
    return message


def poisoned(operation, gradient, when=lambda *inputs: True):
    """`operation` with one number of one of its gradients, or of the only one (None), made NaN."""

    def forward(*inputs, **options):
        y, backward = operation(*inputs, **options)

        def poisoned_backward(dy):
            gradients = backward(dy)
            if when(*inputs):
                bad = gradients if gradient is None else gradients[gradient]
                bad[(-1,) * bad.ndim] = np.nan
            return gradients

        return y, poisoned_backward

    return forward


# Where it begins.


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_a_parameter(new_trainer, state, poison, dropout):
    names = list(new_trainer().model.parameters())
    assert len(names) > 15
    for name in names:
        trainer = new_trainer(model={"dropout": dropout})
        trainer.step()
        value = parameter(trainer, name)
        place = [1] * value.ndim
        value[tuple(place)] = poison
        assert_stops(trainer, state, f"not finite is the parameter {name}, {poison} at {place}")


def test_a_row_of_the_embedding(new_trainer, state):
    trainer = new_trainer(model={"tied": False})
    ids, _ = trainer.batches.batch(0)
    parameter(trainer, "embedding.table")[ids[2, 3], 5] = np.nan
    assert_stops(trainer, state, f"the parameter embedding.table, nan at [{ids[2, 3]}, 5]")


@pytest.mark.parametrize("n_micro_batches", [1, 4])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize(
    ("huge", "named"),
    [
        ("layers.0.attention.query.weight", "layers.0.attention.query"),
        ("layers.0.attention.value.weight", "layers.0.attention.value"),
        ("layers.0.attention.norm.gamma", "layers.0.attention.norm"),
        ("layers.0.feed_forward.widen.weight", "layers.0.feed_forward.widen"),
        ("final_norm.gamma", "final_norm"),
        ("output.weight", "output"),
    ],
)
def test_an_output_that_overflows(new_trainer, state, huge, named, dropout, n_micro_batches):
    model = {"tied": False, "dropout": dropout}
    trainer = new_trainer(model=model, n_micro_batches=n_micro_batches)
    parameter(trainer, huge)[...] = HUGE
    assert_stops(trainer, state, f"not finite is the output of {named}, ", "inf at [")


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_the_output_of_attention(new_trainer, state, dropout):
    trainer = new_trainer(model={"dropout": dropout})
    for layer in ("value", "output"):
        parameter(trainer, f"layers.0.attention.{layer}.weight")[...] = 1e20 * np.eye(8)
    assert_stops(trainer, state, "not finite is the output of layers.0.attention.output, ", "inf at [")


def test_scores_that_overflow(new_trainer, state):
    trainer = new_trainer()
    for layer in ("query", "key"):
        parameter(trainer, f"layers.0.attention.{layer}.weight")[...] = 1e25 * np.eye(8)
    assert_stops(trainer, state, "not finite is the output of layers.0.attention.output, nan at [")


@pytest.mark.parametrize("n_micro_batches", [1, 3])
def test_the_loss(new_trainer, state, n_micro_batches):
    trainer = new_trainer(model={"tied": False}, n_micro_batches=n_micro_batches)
    parameter(trainer, "output.weight")[...] = 2e37 * np.sign(parameter(trainer, "output.weight"))
    assert_stops(trainer, state, "not finite is the loss, inf")


@pytest.mark.parametrize("total", [np.inf, np.nan])
def test_the_loss_alone(new_trainer, state, total):
    trainer = new_trainer(n_micro_batches=2)
    loss = trainer.model.loss

    def infinite(*arguments):
        (_, count), backward = loss(*arguments)
        return (np.array(total, np.float32), count), backward

    trainer.model.loss = infinite
    assert_stops(trainer, state, f"not finite is the loss, {total}")


@pytest.mark.parametrize("n_micro_batches", [1, 4])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize(
    ("gradient", "named"),
    [
        (0, "the gradient of the output of layers.0.attention.query, nan at [0, 4, 7]"),
        (1, "the gradient of the output of layers.0.attention.key, nan at [0, 4, 7]"),
        (2, "the gradient of the output of layers.0.attention.value, nan at [0, 4, 7]"),
    ],
)
def test_a_backward_of_attention(new_trainer, state, monkeypatch, gradient, named, dropout, n_micro_batches):
    trainer = new_trainer(model={"dropout": dropout}, batch_size=4, n_micro_batches=n_micro_batches)
    monkeypatch.setattr(attention_module, "attention", poisoned(attention_module.attention, gradient))
    message = assert_stops(trainer, state)
    last = 3 if n_micro_batches == 1 else 0
    assert named.replace("[0,", f"[{last},") in message


@pytest.mark.parametrize(
    ("layer", "gradient", "named"),
    [
        ("attention.query", 1, "the gradient of layers.0.attention.query.weight, nan at [7, 7]"),
        ("attention.key", 2, "the gradient of layers.0.attention.key.bias, nan at [7]"),
        ("attention.output", 1, "the gradient of layers.0.attention.output.weight, nan at [7, 7]"),
        ("attention.output", 0, "the gradient of the input of layers.0.attention.output, nan at [3, 4, 7]"),
        ("feed_forward.widen", 0, "the gradient of the input of layers.0.feed_forward.widen, nan at [3, 4, 7]"),
        ("feed_forward.narrow", 2, "the gradient of layers.0.feed_forward.narrow.bias, nan at [7]"),
    ],
)
def test_a_backward_of_a_linear_map(new_trainer, state, monkeypatch, layer, gradient, named):
    trainer = new_trainer(model={"dropout": 0.1})
    weight = parameter(trainer, f"layers.0.{layer}.weight")
    broken = poisoned(linear_module.linear, gradient, lambda x, given, bias: given is weight)
    monkeypatch.setattr(linear_module, "linear", broken)
    assert_stops(trainer, state, f"not finite is {named}")


def test_a_backward_of_an_activation(new_trainer, state):
    trainer = new_trainer(n_micro_batches=2)
    inner = trainer.model.decoder.layers[0].feed_forward.layer
    inner.activation = poisoned(inner.activation, None)
    assert_stops(
        trainer, state, "not finite is the gradient of the output of layers.0.feed_forward.widen, nan at [1, 4, 12]"
    )


def test_a_tied_table_is_named_as_what_it_is(new_trainer, state, monkeypatch):
    trainer = new_trainer()
    monkeypatch.setattr(tied_output, "linear", poisoned(tied_output.linear, 1))
    assert_stops(trainer, state, "not finite is the gradient of embedding.table, nan at [10, 7]")


# Doing it again.


@pytest.mark.parametrize("n_micro_batches", [1, 2, 3, 4])
def test_the_step_is_done_again_with_the_same_masks(new_trainer, state, n_micro_batches):
    trainer = new_trainer(model={"dropout": 0.3}, n_micro_batches=n_micro_batches)
    trainer.step()
    inner = trainer.model.decoder.layers[0].feed_forward.layer
    activation, seen = inner.activation, []

    def noted(x):
        seen.append(x.tobytes())
        return activation(x)

    inner.activation = noted
    chance = trainer.rng.bit_generator.state
    trainer.gradient(*trainer.batches.batch(1))
    trainer.rng.bit_generator.state = chance
    last = seen[-1]
    assert len(set(seen)) == n_micro_batches
    seen.clear()

    def poisoned_at_last(x):
        y, backward = noted(x)
        if seen[-1] == last:
            y[0, 0, 0] = np.nan
        return y, backward

    inner.activation = poisoned_at_last
    assert_stops(trainer, state, "not finite is the output of layers.0.feed_forward.dropout, nan at [0, 0, 0]")
    assert seen[:n_micro_batches] == seen[n_micro_batches:]
    assert len(seen) == 2 * n_micro_batches


def test_gradients_of_the_first_try_are_not_taken_for_those_of_the_second(new_trainer, state):
    trainer = new_trainer()
    inner = trainer.model.decoder.layers[0].feed_forward.layer
    activation = inner.activation
    calls = []

    def once(x):
        calls.append(x)
        return poisoned(activation, None)(x) if len(calls) == 1 else activation(x)

    inner.activation = once
    assert_stops(trainer, state, "not finite is nothing when the step is done again")


def test_a_forward_of_a_layers_own_comes_back(new_trainer):
    trainer = new_trainer()
    layer = trainer.model.decoder.layers[0].feed_forward
    own = layer.forward
    layer.forward = own
    parameter(trainer, "final_norm.beta")[...] = HUGE
    parameter(trainer, "embedding.table")[...] = HUGE
    with pytest.raises(NotFiniteError):
        trainer.step()
    assert vars(layer)["forward"] is own
    assert ["forward" in vars(other) for _, other in trainer.model.sublayers()].count(True) == 1


def test_when_the_cause_is_gone_the_run_goes_on_as_if_nothing_had_been(new_trainer, state):
    unbroken, broken = (new_trainer(model={"dropout": 0.1}, n_micro_batches=2) for _ in range(2))
    unbroken.run()
    broken.step()
    value = parameter(broken, "layers.0.attention.output.weight")
    good = value.copy()
    value[...] = HUGE
    for _ in range(2):
        with pytest.raises(NotFiniteError):
            broken.step()
    value[...] = good
    broken.run()
    assert state(broken) == state(unbroken)


# Files.


@pytest.mark.parametrize("every", [1, 2, 100])
def test_the_last_good_checkpoint_stays(new_trainer, state, tokens, tmp_path, every):
    path = tmp_path / "run.npz"
    trainer, good = new_trainer(), new_trainer()
    inner = trainer.model.decoder.layers[0].feed_forward.layer
    activation = inner.activation

    def report(step):
        if step.number == 4:
            inner.activation = poisoned(activation, None)

    with pytest.raises(NotFiniteError, match=r"step 5: not finite is the gradient of the output of layers\.0"):
        trainer.run(path, every=every, report=report)
    assert os.listdir(tmp_path) == [path.name]
    resumed = Trainer.resume(path, tokens)
    for _ in range({1: 4, 2: 4, 100: 0}[every]):
        good.step()
    assert state(resumed) == state(good)


@pytest.mark.parametrize("name", ["embedding.table", "final_norm.gamma"])
@pytest.mark.parametrize("of", ["weights", "first_moment", "second_moment"])
def test_what_is_not_finite_is_not_saved(new_trainer, tmp_path, name, of):
    path = tmp_path / "run.npz"
    trainer = new_trainer()
    vectors = {
        "weights": trainer.flat.values,
        "first_moment": trainer.optimiser.first_moment,
        "second_moment": trainer.optimiser.second_moment,
    }
    trainer.step()
    part = trainer.flat.split(vectors[of])[name]
    part.flat[1] = np.inf
    text = re.escape(f"step 1: not finite is {of}/{name}, ")
    with pytest.raises(NotFiniteError, match=text):
        trainer.save(path)
    assert not os.listdir(tmp_path)
    part.flat[1] = 0.5
    trainer.save(path)
    data = path.read_bytes()
    part.flat[1] = np.nan
    with pytest.raises(NotFiniteError, match=text):
        trainer.save(path)
    assert path.read_bytes() == data
    assert os.listdir(tmp_path) == [path.name]


def test_a_squared_gradient_that_overflows_never_reaches_a_file(new_trainer, tmp_path):
    path = tmp_path / "run.npz"
    trainer = new_trainer(model={"tied": False}, clip=1e38)
    parameter(trainer, "layers.0.feed_forward.narrow.weight")[...] = 1e-30
    parameter(trainer, "layers.0.attention.output.weight")[...] = 1e-30
    parameter(trainer, "embedding.table")[...] *= 1e-30
    parameter(trainer, "positions.table")[...] *= 1e-30
    parameter(trainer, "output.weight")[...] *= 1e22
    with pytest.raises(NotFiniteError):
        trainer.run(path, every=1)
    header, arrays = read_archive(path)
    assert all(np.isfinite(array).all() for array in arrays.values())
    assert header["step"] == 0
