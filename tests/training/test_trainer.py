"""The step: micro-batches add up to the batch, float32 stays float32, and a step that fails has changed nothing."""

import sys
import types
from contextlib import suppress
from dataclasses import fields, replace

import numpy as np
import pytest

from npformer import operation
from npformer.archive import read_archive
from npformer.layers import Layer
from npformer.models import GPT, GPTConfig
from npformer.text import CharacterTokenizer
from npformer.training import AdamW, NotFiniteError, Trainer, TrainingConfig, warmup_cosine
from npformer.training import trainer as trainer_module

ONES = np.ones(3)
CUTS = [1, 2, 3, 5, 12]
SOME, NONE = (0.3, 1.0)


def masked(trainer, share, seed=0):
    """The trainer's batches with this share of the targets not counted, the last row's all of them."""
    whole = trainer.batches.batch

    def batch(i):
        ids, targets = whole(i)
        left_out = np.random.default_rng([seed, i]).random(targets.shape) < share * np.linspace(0, 2, len(ids))[:, None]
        left_out[-1] = True
        if share == NONE:
            left_out[...] = True
        return ids, np.where(left_out, -1, targets)

    trainer.batches.batch = batch
    return trainer


def relative(one, other):
    return np.abs(one - other).max() / np.abs(other).max()


# Micro-batches.


@pytest.fixture
def in_parts(new_trainer):
    def make(n, clip=1.0):
        trainer = new_trainer(dtype=np.float64, batch_size=12, n_micro_batches=n, clip=clip, model={"bias": False})
        return masked(trainer, SOME)

    return make


@pytest.mark.parametrize("clip", [1e9, 0.1])
@pytest.mark.parametrize("n", CUTS)
def test_parts_have_the_gradient_of_the_whole(in_parts, n, clip):
    whole, parts = in_parts(1, clip), in_parts(n, clip)
    loss, norm = whole.gradient(*whole.batches.batch(0))
    part_loss, part_norm = parts.gradient(*parts.batches.batch(0))
    assert part_loss == pytest.approx(loss, rel=1e-12)
    assert part_norm == pytest.approx(norm, rel=1e-12)
    assert relative(parts.flat.gradients, whole.flat.gradients) < 1e-12


@pytest.mark.parametrize("n", CUTS[1:])
def test_parts_train_like_the_whole(in_parts, n):
    whole, parts = in_parts(1), in_parts(n)
    for _ in range(6):
        one, other = whole.step(), parts.step()
        assert other.loss == pytest.approx(one.loss, rel=1e-12)
    assert relative(parts.flat.values, whole.flat.values) < 1e-12


@pytest.mark.parametrize("n", CUTS[1:4])
def test_a_mean_of_means_would_be_something_else(in_parts, n):
    trainer = in_parts(n, clip=1e9)
    ids, targets = trainer.batches.batch(0)
    trainer.gradient(ids, targets)
    right = trainer.flat.gradients.copy()
    trainer.flat.gradients[...] = 0
    counts = []
    for part_ids, part_targets in trainer.micro_batches(ids, targets):
        (total, count), backward = trainer.model.loss(part_ids, part_targets)
        backward(np.ones(()) / (n * count))
        counts.append(count)
    assert len(set(counts)) > 1
    assert relative(trainer.flat.gradients, right) > 1e-2


def test_the_gradient_is_that_of_the_mean_loss(new_trainer):
    trainer = masked(new_trainer(dtype=np.float64, batch_size=5, n_micro_batches=3, clip=1e9), SOME)
    ids, targets = trainer.batches.batch(0)
    loss, norm = trainer.gradient(ids, targets)
    gradient = trainer.flat.gradients.copy()
    assert trainer.gradient(ids, targets) == (loss, norm)
    np.testing.assert_array_equal(trainer.flat.gradients, gradient)
    direction = np.random.default_rng(0).standard_normal(gradient.shape)
    values = trainer.flat.values.copy()
    losses = []
    for h in (1e-5, -1e-5):
        trainer.flat.values[...] = values + h * direction
        (total, count), _ = trainer.model.loss(ids, targets)
        losses.append(float(total) / count)
    assert loss == pytest.approx(sum(losses) / 2, rel=1e-6)
    assert (losses[0] - losses[1]) / 2e-5 == pytest.approx(gradient @ direction, rel=1e-6)
    assert norm == pytest.approx(np.linalg.norm(gradient), rel=1e-12)


@pytest.mark.parametrize("n", CUTS)
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_a_batch_in_which_nothing_counts_changes_nothing(new_trainer, state, n, dropout):
    trainer = masked(new_trainer(batch_size=12, n_micro_batches=n, model={"dropout": dropout}), NONE)
    before = state(trainer)
    with pytest.raises(ValueError, match="Trainer: no target of the batch is counted, so it has no mean loss"):
        trainer.step()
    assert state(trainer) == before


# Float32.


HOLDS_NO_ARRAY = (type, types.ModuleType, int, float, complex, str, np.dtype, slice, np.random.Generator)


def floating_in(root):
    """Every floating array or number of NumPy that `root` keeps alive, with the way to it: through functions and what they
    have captured, lists, tuples, dictionaries, layers and the arrays that a view looks into."""
    seen = {}
    waiting = [("", root)]
    while waiting:
        way, x = waiting.pop()
        if id(x) in seen:
            continue
        seen[id(x)] = x
        if isinstance(x, np.ndarray | np.generic):
            if x.dtype.kind in "fc":
                yield way, x
            waiting.append((f"{way}.base", getattr(x, "base", None)))
        elif isinstance(x, types.FunctionType):
            for name, cell in zip(x.__code__.co_freevars, x.__closure__ or (), strict=True):
                with suppress(ValueError):  # an empty cell: a variable of a branch that was not taken
                    waiting.append((f"{way} > {x.__name__}.{name}", cell.cell_contents))
            waiting += [(f"{way} > {x.__name__}", part) for part in (x.__defaults__, x.__kwdefaults__, vars(x))]
        elif isinstance(x, types.MethodType):
            waiting += [(way, x.__self__), (way, x.__func__)]
        elif isinstance(x, dict):
            waiting += [(f"{way}[{name!r}]", part) for name, part in x.items()]
        elif isinstance(x, list | tuple | set | frozenset):
            waiting += [(f"{way}[{i}]", part) for i, part in enumerate(x)]
        elif x is not None and not isinstance(x, HOLDS_NO_ARRAY):
            assert hasattr(x, "__dict__"), f"{way} is {type(x)}, where nobody has looked"
            waiting += [(f"{way}.{name}", part) for name, part in vars(x).items()]


def hidden(array):
    def outer(dy):
        return inner(dy)

    def inner(dy):
        return dy * array

    return outer


def by_default(dy, factor=ONES):
    return dy * factor


class Keeper(Layer):
    def __init__(self, parts):
        self.parts_of_it = parts

    def forward(self, x):
        return x, lambda dy: self.parts_of_it


@pytest.mark.parametrize(
    "place",
    [
        lambda x: hidden(x),
        lambda x: hidden(hidden(hidden(x))),
        lambda x: hidden([1, ("text", {"key": x})]),
        lambda x: hidden(x.view(np.float32) if x.ndim else x),
        lambda x: operation.operation(x="...")(lambda x: (x, hidden(x)))(x if x.ndim else np.asarray(x))[1],
        lambda x: Keeper([x]).forward(1)[1],
        lambda x: hidden(Keeper({"a": (x,)}).forward),
    ],
)
@pytest.mark.parametrize("x", [np.ones((4, 3)), np.ones(()), np.float64(1)])
def test_the_search_finds_a_float64_wherever_it_hides(place, x):
    found = [array.dtype for _, array in floating_in(place(x))]
    assert np.float64 in found


def test_the_search_finds_defaults_and_says_where_it_cannot_look():
    assert [array.dtype for _, array in floating_in(hidden(by_default))] == [np.float64]
    with pytest.raises(AssertionError, match="where nobody has looked"):
        list(floating_in(hidden(object())))


def test_the_search_finds_what_a_layer_captured():
    model = GPT(GPTConfig(vocab_size=11, max_len=5, n_layers=1, n_heads=2, d_model=8), dtype=np.float64)
    ids = np.arange(5)[None]
    _, backward = model.loss(ids, ids)
    ways = {way for way, array in floating_in(backward) if array.dtype == np.float64}
    assert len(ways) > 30


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "rotary", "alibi", "none"])
@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh", "silu", "swiglu"])
@pytest.mark.parametrize("norm", ["layer_norm", "rms_norm"])
def test_in_a_step_of_float32_nothing_is_float64(new_trainer, monkeypatch, norm, activation, positions, dropout):
    others = {"norm_placement": "pre", "tied": True, "bias": True}
    if activation in ("relu", "silu"):
        others = {"norm_placement": "post", "tied": False, "bias": False, "n_kv_heads": 1}
    model = {"norm": norm, "activation": activation, "positions": positions, "dropout": dropout} | others
    trainer = new_trainer(model=model, n_micro_batches=2)
    results = []

    def as_result(value, half):
        results.append(value)
        return value if not isinstance(value, np.inexact) else np.asarray(value)

    def forward_of(layer):
        forward = layer.forward

        def noted(*inputs, **options):
            y, backward = forward(*inputs, **options)
            results.append(y)

            def noted_backward(dy):
                dx = backward(dy)
                results.append(dx)
                return dx

            return y, noted_backward

        return noted

    loss = trainer.model.loss

    def searched(*arguments):
        (total, count), backward = loss(*arguments)
        wrong = [f"{way} {array.dtype}" for way, array in floating_in(backward) if array.dtype != np.float32]
        assert not wrong
        results.append(total)
        return (total, count), backward

    monkeypatch.setattr(operation, "as_result", as_result)
    for _, layer in trainer.model.sublayers():
        layer.forward = forward_of(layer)
    trainer.model.loss = searched
    trainer.step()
    of = {str(result.dtype) for result in results if isinstance(result, np.ndarray | np.generic)}
    assert of == {"float32"}
    vectors = trainer.flat.values, trainer.flat.gradients, trainer.optimiser.first_moment, trainer.optimiser.second_moment
    assert [vector.dtype for vector in vectors] == 4 * [np.float32]
    for parameter in trainer.model.parameters().values():
        assert parameter.value.dtype == parameter.grad.dtype == np.float32


# The run.


def test_a_model_learns_a_text_that_repeats():
    model = GPT(GPTConfig(vocab_size=5, max_len=6, n_layers=1, n_heads=1, d_model=16))
    trainer = Trainer(model, np.arange(100) % 5, TrainingConfig(n_steps=150, learning_rate=0.02, n_warmup=5))
    steps = []
    assert trainer.run(report=steps.append) is True
    assert [step.number for step in steps] == list(range(1, 151))
    assert steps[0].loss == pytest.approx(np.log(5), rel=0.05)
    assert steps[-1].loss < 0.05
    assert max(step.learning_rate for step in steps) == 0.02


def test_each_step_moves_by_its_own_gradient_at_its_own_rate(new_trainer):
    trainer = new_trainer(beta1=0.8, beta2=0.9, eps=1e-6, weight_decay=0.3, clip=0.5, final_learning_rate=0.001)
    values, n_matrix = trainer.flat.values.copy(), trainer.flat.n_matrix
    optimiser = AdamW(values, n_matrix, beta1=0.8, beta2=0.9, eps=1e-6, decay=0.3)
    for n in range(7):
        step = trainer.step()
        rate = warmup_cosine(n, peak=0.01, end=0.001, n_warmup=2, n_steps=7)
        assert (step.number, step.learning_rate) == (n + 1, rate)
        assert step.gradient_norm > 0.5
        assert np.linalg.norm(trainer.flat.gradients) == pytest.approx(0.5, rel=1e-5)
        optimiser.step(values, trainer.flat.gradients, rate, n + 1)
        np.testing.assert_array_equal(trainer.flat.values, values)


def test_a_run_that_is_over_does_nothing_more(new_trainer, state):
    trainer = new_trainer(n_steps=2)
    assert trainer.run() is True
    before = state(trainer)
    assert trainer.run(report=None) is True
    assert state(trainer) == before


def test_the_model_is_the_callers_own(new_trainer):
    trainer = new_trainer()
    ids = np.arange(5)[None]
    before = trainer.model(ids)
    trainer.step()
    assert not np.array_equal(trainer.model(ids), before)


def test_chance_is_the_seeds(new_trainer, state):
    states = []
    for seed in (5, 5, 6):
        trainer = new_trainer(model={"dropout": 0.1}, seed=seed)
        trainer.run()
        states.append(state(trainer)["values"])
    assert states[0] == states[1] != states[2]


def test_dropout_acts_while_training(new_trainer):
    losses = [new_trainer(model={"dropout": p}).step().loss for p in (0.0, 0.5)]
    assert losses[0] != losses[1]


@pytest.mark.parametrize("every", [0, -1, 1.5, True])
def test_every_is_a_count(new_trainer, tmp_path, every):
    with pytest.raises((ValueError, TypeError), match=r"Trainer.run: every must be"):
        new_trainer().run(tmp_path / "model.npz", every=every)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("every", "saved_at"), [(1, [0, 1, 2, 3, 4, 5, 6, 7]), (3, [0, 3, 6, 7]), (7, [0, 7]), (100, [0, 7])]
)
def test_checkpoints_are_written_at_the_start_after_every_so_many_steps_and_at_the_end(
    new_trainer, tmp_path, monkeypatch, every, saved_at
):
    trainer, steps = new_trainer(), []
    monkeypatch.setattr(trainer_module, "write_archive", lambda path, header, arrays: steps.append(header["step"]))
    trainer.run(tmp_path / "model.npz", every=every)
    assert steps == saved_at


# Arguments.


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        *((name, value) for name in ("n_steps", "batch_size", "n_micro_batches") for value in (0, -1, 1.5, True, "1")),
        *((name, value) for name in ("n_warmup", "seed") for value in (-1, 0.5, None, 2**65)),
        *((name, value) for name in ("learning_rate", "eps", "clip") for value in (0, -1.0, np.nan, np.inf, "1", None)),
        *((name, value) for name in ("final_learning_rate", "weight_decay") for value in (-1e-9, np.nan, np.inf, None)),
        *((name, value) for name in ("beta1", "beta2") for value in (-0.1, 1, 1.5, np.nan, "0")),
        ("n_micro_batches", 13),
    ],
)
def test_settings_that_make_no_sense_are_refused(setting, value):
    with pytest.raises((ValueError, TypeError), match=f"TrainingConfig: {setting} must"):
        replace(TrainingConfig(), **{setting: value})


def test_numbers_of_numpy_become_pythons_own():
    plain = TrainingConfig()
    given = {}
    for field in fields(plain):
        value = getattr(plain, field.name)
        given[field.name] = np.int32(value) if isinstance(value, int) else np.float64(value)
    config = TrainingConfig(**given)
    assert config == plain
    assert {type(getattr(config, name)) for name in given} == {int, float}


@pytest.mark.parametrize("limit", [11, -1])
def test_tokens_outside_the_vocabulary_are_refused(limit):
    model = GPT(GPTConfig(vocab_size=11, max_len=3, n_layers=1, n_heads=1, d_model=4))
    tokens = np.arange(30) % 11
    tokens[17] = limit
    with pytest.raises(ValueError, match=rf"Trainer: tokens\[17\] is {limit}, outside 0 … 10"):
        Trainer(model, tokens, TrainingConfig())


def test_a_tokenizer_of_another_vocabulary_is_refused(new_trainer):
    with pytest.raises(ValueError, match="Trainer: tokenizer has 3 characters, but the model a vocab_size of 11"):
        new_trainer(tokenizer=CharacterTokenizer("abc"))


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_nothing_that_a_step_computes_on_the_way_is_float64(new_trainer, dropout):
    """Every local variable of the package that a step leaves behind; the loss alone becomes Python's float."""
    trainer = new_trainer(model={"dropout": dropout}, dtype=np.float32)
    found = set()

    def watch(frame, event, argument):
        if event == "return" and "/npformer/" in frame.f_code.co_filename:
            for name, value in frame.f_locals.items():
                if isinstance(value, np.ndarray) and value.dtype == np.float64 and value.size > 1:
                    found.add(f"{frame.f_code.co_name}: {name}")

    sys.setprofile(watch)
    try:
        trainer.step()
    finally:
        sys.setprofile(None)
    assert not found


def test_a_report_that_fails_leaves_a_checkpoint_of_what_was_learnt(new_trainer, tmp_path):
    trainer, path = new_trainer(), tmp_path / "run.npz"

    def report(step):
        if step.number == 3:
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        trainer.run(path, report=report)
    assert read_archive(path)[0]["step"] == 3


def test_an_update_that_makes_a_parameter_infinite_is_named_with_its_own_step(new_trainer, tmp_path):
    trainer, path = new_trainer(learning_rate=1e38, weight_decay=1e3, n_warmup=0, dtype=np.float32), tmp_path / "run.npz"
    with pytest.raises(NotFiniteError, match=r"step 1: not finite is [\w.]+, .* at \[.*\] \(the step's update\)"):
        trainer.run(path)
    assert read_archive(path)[0]["step"] == 0
