"""A tiny model in training, and all that its next step depends on, to the bit."""

import numpy as np
import pytest

from npformer.models import GPT, GPTConfig
from npformer.training import Trainer, TrainingConfig

SIZES = {"vocab_size": 11, "max_len": 5, "n_layers": 1, "n_heads": 2, "d_model": 8, "d_ff": 13}


@pytest.fixture(scope="session")
def tokens():
    return np.random.default_rng(7).integers(0, 11, 61)  # a pass has 11 windows, and a batch of them crosses its end


@pytest.fixture(scope="session")
def new_trainer(tokens):
    def make(model=None, dtype=np.float32, tokenizer=None, **settings):
        settings = {"n_steps": 7, "batch_size": 4, "learning_rate": 0.01, "n_warmup": 2, "seed": 5} | settings
        built = GPT(GPTConfig(**SIZES | (model or {})), dtype=dtype, seed=3)
        return Trainer(built, tokens, TrainingConfig(**settings), tokenizer)

    return make


@pytest.fixture(scope="session")
def state():
    def of(trainer):
        return {
            "values": {name: p.value.tobytes() for name, p in trainer.model.parameters().items()},
            "first moment": trainer.optimiser.first_moment.tobytes(),
            "second moment": trainer.optimiser.second_moment.tobytes(),
            "steps": trainer.n_done,
            "rng": trainer.rng.bit_generator.state,
        }

    return of
