"""A checkpoint holds all that the next step depends on, or is refused in one sentence with its name."""

import copy
import json
import os
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import npformer
from npformer.archive import read_archive, write_archive
from npformer.models import GPT, GPTConfig
from npformer.text import CharacterTokenizer
from npformer.training import Trainer, TrainingConfig, load

LETTERS = CharacterTokenizer("\nabcdefgh中\u0301")
SMALL = {"vocab_size": 11, "max_len": 4, "n_layers": 1, "n_heads": 1, "d_model": 2, "d_ff": 3}
OTHERS = [None, True, -1, 0, 3, 1.5, "x", "", [], {}, [1], {"state": 1}, 2**70, -(2**70), "PCG64", "float16"]


@pytest.fixture(scope="module", autouse=True)
def soon():
    """Files need not outlive a power cut here, which takes longer than all the rest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)
        yield


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.npz"


@pytest.fixture(scope="module")
def good(new_trainer):
    """Header and arrays of a run after step 3 of 7."""
    trainer = new_trainer(tokenizer=LETTERS, model={"dropout": 0.1})
    for _ in range(3):
        trainer.step()
    kept = {}

    def keep(path, header, arrays):
        kept["header"], kept["arrays"] = json.loads(json.dumps(header)), {n: a.copy() for n, a in arrays.items()}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("npformer.training.trainer.write_archive", keep)
        trainer.save("nowhere")
    return kept["header"], kept["arrays"]


def assert_refused(path, action, *arguments, **options):
    """One sentence, with the file's name."""
    with pytest.raises(ValueError) as error:
        action(path, *arguments, **options)
    assert type(error.value) is ValueError
    message = str(error.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    return message.removeprefix(str(path))


def places(header, way=()):
    """Every place in a nested header."""
    for key, value in header.items():
        yield (*way, key)
        if isinstance(value, dict):
            yield from places(value, (*way, key))


def changed(header, way, action):
    header = copy.deepcopy(header)
    inner = header
    for key in way[:-1]:
        inner = inner[key]
    action(inner, way[-1])
    return header


HEADER_PLACES = [
    *((key,) for key in ("model", "config", "dtype", "characters", "training", "step", "position", "rng", "tokens")),
    *(("config", key) for key in asdict(GPTConfig(**SMALL))),
    *(("training", key) for key in asdict(TrainingConfig())),
    *(("rng", key) for key in ("bit_generator", "state", "has_uint32", "uinteger")),
    ("rng", "state", "state"),
    ("rng", "state", "inc"),
]


# Going on.


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_micro_batches", [1, 3])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_a_resumed_run_is_the_unbroken_one_to_the_bit(new_trainer, state, tokens, path, dropout, n_micro_batches, dtype):
    options = {"dtype": dtype, "n_micro_batches": n_micro_batches, "model": {"dropout": dropout}}
    unbroken = new_trainer(**options)
    steps = []
    unbroken.run(report=steps.append)
    for stop in range(unbroken.config.n_steps + 1):
        first = new_trainer(**options)
        before = [first.step() for _ in range(stop)]
        first.save(path)
        resumed = Trainer.resume(path, tokens)
        assert state(resumed) == state(first)
        assert resumed.config == first.config
        after = []
        assert resumed.run(report=after.append) is True
        assert before + after == steps
        assert state(resumed) == state(unbroken)


def test_a_run_may_be_broken_after_every_step(new_trainer, state, tokens, path):
    unbroken, broken = (new_trainer(model={"dropout": 0.1}, n_micro_batches=2) for _ in range(2))
    unbroken.run()
    for _ in range(7):
        broken.step()
        broken.save(path)
        broken = Trainer.resume(path, tokens)
    assert state(broken) == state(unbroken)


def test_a_checkpoint_says_the_same_when_written_twice(new_trainer, tokens, path):
    new_trainer(tokenizer=LETTERS).run(path)
    once = path.read_bytes()
    Trainer.resume(path, tokens, LETTERS).save(path)
    assert path.read_bytes() == once


def test_with_another_end_the_run_goes_there(new_trainer, state, tokens, path):
    new_trainer().run(path)
    longer = Trainer.resume(path, tokens, n_steps=9)
    assert longer.config.n_steps == 9 and longer.n_done == 7
    steps = []
    assert longer.run(path, report=steps.append) is True
    assert [step.number for step in steps] == [8, 9]
    assert read_archive(path)[0]["training"]["n_steps"] == 9
    first = new_trainer()
    first.step()
    first.save(path)
    assert Trainer.resume(path, tokens, n_steps=1).run() is True


def test_steps_beyond_the_end_are_kept_too(new_trainer, state, tokens, path):
    trainer = new_trainer(n_steps=2)
    for _ in range(3):
        trainer.step()
    trainer.save(path)
    resumed = Trainer.resume(path, tokens)
    assert state(resumed) == state(trainer)
    assert resumed.run() is trainer.run() is True
    assert resumed.n_done == 3


def test_an_end_that_is_past_is_refused(new_trainer, tokens, path):
    new_trainer().run(path)
    with pytest.raises(ValueError, match=r"Trainer\.resume: n_steps must be at least 7, which are done, got 6"):
        Trainer.resume(path, tokens, n_steps=6)
    with pytest.raises(ValueError, match=r"Trainer\.resume: n_steps must be at least 1, got 0"):
        Trainer.resume(path, tokens, n_steps=0)
    with pytest.raises(TypeError, match=r"Trainer\.resume: n_steps must be an integer, got '9'"):
        Trainer.resume(path, tokens, n_steps="9")


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.int64])
def test_the_text_is_known_by_its_tokens_alone(new_trainer, tokens, path, dtype):
    new_trainer().save(path)
    text = np.repeat(tokens, 2).astype(dtype)[::2]
    assert Trainer.resume(path, text).n_done == 0


def test_another_text_is_refused(new_trainer, tokens, path):
    new_trainer().save(path)
    one_changed = tokens.copy()
    one_changed[-1] ^= 1
    for text in (one_changed, tokens[:-1], tokens[::-1], tokens[:0], tokens[:-1].reshape(4, 15), tokens[:, None]):
        assert "was trained on another text than the one given" in assert_refused(path, Trainer.resume, text)
    for text in (tokens.tolist(), tokens.astype(float)):
        with pytest.raises(TypeError, match=r"Trainer.resume: tokens must be an array of integers"):
            Trainer.resume(path, text)


def test_other_characters_are_refused(new_trainer, tokens, path):
    new_trainer(tokenizer=LETTERS).save(path)
    assert Trainer.resume(path, tokens).tokenizer == LETTERS
    assert Trainer.resume(path, tokens, CharacterTokenizer(LETTERS.characters)).tokenizer == LETTERS
    assert "another text" in assert_refused(path, Trainer.resume, tokens, CharacterTokenizer(LETTERS.characters[::-1]))
    new_trainer().save(path)
    assert "another text" in assert_refused(path, Trainer.resume, tokens, LETTERS)


def test_a_model_alone_is_no_run(new_trainer, tokens, path):
    new_trainer().model.save(path)
    message = assert_refused(path, Trainer.resume, tokens)
    assert message == " holds a model, but no training run to go on with"


# Models.


@pytest.mark.parametrize("tokenizer", [LETTERS, None])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"tied": False, "bias": False, "norm": "rms_norm", "positions": "rotary", "activation": "swiglu", "n_kv_heads": 1},
        {"norm_placement": "post", "positions": "sinusoidal", "d_head": 3, "activation": "relu", "dropout": 0.2},
    ],
)
def test_a_model_comes_back_to_the_bit(new_trainer, path, options, dtype, tokenizer):
    trainer = new_trainer(model=options, dtype=dtype, tokenizer=tokenizer)
    trainer.step()
    ids = np.random.default_rng(0).integers(0, 11, (3, 5))
    logits = trainer.model(ids)
    for write in (lambda: trainer.save(path), lambda: trainer.model.save(path, tokenizer)):
        write()
        for read in (load, npformer.load):
            model, read_tokenizer = read(path)
            assert read_tokenizer == tokenizer
            assert model.config == trainer.model.config
            assert model(ids).dtype == dtype
            assert model(ids).tobytes() == logits.tobytes()
        assert load(str(path))[0](ids).tobytes() == logits.tobytes()


def test_what_was_read_is_the_readers_own(new_trainer, path):
    new_trainer().save(path)
    first, second = load(path)[0], load(path)[0]
    first.decoder.embedding.table.value[...] = 0
    assert second.decoder.embedding.table.value.all()
    assert all(not parameter.grad.any() for parameter in second.parameters().values())


# Damage.


def test_every_place_of_the_header_is_tried(good):
    assert sorted(places(good[0])) == sorted(HEADER_PLACES)


@pytest.mark.parametrize("way", HEADER_PLACES, ids=".".join)
def test_a_header_that_lacks_something_is_refused(good, tokens, path, way):
    header, arrays = good
    write_archive(path, changed(header, way, lambda inner, key: inner.pop(key)), arrays)
    message = assert_refused(path, Trainer.resume, tokens)
    if way[0] in ("config", "dtype", "characters", "model"):
        assert assert_refused(path, load) == message
    else:
        load(path)
    if way not in (("training",), ("tokens",), ("model",)):
        assert way[-1] in message or way[0] == "rng"


def test_a_checkpoint_that_lacks_an_array_is_refused(good, tokens, path):
    header, arrays = good
    for name in arrays:
        write_archive(path, header, {other: array for other, array in arrays.items() if other != name})
        assert name.removeprefix("weights/") in assert_refused(path, Trainer.resume, tokens)
        if name.startswith("weights/"):
            assert "missing" in assert_refused(path, load)
        else:
            load(path)


@pytest.mark.parametrize("name", ["weights/more", "first_moment/more", "third_moment/embedding.table", "more"])
def test_a_checkpoint_with_something_unknown_is_refused(good, tokens, path, name):
    header, arrays = good
    write_archive(path, header, arrays | {name: np.zeros(3, np.float32)})
    message = assert_refused(path, Trainer.resume, tokens)
    assert name.removeprefix("weights/") in message and "unknown" in message


@pytest.mark.parametrize("of", ["weights", "first_moment", "second_moment"])
@pytest.mark.parametrize("name", ["embedding.table", "final_norm.gamma"])
@pytest.mark.parametrize(
    "change",
    [
        lambda x: x[:1],
        lambda x: np.asarray(x[0]),
        lambda x: x[None],
        lambda x: x.ravel()[:1],
        lambda x: x[:0],
        lambda x: np.concatenate([x, x]),
        lambda x: np.array(0, x.dtype),
        lambda x: x.astype(np.float64),
        lambda x: x.astype(np.float16),
        lambda x: x.astype(np.complex64),
        lambda x: x.astype(np.int32),
        lambda x: x.astype(bool),
        lambda x: x.astype(">f4"),
    ],
)
def test_an_array_of_another_shape_or_dtype_is_refused(good, tokens, path, of, name, change):
    header, arrays = good
    wrong = change(arrays[f"{of}/{name}"])
    write_archive(path, header, arrays | {f"{of}/{name}": wrong})
    message = assert_refused(path, Trainer.resume, tokens)
    assert name in message and str(wrong.shape) in message and str(wrong.dtype) in message


@pytest.mark.parametrize(
    ("way", "value"),
    [
        *((("step",), value) for value in (-1, "3", 3.0, None, True, [3], 8, 2**70)),
        *((("position",), value) for value in (-1, 0, 11, 13, "12", None, [12], 2**70)),
        (("rng",), {"bit_generator": "MT19937", "state": {"key": [1, 2], "pos": 0}}),
        (("rng",), np.random.PCG64DXSM(0).state),
        (("rng", "bit_generator"), "SFC64"),
        *((("rng",), value) for value in (None, [], {}, "x", 3)),
        *((("rng", "state"), value) for value in (None, [], {}, "x", 3)),
        *((("rng", "state", "state"), value) for value in (-1, 2**128, 2**130, 1.5, "x", None, [1], {})),
        *((("rng", "state", "inc"), value) for value in (-1, 2**128, 2**130, 1.5, "x", None, [1], {})),
        *((("rng", "has_uint32"), value) for value in (1.7, "x", None, [1], 2**70)),
        *((("rng", "uinteger"), value) for value in (-1, 2**32, 1.7, "x", None, [1], 2**70)),
        *((("training",), value) for value in (None, [], {}, "n_steps", 3)),
        *((("training", "more"), value) for value in (1,)),
        *((("training", "n_micro_batches"), value) for value in (0, 5, "1")),
        *((("training", "learning_rate"), value) for value in (0, -1, "x", None)),
        *((("training", "n_steps"), value) for value in (0, None)),
        *((("tokens",), value) for value in (None, "", 3, [])),
        *((("config",), value) for value in (None, [], {}, "n_heads", 3)),
        *((("config", "more"), value) for value in (1,)),
        *((("config", "vocab_size"), value) for value in (10, 12, 0, "11", None)),
        *((("config", "n_layers"), value) for value in (2, 0)),
        *((("config", "d_model"), value) for value in (4, 7)),
        *((("config", "max_len"), value) for value in (4, 6, 100)),
        *((("config", "tied"), value) for value in (False, 1, None)),
        *((("config", "norm"), value) for value in ("rms_norm", "x", None)),
        *((("dtype",), value) for value in ("float64", "float16", "f4", "", "(2,3", "a,b", None, 3, [], {}, ["float32"])),
        *((("characters",), value) for value in ("", "aa", "abc", 3, [], ["a"], {})),
        *((("model",), value) for value in (None, "bert", 3, [], {"gpt": 1})),
    ],
)
def test_a_header_that_is_wrong_is_refused(good, tokens, path, way, value):
    header, arrays = good
    write_archive(path, changed(header, way, lambda inner, key: inner.__setitem__(key, value)), arrays)
    assert_refused(path, Trainer.resume, tokens)
    if way[0] in ("config", "dtype", "characters", "model"):
        assert_refused(path, load)


@pytest.mark.parametrize("step", [-1, -3, True, 3.0])
def test_a_step_that_is_no_count_is_refused_where_its_position_agrees(good, tokens, path, step):
    header, arrays = good
    write_archive(path, header | {"step": step, "position": 4 * step}, arrays)
    assert "step must be" in assert_refused(path, Trainer.resume, tokens)


@given(way=st.sampled_from(HEADER_PLACES), value=st.sampled_from(OTHERS))
def test_whatever_a_header_says_it_is_obeyed_or_refused(good, state, tokens, tmp_path_factory, way, value):
    path = tmp_path_factory.mktemp("header") / "run.npz"
    header, arrays = good
    header = changed(header, way, lambda inner, key: inner.__setitem__(key, value))
    write_archive(path, header, arrays)
    try:
        trainer = Trainer.resume(path, tokens)
    except ValueError as error:
        assert str(error).startswith(str(path))
    else:
        trainer.save(path)
        again, _ = read_archive(path)
        assert again == header


def test_a_checkpoint_of_before_goes_on_after_a_file_that_was_refused(good, tokens, path):
    header, arrays = good
    write_archive(path, header, arrays)
    assert Trainer.resume(path, tokens).n_done == 3


@pytest.mark.parametrize("read", [load, lambda path: Trainer.resume(path, np.arange(11))])
def test_other_files_are_refused(path, tmp_path, read):
    for data in (b"", b"PK\x03\x04", b"PK\x03\x04" + bytes(99), b"hello, world", b"\x80\x04K\x01."):
        path.write_bytes(data)
        assert_refused(path, read)
    np.savez(path, a=np.zeros(3))
    assert_refused(path, read)
    np.savez_compressed(path, header=np.zeros(3, np.uint8))
    assert_refused(path, read)
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "nothing.npz")


def test_a_file_cut_short_or_with_a_changed_byte_is_refused(good, tokens, path):
    write_archive(path, *good)
    data = path.read_bytes()
    rng = np.random.default_rng(0)
    for end in rng.integers(1, len(data), 40):
        path.write_bytes(data[:end])
        assert_refused(path, load)
        assert_refused(path, Trainer.resume, tokens)
    starts = [data.index(f"{of}/embedding.table".encode()) + 150 for of in ("weights", "first_moment", "second_moment")]
    for place in (*starts, data.index(b"n_micro_batches")):
        path.write_bytes(data[:place] + bytes([data[place] ^ 16]) + data[place + 1 :])
        assert_refused(path, load)
        assert_refused(path, Trainer.resume, tokens)


def test_weights_are_read_before_the_run(good, tokens, path):
    header, arrays = good
    model = GPT(GPTConfig(**SMALL))
    model.save(path)
    small = read_archive(path)[1]
    write_archive(path, header, arrays | small)
    assert "is damaged" in assert_refused(path, Trainer.resume, tokens)


def test_nothing_is_left_beside_a_checkpoint(new_trainer, path):
    new_trainer().run(path, every=1)
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("name", ["n_layers", "vocab_size", "max_len", "d_ff", "d_model", "d_head"])
def test_a_header_of_a_huge_model_is_refused_before_it_is_built(good, path, name):
    header, arrays = good
    config = header["config"] | {name: 2**30}
    write_archive(path, header | {"config": config}, arrays)
    with pytest.raises(ValueError, match=r"is damaged: (it holds 693 weights, but its model has|11 characters)"):
        load(path)
