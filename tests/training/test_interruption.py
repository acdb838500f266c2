"""Ctrl-C, and worse: whenever it comes, a run goes on from its file as if it had not come."""

import hashlib
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from npformer.training import NotFiniteError, Trainer
from npformer.training import trainer as trainer_module
from npformer.training.interruption import deferred_interrupt

ROOT = Path(__file__).parents[2]
OPTIONS = {"model": {"dropout": 0.1}, "n_micro_batches": 2}


@pytest.fixture(autouse=True)
def handler():
    """Python's own, also where the tests were started by something that ignores Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield signal.default_int_handler
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.npz"


@pytest.fixture
def unbroken(new_trainer, state):
    trainer = new_trainer(**OPTIONS)
    trainer.run()
    return state(trainer)


def ctrl_c():
    signal.raise_signal(signal.SIGINT)


def at(number, action=ctrl_c):
    """A report that does `action` after step `number`."""
    return lambda step: action() if step.number == number else None


def call(times):
    """Ctrl-C in the calls of these numbers, counted from 1."""
    n = 0

    def now():
        nonlocal n
        n += 1
        if n in times:
            ctrl_c()

    return now


def assert_stopped_at(number, trainer, path, state, tokens, unbroken):
    assert trainer.n_done == number
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert os.listdir(path.parent) == [path.name]
    resumed = Trainer.resume(path, tokens)
    assert state(resumed) == state(trainer)
    for on in (resumed, trainer):
        assert on.run(path) is True
        assert state(on) == unbroken


# The first one.


@pytest.mark.parametrize("every", [1, 2, 100])
@pytest.mark.parametrize("number", [1, 3, 6])
def test_in_the_report(new_trainer, state, tokens, path, unbroken, number, every):
    trainer = new_trainer(**OPTIONS)
    assert trainer.run(path, every=every, report=at(number)) is False
    assert_stopped_at(number, trainer, path, state, tokens, unbroken)


@pytest.mark.parametrize("number", [1, 4, 7, 8])
def test_in_the_middle_of_a_step(new_trainer, state, tokens, path, unbroken, number):
    trainer = new_trainer(**OPTIONS)
    loss, now = trainer.model.loss, call([number])

    def interrupted_loss(*arguments):
        now()
        return loss(*arguments)

    trainer.model.loss = interrupted_loss
    assert trainer.run(path) is False
    assert_stopped_at((number + 1) // 2, trainer, path, state, tokens, unbroken)


@pytest.mark.parametrize(("number", "stopped_at"), [(1, 0), (2, 2), (3, 4)])
def test_while_a_checkpoint_is_written(new_trainer, state, tokens, path, unbroken, monkeypatch, number, stopped_at):
    trainer = new_trainer(**OPTIONS)
    now, replace = call([number]), os.replace
    monkeypatch.setattr(os, "replace", lambda *names: (now(), replace(*names)))
    assert trainer.run(path, every=2) is False
    assert_stopped_at(stopped_at, trainer, path, state, tokens, unbroken)


def test_in_the_last_step_the_run_is_at_its_end(new_trainer, state, tokens, path, unbroken):
    trainer = new_trainer(**OPTIONS)
    assert trainer.run(path, report=at(7)) is True
    assert_stopped_at(7, trainer, path, state, tokens, unbroken)


def test_without_a_file(new_trainer, state, unbroken):
    trainer = new_trainer(**OPTIONS)
    assert trainer.run(report=at(3)) is False
    assert trainer.n_done == 3
    assert trainer.run() is True
    assert state(trainer) == unbroken


# The second one.


def twice():
    ctrl_c()
    ctrl_c()


def test_a_second_one_interrupts_at_once(new_trainer, state, path, tokens, unbroken):
    trainer = new_trainer(**OPTIONS)
    with pytest.raises(KeyboardInterrupt):
        trainer.run(path, every=2, report=at(3, twice))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert os.listdir(path.parent) == [path.name]
    resumed = Trainer.resume(path, tokens)
    assert resumed.n_done == 2
    resumed.run(path)
    assert state(resumed) == unbroken


@pytest.mark.parametrize("number", [1, 2, 5, 6])
def test_a_second_one_in_a_step_leaves_the_step_undone(new_trainer, state, path, tokens, unbroken, number):
    trainer = new_trainer(**OPTIONS)
    loss, n = trainer.model.loss, []

    def interrupted_loss(*arguments):
        result = loss(*arguments)
        n.append(arguments)
        if len(n) == number:
            twice()
        return result

    trainer.model.loss = interrupted_loss
    with pytest.raises(KeyboardInterrupt):
        trainer.run(path, every=1)
    assert_stopped_at((number - 1) // 2, trainer, path, state, tokens, unbroken)


def test_a_second_one_while_a_checkpoint_is_written_leaves_the_one_before(
    new_trainer, path, tokens, state, unbroken, monkeypatch
):
    trainer = new_trainer(**OPTIONS)
    trainer.run(path, report=at(2))
    data = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", lambda *names: twice())
        with pytest.raises(KeyboardInterrupt):
            trainer.run(path)
    assert path.read_bytes() == data
    assert_stopped_at(2, trainer, path, state, tokens, unbroken)


# Whatever happens, the handler comes back.


@pytest.mark.parametrize("error", [NotFiniteError, OSError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("first", [lambda: None, ctrl_c])
def test_after_an_error_the_handler_is_the_one_before(new_trainer, error, first):
    def fail():
        first()
        raise error

    with pytest.raises(error):
        new_trainer().run(report=at(2, fail))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_of_ones_own_comes_back_and_gets_the_second(new_trainer):
    caught = []

    def own(number, frame):
        caught.append(number)

    signal.signal(signal.SIGINT, own)
    trainer = new_trainer()
    assert trainer.run(report=at(2, twice)) is False
    assert caught == [signal.SIGINT]
    assert signal.getsignal(signal.SIGINT) is own


def test_who_ignores_ctrl_c_goes_on_ignoring_it(new_trainer):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert new_trainer().run(report=at(2, twice)) is True
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_a_handler_that_python_does_not_know_is_left(new_trainer, monkeypatch):
    monkeypatch.setattr(signal, "getsignal", lambda number: None)
    monkeypatch.setattr(signal, "signal", None)
    assert new_trainer().run() is True


def test_inside_it_is_only_noted():
    with deferred_interrupt() as interrupted:
        assert not interrupted()
        ctrl_c()
        assert interrupted()
        with pytest.raises(KeyboardInterrupt):
            ctrl_c()
        assert interrupted()
    with pytest.raises(KeyboardInterrupt):
        ctrl_c()


def test_in_another_thread_a_run_is_like_any_other(new_trainer, state, path, unbroken):
    trainer, results = new_trainer(**OPTIONS), []
    thread = threading.Thread(target=lambda: results.append(trainer.run(path, every=1)))
    thread.start()
    thread.join()
    assert results == [True]
    assert state(trainer) == unbroken
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


# Worse.


@pytest.mark.parametrize("number", [1, 2, 4])
def test_a_disk_that_fills_up_leaves_the_checkpoint_before(new_trainer, tokens, path, state, monkeypatch, number):
    trainer, write, n = new_trainer(**OPTIONS), trainer_module.write_archive, []

    def full(*arguments):
        n.append(arguments)
        if len(n) == number:
            raise OSError(28, "No space left on device", str(path))
        write(*arguments)

    monkeypatch.setattr(trainer_module, "write_archive", full)
    with pytest.raises(OSError, match="No space left"):
        trainer.run(path, every=2)
    if number > 1:
        assert Trainer.resume(path, tokens).n_done == 2 * (number - 2)


TRAINING = """
import sys
import numpy as np
from npformer.models import GPT, GPTConfig
from npformer.training import Trainer, TrainingConfig

tokens = np.arange(90) ** 2 % 11
if sys.argv[2] == "begin":
    model = GPT(GPTConfig(vocab_size=11, max_len=5, n_layers=1, n_heads=2, d_model=8, dropout=0.1))
    trainer = Trainer(model, tokens, TrainingConfig(n_steps=600, batch_size=4, n_micro_batches=2, n_warmup=5))
else:
    trainer = Trainer.resume(sys.argv[1], tokens)
print("begun", flush=True)
finished = trainer.run(sys.argv[1], every=1, report=lambda step: print(step.number, flush=True))
print("finished" if finished else "stopped", flush=True)
"""


def training(path, how):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "error", "-c", TRAINING, str(path), how]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=ROOT)


def busy(amount):
    """Something that takes a while, as long as `amount` is large."""
    hashlib.sha256(bytes(amount)).digest()


@pytest.mark.long
@pytest.mark.skipif(os.name != "posix", reason="a process that is killed there is another matter")
def test_a_run_that_is_killed_again_and_again_ends_where_the_unbroken_one_does(tmp_path):
    rng = np.random.default_rng()
    tokens = np.arange(90) ** 2 % 11
    whole, broken = tmp_path / "whole" / "run.npz", tmp_path / "broken" / "run.npz"
    whole.parent.mkdir()
    broken.parent.mkdir()
    output, errors = training(whole, "begin").communicate()
    assert output.endswith("600\nfinished\n"), errors
    n_done, killed = 0, []
    for _ in range(30):
        process = training(broken, "resume" if broken.exists() else "begin")
        for _ in range(int(rng.integers(2, 15))):
            line = process.stdout.readline()
        busy(int(rng.integers(5_000_000)))
        process.send_signal(signal.SIGKILL)
        rest, errors = process.communicate()
        assert process.returncode == -signal.SIGKILL, errors
        assert not errors
        killed.append(process.pid)
        told = int((line + rest).split()[-1])
        trainer = Trainer.resume(broken, tokens)
        assert told - 1 <= trainer.n_done <= told  # a step is told of before it is saved
        assert n_done <= trainer.n_done
        n_done = trainer.n_done
        # A process that is killed cannot remove what it was writing; every other file it removes or renames.
        left = [re.fullmatch(r"\.npformer-(\d+)-[0-9a-f]{16}\.tmp", name) for name in os.listdir(broken.parent)]
        owners = [int(match[1]) for match in left if match]
        assert len(left) == len(owners) + 1
        assert len(set(owners)) == len(owners) and set(owners) <= set(killed)
    assert 30 < n_done < 600
    output, errors = training(broken, "resume").communicate()
    assert output.endswith("600\nfinished\n"), errors
    assert broken.read_bytes() == whole.read_bytes()


@pytest.mark.skipif(os.name != "posix", reason="Ctrl-C is sent another way there")
def test_ctrl_c_from_outside_is_answered_with_a_checkpoint(tmp_path):
    path = tmp_path / "run.npz"
    process = training(path, "begin")
    for _ in range(5):
        line = process.stdout.readline()
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate()
    assert process.returncode == 0 and not errors
    *_, last, stopped = (line + rest).split()
    assert stopped == "stopped"
    trainer = Trainer.resume(path, np.arange(90) ** 2 % 11)
    assert trainer.n_done == int(last)
    assert os.listdir(tmp_path) == [path.name]
