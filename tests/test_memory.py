"""Keeping freed memory: possible or not, it never changes a bit."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from npformer import memory
from npformer.memory import keep_freed_memory

ROOT = Path(__file__).parents[1]

TRAINING = """
import hashlib, sys
import numpy as np
from npformer.memory import keep_freed_memory
from npformer.models import GPT, GPTConfig
from npformer.training import Trainer, TrainingConfig, trainer

kept = keep_freed_memory() if sys.argv[1] == "keep" else None
trainer.keep_freed_memory = lambda: None
model = GPT(GPTConfig(vocab_size=11, max_len=32, n_layers=1, n_heads=2, d_model=32, dropout=0.1))
run = Trainer(model, np.arange(3000) ** 2 % 11, TrainingConfig(n_steps=4, batch_size=16))
losses = [run.step().loss for _ in range(4)]
print(kept, losses, hashlib.sha256(run.flat.values.tobytes()).hexdigest())
"""


def test_it_says_whether_it_is_possible():
    assert isinstance(keep_freed_memory(), bool)
    assert keep_freed_memory() == keep_freed_memory()


@pytest.mark.parametrize("platform", ["darwin", "win32", "freebsd14"])
def test_elsewhere_nothing_happens(monkeypatch, platform):
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(ctypes, "CDLL", None)
    assert keep_freed_memory() is False


@pytest.mark.parametrize("error", [OSError, AttributeError])
def test_another_c_library_is_no_error(monkeypatch, error):
    class Library:
        def __init__(self, name):
            if error is OSError:
                raise OSError("no such library")

        def __getattr__(self, name):
            raise AttributeError(name)

    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(memory.ctypes, "CDLL", Library)
    assert keep_freed_memory() is False


@pytest.mark.parametrize(("answers", "expected"), [((1, 1), True), ((0, 1), False), ((1, 0), False)])
def test_it_asks_for_both_thresholds(monkeypatch, answers, expected):
    asked = []

    class Library:
        def __init__(self, name):
            pass

        def mallopt(self, parameter, value):
            asked.append((parameter, value))
            return answers[len(asked) - 1]

    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(memory.ctypes, "CDLL", Library)
    assert keep_freed_memory() is expected
    assert asked == [(-3, 2**25), (-1, 2**30)][: len(asked)]
    assert len(asked) == 2 or not expected


def test_results_are_the_same_bits_with_and_without():
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    outputs = []
    for choice in ("keep", "leave"):
        command = [sys.executable, "-W", "error", "-c", TRAINING, choice]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, check=False)
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout.split(maxsplit=1))
    assert outputs[0][0] in ("True", "False") and outputs[1][0] == "None"
    assert outputs[0][1] == outputs[1][1]
