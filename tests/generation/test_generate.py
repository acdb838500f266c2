"""Generation: each step sees the last max_len ids and no others, a seed decides all of it, and a cache changes nothing."""

from types import SimpleNamespace

import numpy as np
import pytest

from npformer.generation import generate, sample, stream
from toy_models import M, ToyEncoderDecoder, ToyGPT, padded

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


# With a cache.


def texts(rng, B, low=1, high=6, V=5):
    return [rng.integers(0, V, rng.integers(low, high + 1)) for _ in range(B)]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0},
        {"temperature": 0.7, "top_k": 4},
        {"end_id": 2, "min_length": 3},
        {"temperature": 0, "end_id": 2, "repetition_penalty": 1.7},
    ],
)
def test_the_cache_changes_nothing(options, seed):
    """Beyond the end of the context too."""
    rng = np.random.default_rng(seed)
    model = ToyGPT(seed=seed, max_len=int(rng.integers(6, 17)))
    ids, keep = padded(texts(rng, 3), 9, rng)
    for given in ({"ids": ids, "keep": keep}, {"ids": rng.integers(0, 5, (3, 4))}, {"ids": rng.integers(0, 5, 6)}):
        cached, plain = (
            generate(model, n=14, seed=seed, probabilities=True, cached=cached, **given, **options)
            for cached in (True, False)
        )
        for one, other in zip(cached, plain, strict=True):
            np.testing.assert_array_equal(one, other)


def test_with_a_cache_each_id_is_read_once_until_the_context_is_full():
    model = ToyGPT(max_len=6)
    generate(model, np.array([[1, 2, 3], [3, 2, 1]]), 6)
    assert model.calls == [("decode", (2, 3)), *[("step", (2,))] * 3, *[("full", (2, 6))] * 2]
    model.calls.clear()
    generate(model, np.array([[1, 2, 3], [3, 2, 1]]), 3, cached=False)
    assert model.calls == [("full", (2, 3)), ("full", (2, 4)), ("full", (2, 5))]


@pytest.mark.parametrize("cached", [True, False])
def test_a_padded_prompt_is_continued_as_if_it_were_alone(cached):
    rng = np.random.default_rng(0)
    model, rows = ToyGPT(), [row % 4 + 1 for row in texts(rng, 7)]  # without 0
    options = {"temperature": 0, "cached": cached, "repetition_penalty": 5.0, "probabilities": True}
    alone = [generate(model, row, 9, **options) for row in rows]
    left, right = (np.zeros((7, 8), int), np.zeros((7, 8), bool)), (np.zeros((7, 8), int), np.zeros((7, 8), bool))
    for r, row in enumerate(rows):
        left[0][r, 8 - len(row) :], left[1][r, 8 - len(row) :] = row, True
        right[0][r, : len(row)], right[1][r, : len(row)] = row, True
    for ids, keep in (left, right, padded(rows, 8, rng)):
        new, P = generate(model, ids, 9, keep=keep, **options)
        np.testing.assert_array_equal(new, [ids for ids, P in alone])
        np.testing.assert_array_equal(P, [P for ids, P in alone])
    one, P = generate(model, ids[0], 9, keep=keep[0], **options)  # (T,)
    np.testing.assert_array_equal(one, alone[0][0])


def test_a_model_is_told_of_padding_only_where_rows_differ():
    ids, keep = padded([[1, 2, 3], [4, 5, 6]], 7, np.random.default_rng(0))
    model = Model(max_len=99)
    np.testing.assert_array_equal(generate(model, ids, 4, keep=keep), generate(model, np.array([[1, 2, 3], [4, 5, 6]]), 4))


def test_padding_does_not_count_for_the_context():
    model, rng = ToyGPT(max_len=6), np.random.default_rng(1)
    rows = texts(rng, 3, 4, 6)
    ids, keep = padded(rows, 30, rng)
    np.testing.assert_array_equal(
        generate(model, ids, 5, keep=keep, temperature=0), [generate(model, row, 5, temperature=0) for row in rows]
    )
    ids, keep = padded([np.arange(7) % 5, rows[0]], 30, rng)
    with pytest.warns(UserWarning, match="the prompt has 7 tokens, the context holds 6: the first 1 are left out"):
        generate(model, ids, 2, keep=keep)


# With an encoder.


@pytest.mark.parametrize("options", [{"temperature": 0}, {"end_id": 1, "min_length": 2, "seed": 5}])
def test_a_source_is_followed(options):
    rng = np.random.default_rng(3)
    model = ToyEncoderDecoder()
    sources, beginnings = texts(rng, 4, V=7), texts(rng, 4, 1, 4)
    source, source_keep = padded(sources, 9, rng)
    ids, keep = padded(beginnings, 6, rng)
    given = {"source": source, "source_keep": source_keep, "keep": keep, "probabilities": True, **options}
    new, P = generate(model, ids, 9, **given)
    for one, other in zip((new, P), generate(model, ids, 9, cached=False, **given), strict=True):
        np.testing.assert_array_equal(one, other)
    if "seed" not in options:
        for r in range(4):
            alone = generate(model, beginnings[r], 9, source=sources[r], temperature=0)
            np.testing.assert_array_equal(new[r], alone)
    assert len({tuple(row) for row in new}) > 1


def test_a_source_may_be_hidden_and_padding_does_not_count():
    model, ids = ToyEncoderDecoder(max_len=5), np.array([[1], [1]])
    source, source_keep = padded([[3, 1, 2, 0, 6], []], 30, np.random.default_rng(0))
    new = generate(model, ids, 5, source=source, source_keep=source_keep, temperature=0)
    alone = generate(model, ids[0], 5, source=np.array([3, 1, 2, 0, 6]), temperature=0)
    np.testing.assert_array_equal(new[0], alone)
    hidden = {"source": np.array([-1]), "source_keep": np.array([False])}
    np.testing.assert_array_equal(new[1], generate(model, ids[1], 5, temperature=0, **hidden))


def test_a_target_fills_the_context_and_no_more():
    """The last new id is not read, so there may be one more than the context holds."""
    model, source = ToyEncoderDecoder(max_len=6), np.array([[1, 2]])
    assert generate(model, np.array([[0, 1]]), 5, source=source).shape == (1, 5)
    for call in (generate, stream):
        with pytest.raises(ValueError) as caught:
            call(model, np.array([[0, 1]]), 6, source=source)
        assert str(caught.value) == f"{call.__name__}: 2 ids and n = 6 more need a context of 7, but max_len is 6"


# The end, and what is done to the logits.


@pytest.mark.parametrize("cached", [True, False])
def test_a_row_ends_with_the_end_id_and_is_filled_with_it(cached):
    end, n, rng = 3, 40, np.random.default_rng(0)
    model, ids = ToyGPT(max_len=99), rng.integers(0, 5, (6, 4))
    endless, endless_P = generate(model, ids, n, seed=7, probabilities=True, cached=cached)
    new, P = generate(model, ids, n, seed=7, end_id=end, probabilities=True, cached=cached)
    lengths = [list(row).index(end) + 1 for row in endless]  # of each row, with its end
    assert len(set(lengths)) > 3
    assert new.shape == (6, max(lengths))
    for r, length in enumerate(lengths):  # the draws of those that go on are the same
        np.testing.assert_array_equal(new[r, :length], endless[r, :length])
        np.testing.assert_array_equal(P[r, :length], endless_P[r, :length])
        assert (new[r, length:] == end).all()
        np.testing.assert_array_equal(P[r, length:], np.tile(np.eye(5)[end], (max(lengths) - length, 1)))


def test_a_row_that_has_ended_is_not_read_any_more():
    model = ToyGPT()
    generate(model, np.random.default_rng(0).integers(0, 5, (6, 4)), 8, seed=7, end_id=3)
    sizes = [shape[0] for _, shape in model.calls]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] == 6 and sizes[-1] < 6


def test_a_stream_without_an_end_in_sight_takes_no_room_for_it():
    steps = stream(ToyGPT(max_len=999), np.array([1, 2]), 2**31 - 1, seed=1, end_id=0)
    assert [*map(int, steps)][-1] == 0


def test_min_length_is_the_number_of_ids_before_the_end():
    model = ToyGPT(max_len=99)
    for seed in range(20):
        for least in (0, 1, 5):
            new = generate(model, np.array([1, 2]), 60, seed=seed, end_id=4, min_length=least)
            assert (new[:-1] != 4).all() and new[-1] == 4 and len(new) > least
    assert min(len(generate(model, np.array([1, 2]), 60, seed=seed, end_id=4, min_length=5)) for seed in range(20)) == 6


def test_ids_that_the_text_has_become_rarer():
    """By the rule written out, one id at a time; where θ = 1 nothing is done."""
    model, ids = ToyGPT(max_len=5), np.array([1, 2, 2])
    for theta in (1.0, 1.3, 50.0, 0.7):
        text = [*ids]
        for _ in range(9):
            logits = model(np.array([text[-5:]]))[0, -1]
            for i in set(text):  # those that the context holds no longer as well
                logits[i] = logits[i] / theta if logits[i] > 0 else logits[i] * theta
            text.append(int(logits.argmax()))
        assert generate(model, ids, 9, temperature=0, repetition_penalty=theta).tolist() == text[3:]


def test_the_penalty_comes_before_the_temperature_and_what_is_hidden_has_none():
    class Two(ToyGPT):
        def __call__(self, ids, keep=None):
            return np.tile([2.0, 1.0, -np.inf, -np.inf, -np.inf], (*ids.shape, 1))

    def share(**options):
        ids, keep = np.tile([0, 3], (40_000, 1)), np.tile([True, True], (40_000, 1))
        ids[:, 1] = 4
        if options.pop("hidden", False):
            keep[:, 0] = False
        return np.mean(generate(Two(), ids, 1, keep=keep, cached=False, **options) == 0)

    def sigmoid(x):
        return 1 / (1 + np.exp(-x))

    for theta, temperature in ((1.0, 0.5), (4.0, 0.5), (4.0, 1.0)):
        expected = sigmoid((2.0 / theta - 1.0) / temperature)
        assert abs(share(temperature=temperature, repetition_penalty=theta) - expected) < 0.0125
    assert abs(share(repetition_penalty=4.0, hidden=True) - sigmoid(1.0)) < 0.0125


def test_the_probabilities_are_the_models_own():
    """Whatever is done to the logits afterwards."""
    model, ids = ToyGPT(), np.array([[1, 2, 3], [4, 0, 0]])
    options = {"temperature": 0.5, "top_k": 2, "repetition_penalty": 1.5, "end_id": 2, "min_length": 9}
    new, P = generate(model, ids, 9, probabilities=True, **options)
    logits = model(np.concatenate([ids, new], axis=1))[:, 2:-1]
    assert P.dtype == np.float64
    np.testing.assert_allclose(P, np.exp(logits) / np.exp(logits).sum(-1, keepdims=True), rtol=1e-14)
    np.testing.assert_allclose(P.sum(-1), 1, rtol=1e-15)
    np.testing.assert_array_equal(new, generate(model, ids, 9, **options))


@pytest.mark.parametrize("shape", [(3,), (2, 3)])
def test_the_stream_yields_the_probabilities_too(shape):
    ids, options = np.ones(shape, int), {"end_id": 2, "seed": 5, "probabilities": True}
    every = [*stream(ToyGPT(), ids, 8, **options)]
    new, P = generate(ToyGPT(), ids, 8, **options)
    assert all(ids.shape == shape[:-1] and P.shape == (*shape[:-1], 5) for ids, P in every)
    np.testing.assert_array_equal(np.stack([ids for ids, P in every], -1), new)
    np.testing.assert_array_equal(np.stack([P for ids, P in every], -2), P)


@pytest.mark.parametrize("shape", [(2,), (3, 2), (0, 2)])
def test_no_new_ids_have_no_probabilities(shape):
    new, P = generate(ToyGPT(), np.ones(shape, int), 0, probabilities=True)
    assert new.shape == (*shape[:-1], 0) and P.shape == (*shape[:-1], 0, 5)


def test_what_is_yielded_may_be_written_to():
    model, ids = ToyGPT(), np.array([[1, 2, 3], [4, 0, 0]])
    written = []
    for step in stream(model, ids, 8, seed=2, end_id=1):
        written.append(step.copy())
        step[...] = 1
    np.testing.assert_array_equal(np.stack(written, -1), generate(model, ids, 8, seed=2, end_id=1))


def test_a_row_without_an_id_left_is_named():
    model = ToyGPT()
    model.table[1 + 2, 1:] = -np.inf  # after a 2 alone
    with pytest.raises(ValueError) as caught:
        generate(model, np.array([[1], [2]]), 3, end_id=0, min_length=1)
    assert str(caught.value) == "generate, step 0: min_length and repetition_penalty leave no id to row 1"
    with pytest.raises(ValueError, match=r"^generate, step 0: min_length and repetition_penalty leave no id$"):
        generate(model, np.array([2]), 3, end_id=0, min_length=1)


def test_logits_that_are_not_finite_are_named_with_the_row_though_others_have_ended():
    model = ToyGPT(max_len=99)
    ids = np.random.default_rng(0).integers(0, 5, (6, 4))
    new = generate(model, ids, 40, seed=7, end_id=3)
    last = int(np.argmax((new == 3).argmax(1)))  # the row that ends last
    step = new.shape[1] - 1
    state = 0
    for i in [*ids[last], *new[last, :-1]]:
        state = (7 * state + i + 1) % M
    model.table[state, 2] = np.nan
    with pytest.raises(ValueError) as caught:
        generate(model, ids, 40, seed=7, end_id=3)
    assert str(caught.value) == f"generate, step {step}: logits hold nan at [{last}, 2]"


@pytest.mark.parametrize("name", ["decode", "decode_step"])
def test_what_a_model_with_a_cache_gives_is_checked(name):
    model = ToyGPT()
    shape = "(2, 3, 5)" if name == "decode" else "(2, 5)"
    for wrong, error, sentence in (
        (np.zeros((2, 1, 5)), ValueError, f"the model's logits must have the shape {shape}, got (2, 1, 5)"),
        (np.zeros((2, 5), int), TypeError, "the model's logits must be an array of floating numbers, got int64"),
        ([0.0], TypeError, "the model's logits must be an array of floating numbers, got list"),
    ):
        setattr(model, name, lambda *_, wrong=wrong: wrong)
        with pytest.raises(error) as caught:
            generate(model, np.zeros((2, 3), int), 2)
        assert str(caught.value) == f"generate: {sentence}"


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
        ({"keep": [True] * 3}, TypeError, "keep must be a boolean array, got list"),
        ({"keep": np.ones(3)}, TypeError, "keep must be a boolean array, got float64"),
        ({"keep": np.ones((1, 3), bool)}, ValueError, "keep must have the shape (3,), as ids has, got (1, 3)"),
        ({"keep": np.zeros(3, bool)}, ValueError, "keep must leave at least one id to continue from, but hides every id"),
        (
            {"ids": np.ones((2, 2), int), "keep": np.array([[True, False], [False, False]])},
            ValueError,
            "keep must leave at least one id to continue from, but hides every id of row 1",
        ),
        ({"ids": np.array([V, 1, -1]), "keep": np.array([False, True, True])}, ValueError, "ids[2] is -1, outside 0 … 6"),
        ({"ids": np.zeros(2), "keep": np.ones(2, bool)}, TypeError, "ids must be an array of integers, got float64"),
        ({"source": np.array([1])}, TypeError, "source is given, but the model has no encoder"),
        ({"source_keep": np.array([True])}, TypeError, "source_keep is given without source"),
        ({"end_id": V}, ValueError, "end_id must be in 0 … 6, got 7"),
        ({"end_id": 1.0}, TypeError, "end_id must be an integer, got 1.0"),
        ({"min_length": 2}, ValueError, "min_length = 2 says when the text may end, so it needs end_id"),
        ({"min_length": 4, "end_id": 1}, ValueError, "min_length must be in 0 … 3, got 4"),
        ({"min_length": -1, "end_id": 1}, ValueError, "min_length must be in 0 … 3, got -1"),
        ({"repetition_penalty": 0}, ValueError, "repetition_penalty must be finite and above 0, got 0"),
        ({"repetition_penalty": None}, TypeError, "repetition_penalty must be a number, got None"),
        ({"cached": 1}, TypeError, "cached must be True or False, got 1"),
        ({"probabilities": None}, TypeError, "probabilities must be True or False, got None"),
    ],
)
def test_a_bad_argument_is_refused_by_the_call(call, changes, error, sentence):
    """By stream too, before anybody asks for a step."""
    model = Model()
    with pytest.raises(error) as caught:
        call(model, **{"ids": IDS, "n": 3, **changes})
    assert str(caught.value).startswith(f"{call.__name__}: {sentence}")
    assert model.seen == []


@pytest.mark.parametrize("call", [generate, stream])
@pytest.mark.parametrize(
    ("changes", "error", "sentence"),
    [
        ({"source": None}, TypeError, "source must be given to a model with an encoder"),
        ({"source": [1, 2]}, TypeError, "source must be an array of integers, got list"),
        ({"source": np.array([1, 7])}, ValueError, "source[1] is 7, outside 0 … 6"),
        ({"source": np.array([[1, 2]])}, ValueError, "source must have the shape (S,), as ids has (3,), got (1, 2)"),
        (
            {"ids": np.array([[1, 2]]), "source": np.array([[1, 2], [3, 4]])},
            ValueError,
            "source must have the shape (1, S), as ids has (1, 2), got (2, 2)",
        ),
        ({"source": np.zeros(0, int)}, ValueError, "source must hold 1 … 13 ids, got the shape (0,)"),
        ({"source": np.zeros(14, int)}, ValueError, "source must hold 1 … 13 ids, got the shape (14,)"),
        ({"source_keep": np.array([1, 1])}, TypeError, "source_keep must be a boolean array, got int64"),
        ({"source_keep": np.array([True])}, ValueError, "source_keep must have the shape (2,), as source has, got (1,)"),
    ],
)
def test_a_bad_source_is_refused_by_the_call(call, changes, error, sentence):
    model = ToyEncoderDecoder()
    with pytest.raises(error) as caught:
        call(model, **{"ids": IDS, "n": 3, "source": np.array([1, 6]), **changes})
    assert str(caught.value) == f"{call.__name__}: {sentence}"
    assert model.calls == []
