"""The held-out loss: each token but the first once, from those before it in its window."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npformer.models import GPT, GPTConfig
from npformer.training import held_out_loss
from npformer.training.evaluation import WINDOWS_AT_ONCE

V = 7


def gpt(max_len, dtype=np.float64):
    model = GPT(GPTConfig(vocab_size=V, max_len=max_len, n_layers=1, n_heads=2, d_model=8, dropout=0.3), dtype=dtype)
    rng = np.random.default_rng(1)
    for parameter in model.parameters().values():
        parameter.value[...] += 0.5 * rng.standard_normal(parameter.value.shape)
    return model


def by_token(model, tokens):
    length = min(model.config.max_len, len(tokens) - 1)
    losses = []
    for place in range(1, len(tokens)):
        start = (place - 1) // length * length
        logits = model(tokens[None, start:place])[0, -1].tolist()
        losses.append(math.log(sum(math.exp(z - logits[tokens[place]]) for z in logits)))
    return math.fsum(losses) / len(losses)


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6, 7, 11, 12, 13, 5 * WINDOWS_AT_ONCE, 5 * WINDOWS_AT_ONCE + 3])
def test_it_is_the_mean_over_tokens(n):
    tokens = np.random.default_rng(n).integers(0, V, n)
    model = gpt(5)
    assert held_out_loss(model, tokens) == pytest.approx(by_token(model, tokens), rel=1e-12)


def test_float32_says_nearly_the_same():
    tokens = np.random.default_rng(0).integers(0, V, 99)
    assert held_out_loss(gpt(5, np.float32), tokens) == pytest.approx(by_token(gpt(5), tokens), rel=1e-5)


@given(max_len=st.integers(1, 9), n=st.integers(2, 700), dtype=st.sampled_from([np.uint8, np.int64]))
def test_every_token_but_the_first_counts_once(max_len, n, dtype):
    tokens = np.random.default_rng(n).integers(0, 250, n).astype(dtype)
    seen = []

    def loss(ids, targets):
        assert ids.shape == targets.shape
        assert 1 <= ids.shape[1] <= max_len
        assert ids.min() >= 0
        counted = targets != -1
        seen.extend(zip(ids[counted].tolist(), targets[counted].tolist(), strict=True))
        return (2.0 * counted.sum(), int(counted.sum())), None

    model = SimpleNamespace(config=SimpleNamespace(max_len=max_len, vocab_size=250), loss=loss)
    assert held_out_loss(model, tokens) == 2
    assert seen == list(zip(tokens[:-1].tolist(), tokens[1:].tolist(), strict=True))


def test_nothing_is_changed():
    model = gpt(5)
    before = {name: (p.value.tobytes(), p.grad.tobytes()) for name, p in model.parameters().items()}
    held_out_loss(model, np.arange(40) % V)
    assert {name: (p.value.tobytes(), p.grad.tobytes()) for name, p in model.parameters().items()} == before


@pytest.mark.parametrize("shape", [(0,), (1,), (), (2, 5)])
def test_fewer_than_two_tokens_have_no_loss(shape):
    with pytest.raises(ValueError, match="held_out_loss: tokens must be at least 2 in one axis") as error:
        held_out_loss(gpt(5), np.zeros(shape, int))
    assert str(shape) in str(error.value)


@pytest.mark.parametrize("tokens", [[1, 2, 3], np.array([1.0, 2.5, 3.0]), np.ones(5, bool)])
def test_tokens_are_integers(tokens):
    with pytest.raises(TypeError, match="held_out_loss: tokens must be an array of integers"):
        held_out_loss(gpt(5), tokens)


@pytest.mark.parametrize("place", [0, 3, 16])
@pytest.mark.parametrize("outside", [V, -1, -2])
def test_tokens_of_another_vocabulary_are_refused(place, outside):
    tokens = np.arange(17) % V
    tokens[place] = outside
    with pytest.raises(ValueError, match=rf"held_out_loss: tokens\[{place}\] is {outside}, outside 0 … {V - 1}"):
        held_out_loss(gpt(5), tokens)
