"""Generation: each step sees the last max_len ids and no others, and a seed decides all of it."""

from types import SimpleNamespace

import numpy as np
import pytest

from npformer.generation import generate, sample, stream

V = 7


class Model:
    """Logits from a table, by the last two ids; it remembers what it was given."""

    def __init__(self, max_len=5, seed=0):
        self.config = SimpleNamespace(max_len=max_len, vocab_size=V)
        self.table = np.random.default_rng(seed).standard_normal((V, V, V)).astype(np.float32)
        self.seen = []

    def __call__(self, ids):
        assert ids.dtype == np.int64
        self.seen.append(ids.copy())
        before = np.concatenate([ids[:, :1], ids[:, :-1]], axis=1)
        return self.table[before, ids]  # (B,T) → (B,T,V)


class Cycle(Model):
    """The next id is the last one and one more."""

    def __call__(self, ids):
        super().__call__(ids)
        return 100 * np.eye(V)[(ids + 1) % V]


def test_a_known_text_is_continued():
    assert generate(Cycle(), np.array([2, 3]), 6).tolist() == [4, 5, 6, 0, 1, 2]
    assert generate(Cycle(), np.array([[2, 3], [0, 5]]), 3, temperature=0).tolist() == [[4, 5, 6], [6, 0, 1]]


@pytest.mark.parametrize("shape", [(1,), (4,), (1, 3), (3, 2), (0, 2)])
@pytest.mark.parametrize("n", [0, 1, 9])
@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.int32, np.uint64])
def test_only_the_new_ids_come_back(shape, n, dtype):
    new = generate(Model(), np.ones(shape, dtype), n)
    assert new.shape == (*shape[:-1], n)
    assert new.dtype == np.int64
    assert ((0 <= new) & (new < V)).all()


def test_each_step_sees_the_last_ids_that_the_context_holds():
    model = Model(max_len=5)
    ids = np.array([[1, 2, 3], [4, 5, 6]])
    new = generate(model, ids, 8, seed=3)
    text = np.concatenate([ids, new], axis=1)
    assert len(model.seen) == 8
    for step, seen in enumerate(model.seen):
        np.testing.assert_array_equal(seen, text[:, max(0, 3 + step - 5) : 3 + step])


@pytest.mark.parametrize(
    "options", [{}, {"temperature": 0.5}, {"top_k": 3}, {"top_p": 0.7}, {"temperature": 2, "top_k": 4, "top_p": 0.5}]
)
def test_it_is_sample_over_and_over_with_one_generator(options):
    model, ids = Model(), np.array([[1, 2, 3], [4, 5, 6]])
    rng, text = np.random.default_rng(11), ids
    for _ in range(10):
        new = sample(model(text[:, -5:])[:, -1], rng=rng, **options)
        text = np.concatenate([text, new[:, None]], axis=1)
    np.testing.assert_array_equal(generate(model, ids, 10, seed=11, **options), text[:, 3:])


def test_a_single_text_is_continued_as_a_batch_of_one():
    ids = np.array([1, 2, 3])
    np.testing.assert_array_equal(generate(Model(), ids, 9), generate(Model(), ids[None], 9)[0])


@pytest.mark.parametrize("shape", [(3,), (2, 3)])
def test_the_stream_yields_the_same_one_step_at_a_time(shape):
    ids, options = np.ones(shape, int), {"temperature": 0.8, "top_k": 5, "top_p": 0.9, "seed": 5}
    model = Model()
    steps = stream(model, ids, 8, **options)
    assert model.seen == []
    first = next(steps)
    assert len(model.seen) == 1
    every = [first, *steps]
    assert all(type(step) is np.ndarray and step.shape == shape[:-1] and step.dtype == np.int64 for step in every)
    np.testing.assert_array_equal(np.stack(every, -1), generate(Model(), ids, 8, **options))


def test_the_seed_decides_and_the_global_state_is_not_touched():
    before = np.random.get_state()[1].tolist()  # noqa: NPY002
    one, same, other = (generate(Model(), np.array([1, 2]), 40, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)
    np.testing.assert_array_equal(generate(Model(), np.array([1, 2]), 9), generate(Model(), np.array([1, 2]), 9, seed=0))
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002


def test_two_streams_do_not_disturb_each_other():
    steps = [stream(Model(), np.array([1, 2]), 12, seed=4) for _ in range(2)]
    one, other = zip(*zip(*steps, strict=True), strict=True)
    assert [*map(int, one)] == [*map(int, other)] == generate(Model(), np.array([1, 2]), 12, seed=4).tolist()


def test_the_prompt_is_not_written_to():
    ids = np.array([[1, 2], [3, 4]])
    ids.flags.writeable = False
    assert not np.shares_memory(generate(Model(), ids, 3), ids)


@pytest.mark.parametrize("call", [generate, stream])
def test_a_prompt_longer_than_the_context_is_cropped_with_one_warning(call):
    ids = np.arange(100) % V
    with pytest.warns(UserWarning) as caught:
        long = [*call(Model(max_len=64), ids, 9)]
    (warning,) = caught
    assert str(warning.message) == "the prompt has 100 tokens, the context holds 64: the first 36 are left out"
    assert warning.filename == __file__  # it points to the caller
    assert long == [*call(Model(max_len=64), ids[36:], 9)]


def test_a_prompt_that_fills_the_context_is_not_worth_a_warning():
    model = Model(max_len=5)
    generate(model, np.arange(5), 3)
    assert [seen.shape for seen in model.seen] == [(1, 5)] * 3


def test_logits_that_are_not_finite_are_named_with_their_step():
    for shape, place in (((2,), "[3]"), ((1, 2), "[0, 3]")):
        model = Cycle()
        model.table[:] = 0

        def spoilt(ids, model=model):
            logits = Cycle.__call__(model, ids)
            if len(model.seen) == 3:
                logits[0, -1, 3] = np.nan
            return logits

        broken = SimpleNamespace(config=model.config)
        with pytest.raises(ValueError) as error:
            generate(with_call(broken, spoilt), np.ones(shape, int), 5)
        assert str(error.value) == f"generate, step 2: logits hold nan at {place}"


def with_call(model, function):
    """`model`, called as `function`."""
    return type("Called", (), {"config": model.config, "__call__": staticmethod(function)})()


@pytest.mark.parametrize("shape", [(1, 2, V + 1), (1, V), (2, V), (1, 1, V)])
def test_logits_of_another_shape_are_refused(shape):
    model = with_call(Model(), lambda ids: np.zeros(shape))
    with pytest.raises(ValueError) as error:
        generate(model, np.array([1, 2]), 1)
    assert str(error.value) == f"generate: the model's logits must have the shape (1, 2, {V}), got {shape}"


IDS = np.array([1, 2, 3])


@pytest.mark.parametrize("call", [generate, stream])
@pytest.mark.parametrize(
    ("changes", "error", "sentence"),
    [
        ({"ids": [1, 2, 3]}, TypeError, "ids must be an array of integers, got list"),
        ({"ids": np.zeros(3)}, TypeError, "ids must be an array of integers, got float64"),
        ({"ids": np.array([1, V, -1])}, ValueError, "ids[1] is 7, outside 0 … 6"),
        ({"ids": np.array([[1, 2], [-1, 0]])}, ValueError, "ids[1, 0] is -1, outside 0 … 6"),
        ({"ids": np.array([V] + [0] * 99)}, ValueError, "ids[0] is 7, outside 0 … 6"),  # though it would be cropped
        ({"ids": np.array(1)}, ValueError, "ids must have the axes (T) or (B, T), got the shape ()"),
        ({"ids": np.zeros((2, 3, 5), int)}, ValueError, "ids must have the axes (T) or (B, T), got the shape (2, 3, 5)"),
        ({"ids": np.zeros(0, int)}, ValueError, "ids must hold at least one id to continue from, got the shape (0,)"),
        ({"ids": np.zeros((2, 0), int)}, ValueError, "ids must hold at least one id to continue from, got the shape (2, 0)"),
        ({"n": -1}, ValueError, "n must be at least 0, got -1"),
        ({"n": 3.0}, TypeError, "n must be an integer, got 3.0"),
        ({"temperature": -1}, ValueError, "temperature must be at least 0, got -1.0"),
        ({"temperature": None}, TypeError, "temperature must be a number, got None"),
        ({"top_k": 0}, ValueError, "top_k must be at least 1, got 0"),
        ({"top_p": 0.0}, ValueError, "top_p must be in (0, 1], got 0.0"),
        ({"seed": -1}, ValueError, "seed must be at least 0, got -1"),
        ({"seed": None}, TypeError, "seed must be an integer, got None"),
        ({"seed": np.random.default_rng(0)}, TypeError, "seed must be an integer, got Generator(PCG64)"),
    ],
)
def test_a_bad_argument_is_refused_by_the_call(call, changes, error, sentence):
    """By stream too, before anybody asks for a step."""
    model = Model()
    with pytest.raises(error) as caught:
        call(model, **{"ids": IDS, "n": 3, **changes})
    assert str(caught.value).startswith(f"{call.__name__}: {sentence}")
    assert model.seen == []
